"""Reading a log: by offset, and by time.

One read is one pread where it can be: a reader that goes on where its last read ended needs no index, because the place
is remembered; the end is found with the offset index and a few headers.

Checksums are looked at where a read does not go on from another one.  Whoever receives batches checks them, and comes
again to the same place when they are damaged: that is such a read, and tells whether it is the file that is damaged.  A
reader that goes on costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from replog.errors import CorruptRecordError, InvalidRecordError
from replog.log.recovery.completeness import Completeness, hole
from replog.log.segments.reader import NotCachedError, SegmentRead, SegmentReader
from replog.log.segments.scan import PlacedHeader, read_batch, read_header, scan_headers, scan_timestamps
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.log.segments.time_index import NO_TIMESTAMP
from replog.log.tail_cache import LogTail
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, BatchHeader, TimestampType, decode_batch
from replog_checkpoints import File

_PLACES_MAX: Final = 32


class ReadRequest(NamedTuple):
    """What one read asks for.

    Attributes:
        offset: The offset to begin with; the batch that holds it is the first.
        max_bytes: Limit of the answer.
        ceiling: Exclusive end: no batch that reaches above it is returned.
        log_end_offset: End of the log when it was asked.
        min_one_batch: Whether a first batch larger than `max_bytes` is returned whole.
        is_checked: Whether checksums are looked at where it does not go on from another read.
    """

    offset: int
    max_bytes: int
    ceiling: int
    log_end_offset: int
    min_one_batch: bool
    is_checked: bool = True


class Place(NamedTuple):
    """The batch that holds an offset (or will) starts at byte `position` of the segment with this base offset."""

    base_offset: int
    position: int
    read_ms: int  # wall time of the read that ended here


class Part(NamedTuple):
    """One segment as it is now; all batches in it end at or below `end_offset`."""

    reader: SegmentReader
    end_offset: int


class Start(NamedTuple):
    """Where a read begins in a segment.

    Attributes:
        position: The byte at which a batch starts.
        previous_end: The exclusive end of the batch before it, the segment's base offset for the first one; None: not looked
            at, since the read goes on from another one.
    """

    position: int
    previous_end: int | None


class ReadOutcome(NamedTuple):
    """What a read found in the segment with this base offset, and where it began there."""

    found: SegmentRead
    base_offset: int
    start: Start


class CapturedRead(NamedTuple):
    """All that a read in another thread needs; the owner keeps `files` open until it has ended."""

    request: ReadRequest
    parts: tuple[Part, ...]
    place: Place | None
    files: tuple[File, ...]
    version: int

    def read(self) -> ReadOutcome | None:
        """Reads, in any thread; None: there is nothing below the ceiling."""
        return _read_first(self.parts, self.request, self.place)


class LogReader:
    """Reads whole batches; never decodes them, except the one that holds a timestamp asked for.

    Attributes:
        tail: The newest batches, for readers right behind; None: everything is read from the files.
    """

    __slots__ = ("_complete", "_places", "_segments", "_version", "tail")

    def __init__(self, segments: SegmentList, complete: Completeness) -> None:
        self._segments = segments
        self._complete = complete
        self.tail: LogTail | None = None
        self._places: dict[int, Place] = {}
        self._version = 0  # of the meaning of places

    @property
    def places(self) -> Iterable[Place]:
        """Where the latest reads ended, one for each reader that goes on there."""
        return self._places.values()

    def forget_places(self) -> None:
        """Forgets places and tail: the log was cut, or lost or exchanged segments, so that they may be wrong now."""
        self._places.clear()
        self._version += 1
        if self.tail is not None:
            self.tail.forget()

    def read(
        self, request: ReadRequest, *, flushed_offset: int, now_ms: int, cached_only: bool = False
    ) -> bytes | None:
        """Returns whole batches from the one that holds the offset; b"" when there are none below the ceiling.

        They come from one segment, or from the tail.

        Args:
            request: The offset, the limits and whether to check; see `ReadRequest`.
            flushed_offset: End of what is flushed: segments that reach above it have unflushed writes and stay open.
            now_ms: Wall time.
            cached_only: Whether to give up rather than wait for the disk.

        Returns:
            None: `cached_only`, and the page cache does not hold all of it.

        Raises:
            CorruptRecordError: The first batch is damaged, and it was looked at (see the module); or it is gone.
        """
        place = self._places.pop(request.offset, None)
        if self.tail is not None:
            newest = self.tail.read(request.offset, max_bytes=request.max_bytes, ceiling=request.ceiling)
            if newest is not None:
                self._remember(newest.next_offset, Place(*newest.end, now_ms))
                return newest.data
        try:
            outcome = _read_first(self._parts(request, flushed_offset, cached_only=cached_only), request, place)
        except NotCachedError:
            self._remember(request.offset, place)
            return None
        self._check_hole(request, outcome)
        return self._note(request, place, outcome, now_ms)

    def capture(self, request: ReadRequest, *, flushed_offset: int) -> CapturedRead:
        """Captures what the same read needs in another thread."""
        parts: list[Part] = []
        files: list[File] = []
        for number, part in enumerate(self._parts(request, flushed_offset), self._segments.number_for(request.offset)):
            parts.append(part)
            files += self._segments[number].open_files
            if len(parts) > 1 and part.reader.size_bytes:
                break  # what the first one does not have stands at the start of this one
        return CapturedRead(request, tuple(parts), self._places.get(request.offset), tuple(files), self._version)

    def note_captured(self, captured: CapturedRead, outcome: ReadOutcome | None, now_ms: int) -> bytes:
        """Takes the outcome of `captured.read()` and returns its bytes; the log was not cut meanwhile."""
        if captured.version != self._version:
            return outcome.found.data if outcome else b""
        self._check_hole(captured.request, outcome)
        place = self._places.pop(captured.request.offset, None)
        return self._note(captured.request, place, outcome, now_ms)

    def offset_of_max_timestamp(
        self, *, start_offset: int, end_offset: int, flushed_offset: int
    ) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record in [start_offset, end_offset) with the largest timestamp."""
        best: tuple[LogSegment, PlacedHeader] | None = None
        for number in range(self._segments.number_for(start_offset), len(self._segments)):
            segment = self._segments[number]
            if segment.base_offset >= end_offset:
                break
            known = best[1].header.max_timestamp if best else NO_TIMESTAMP
            if segment.largest_timestamp() <= known:
                continue
            self._segments.touch(number, flushed_offset)
            segment_end = self._segments.end_offset(number, OFFSET_MAX)
            placed = _largest_batch(segment, start_offset, end_offset, segment_end)
            if placed is not None and placed.header.max_timestamp > known:
                best = segment, placed
        if best is None:
            return None
        segment, (position, header) = best
        return _search_batch(segment, position, header, header.max_timestamp, start_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, start_offset: int, end_offset: int, flushed_offset: int
    ) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record in [start_offset, end_offset) of at least this timestamp."""
        number = self._segments.first_reaching(timestamp_ms, self._segments.number_for(start_offset))
        while number < len(self._segments):
            segment = self._segments.touch(number, flushed_offset)
            if segment.base_offset >= end_offset:
                return None
            found = _search_segment(segment, timestamp_ms, start_offset)
            if found is not None:
                return found if found[0] < end_offset else None
            number = self._segments.first_reaching(timestamp_ms, number + 1)
        return None

    def _parts(self, request: ReadRequest, flushed_offset: int, *, cached_only: bool = False) -> Iterator[Part]:
        if request.offset >= request.ceiling:
            return
        for number in range(self._segments.number_for(request.offset), len(self._segments)):
            segment = self._segments.touch(number, flushed_offset)
            end_offset = self._segments.end_offset(number, request.log_end_offset)
            yield Part(segment.reader(cached_only=cached_only), end_offset)

    def _check_hole(self, request: ReadRequest, outcome: ReadOutcome | None) -> None:
        """Raises `CorruptRecordError` where records are missing that the log claims to have; other gaps are allowed.

        No checksum covers a batch's base offset: a first batch that does not begin where the one before it ends would be
        handed out under offsets that are not its own.
        """
        if request.offset >= request.ceiling or not self._complete.covers(request.offset):
            return
        if outcome is not None and not outcome.found.data:
            return  # the batch is there, and does not fit below a limit
        found = request.ceiling if outcome is None else int.from_bytes(outcome.found.data[:8], "big", signed=True)
        previous_end = None if outcome is None else outcome.start.previous_end
        if found <= request.offset and (previous_end is None or previous_end == found):
            return
        segment = self._segments[self._segments.number_for(request.offset)]
        if found > request.offset:
            position = segment.size_bytes if request.offset >= segment.base_offset else 0
            raise hole(segment.path, position, request.offset, found)
        if outcome is None or previous_end is None or not self._complete.covers(previous_end):
            return
        if not self._fits_what_follows(outcome.start.position, request):  # else it is the one before that is wrong
            reason = f"no batch that follows offset {previous_end - 1}: it says that it begins at {found}"
            raise CorruptRecordError(segment.path, outcome.start.position, reason)

    def _fits_what_follows(self, position: int, request: ReadRequest) -> bool:
        """Whether the batch at byte `position` of the request's segment ends where the next one begins, or the segment ends."""
        number = self._segments.number_for(request.offset)
        segment = self._segments[number]
        with segment.opened_briefly():
            headers = [placed.header for placed in islice(scan_headers(segment.file, position, segment.size_bytes), 2)]
        end_offset = self._segments.end_offset(number, request.log_end_offset)
        return headers[0].next_offset == (headers[1].base_offset if len(headers) > 1 else end_offset)

    def _note(self, request: ReadRequest, place: Place | None, outcome: ReadOutcome | None, now_ms: int) -> bytes:
        if outcome is None:
            return b""
        found = outcome.found
        if found.next_position is None:
            return found.data
        if found.data:
            self._remember(found.next_offset, Place(outcome.base_offset, found.next_position, now_ms))
        else:
            self._remember(request.offset, place)
        return found.data

    def _remember(self, offset: int, place: Place | None) -> None:
        if place is None:
            return
        if len(self._places) >= _PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[offset] = place


