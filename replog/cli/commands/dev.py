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
    from replog.broker.companion import Companion
    from replog.cluster.embedded import EmbeddedCluster

TOPIC = "rides"
"""Of what is shown to be pasted."""

CONSOLE_S = 20.0
"""How long the console may take to serve, before the broker is shown without it."""


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
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Serve a page that shows the broker, too; --set console.listener=HOST:PORT says where."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key of the broker.")
    ] = None,
) -> None:
    """Run one broker until Ctrl-C or SIGTERM, and say how to use it; without --keep its data are removed then.

    Topics make themselves where Kafka's clients ask for them.
    """
    if keep is not None and keep.exists() and not keep.is_dir():
        raise UsageError("--keep", keep, f"--keep {keep} is no folder: name another")
    page = {"console.listener": "127.0.0.1:0"} if console else {}
    config = {"auto.create.topics.enable": True, **page, **node_settings(settings or [])}
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
        if (page := broker.nodes[0].console) is not None:
            typer.echo(await console_line(page, stop))
        await _until_stopped(broker, stop)


async def console_line(page: Companion, stop: asyncio.Event) -> str:
    """Returns where the console is, or that it has not said it in time: its process writes the reason to the log."""
    said = asyncio.ensure_future(page.first_line())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({said, stopping}, timeout=CONSOLE_S, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if said.cancel():
        return "The console does not serve yet."
    return f"The console: {said.result()}"


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
