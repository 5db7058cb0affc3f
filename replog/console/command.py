"""`replog console`: a page that shows a cluster, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import client_config, common
from replog.cli.commands.cluster import stop_at_signals
from replog.console.settings import DEFAULT_LISTEN, ConsoleSettings, listen_endpoint
from replog.errors import ConfigError
from replog.host.extras import install_command


def console(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="The address for browsers, on loopback; port 0: any.")
    ] = DEFAULT_LISTEN,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the page reset groups and send dead letters back.")
    ] = False,
    metadata_dir: Annotated[
        Path | None,
        typer.Option(
            "--metadata-dir",
            metavar="DIR",
            help="A node's folder with the metadata log on this machine, for the timeline of partitions.",
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this desktop.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Serve a page that shows the cluster, until Ctrl-C or SIGTERM.  It only shows, unless --allow-changes is given."""
    from replog.client.cluster.addresses import parse_bootstrap_servers

    parse_bootstrap_servers(bootstrap_servers)
    settings = ConsoleSettings(
        bootstrap_servers, listen_endpoint(listen), allow_changes, metadata_dir, client_config.security()
    )
    require_http()
    common.run(_console(settings, open_browser=open_browser), grace_s=None)


def require_http() -> None:
    """Refuses to go on without the library that serves HTTP.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import aiohttp  # noqa: F401 -- whether it is there is the question
    except ModuleNotFoundError as error:
        raise ConfigError(
            "console", "", f"the console needs the library aiohttp: {install_command('console')}"
        ) from error


async def _console(settings: ConsoleSettings, *, open_browser: bool) -> None:
    from replog.console.serving import serve

    def say(address: str) -> None:
        changes = "may change groups and dead letters" if settings.allow_changes else "only shows"
        typer.echo(f"The console of {settings.bootstrap_servers} is at {address} and {changes}. Ctrl-C ends it.")
        if open_browser:
            typer.launch(address)

    await serve(settings, stop_at_signals(), say)
