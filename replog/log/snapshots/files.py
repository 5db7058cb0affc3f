"""Snapshots of the metadata log: the state at one offset, as one file beside the segments (KIP-630, KAFKA.md 1.12).

`00000000000000001234-0000000007.checkpoint` stands for everything below offset 1234; the last record below it is of epoch 7.
The file is a row of record batches with offsets of its own, from 0, all of the snapshot's epoch::

    control batch   snapshot header [, kraft version, voters]
    data batches    one record per fact, in the order in which they are replayed
    control batch   snapshot footer

The footer is the proof that the file is whole.

| crash                                              | what the next start finds                              |
|----------------------------------------------------|--------------------------------------------------------|
| while it is written, or before the rename          | a `.part` that is never read; removed                  |
| after the rename, before the fsync of the folder   | the snapshot, or a `.part`                             |
| after the fsync of the folder                      | the snapshot                                           |
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from replog.errors import CorruptRecordError, InvalidRecordError, ReplogError
from replog.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    ControlRecordType,
    QuorumVoter,
    Record,
    control_record_type,
    decode_batch,
    decode_snapshot_header,
    decode_voters,
    encode_batch,
    encode_snapshot_footer,
    encode_snapshot_header,
    parse_header,
)
from replog_checkpoints import File, FileSystem, OpenMode

SNAPSHOT_FILE_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
DELETED_SNAPSHOT_SUFFIX: Final = ".checkpoint.deleted"
BATCH_BYTES_MAX: Final = 8 << 20
"""Size of a batch that is read, at most; those written here are about a megabyte."""

_BATCH_VALUES_BYTES: Final = 1 << 20
_BATCH_RECORDS_MAX: Final = 10_000
_NAME: Final = re.compile(r"(\d{20})-(\d{10})")


class SnapshotId(NamedTuple):
    """Which snapshot: everything below `end_offset`, whose last record is of `epoch`.  Later ones compare higher."""

    end_offset: int
    epoch: int

    @property
    def stem(self) -> str:
        """The file's name without a suffix."""
        return f"{self.end_offset:020d}-{self.epoch:010d}"


def parse_snapshot_name(name: str, suffix: str = SNAPSHOT_FILE_SUFFIX) -> SnapshotId | None:
    """Reads the id in a name such as `00000000000000001234-0000000007.checkpoint`; None for anything else."""
    match = _NAME.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def snapshot_path(directory: str, snapshot_id: SnapshotId, suffix: str = SNAPSHOT_FILE_SUFFIX) -> str:
    """Returns the path of a snapshot."""
    return f"{directory}/{snapshot_id.stem}{suffix}"


class SnapshotContext(Struct, frozen=True):
    """The facts that a snapshot has about itself.

    Attributes:
        last_contained_timestamp_ms: Timestamp of the last record it stands for; by it old snapshots are deleted.
        voters: The voters in force at its end; empty where they are configured statically.
    """

    last_contained_timestamp_ms: int
    voters: tuple[QuorumVoter, ...]


class SnapshotBatch(Struct, frozen=True):
    """One batch of a snapshot."""

    is_control: bool
    records: list[Record]


def write_part(
    fs: FileSystem,
    path: str,
    snapshot_id: SnapshotId,
    context: SnapshotContext,
    values: Iterable[bytes],
    *,
    timestamp_ms: int,
) -> None:
    """Writes a snapshot to `path`, fsynced; the caller renames it.

    Args:
        fs: The disk.
        path: Path of the `.part`, which is replaced if it is there.
        snapshot_id: Id of the snapshot; every batch carries its epoch.
        context: The content of the header.
        values: Values of the records, in order; taken one batch at a time.
        timestamp_ms: Wall time.

    Raises:
        OSError: The disk failed or is full.
    """
    file = fs.open(path, OpenMode.REPLACE)
    try:
        position = 0
        for batch in _batches(snapshot_id.epoch, context, values, timestamp_ms):
            position += file.pwrite([batch], position)
        file.sync()
    finally:
        file.close()


def read_snapshot(fs: FileSystem, path: str) -> Generator[SnapshotBatch, None, None]:
    """Yields the batches of a snapshot, decoded, control batches too; the last one is the footer.

    Raises:
        CorruptRecordError: The file is damaged, cut short, or not a snapshot; names the byte.  Only while iterated.
        OSError: The disk failed, or there is no such file.  Only while iterated.
    """
    file = fs.open(path, OpenMode.READ)
    try:
        yield from _checked(path, file)
    finally:
        file.close()


