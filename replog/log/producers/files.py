"""The producer snapshots of one log on disk, and the way back from them to the state at the log's end.

    state at the log end = newest snapshot at or below it + every batch behind it
    last five batches of a producer = from the log's tail (a snapshot has only the last one)

Snapshots are written at every roll (synced with the next flush), on close, and never trusted above the log end, nor below the
first segment: what came between is gone.  One at or above the base of the active segment has to be there, since the segments
below, and their snapshots, may be deleted; where a crash has torn it, opening the log writes it again.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from replog.errors import CorruptCheckpointError, CorruptRecordError
from replog.log.config import LogConfig
from replog.log.file_names import SNAPSHOT_SUFFIX, file_path, parse_file_name
from replog.log.producers.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from replog.log.producers.state import BATCHES_KEPT, ProducerStateManager, TransactionMarker
from replog.log.segments.scan import read_batch, scan_headers
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.records import BatchHeader, Buffer, ScannedBatch, decode_batch, parse_header
from replog_checkpoints import File, FileSystem, OpenMode

_SNAPSHOT_BYTES_MAX: Final = 1 << 30
_SPECIAL_BITS: Final = 0x30  # transactional, control
_CONTROL_KEY_BYTES: Final = 4
_ABORT: Final = 0  # docs/KAFKA.md 1.3
_COMMIT: Final = 1


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    """Returns the offsets of the snapshots in a partition folder, rising."""
    parsed = [parse_file_name(name) for name in fs.list_dir(directory)]
    return sorted(found[0] for found in parsed if found is not None and found[1] == SNAPSHOT_SUFFIX)


def write_snapshot(fs: FileSystem, directory: str, end_offset: int, producers: ProducerStateManager) -> File:
    """Writes the state at `end_offset`; returns the open file, to be synced and closed by the caller."""
    file = fs.open(file_path(directory, end_offset, SNAPSHOT_SUFFIX), OpenMode.REPLACE)
    try:
        file.pwrite([encode_snapshot(producers.to_snapshot())], 0)
    except OSError:
        file.close()
        raise
    return file


def remove_snapshots(fs: FileSystem, directory: str, *, above: int) -> bool:
    """Deletes the snapshots above an offset; returns whether there were some (then the directory needs an fsync)."""
    stale = [offset for offset in snapshot_offsets(fs, directory) if offset > above]
    for offset in stale:
        _remove(fs, directory, offset)
    return bool(stale)


def remove_stray_snapshots(fs: FileSystem, directory: str, segments: SegmentList) -> None:
    """Deletes the snapshots but those at segment bases and the newest one."""
    offsets = snapshot_offsets(fs, directory)
    bases = {segment.base_offset for segment in segments}
    for offset in offsets[:-1]:
        if offset not in bases:
            _remove(fs, directory, offset)


def remove_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    """Deletes the snapshot at `offset`, if there is one."""
    if fs.exists(file_path(directory, offset, SNAPSHOT_SUFFIX)):
        _remove(fs, directory, offset)


def rebuild_producers(
    fs: FileSystem,
    directory: str,
    producers: ProducerStateManager,
    segments: SegmentList,
    config: LogConfig,
    now_ms: int,
    *,
    flushed_offset: int,
) -> int | None:
    """Brings `producers` to the state at the end of the log.  Snapshots that cannot be read are deleted.

    Args:
        fs: The disk.
        directory: The partition folder.
        producers: The state that is replaced.
        segments: The segments of the log.
        config: Settings of the log: how much of the tail is looked at for the last five batches.
        now_ms: Wall time.
        flushed_offset: The flushed offset: segments that reach above it have unflushed writes and stay open.

    Returns:
        The offset of the snapshot that it begins with; None: there is none.
    """
    first_offset = segments[0].base_offset
    snapshot_offset, entries, damaged = _newest_snapshot(fs, directory, first_offset, OFFSET_MAX)
    for offset in damaged:  # torn by a crash: an older one and the log say the same
        _remove(fs, directory, offset)
    start_offset = first_offset if snapshot_offset is None else snapshot_offset
    producers.load_snapshot(entries, now_ms)
    for number in range(segments.number_for(start_offset), len(segments)):
        for _ in _replay(producers, segments.touch(number, flushed_offset), start_offset, now_ms):
            pass
    deepen_producers(producers, segments, config.producer_tail_bytes)
    return snapshot_offset


def deepen_producers(producers: ProducerStateManager, segments: SegmentList, tail_bytes: int) -> None:
    """Finds the batches before the last one of each producer, which snapshots leave out, in the tail of the log."""
    if producers.producers:
        producers.deepen(_tail_headers(segments, tail_bytes))


def restore_snapshot(fs: FileSystem, directory: str, segments: Sequence[LogSegment], now_ms: int) -> None:
    """Writes the snapshot at the base of the last segment, durably.

    Raises:
        CorruptRecordError: The log before it is damaged.
    """
    producers, _ = producers_before(fs, directory, segments, len(segments) - 1, now_ms)
    file = write_snapshot(fs, directory, segments[-1].base_offset, producers)
    try:
        file.sync()
    finally:
        file.close()
    fs.sync_dir(directory)


def producers_before(
    fs: FileSystem, directory: str, segments: Sequence[LogSegment], number: int, now_ms: int
) -> tuple[ProducerStateManager, int | None]:
    """Finds the state where segment `number` begins; changes nothing on disk.

    Returns:
        The state, and the offset of the snapshot that it comes from; None: there is none.

    Raises:
        CorruptRecordError: There is no snapshot at that place, and the log before it is damaged.
    """
    producers = ProducerStateManager()
    base_offset = segments[number].base_offset
    first_offset = segments[0].base_offset
    snapshot_offset, entries, _ = _newest_snapshot(fs, directory, first_offset, base_offset)
    start_offset = first_offset if snapshot_offset is None else snapshot_offset
    producers.load_snapshot(entries, now_ms)
    if start_offset < base_offset:
        for segment, following in itertools.pairwise(segments[: number + 1]):
            if following.base_offset > start_offset:
                for _ in _replay(producers, segment, start_offset, now_ms):
                    pass
    return producers, snapshot_offset


def aborted_in_segment(
    fs: FileSystem, directory: str, segments: Sequence[LogSegment], number: int, now_ms: int
) -> TransactionIndex:
    """Returns the transaction index of a segment, made again from the log.

    Raises:
        CorruptRecordError: The log is damaged there, or before it where no snapshot helps.
    """
    segment = segments[number]
    index = TransactionIndex(segment.base_offset)
    producers, _ = producers_before(fs, directory, segments, number, now_ms)
    for transaction in _replay(producers, segment, segment.base_offset, now_ms):
        index.append(transaction)
    return index


def apply_scanned(
    producers: ProducerStateManager,
    batches: Sequence[ScannedBatch],
    buffer: Buffer,
    buffer_start: int,
    now_ms: int,
) -> list[AbortedTransaction]:
    """Notes batches of a scan, in order; returns the transactions that they abort.

    Only the last few of a producer's plain batches count, so the others are passed over.

    Args:
        producers: The state that is changed.
        batches: The batches of the scan that have producer ids; their positions are those in the file.
        buffer: The bytes of the batches.
        buffer_start: Position of the buffer in the file.
        now_ms: Wall time.
    """
    aborted: list[AbortedTransaction] = []
    plain: dict[int, deque[int]] = {}
    for scanned in batches:
        position, producer_id = scanned[0], scanned[6]
        if not scanned[9] & _SPECIAL_BITS:
            positions = plain.get(producer_id)
            if positions is None:
                positions = plain[producer_id] = deque(maxlen=BATCHES_KEPT)
            positions.append(position)
            continue
        for at in (*plain.pop(producer_id, ()), position):
            header = parse_header(buffer, at - buffer_start)
            batch = memoryview(buffer)[header.position : header.end_position]
            transaction = apply_batch(producers, header, batch, header.base_offset, now_ms)
            if transaction is not None:
                aborted.append(transaction)
    for positions in plain.values():
        for at in positions:
            header = parse_header(buffer, at - buffer_start)
            producers.update(header, header.base_offset, now_ms)
    return aborted


def apply_batch(
    producers: ProducerStateManager, header: BatchHeader, batch: Buffer, base_offset: int, now_ms: int
) -> AbortedTransaction | None:
    """Notes one batch with a producer id.

    Args:
        producers: The state that is changed.
        header: Header of the batch.
        batch: Bytes of the batch; needed for control batches only.
        base_offset: Offset of the batch in the log (in the header too, except on the leader's append).
        now_ms: Wall time.

    Returns:
        The transaction that it aborts, for the transaction index of the segment that it is in.
    """
    if not header.is_control:
        producers.update(header, base_offset, now_ms)
        return None
    marker = parse_marker(header, batch, base_offset)
    return None if marker is None else producers.update_marker(marker, now_ms)


def parse_marker(header: BatchHeader, batch: Buffer, offset: int) -> TransactionMarker | None:
    """Reads the marker of a control batch: commit or abort; None for other kinds, which producers do not care about.

    Raises:
        CorruptRecordError, InvalidRecordError: The bytes are no control batch.
    """
    for record in decode_batch(batch):
        key, value = record.key or b"", record.value or b""
        kind = int.from_bytes(key[2:], "big") if len(key) == _CONTROL_KEY_BYTES else None
        if kind in {_ABORT, _COMMIT}:
            if len(value) < 6:
                raise CorruptRecordError("", header.position, f"a transaction marker of {len(value)} bytes")
            coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
            is_commit = kind == _COMMIT
            producer = header.producer_id, header.producer_epoch
            return TransactionMarker(*producer, coordinator_epoch, record.timestamp, offset, is_commit)
    return None


def _replay(
    producers: ProducerStateManager, segment: LogSegment, start_offset: int, now_ms: int
) -> Iterator[AbortedTransaction]:
    """Notes the batches of a segment from the one with `start_offset` on; yields the transactions that they abort."""
    found = segment.find(start_offset) if start_offset > segment.base_offset else None
    position = found.position if found else (0 if start_offset <= segment.base_offset else segment.size_bytes)
    for at, header in scan_headers(segment.file, position, segment.size_bytes):
        if header.has_producer_id:
            batch = read_batch(segment.file, at, header.size_bytes) if header.is_control else b""
            transaction = apply_batch(producers, header, batch, header.base_offset, now_ms)
            if transaction is not None:
                yield transaction


def _newest_snapshot(
    fs: FileSystem, directory: str, offset_min: int, offset_max: int
) -> tuple[int | None, list[ProducerSnapshotEntry], list[int]]:
    """Reads the newest intact snapshot between two offsets.

    Returns:
        Its offset (None: there is none), its entries, and the offsets of the damaged ones above it.
    """
    damaged: list[int] = []
    for offset in reversed(snapshot_offsets(fs, directory)):
        if not offset_min <= offset <= offset_max:
            continue
        path = file_path(directory, offset, SNAPSHOT_SUFFIX)
        try:
            return offset, decode_snapshot(path, _read(fs, path)), damaged
        except CorruptCheckpointError:
            damaged.append(offset)
    return None, [], damaged


def _tail_headers(segments: SegmentList, tail_bytes: int) -> Iterator[BatchHeader]:
    """Yields the headers with a producer id of about the last `tail_bytes` of the log, in order."""
    tail: list[tuple[LogSegment, int]] = []
    for segment in reversed(list(segments)):
        if tail_bytes <= 0:
            break
        tail.append((segment, segment.tail_position(tail_bytes)))
        tail_bytes -= segment.size_bytes
    for segment, position in reversed(tail):
        for _, header in scan_headers(segment.file, position, segment.size_bytes):
            if header.has_producer_id:
                yield header


def _read(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, OpenMode.READ)
    try:
        return file.pread(min(file.size(), _SNAPSHOT_BYTES_MAX), 0)
    finally:
        file.close()


def _remove(fs: FileSystem, directory: str, offset: int) -> None:
    fs.remove(file_path(directory, offset, SNAPSHOT_SUFFIX))
