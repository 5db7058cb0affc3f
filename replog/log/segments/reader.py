"""Reading one segment as it is at one moment: its file, how much of it is there, its offset index.

Why apart from `LogSegment`: a read that has to wait for the disk runs in another thread while the owner appends, rolls
or deletes.  It works on the data that were captured when it was prepared, and never looks at the segment again.

Why two ways to read bytes: the owner must not wait, so it asks for what the page cache holds (`cached_only`) and is told
when that is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from replog.errors import CorruptRecordError
from replog.log.segments.offset_index import OffsetIndex
from replog.log.segments.scan import FRAME_BYTES, Frame, parse_frame
from replog.records import HEADER_BYTES, scan_checked
from replog_checkpoints import File

_OFFSET_MAX: Final = 2**63 - 1
_NO_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_SEARCH_CHUNK_BYTES: Final = 16 * 1024


class NotCachedError(Exception):
    """Bytes that a read needs are not in the page cache.  Never leaves this package."""


class Found(Struct, frozen=True):
    """The first batch that ends at or above an offset.

    Attributes:
        position: Byte at which it starts.
        base_offset: Base offset of the batch.
        previous_end: Exclusive end of the batch before it; the segment's base offset for the first one.
    """

    position: int
    base_offset: int
    previous_end: int


class SegmentRead(Struct, frozen=True):
    """Whole batches, and where the next one starts.

    Attributes:
        data: The batches.
        next_offset: The first offset that is not in `data`.
        next_position: Byte at which the batch of `next_offset` starts; None: there is damage, and a read must not go on there
            unchecked.
    """

    data: bytes
    next_offset: int
    next_position: int | None


class SegmentReader:
    """Finds and reads batches of one segment.

    Args:
        file: The `.log` file, open for as long as this is used.
        base_offset: Base offset of the segment.
        size_bytes: Bytes of the file that are whole batches.
        index: The index, with entries up to `size_bytes` at least; None: batches are searched from the start.
        cached_only: Whether never to wait for the disk; every method may raise NotCachedError then.
    """

    __slots__ = ("_cached_only", "_file", "_index", "base_offset", "size_bytes")

    def __init__(
        self, file: File, base_offset: int, size_bytes: int, index: OffsetIndex | None, *, cached_only: bool = False
    ) -> None:
        self._file = file
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self._index = index
        self._cached_only = cached_only

    @property
    def file(self) -> File:
        """The file that it reads; the owner of the reader keeps it open."""
        return self._file

    def find(self, offset: int) -> Found | None:
        """Finds the first batch that ends at or above `offset`; None when all batches end below it.

        Raises:
            CorruptRecordError: Bytes on the way are no batch.
        """
        position, previous_end = self.seek(offset)
        for at, frame in self._frames(position):
            if frame.last_offset >= offset:
                return Found(at, frame.base_offset, previous_end)
            previous_end = frame.last_offset + 1
        return None

    def end_offset(self) -> int:
        """Returns the offset after the last batch, or the base offset of an empty segment."""
        position, end_offset = self.seek(_OFFSET_MAX)
        for _, frame in self._frames(position):
            end_offset = frame.last_offset + 1
        return end_offset

    def read(
        self, position: int, *, max_bytes: int, ceiling: int, segment_end_offset: int, min_one_batch: bool
    ) -> SegmentRead:
        """Reads whole batches from the one that starts at byte `position`.

        Args:
            position: Start of a batch.
            max_bytes: Limit of the answer, from 0; passed only by a first batch, and only with `min_one_batch`.
            ceiling: Exclusive end: no batch that reaches this offset is returned.
            segment_end_offset: The offset at or below which all batches below `size_bytes` end.
            min_one_batch: Whether the first batch is returned for any size.
        """
        rest_bytes = self.size_bytes - position
        buffer = self._pread(min(rest_bytes, max(max_bytes, HEADER_BYTES)), position)
        if len(buffer) == rest_bytes <= max_bytes and ceiling >= segment_end_offset:
            return SegmentRead(buffer, segment_end_offset, self.size_bytes)
        length, next_offset = self._cut(buffer, position, max_bytes, ceiling)
        if length == 0 and min_one_batch:
            first = self._frame_in(buffer, 0, position)
            if first.last_offset < ceiling:
                buffer, length = self._pread(first.size_bytes, position), first.size_bytes
                next_offset = first.last_offset + 1
        data = buffer if length == len(buffer) else buffer[:length]
        return SegmentRead(data, next_offset, position + length)

    def checked(self, position: int, found: SegmentRead) -> SegmentRead:
        """Returns what was read at byte `position`, up to the first batch whose checksum, offset or epoch is wrong.

        Raises:
            CorruptRecordError: The first batch is wrong already.
        """
        batches, length, damage = scan_checked(
            found.data,
            next_offset=self.base_offset,
            leader_epoch=_NO_EPOCH,
            offset_max=_OFFSET_MAX - 1,
            leader_epoch_max=_EPOCH_MAX,
        )
        if length == len(found.data):
            return found
        if not batches:
            raise CorruptRecordError(self._file.path, position, damage or "the batch goes beyond the end of the file")
        return SegmentRead(found.data[:length], batches[-1][3] + 1, None)

    def seek(self, offset: int) -> tuple[int, int]:
        """Returns (position, end offset before it) of a batch at or before the one that holds `offset`.

        An index entry that does not fit the log is not used: the search begins at byte 0 instead.
        """
        index = self._index
        if index is not None and offset > self.base_offset:
            entry = index.lookup(offset - 1)
            if entry.position > 0 and entry.offset < offset and self.is_batch(entry.offset, entry.position):
                return entry.position, self.base_offset
        return 0, self.base_offset

    def position_after(self, end_offset: int) -> int:
        """Returns where the first batch that begins at or above `end_offset` starts; the end of the segment if none does.

        Raises:
            CorruptRecordError: Bytes on the way are no batch.
        """
        for at, frame in self._frames(self.seek(end_offset)[0]):
            if frame.base_offset >= end_offset:
                return at
        return self.size_bytes

    def is_batch(self, last_offset: int, position: int) -> bool:
        """Whether a batch that ends with `last_offset` stands at byte `position`, as an index entry says."""
        if position + FRAME_BYTES > self.size_bytes:
            return False
        data = self._pread(FRAME_BYTES, position)
        return len(data) == FRAME_BYTES and parse_frame(data, 0).last_offset == last_offset

    def _pread(self, length: int, position: int) -> bytes:
        if not self._cached_only:  # asked each time: a bound method kept here would be a cycle, one for every fetch
            return self._file.pread(length, position)
        data = self._file.pread_cached(length, position)
        if data is None:
            raise NotCachedError
        return data

    def _frames(self, position: int) -> Iterator[tuple[int, Frame]]:
        buffer, buffer_start = b"", position
        while position < self.size_bytes:
            within = position - buffer_start
            if within + FRAME_BYTES > len(buffer):
                length = min(_SEARCH_CHUNK_BYTES, self.size_bytes - position)
                buffer, buffer_start, within = self._pread(length, position), position, 0
            frame = self._frame_in(buffer, within, position)
            yield position, frame
            position += frame.size_bytes

    def _frame_in(self, buffer: bytes, within: int, position: int) -> Frame:
        if within + FRAME_BYTES > len(buffer):
            raise CorruptRecordError(self._file.path, position, "the file ends inside a batch header")
        frame = parse_frame(buffer, within)
        if frame.size_bytes < HEADER_BYTES or frame.last_offset < frame.base_offset:
            raise CorruptRecordError(
                self._file.path, position, f"no batch: {frame.size_bytes} bytes, offset {frame.base_offset}"
            )
        return frame

    def _cut(self, buffer: bytes, position: int, max_bytes: int, ceiling: int) -> tuple[int, int]:
        """Returns (length, next offset) of the whole batches in `buffer` within `max_bytes` and below `ceiling`."""
        limit = min(len(buffer), max_bytes)
        length = self._jump(buffer, position, limit, ceiling)
        next_offset = self._frame_in(buffer, length, position).base_offset if length else self.base_offset
        while length + FRAME_BYTES <= limit:
            try:
                frame = self._frame_in(buffer, length, position + length)
            except CorruptRecordError:
                if length == 0:
                    raise
                break  # good batches are read first; the next read begins at the damage and says so
            if frame.last_offset >= ceiling or length + frame.size_bytes > limit:
                break
            length += frame.size_bytes
            next_offset = frame.last_offset + 1
        return length, next_offset

    def _jump(self, buffer: bytes, position: int, limit: int, ceiling: int) -> int:
        """Returns the length of a prefix of whole batches below `ceiling`, from the index, to walk fewer headers."""
        index = self._index if limit > _SEARCH_CHUNK_BYTES else None  # below, walking is cheaper
        if index is None:
            return 0
        below = index.lookup(ceiling - 1)
        inside = index.lookup_position(position + limit - FRAME_BYTES)
        entry = below if below.position < inside.position else inside
        length = entry.position - position
        if length > 0 and entry.offset < ceiling and parse_frame(buffer, length).last_offset == entry.offset:
            return length
        return 0
