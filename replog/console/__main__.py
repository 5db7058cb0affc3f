"""The console beside a broker: ``python -m replog.console``.  It ends when its standard input does (`replog.broker.companion`).

Exit status: 0 when it was told to end, 2 where it cannot serve.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from replog.cli.commands.cluster import stop_at_signals
from replog.console.serving import serve
from replog.console.settings import ConsoleSettings, listen_endpoint
from replog.errors import ReplogError


def main(argv: list[str] | None = None) -> int:
    """Serves the console until the end of standard input, or a signal; returns the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m replog.console", description="Run the console of one broker.")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--metadata-dir", type=Path)
    parser.add_argument("--allow-changes", action="store_true")
    given = parser.parse_args(argv)
    try:
        listen = listen_endpoint(given.listen)
        settings = ConsoleSettings(given.bootstrap_servers, listen, given.allow_changes, given.metadata_dir)
        asyncio.run(_serve(settings))
    except (ReplogError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


async def _serve(settings: ConsoleSettings) -> None:
    stop = stop_at_signals()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )

    async def until_input_ends() -> None:
        while await reader.read(1 << 10):
            pass
        stop.set()

    watching = asyncio.create_task(until_input_ends(), name="console-input")
    try:
        await serve(settings, stop, lambda address: print(address, flush=True))  # noqa: T201 -- who started it reads it
    finally:
        watching.cancel()
        transport.close()


if __name__ == "__main__":
    sys.exit(main())
