"""Verification of a segment's two indexes against its batches, in one pass beside the scan of the log.

Entries and batches are both in the order of the file, so each entry is compared with the batch it names when the scan
comes by; nothing is kept but the place in each index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replog.log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_path
from replog.log.segments.index_entries import MemoryEntries
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from replog.log.segments.time_index import NO_TIMESTAMP, TIME_ENTRY_BYTES, TimeIndex
from replog_checkpoints import FileSystem, OpenMode


class IndexProblem(NamedTuple):
    """An index entry that does not fit; `position` is its byte in the index file, None for the whole file."""

    path: str
    position: int | None
    reason: str


class IndexVerifier:
    """Verifies `.index` and `.timeindex` of one segment; fed with its batches in order.

    Trailing zeros are no entries: Kafka preallocates the indexes of its active segment.

    Args:
        fs: The disk.
        directory: The partition folder.
        base_offset: The base offset of the segment.
        is_sealed: Whether a later segment exists: then the indexes must be there, and the time index complete.
    """

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, *, is_sealed: bool) -> None:
        self._is_sealed = is_sealed
        self._is_stopped = False
        self._problems: list[IndexProblem] = []
        self._offset_path = file_path(directory, base_offset, INDEX_SUFFIX)
        self._time_path = file_path(directory, base_offset, TIME_INDEX_SUFFIX)
        offset_data = self._read(fs, self._offset_path, OFFSET_ENTRY_BYTES)
        time_data = self._read(fs, self._time_path, TIME_ENTRY_BYTES)
        self._has_time_index = time_data is not None
        self._offsets = OffsetIndex(base_offset, MemoryEntries(OFFSET_ENTRY_BYTES, offset_data or b""))
        self._times = TimeIndex(base_offset, MemoryEntries(TIME_ENTRY_BYTES, time_data or b""))
        self._next_offset_entry = 0
        self._next_time_entry = 0
        self._max_timestamp = NO_TIMESTAMP

    def note_batch(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Compares the entries with the next batch: where it starts, its last offset, its largest timestamp (ms)."""
        self._compare_offset_entries(position, last_offset)
        self._compare_time_entries(last_offset, max_timestamp)
        self._max_timestamp = max(self._max_timestamp, max_timestamp)

    def stop(self) -> None:
        """Notes that the scan ended at damage: entries for batches behind it cannot be judged."""
        self._is_stopped = True

    def finish(self) -> Iterator[IndexProblem]:
        """Yields the findings, after the last batch."""
        yield from self._problems
        if self._is_stopped:
            return
        if self._next_offset_entry < self._offsets.count:
            entry = self._offsets.entry(self._next_offset_entry)
            yield self._offset_problem(f"no batch starts at byte {entry.position}, the log ends before it")
        if self._next_time_entry < self._times.count:
            entry_time = self._times.entry(self._next_time_entry)
            yield self._time_problem(f"no batch ends with offset {entry_time.offset}, the log ends before it")
        elif self._is_sealed and self._has_time_index and self._times.last().timestamp < self._max_timestamp:
            reason = (
                f"ends with timestamp {self._times.last().timestamp}, the segment's largest is {self._max_timestamp}"
            )
            yield IndexProblem(self._time_path, None, reason)

    def _compare_offset_entries(self, position: int, last_offset: int) -> None:
        while self._next_offset_entry < self._offsets.count:
            entry = self._offsets.entry(self._next_offset_entry)
            if entry.position > position:
                return
            if entry.position < position:
                self._problems.append(self._offset_problem(f"no batch starts at byte {entry.position}"))
            elif entry.offset != last_offset:
                reason = f"the batch at byte {position} ends with offset {last_offset}, not {entry.offset}"
                self._problems.append(self._offset_problem(reason))
            self._next_offset_entry += 1

    def _compare_time_entries(self, last_offset: int, max_timestamp: int) -> None:
        while self._next_time_entry < self._times.count:
            entry = self._times.entry(self._next_time_entry)
            if entry.offset > last_offset:
                return
            if entry.offset < last_offset:
                self._problems.append(self._time_problem(f"no batch ends with offset {entry.offset}"))
            elif entry.timestamp != max(max_timestamp, self._max_timestamp):
                reason = (
                    f"the largest timestamp up to offset {last_offset} is {max(max_timestamp, self._max_timestamp)}, "
                    f"not {entry.timestamp}"
                )
                self._problems.append(self._time_problem(reason))
            self._next_time_entry += 1

    def _offset_problem(self, reason: str) -> IndexProblem:
        return IndexProblem(self._offset_path, self._next_offset_entry * OFFSET_ENTRY_BYTES, reason)

    def _time_problem(self, reason: str) -> IndexProblem:
        return IndexProblem(self._time_path, self._next_time_entry * TIME_ENTRY_BYTES, reason)

    def _read(self, fs: FileSystem, path: str, entry_bytes: int) -> bytes | None:
        """Reads the entries in a file, without preallocated zeros; None: there is no file."""
        try:
            file = fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            if self._is_sealed:
                self._problems.append(IndexProblem(path, None, "the file is missing"))
            return None
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        if len(data) % entry_bytes:
            self._problems.append(
                IndexProblem(path, len(data) - len(data) % entry_bytes, f"entries have {entry_bytes} bytes")
            )
        used = -(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes
        return data[: min(used, len(data) - len(data) % entry_bytes)]
