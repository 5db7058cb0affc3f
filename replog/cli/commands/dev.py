"""`replog dev`: one broker to try things with, in this process, until Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replog.cli import common
from replog.cli.commands.cluster import first_port, node_settings, stop_at_signals
from replog.cli.errors import CommandFailedError, UsageError

if TYPE_CHECKING:
    from replog.cluster.embedded import EmbeddedCluster

TOPIC = "rides"
"""Of what is shown to be pasted."""


def dev(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="0: any. Default: 9092, where commands and clients look, or any when it is taken.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep the data there, and go on with what is there. Default: a temporary folder.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key of the broker.")
    ] = None,
) -> None:
    """Run one broker until Ctrl-C or SIGTERM, and say how to use it; without --keep its data are removed then.

    Topics make themselves where Kafka's clients ask for them.
    """
    if keep is not None and keep.exists() and not keep.is_dir():
        raise UsageError("--keep", keep, f"--keep {keep} is no folder: name another")
    config = {"auto.create.topics.enable": True, **node_settings(settings or [])}
    common.run(_dev(config, first_port(port), keep), grace_s=None)


async def _dev(config: dict[str, Any], port: int, keep: Path | None) -> None:
    from replog.broker.process import tune_broker_process
    from replog.cluster.embedded import embedded

    tune_broker_process()
    stop = stop_at_signals()
    own: dict[str, Any] = {"listeners": [f"127.0.0.1:{port}"], "inter.broker.listener": "127.0.0.1:0"}
    async with embedded(keep, config={**own, **config}) as broker:
        for line in welcome(broker.bootstrap_servers, keep):
            typer.echo(line)
        await _until_stopped(broker, stop)


async def _until_stopped(broker: EmbeddedCluster, stop: asyncio.Event) -> None:
    """Waits for the signal, or for the broker's own end.

    Raises:
        CommandFailedError: The broker has ended by itself.
    """
    closed = asyncio.ensure_future(broker.nodes[0].wait_closed())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({closed, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            error = closed.exception()
            raise CommandFailedError(f"the broker has ended: {error or 'it does not say why'}") from error
    finally:
        closed.cancel()
        stopping.cancel()


def welcome(servers: str, keep: Path | None) -> list[str]:
    """Returns what is shown once the broker serves: where it is, and three lines to paste."""
    data = "its data are removed at the end" if keep is None else f"its data stay in {keep}"
    return [
        f"A broker serves on {servers}; {data}. Ctrl-C ends it. Kafka's clients: bootstrap.servers={servers}",
        common.export_line(servers),
        f"replog topics create {TOPIC} && echo hello | replog produce {TOPIC} && replog consume {TOPIC}",
        f'python -c \'from replog.client import SyncProducer as P; print(P("{servers}").send("{TOPIC}", b"hello").result())\'',
    ]
