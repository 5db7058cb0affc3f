"""The producer snapshots of one log on disk, and the way back from them to the state at the log's end.

    state at the log end = newest snapshot at or below it + every batch behind it
    last five batches of a producer = from the log's tail (a snapshot has only the last one)

Snapshots are written at every roll (synced with the next flush), on close, and never trusted above the log end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replog.errors import CorruptCheckpointError, CorruptRecordError
from replog.log.config import LogConfig
from replog.log.file_names import SNAPSHOT_SUFFIX, file_path, parse_file_name
from replog.log.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from replog.log.producer_state import ProducerStateManager, TransactionMarker
from replog.log.segment import LogSegment
from replog.log.segment_list import SegmentList
from replog.log.segment_scan import read_batch, scan_headers
from replog.records import BatchHeader, Buffer, decode_batch
from replog_checkpoints import File, FileSystem, OpenMode

_SNAPSHOT_BYTES_MAX: Final = 1 << 30
_MARKER_TYPES: Final = (0, 1)  # abort, commit (kafka-reference 1.3)


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    """End offsets of the snapshots in a directory, rising."""
    parsed = [parse_file_name(name) for name in fs.list_dir(directory)]
    return sorted(found[0] for found in parsed if found is not None and found[1] == SNAPSHOT_SUFFIX)


def write_snapshot(fs: FileSystem, directory: str, end_offset: int, producers: ProducerStateManager) -> File:
    """Writes the state at `end_offset`; returns the open file, to be synced and closed by the caller."""
    file = fs.open(file_path(directory, end_offset, SNAPSHOT_SUFFIX), OpenMode.REPLACE)
    file.pwrite([encode_snapshot(producers.to_snapshot())], 0)
    return file


def remove_snapshots(fs: FileSystem, directory: str, *, above: int) -> bool:
    """Deletes the snapshots above an offset; True when there were some (then the directory needs an fsync)."""
    stale = [offset for offset in snapshot_offsets(fs, directory) if offset > above]
    for offset in stale:
        _remove(fs, directory, offset)
    return bool(stale)


def remove_stray_snapshots(fs: FileSystem, directory: str, segments: SegmentList) -> None:
    """Keeps the snapshots at segment bases and the newest one."""
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
) -> None:
    """Brings `producers` to the state at the end of the log.  Snapshots that cannot be read are deleted.

    Args:
        fs: the disk.
        directory: of the log.
        producers: replaced.
        segments: of the log.
        config: says how much of the tail is looked at for the last five batches.
        now_ms: wall time.
        flushed_offset: segments that reach above it have unflushed writes and stay open.
    """
    start_offset, entries = _newest_snapshot(fs, directory)
    producers.load_snapshot(entries, now_ms)
    for number in range(segments.number_for(start_offset), len(segments)):
        segment = segments.touch(number, flushed_offset)
        found = segment.find(start_offset) if start_offset > segment.base_offset else None
        position = found.position if found else (0 if start_offset <= segment.base_offset else segment.size_bytes)
        for at, header in scan_headers(segment.file, position, segment.size_bytes):
            if header.has_producer_id:
                batch = read_batch(segment.file, at, header.size_bytes) if header.is_control else b""
                apply_batch(producers, header, batch, header.base_offset, now_ms)
    if producers.producers:
        producers.deepen(_tail_headers(segments, config.producer_tail_bytes))


def apply_batch(
    producers: ProducerStateManager, header: BatchHeader, batch: Buffer, base_offset: int, now_ms: int
) -> None:
    """Notes one batch with a producer id.

    Args:
        producers: changed.
        header: of the batch.
        batch: its bytes; needed for control batches only.
        base_offset: where it is in the log (in the header too, except on the leader's append).
        now_ms: wall time.
    """
    if not header.is_control:
        producers.update(header, base_offset, now_ms)
        return
    marker = _parse_marker(header, batch)
    if marker is not None:
        producers.update_marker(marker, now_ms)


def _parse_marker(header: BatchHeader, batch: Buffer) -> TransactionMarker | None:
    """Commit and abort markers; None for control records of other kinds, which producers do not care about."""
    for record in decode_batch(batch):
        key, value = record.key or b"", record.value or b""
        if len(key) == 4 and int.from_bytes(key[2:], "big") in _MARKER_TYPES:
            if len(value) < 6:
                raise CorruptRecordError("", header.position, f"a transaction marker of {len(value)} bytes")
            coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
            return TransactionMarker(header.producer_id, header.producer_epoch, coordinator_epoch, record.timestamp)
    return None


def _newest_snapshot(fs: FileSystem, directory: str) -> tuple[int, list[ProducerSnapshotEntry]]:
    for offset in reversed(snapshot_offsets(fs, directory)):
        path = file_path(directory, offset, SNAPSHOT_SUFFIX)
        try:
            return offset, decode_snapshot(path, _read(fs, path))
        except CorruptCheckpointError:
            _remove(fs, directory, offset)  # torn by a crash: an older one and the log say the same
    return 0, []


def _tail_headers(segments: SegmentList, tail_bytes: int) -> Iterator[BatchHeader]:
    """Headers of about the last `tail_bytes` of the log, in order."""
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