def read_context(fs: FileSystem, path: str) -> SnapshotContext:
    """Reads the context in the header.

    Raises:
        CorruptRecordError: See `read_snapshot`.
        OSError: The disk failed, or there is no such file.
    """
    batches = read_snapshot(fs, path)
    try:
        return context_of(path, next(batches).records)
    finally:
        batches.close()


def read_values(fs: FileSystem, path: str) -> Iterator[tuple[int, bytes]]:
    """Yields (offset within the file, value) of each data record, in order.

    Raises:
        CorruptRecordError, OSError: See `read_snapshot`.
    """
    for batch in read_snapshot(fs, path):
        if not batch.is_control:
            for record in batch.records:
                yield record.offset, record.value or b""


def verify_snapshot(fs: FileSystem, path: str) -> None:
    """Reads all of a snapshot, to check it.

    Raises:
        CorruptRecordError, OSError: See `read_snapshot`.
    """
    for _ in read_snapshot(fs, path):
        pass


def context_of(path: str, header_records: Sequence[Record]) -> SnapshotContext:
    """Returns the context in the records of a header batch.

    Raises:
        CorruptRecordError: The batch is no header.
    """
    try:
        timestamp_ms = decode_snapshot_header(header_records[0])
        voters: tuple[QuorumVoter, ...] = ()
        for record in header_records:
            if control_record_type(record) is ControlRecordType.KRAFT_VOTERS:
                voters = decode_voters(record)
    except InvalidRecordError as error:
        raise CorruptRecordError(path, 0, str(error)) from error
    return SnapshotContext(timestamp_ms, voters)


def _batches(epoch: int, context: SnapshotContext, values: Iterable[bytes], timestamp_ms: int) -> Iterator[bytes]:
    header = encode_snapshot_header(
        context.voters,
        last_contained_timestamp_ms=context.last_contained_timestamp_ms,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
    )
    yield header
    offset = parse_header(header).next_offset
    for chunk in _chunks(values):
        rows = [(timestamp_ms, None, value, ()) for value in chunk]
        yield encode_batch(rows, base_offset=offset, partition_leader_epoch=epoch)
        offset += len(chunk)
    yield encode_snapshot_footer(base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)


def _chunks(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for value in values:
        if chunk and (size + len(value) > _BATCH_VALUES_BYTES or len(chunk) >= _BATCH_RECORDS_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(value)
        size += len(value)
    if chunk:
        yield chunk


def _checked(path: str, file: File) -> Iterator[SnapshotBatch]:
    position, next_offset, end = 0, 0, file.size()
    epoch: int | None = None
    is_complete = False
    while position < end:
        if is_complete:
            raise CorruptRecordError(path, position, "bytes behind the snapshot's footer")
        header, records = _read_batch(path, file, position, end)
        epoch = header.partition_leader_epoch if epoch is None else epoch
        if header.base_offset != next_offset or header.partition_leader_epoch != epoch:
            raise CorruptRecordError(path, position, f"batch at offset {header.base_offset}, expected {next_offset}")
        kind = control_record_type(records[0]) if header.is_control else None
        if (position == 0) is not (kind is ControlRecordType.SNAPSHOT_HEADER):
            raise CorruptRecordError(path, position, "no snapshot: its header is not where it must be")
        is_complete = kind is ControlRecordType.SNAPSHOT_FOOTER
        yield SnapshotBatch(header.is_control, records)
        position, next_offset = position + header.size_bytes, header.next_offset
    if not is_complete:
        raise CorruptRecordError(path, end, "the snapshot has no footer: it is not complete")


def _read_batch(path: str, file: File, position: int, end: int) -> tuple[BatchHeader, list[Record]]:
    """Reads one batch and compares its checksum."""
    size = LOG_OVERHEAD_BYTES + int.from_bytes(file.pread(LOG_OVERHEAD_BYTES, position)[8:], "big", signed=True)
    if not HEADER_BYTES <= size <= min(BATCH_BYTES_MAX, end - position):
        raise CorruptRecordError(path, position, f"a batch of {size} bytes where {end - position} are left")
    batch = file.pread(size, position)
    try:
        header, records = parse_header(batch), decode_batch(batch)
    except ReplogError as error:
        raise CorruptRecordError(path, position, str(error)) from error
    if not records:
        raise CorruptRecordError(path, position, "an empty batch")
    return header, records
