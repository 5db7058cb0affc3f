"""`replog log`: looks into the files of a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="Look into log files.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `dump` a command of its own although it is the only one."""


@app.command("dump")
def dump(
    path: Annotated[
        Path, typer.Argument(help="A segment, index, snapshot or checkpoint file, or a directory of them.")
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Each record too.")] = False,
    as_json: common.AsJson = False,
) -> None:
    """Print what log files hold: batches, index entries, producers, checkpoints, metadata records.

    Only reads.  Exit status 1 when something in the files is damaged.
    """
    from replog.cli.dump import DAMAGE_KINDS, dump_path, row_as_text

    damaged = False
    for row in dump_path(path, deep=deep):
        typer.echo(json.dumps(row, ensure_ascii=False) if as_json else row_as_text(row))
        damaged = damaged or row["kind"] in DAMAGE_KINDS
    if damaged:
        raise typer.Exit(1)
