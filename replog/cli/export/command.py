"""One export from beginning to end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from replog.cli.errors import UsageError
from replog.cli.export.formats import Encoding, Format
from replog.cli.export.output import check_output, replaced_file
from replog.cli.export.sinks import BatchSink, Sink, require_pyarrow, sink_for
from replog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from replog.tables.log_source import LogSource, Run

AnySink = TypeVar("AnySink", bound=Sink | BatchSink)


class ExportRequest(Struct, frozen=True):
    """What is exported, and where to.

    Attributes:
        directory: The partition folder of the log.
        output_format: The format, see `Format`.
        output: The file; None: stdout, JSON lines only.
        encoding: The encoding of JSON lines.
        from_offset: The first offset; None: the log start.
        to_offset: The exclusive end; None: the log end.
        is_committed: Whether aborted transactions are left out, and the end is where the first undecided one begins.
        force: Whether an existing file may be replaced.
    """

    directory: Path
    output_format: Format
    output: Path | None
    encoding: Encoding
    from_offset: int | None
    to_offset: int | None
    is_committed: bool
    force: bool


class Exported(Struct, frozen=True):
    """What was exported.

    Attributes:
        records: The number of records.
        start_offset, end_offset: The range, exclusive end; compaction and aborted transactions leave gaps in it.
        log_end_offset: The end of the log.
        last_stable_offset: The offset below which every transaction has ended.
        high_watermark: The high watermark as checkpointed; None: unknown.
        aborted_transactions: The number of those with records in the range; None: unknown, their index is damaged.
        torn_bytes: The bytes of half a batch behind the end of the log.
    """

    records: int
    start_offset: int
    end_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int | None
    aborted_transactions: int | None
    torn_bytes: int


def export_log(request: ExportRequest, on_records: Callable[[int], None]) -> Exported:
    """Exports one log; with an error no file is left (stdout has what was written so far).

    Args:
        request: The log, the range and the output.
        on_records: The function that is told now and then how many records were written.

    Raises:
        UsageError: The output cannot be what it should be.
        OffsetOutOfRangeError: The log has no such offsets.
        CorruptRecordError, CorruptIndexError: The log is damaged; the message says where.
        CommandFailedError: The output cannot be written, or pyarrow is missing.
        StorageError: The log cannot be read.
    """
    if request.output_format is not Format.JSONL:
        require_pyarrow(f"--to {request.output_format.value}")
    if request.output is not None:
        check_output(request.output, request.directory, force=request.force)
    elif request.output_format is not Format.JSONL:
        raise UsageError("--output", "-", f"--to {request.output_format.value} needs a file, stdout takes jsonl only")
    with closing(LogSource(request.directory, request.is_committed)) as source:
        start_offset, end_offset = source.range_of(request.from_offset, request.to_offset)
        output = (
            replaced_file(request.output, force=request.force) if request.output else nullcontext(sys.stdout.buffer)
        )
        with output as file, closed(sink_for(request.output_format, file, request.encoding)) as sink:
            records = 0
            for count in _written(source, sink, start_offset, end_offset):
                records += count
                on_records(records)
        return Exported(
            records,
            start_offset,
            end_offset,
            source.log.log_end_offset,
            source.last_stable_offset,
            source.high_watermark,
            source.count_aborted(start_offset, end_offset),
            source.torn_bytes,
        )


def _written(source: LogSource, sink: Sink, start_offset: int, end_offset: int) -> Iterator[int]:
    for run in source.runs(start_offset, end_offset):
        try:
            yield sink.write(run)
        except UnsupportedCompressionError:
            raise
        except (CorruptRecordError, InvalidRecordError):
            yield from _written_one_by_one(source, sink, run)


def _written_one_by_one(source: LogSource, sink: Sink, run: Run) -> Iterator[int]:
    """Writes a run batch by batch: what is good in front of damage, or all of what is too much to be decoded at once.

    Raises:
        CorruptRecordError: A batch is damaged.
        InvalidRecordError: A batch cannot be decoded.
    """
    for batch in source.batches_of(run):
        try:
            yield sink.write(batch)
        except (CorruptRecordError, InvalidRecordError) as error:
            raise source.located(batch, error) from error


@contextmanager
def closed(sink: AnySink) -> Generator[AnySink]:
    """Closes a sink at the end of a block, and abandons it where the block raises."""
    try:
        yield sink
        sink.close()
    except BaseException:
        sink.abandon()
        raise
