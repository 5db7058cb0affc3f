"""`replog log`: looks into the files of a log, checks them, mends them, exports what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.commands.log_export import export

if TYPE_CHECKING:
    from replog.cli.dump.rows import Row

app = typer.Typer(help="Look into log files, check, mend and export them.", no_args_is_help=True)
app.command("export")(export)

LogPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A partition's folder, or a log directory with many of them.")
]


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
    from replog.cli.dump import DAMAGE_KINDS, dump_path

    damaged = False
    for row in dump_path(path, deep=deep):
        _show(row, as_json=as_json)
        damaged = damaged or row["kind"] in DAMAGE_KINDS
    if damaged:
        raise typer.Exit(1)


@app.command("verify")
def verify(
    path: LogPath,
    deep: Annotated[bool, typer.Option("--deep", hidden=True)] = False,  # noqa: ARG001 - accepted; it is always so
    as_json: common.AsJson = False,
) -> None:
    """Check every byte of a log against its checksums, decode every record, compare every index with the log.

    Only reads; a broker may be running, then the last batch may look torn.  Names the first bad offset and byte.
    Exit status 1 when anything does not fit.
    """
    from replog.cli.checks.logs import log_directories, verify_rows

    sound = True
    for row in _rows_of_each("verifying", log_directories(path), verify_rows):
        _show(row, as_json=as_json)
        sound = sound and row["kind"] != "finding"
    if not sound:
        raise typer.Exit(1)


@app.command("repair")
def repair(
    path: LogPath,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Give up flushed records from the first damaged one on.")
    ] = False,
    forget_flushed_offset: Annotated[
        bool,
        typer.Option(
            "--forget-flushed-offset",
            help="Remove flushed-offset: Apache Kafka or an older replog has cut the log since it was written.",
        ),
    ] = False,
    as_json: common.AsJson = False,
) -> None:
    """Make wrong indexes, snapshots and epoch files again, and cut a torn tail.

    Nothing that was flushed is cut without --accept-loss.  No broker may have the directory open.
    Exit status 1 when something is left that cannot be mended.
    """
    from replog.cli.checks.logs import log_directories, repair_rows

    mended = True
    mend = partial(repair_rows, accept_loss=accept_loss, forget_flushed_offset=forget_flushed_offset)
    for row in _rows_of_each("repairing", log_directories(path), mend):
        _show(row, as_json=as_json)
        mended = mended and row["kind"] != "left"
    if not mended:
        raise typer.Exit(1)


def _rows_of_each(what: str, directories: Sequence[Path], rows_of: Callable[[Path], Iterable[Row]]) -> Iterator[Row]:
    """Yields the rows of one log after the other; on a terminal it says which log is waited for, and how many are done."""
    for number, directory in enumerate(directories):
        rows = iter(rows_of(directory))
        while True:
            with common.waiting(
                f"{what} {directory.name}, {number:,} of {common.counted(len(directories), 'log')} done"
            ):
                row = next(rows, None)
            if row is None:
                break
            yield row


@app.command("fork")
def fork(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A log of open_log that nobody has open.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="The folder to make, on the same disk.")],
) -> None:
    """Make a second log with the same records, which goes on by itself: its segments are hard links, no record is copied."""
    from replog.local import fork_log

    end_offset = fork_log(folder, copy)
    typer.echo(f"{copy} has all records of {folder}, up to offset {end_offset}")


def _show(row: Row, *, as_json: bool) -> None:
    from replog.cli.dump import row_as_text

    typer.echo(json.dumps(row, ensure_ascii=False) if as_json else row_as_text(row))
