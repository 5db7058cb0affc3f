"""Times of records: the first record that is new enough, and when the record at an offset was written.

A search goes from segment to segment.  What it needs of the indexes is looked up by the owner of the log; what reads the file and
decompresses a batch is a `SegmentSearch`, which any thread may run: a client decides how much that is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from msgspec import Struct

from replog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from replog.log.segments.scan import read_batch, read_header, scan_headers, scan_timestamps
from replog.log.segments.segment_list import SegmentList
from replog.log.segments.time_index import TimestampOffset
from replog.records import BatchHeader, TimestampType, find_record
from replog_checkpoints import File

RecordTime: TypeAlias = tuple[int, int]
"""(offset, timestamp) of a record."""

_ANY_TIME: Final = -(2**63)


class SegmentSearch(Struct, frozen=True):
    """A search in one segment as it is now.

    Attributes:
        file: The file of the segment.
        size_bytes: How much of it counts.
        position: The byte at which a batch begins, not behind the wanted record.
        start_offset: The first offset that counts.
        max_decompressed_bytes: The most bytes that a batch may decompress to; for a larger one the header's time counts.
        timestamp_ms: The least timestamp; None: any, of data.
        entry: The entry of the time index that led to `position`.
    """

    file: File
    size_bytes: int
    position: int
    start_offset: int
    max_decompressed_bytes: int
    timestamp_ms: int | None = None
    entry: TimestampOffset = TimestampOffset(-1, 0)

    def run(self) -> RecordTime | None:
        """Returns the first record that qualifies; None: this segment has none.  In any thread.

        Raises:
            CorruptRecordError: The file does not hold batches where it should.
            OSError: The disk failed.
        """
        return self._first() if self.timestamp_ms is None else self._by_time(self.timestamp_ms)

    def _by_time(self, timestamp_ms: int) -> RecordTime | None:
        entry = self.entry
        is_entry_met = entry.timestamp < 0 or entry.offset < self.start_offset
        for at, last_offset, max_timestamp in scan_timestamps(self.file, self.position, self.size_bytes):
            if not is_entry_met:
                if last_offset < entry.offset:
                    continue
                if (last_offset, max_timestamp) != (entry.offset, entry.timestamp):
                    return self._by_headers(timestamp_ms)  # the time index names a batch that is not in the log
                is_entry_met = True
            if max_timestamp >= timestamp_ms and last_offset >= self.start_offset:
                found = self._in_batch(at, read_header(self.file, at), timestamp_ms)
                if found is not None:
                    return found
        return None if is_entry_met else self._by_headers(timestamp_ms)

    def _by_headers(self, timestamp_ms: int) -> RecordTime | None:
        for at, header in scan_headers(self.file, 0, self.size_bytes):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= self.start_offset:
                found = self._in_batch(at, header, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _in_batch(self, position: int, header: BatchHeader, timestamp_ms: int) -> RecordTime | None:
        first = max(header.base_offset, self.start_offset)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:  # all records have the same one
            return first, header.max_timestamp
        try:
            return self._decoded(position, header, timestamp_ms)
        except InvalidRecordError:  # a client has written nonsense: its checksum is good, so the disk is, too
            return (first, header.max_timestamp) if header.max_timestamp >= timestamp_ms else None

    def _first(self) -> RecordTime | None:
        for position, header in scan_headers(self.file, self.position, self.size_bytes):
            if header.last_offset < self.start_offset or header.is_control or not header.records_count:
                continue
            found = self._first_of_batch(position, header)
            if found is not None:
                return found
        return None

    def _first_of_batch(self, position: int, header: BatchHeader) -> RecordTime | None:
        """Looks at the header, where it says the time, else at the records.

        If they cannot be decoded, the header's time is used: a search by time need not fail because a client has written
        nonsense.
        """
        wanted = max(header.base_offset, self.start_offset)
        is_whole = header.records_count == header.last_offset_delta + 1
        if is_whole and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return wanted, header.max_timestamp
        if is_whole and wanted == header.base_offset and not header.has_delete_horizon:
            return wanted, header.base_timestamp
        try:
            return self._decoded(position, header, _ANY_TIME)
        except (InvalidRecordError, UnsupportedCompressionError):
            return wanted, header.max_timestamp

    def _decoded(self, position: int, header: BatchHeader, timestamp_ms: int) -> RecordTime | None:
        data = read_batch(self.file, position, header.size_bytes)
        try:
            return find_record(
                data,
                timestamp_ms=timestamp_ms,
                start_offset=self.start_offset,
                max_decompressed_bytes=self.max_decompressed_bytes,
            )
        except CorruptRecordError as error:
            raise CorruptRecordError(self.file.path, position, error.reason) from error


Search: TypeAlias = Generator[SegmentSearch, RecordTime | None, RecordTime | None]
"""Yields the next segment to search, is sent the finding there, returns the result.  Runs where the log's owner does."""


