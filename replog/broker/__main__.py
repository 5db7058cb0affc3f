"""A node as a process: ``python -m replog.broker --config FILE``.

The lean way in, without the command line's libraries; ``replog server start`` and local clusters use it.
Exit status: 0 after an orderly stop (SIGTERM, SIGINT), 1 after a failure, 2 for a configuration or directory that
cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # modules stay: looks at them would find nothing; `tune_broker_process` ends it

from replog.broker.node.late_modules import load_late_modules
from replog.broker.node.node import Node
from replog.broker.node.recovery_log import RecoveryLog
from replog.broker.process import die_with_parent, tune_broker_process
from replog.config.log_output import print_logs, set_format
from replog.config.server import ServerConfig
from replog.errors import ConfigError, ReplogError, StorageError
from replog.log.directories.expected_data import missing_data
from replog_checkpoints import OsFileSystem

_log = logging.getLogger("replog")


def main(argv: list[str] | None = None) -> int:
    """Runs a node until it is told to stop, and returns the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m replog.broker", description="Run one replog node.")
    parser.add_argument("--config", required=True, type=Path, help="TOML file with Kafka's dotted keys")
    parser.add_argument("--parent-pid", type=int, help="end when this process ends")
    parser.add_argument("--accept-empty", action="store_true", help="format log directories that hold no data")
    arguments = parser.parse_args(argv)
    if arguments.parent_pid is not None:
        die_with_parent(arguments.parent_pid)
    print_logs()
    load_late_modules()
    tune_broker_process()
    try:
        config = ServerConfig.from_toml(arguments.config)
        set_format(config.logging_format, config.node_id)
        if not arguments.accept_empty:
            refuse_missing_data(config, arguments.config)
        return asyncio.run(run_node(config))
    except (ReplogError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def refuse_missing_data(config: ServerConfig, file: Path) -> None:
    """Refuses to go on where a log directory should hold data and holds none: nothing is formatted unasked.

    Why, and how it is known: `replog.log.directories.expected_data`.

    Raises:
        ConfigError: A log directory is empty or not there.
    """
    missing = missing_data(OsFileSystem(), config.log_dirs, config.node_id)
    if missing:
        raise ConfigError(
            "log.dirs",
            missing,
            f"{file}: log.dirs: {', '.join(missing)} should hold data of node {config.node_id} and {_is_or_are(missing)} "
            "empty or not there. Is the disk mounted, is the path right? Nothing was changed. A new node is formatted "
            f"first: `replog storage format --config {file}`. To go on without the data that was there: "
            f"`replog server start --config {file} --accept-empty`",
        )


def _is_or_are(things: list[str]) -> str:
    return "is" if len(things) == 1 else "are"


async def run_node(config: ServerConfig) -> int:
    """Starts the node, prints one line when it is ready, and waits for a signal or a failure.

    Returns:
        The exit status of the process: 0 after an orderly stop, 1 after a failure.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = await Node.start(config, on_recovery=RecoveryLog())
    _log.info(
        "node %d of cluster %s listens on %s for clients, on %s for other nodes",
        config.node_id,
        node.cluster_id,
        ", ".join(node.client_addresses),
        node.peer_address,
    )
    closed = asyncio.ensure_future(node.wait_closed())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({closed, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    with contextlib.suppress(StorageError):  # `closed` tells it
        await node.stop()
    (error,) = await asyncio.gather(closed, return_exceptions=True)
    if error is not None:
        sys.stderr.write(f"error: {error}\n")
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main())
