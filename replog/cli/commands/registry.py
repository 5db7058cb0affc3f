"""`replog registry`: a registry of schemas in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from replog.cli import client_config, common

app = typer.Typer(help="Run a registry of schemas.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `serve` a command of a group."""


@app.command("serve")
def serve(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where requests are taken; port 0: any that is free.")
    ] = "127.0.0.1:8081",
    topic: Annotated[
        str, typer.Option("--topic", help="The topic of the schemas, made where it does not exist.")
    ] = "_replog_schemas",
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Let --listen be an address that other machines reach.")
    ] = False,
) -> None:
    """Serve Confluent's REST interface until Ctrl-C or SIGTERM; the schemas are in a topic.

    Several may serve one topic. Who reaches the port may register and delete: it asks for no password.
    """
    from replog.registry import serve as run

    common.run(common.require_listener(bootstrap_servers))
    run(
        bootstrap_servers,
        listen=listen,
        topic=topic,
        allow_insecure=allow_insecure,
        security=client_config.security(),
        told=lambda url: typer.echo(f"A registry of schemas serves on {url}"),
    )
