"""`replog log export`: one log as a file for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.commands.files import check_choice
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.cli.export import Exported

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
