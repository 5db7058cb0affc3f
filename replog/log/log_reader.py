"""Reading a log: by offset, and by time.

One read is one pread where it can be: a reader that goes on where its last read ended needs no index, because the place
is remembered; the end is found with the offset index and a few headers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from replog.errors import CorruptRecordError
from replog.log.segment import LogSegment
from replog.log.segment_list import SegmentList
from replog.log.segment_scan import read_batch, scan_headers
from replog.records import BatchHeader, TimestampType, decode_batch

_PLACES_MAX: Final = 16


class _Place(NamedTuple):
    """The batch that holds an offset (or will) starts at byte `position` of the segment with this base offset."""

    base_offset: int
    position: int


class LogReader:
    """Reads whole batches; never decodes them, except the one that holds a timestamp asked for."""

    __slots__ = ("_places", "_segments")

    def __init__(self, segments: SegmentList) -> None:
        self._segments = segments
        self._places: dict[int, _Place] = {}

    def forget_places(self) -> None:
        """The log was cut or lost segments: positions may be wrong now."""
        self._places.clear()

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        ceiling: int,
        log_end_offset: int,
        flushed_offset: int,
        min_one_batch: bool,
    ) -> bytes:
        """Whole batches of one segment from the one that holds `offset`; b"" when there are none below `ceiling`."""
        number = self._segments.number_for(offset)
        place = self._places.pop(offset, None)
        while number < len(self._segments):
            segment = self._segments.touch(number, flushed_offset)
            position = self._position(segment, offset, place)
            if position is None:  # all of it lies below the offset: a gap that compaction left
                number += 1
                continue
            found = segment.read(
                position,
                max_bytes=max_bytes,
                ceiling=ceiling,
                segment_end_offset=self._segments.end_offset(number, log_end_offset),
                min_one_batch=min_one_batch,
            )
            if found.data:
                self._remember(found.next_offset, _Place(segment.base_offset, found.next_position))
            elif place is not None:
                self._remember(offset, place)
            return found.data
        return b""

    def offset_for_timestamp(
        self, timestamp_ms: int, *, start_offset: int, end_offset: int, flushed_offset: int
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record in [start_offset, end_offset) with at least this timestamp."""
        for number in range(self._segments.number_for(start_offset), len(self._segments)):
            segment = self._segments.touch(number, flushed_offset)
            if segment.base_offset >= end_offset:
                return None
            if segment.largest_timestamp() < timestamp_ms:
                continue
            found = _search_segment(segment, timestamp_ms, start_offset)
            if found is not None:
                return found if found[0] < end_offset else None
        return None

    @staticmethod
    def _position(segment: LogSegment, offset: int, place: _Place | None) -> int | None:
        if place is not None and place.base_offset == segment.base_offset and place.position < segment.size_bytes:
            return place.position
        if offset <= segment.base_offset:
            return 0 if segment.size_bytes else None
        found = segment.find(offset)
        return found.position if found else None

    def _remember(self, offset: int, place: _Place) -> None:
        if len(self._places) >= _PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[offset] = place


def _search_segment(segment: LogSegment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    position = segment.position_for_timestamp(timestamp_ms, start_offset)
    for at, header in scan_headers(segment.file, position, segment.size_bytes):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            found = _search_batch(segment, at, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _search_batch(
    segment: LogSegment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:  # all records have the same one
        return max(header.base_offset, start_offset), header.max_timestamp
    data = read_batch(segment.file, position, header.size_bytes)
    try:
        records = decode_batch(data)
    except CorruptRecordError as error:
        raise CorruptRecordError(segment.path, position, error.reason) from error
    for record in records:
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp
    return None