def _read_first(parts: Iterable[Part], request: ReadRequest, place: Place | None) -> ReadOutcome | None:
    for reader, end_offset in parts:
        start = _start(reader, request.offset, place)
        if start is None:  # all of it lies below the offset: a gap that compaction left
            continue
        found = reader.read(
            start.position,
            max_bytes=request.max_bytes,
            ceiling=request.ceiling,
            segment_end_offset=end_offset,
            min_one_batch=request.min_one_batch,
        )
        must_check = place is None and request.is_checked
        return ReadOutcome(reader.checked(start.position, found) if must_check else found, reader.base_offset, start)
    return None


def _start(reader: SegmentReader, offset: int, place: Place | None) -> Start | None:
    if place is not None and place.base_offset == reader.base_offset and place.position < reader.size_bytes:
        return Start(place.position, None)
    if offset <= reader.base_offset:
        return Start(0, reader.base_offset) if reader.size_bytes else None
    found = reader.find(offset)
    return Start(found.position, found.previous_end) if found else None


def _largest_batch(
    segment: LogSegment, start_offset: int, end_offset: int, segment_end_offset: int
) -> PlacedHeader | None:
    """Returns the first batch with the largest timestamp among those of a segment that end in [start, end)."""
    largest = segment.largest_timestamp_offset()
    if largest.timestamp < 0:
        return None
    found = segment.find(largest.offset)
    if found is not None and start_offset <= found.base_offset and largest.offset < end_offset:
        return PlacedHeader(found.position, read_header(segment.file, found.position))
    if start_offset <= segment.base_offset and segment_end_offset <= end_offset:
        return None  # the index is wrong, and says nothing that could be found
    best: PlacedHeader | None = None
    for placed in scan_headers(segment.file, 0, segment.size_bytes):
        header = placed.header
        is_inside = header.last_offset >= start_offset and header.last_offset < end_offset
        if not is_inside or header.max_timestamp <= (best.header.max_timestamp if best else NO_TIMESTAMP):
            continue
        straddles = header.base_offset < start_offset  # its newest record may be one that is gone
        if straddles and _search_batch(segment, *placed, header.max_timestamp, start_offset) is None:
            continue
        best = placed
    return best


