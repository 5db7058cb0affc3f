"""`replog server` and `replog registry`: a node, or a registry of schemas, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="Run one node.", no_args_is_help=True)
registry = typer.Typer(help="Run a registry of schemas.", no_args_is_help=True)


@app.callback()
@registry.callback()
def _group() -> None:
    """Keeps the command of a group one of its own although it is the only one."""


@app.command("start")
def start(
    config: Annotated[Path, typer.Option("--config", help="TOML file with Kafka's dotted keys.")],
    accept_empty: Annotated[
        bool,
        typer.Option("--accept-empty", help="Format log directories that hold no data, whatever they should hold."),
    ] = False,
) -> None:
    """Run a node until Ctrl-C or SIGTERM, then stop it in order."""
    from replog.broker.__main__ import main

    raise typer.Exit(main(["--config", str(config), *(["--accept-empty"] if accept_empty else [])]))


@registry.command("serve")
def serve(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where requests are taken; port 0: any that is free.")
    ] = "127.0.0.1:8081",
    topic: Annotated[
        str, typer.Option("--topic", help="The topic of the schemas, made where it does not exist.")
    ] = "_replog_schemas",
) -> None:
    """Serve Confluent's REST interface until Ctrl-C or SIGTERM; the schemas are in a topic.

    Several may serve one topic. Who reaches the port may register and delete: it asks for no password.
    """
    from replog.registry import serve as run

    run(
        bootstrap_servers,
        listen=listen,
        topic=topic,
        told=lambda url: typer.echo(f"A registry of schemas serves on {url}"),
    )