def search_by_time(
    segments: SegmentList,
    timestamp_ms: int,
    *,
    start_offset: int,
    end_offset: int,
    flushed_offset: int,
    max_decompressed_bytes: int,
) -> Search:
    """Finds the first record in [start_offset, end_offset) of at least this timestamp.

    Args:
        segments: The segments of the log, which may be deleted while one of them is searched.
        timestamp_ms: The timestamp.
        start_offset: The first offset that counts.
        end_offset: Exclusive end.
        flushed_offset: The flushed offset; see `SegmentList.touch`.
        max_decompressed_bytes: See `SegmentSearch`.
    """
    number = segments.first_reaching(timestamp_ms, segments.number_for(start_offset))
    while number < len(segments):
        segment = segments.touch(number, flushed_offset)
        base_offset = segment.base_offset
        if base_offset >= end_offset:
            return None
        entry = segment.floor_time_entry(timestamp_ms)
        position = segment.reader().seek(max(entry.offset, start_offset))[0]
        found = yield SegmentSearch(
            segment.file, segment.size_bytes, position, start_offset, max_decompressed_bytes, timestamp_ms, entry
        )
        if found is not None:
            return found if found[0] < end_offset else None
        number = segments.first_reaching(timestamp_ms, _number_after(segments, base_offset))
    return None


def search_from_offset(
    segments: SegmentList, start_offset: int, *, end_offset: int, flushed_offset: int, max_decompressed_bytes: int
) -> Search:
    """Finds the first record of data in [start_offset, end_offset).

    Args:
        segments: The segments of the log, which may be deleted while one of them is searched.
        start_offset: The first offset that counts.
        end_offset: Exclusive end.
        flushed_offset: The flushed offset; see `SegmentList.touch`.
        max_decompressed_bytes: See `SegmentSearch`.
    """
    number = segments.number_for(start_offset)
    while number < len(segments):
        segment = segments.touch(number, flushed_offset)
        base_offset = segment.base_offset
        if base_offset >= end_offset:
            return None
        position = segment.reader().seek(start_offset)[0]
        found = yield SegmentSearch(segment.file, segment.size_bytes, position, start_offset, max_decompressed_bytes)
        if found is not None:
            return found if found[0] < end_offset else None
        number = _number_after(segments, base_offset)
    return None


def _number_after(segments: SegmentList, base_offset: int) -> int:
    """Returns the number of the first segment behind this one, which may have been deleted meanwhile."""
    number = segments.number_for(base_offset)
    return number if segments[number].base_offset > base_offset else number + 1


class SearchJob:
    """A search that is at one segment: the owner prepares it, any thread runs it, the owner completes it.

    Attributes:
        generation: Generation of the log when the job was prepared.
        error: The error that the search met.
        found: The record that it found; None: none.
    """

    __slots__ = ("__weakref__", "_search", "_step", "error", "found", "generation")

    def __init__(self, search: Search, step: SegmentSearch, generation: int) -> None:
        self._search = search
        self._step = step
        self.generation = generation
        self.error: Exception | None = None
        self.found: RecordTime | None = None

    @property
    def files(self) -> tuple[File, ...]:
        """The file it reads; open until the job is completed."""
        return (self._step.file,)

    def run(self) -> None:
        """Searches, in any thread, once; keeps an error for the owner and raises nothing."""
        try:
            self.found = self._step.run()
        except Exception as error:  # noqa: BLE001 -- after a truncation anything can be in the way; the owner judges
            self.error = error

    def next(self) -> SearchJob | RecordTime | None:
        """Returns the job for the next segment, or the result of the whole search.  Runs where the owner does."""
        try:
            return SearchJob(self._search, self._search.send(self.found), self.generation)
        except StopIteration as end:
            result: RecordTime | None = end.value
            return result