def _search_segment(segment: LogSegment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    entry = segment.floor_time_entry(timestamp_ms)
    position = segment.reader().seek(max(entry.offset, start_offset))[0]
    is_entry_met = entry.timestamp < 0 or entry.offset < start_offset
    for at, last_offset, max_timestamp in scan_timestamps(segment.file, position, segment.size_bytes):
        if not is_entry_met:
            if last_offset < entry.offset:
                continue
            if (last_offset, max_timestamp) != (entry.offset, entry.timestamp):
                break
            is_entry_met = True
        if max_timestamp >= timestamp_ms and last_offset >= start_offset:
            found = _search_batch(segment, at, read_header(segment.file, at), timestamp_ms, start_offset)
            if found is not None:
                return found
    if is_entry_met:
        return None
    return _search_without_index(segment, timestamp_ms, start_offset)


def _search_without_index(segment: LogSegment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Searches all headers of the segment, because the time index names a batch that is not in the log."""
    for at, header in scan_headers(segment.file, 0, segment.size_bytes):
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
        records = decode_batch(data, max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX)
    except CorruptRecordError as error:
        raise CorruptRecordError(segment.path, position, error.reason) from error
    except InvalidRecordError as error:  # it was written, so it is damage, not the caller's mistake
        raise CorruptRecordError(segment.path, position, str(error)) from error
    for record in records:
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp
    return None
