"""One export from beginning to end.

The file that an export makes: it appears under its name when it is complete, and not before.

    write `<name>.<process id>.tmp` | fsync it | rename to `<name>` | fsync the folder

| crash                                            | what is found                                                |
|--------------------------------------------------|--------------------------------------------------------------|
| before the rename                                | no file, or with --force the old one; a `.tmp` to be removed |
| after the rename, before the fsync of the folder | old or new, both complete                                    |
| after the fsync of the folder                    | the new file                                                 |

An error or Ctrl-C removes the `.tmp`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from msgspec import Struct

from replog.cli.errors import CommandFailedError, UsageError
from replog.cli.export.formats import Encoding, Format
from replog.cli.export.sinks import BatchSink, Sink, batch_sink_for, require_pyarrow, sink_for
from replog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from replog.tables.log_source import LogSource, Run
from replog.tables.places import Bound
from replog_checkpoints import OsFileSystem

if TYPE_CHECKING:
    from replog.client.security.security import Security


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


def check_output(path: Path, log_directory: Path | None, *, force: bool) -> None:
    """Refuses an output that cannot be made, before any work is done.

    Raises:
        UsageError: Something is there that must not be replaced, its folder is missing or is the log's own.
    """
    if _is_loop(path):
        raise UsageError("--output", str(path), f"{path} is a loop of symbolic links: name a new file, or - for stdout")
    if path.exists() and not path.is_file():
        raise UsageError("--output", str(path), f"{path} is not a file: name a new file, or - for stdout")
    if path.exists() and not force:
        raise UsageError("--output", str(path), f"{path} exists: name another file, or replace it with --force")
    if not path.parent.is_dir():
        raise UsageError("--output", str(path), f"{path.parent} is not a directory")
    if log_directory is not None and path.resolve().parent == log_directory.resolve():
        raise UsageError("--output", str(path), f"{path.parent} is the log itself: name a file outside of it")


def _is_loop(path: Path) -> bool:
    """Whether `path` leads through symbolic links to itself; resolving it would be a RuntimeError or, later, replace it."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@contextmanager
def replaced_file(path: Path, *, force: bool) -> Generator[BinaryIO]:
    """Opens a file to be written; it takes its name, durably, when the block ends without an error.

    Raises:
        UsageError: Somebody else made the file meanwhile.
        CommandFailedError: The file cannot be written.
    """
    target = path.resolve()
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not force and target.exists():
            raise UsageError("--output", str(path), f"{path} was made by somebody else meanwhile; it was left alone")
        temporary.replace(target)
        OsFileSystem().sync_dir(str(target.parent))
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")


class TopicExport(Struct, frozen=True):
    """What is exported of a topic, and where to.

    Attributes:
        bootstrap_servers: The brokers to ask first.
        topic: The name of the topic.
        output_format: The format, see `Format`.
        output: The file; None: stdout, JSON lines and CSV only.
        encoding: How JSON lines and CSV show bytes.
        start, end: Where partitions begin and end, as `replog.scan` takes it.
        partitions: The partitions; none: all.
        force: Whether an existing file may be replaced.
    """

    bootstrap_servers: str
    topic: str
    output_format: Format
    output: Path | None
    encoding: Encoding
    start: Bound
    end: Bound
    partitions: Sequence[int]
    force: bool
    security: Security | None = None


def export_topic(request: TopicExport, told: Callable[[int, int], None]) -> int:
    """Exports what is committed now; with an error no file is left (stdout has what was written so far).

    Args:
        request: What, and where to.
        told: As `replog.scan` takes it.

    Returns:
        The number of records.

    Raises:
        UsageError: The output cannot be what it should be.
        CommandFailedError: The output cannot be written, pyarrow is missing, or CSV cannot hold a record.
        ReplogError: What `replog.scan` raises.
    """
    require_pyarrow("an export of a topic")
    if request.output is not None:
        check_output(request.output, None, force=request.force)
    elif request.output_format not in {Format.JSONL, Format.CSV}:
        raise UsageError(
            "--output", "-", f"--to {request.output_format.value} needs a file, stdout takes jsonl and csv"
        )
    from replog.tables import scan

    reader = scan(
        request.topic,
        bootstrap_servers=request.bootstrap_servers,
        security=request.security,
        start=request.start,
        end=request.end,
        partitions=request.partitions,
        columns=COLUMNS,
        told=told,
    )
    count = 0
    output = replaced_file(request.output, force=request.force) if request.output else nullcontext(sys.stdout.buffer)
    with (
        output as file,
        closed(batch_sink_for(request.output_format, file, request.encoding, reader.schema)) as sink,
    ):
        for batch in reader:
            sink.add(batch)
            count += batch.num_rows
    return count
