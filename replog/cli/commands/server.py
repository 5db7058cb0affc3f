"""`replog server`: one node in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Run one node.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `start` a command of its own although it is the only one."""


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
