"""`replog log`: looks into the files of a log, checks them, mends them, exports what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.commands.files import check_choice
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.cli.dump.rows import Row
    from replog.cli.export import Exported


app = typer.Typer(help="Look into log files, check, mend and export them.", no_args_is_help=True)


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


_CHOICES = {
    "--to": ("arrow", "parquet", "jsonl"),
    "--encoding": ("utf-8", "base64"),
    "--isolation": ("read_uncommitted", "read_committed"),
}


def export(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A partition's folder, ours or Kafka's, in use or not.")],
    to: Annotated[str, typer.Option("--to", metavar="arrow|parquet|jsonl", help="Format.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is stdout, for jsonl.")],
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", metavar="OFFSET", min=0, help="Default: the log start.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="Exclusive. Default: the log end.")
    ] = None,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            metavar="|".join(_CHOICES["--isolation"]),
            help="read_committed leaves out aborted transactions and ends where an undecided one begins.",
        ),
    ] = "read_uncommitted",
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding",
            metavar="utf-8|base64",
            help='jsonl: text where bytes are UTF-8, else {"base64": ...}; or base64 text throughout.',
        ),
    ] = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the records of one log as an Arrow, Parquet or JSON lines file.

    Only reads the log. The file appears under its name when it is complete. Control batches are never exported.
    """
    from replog.cli.checks.logs import log_directories
    from replog.cli.export import ExportRequest, export_log
    from replog.cli.export.formats import Encoding, Format

    for option, value in (("--to", to), ("--encoding", encoding), ("--isolation", isolation)):
        check_choice(option, value, _CHOICES[option])
    if encoding != "utf-8" and to != "jsonl":
        raise UsageError("--encoding", encoding, f"--encoding is for --to jsonl: {to} has bytes as they are")
    if from_offset is not None and to_offset is not None and to_offset < from_offset:
        raise UsageError("--to-offset", to_offset, f"--to-offset {to_offset} is below --from-offset {from_offset}")
    directories = log_directories(path)
    if len(directories) > 1:
        reason = f"{path} holds {len(directories)} logs: name one of them, such as {directories[0]}"
        raise UsageError("PATH", str(path), reason)
    request = ExportRequest(
        directory=directories[0],
        output_format=Format(to),
        output=None if output == "-" else Path(output),
        encoding=Encoding(encoding),
        from_offset=from_offset,
        to_offset=to_offset,
        is_committed=isolation == "read_committed",
        force=force,
    )
    with common.waiting(f"exporting {directories[0]}") as show:
        done = export_log(request, lambda count: show(f"exported {common.counted(count, 'record')}"))
    typer.echo(_summary(done, directories[0], output, isolation), err=True)


def _summary(done: Exported, directory: Path, output: str, isolation: str) -> str:
    """Says in one line what was exported, and whatever could surprise about it."""
    text = (
        f"exported {common.counted(done.records, 'record')} of {directory}, offsets {done.start_offset} to "
        f"{done.end_offset} (exclusive), {isolation}, to {'stdout' if output == '-' else output}"
    )
    is_committed = isolation == "read_committed"
    if done.aborted_transactions:
        text += f"; aborted transactions {'left out' if is_committed else 'included'}: {done.aborted_transactions:,}"
    if is_committed and done.end_offset == done.last_stable_offset < done.log_end_offset:
        text += f"; ends before an undecided transaction, the log has offsets up to {done.log_end_offset}"
    elif done.end_offset > done.last_stable_offset:
        text += f"; a transaction from offset {done.last_stable_offset} on is undecided"
    if done.high_watermark is not None and done.high_watermark < done.end_offset:
        text += f"; offsets from {done.high_watermark}, the checkpointed high watermark, on may not be acknowledged yet"
    if done.torn_bytes and done.end_offset == done.log_end_offset:
        text += f"; {common.counted(done.torn_bytes, 'byte')} of half a batch behind it left out"
    return text


app.command("export")(export)
