"""The segments of one log in order, and how many of them may keep descriptors open.

Why a bound: a log of a terabyte has a thousand segments, a broker thousands of logs, a process a few thousand
descriptors.  Only the active segment, segments with unflushed writes and the last few that were read stay open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from replog.log.flush import FileCloser
from replog.log.segment import LogSegment

SEALED_OPEN_MAX: Final = 2


class SegmentList:
    """At least one segment; the last one is active.

    Invariants:
        - base offsets strictly rise.
    """

    __slots__ = ("_bases", "_closer", "_read_lately", "_segments")

    def __init__(self, segments: list[LogSegment], closer: FileCloser) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._closer = closer
        self._read_lately: list[LogSegment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> LogSegment:
        return self._segments[number]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def active(self) -> LogSegment:
        """The one that grows."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    def number_for(self, offset: int) -> int:
        """Number of the segment that may hold `offset`; 0 for offsets before all of them."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_offset(self, number: int, log_end_offset: int) -> int:
        """All offsets of segment `number` are below this."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def append(self, segment: LogSegment) -> None:
        """Adds a new active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def remove_last(self) -> None:
        """Deletes the files of the last segment."""
        self._bases.pop()
        self._remove(self._segments.pop())

    def remove_first(self) -> None:
        """Deletes the files of the oldest segment."""
        self._bases.pop(0)
        self._remove(self._segments.pop(0))

    def touch(self, number: int, flushed_offset: int) -> LogSegment:
        """The segment, about to be read; closes the one read longest ago when too many are open.

        Args:
            number: which segment.
            flushed_offset: segments that reach above it have unflushed writes and stay open.
        """
        segment = self._segments[number]
        if segment.is_active or (self._read_lately and self._read_lately[-1] is segment):
            return segment
        if segment in self._read_lately:
            self._read_lately.remove(segment)
        self._read_lately.append(segment)
        if len(self._read_lately) > SEALED_OPEN_MAX:
            oldest = self._read_lately.pop(0)
            if self.end_offset(self.number_for(oldest.base_offset), flushed_offset + 1) <= flushed_offset:
                oldest.release(self._closer)
        return segment

    def release_flushed(self, from_offset: int, flushed_offset: int) -> None:
        """Closes the sealed segments that a flush from `from_offset` to `flushed_offset` completed."""
        for number in range(max(0, self.number_for(from_offset) - 1), len(self) - 1):
            segment = self._segments[number]
            if self._bases[number + 1] <= flushed_offset and segment not in self._read_lately:
                segment.release(self._closer)

    def release_all(self) -> None:
        """Closes every descriptor."""
        self._read_lately.clear()
        for segment in self._segments:
            segment.release(self._closer)

    def _remove(self, segment: LogSegment) -> None:
        if segment in self._read_lately:
            self._read_lately.remove(segment)
        segment.remove(self._closer)
