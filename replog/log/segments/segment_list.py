"""The segments of one log in order, and how many of them may keep descriptors open.

Why a bound: a log of a terabyte has a thousand segments, a broker thousands of logs, a process a few thousand
descriptors.  Only the active segment, segments with unflushed writes and the last few that were read stay open.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from replog.errors import InvariantViolationError
from replog.log.file_closer import FileCloser
from replog.log.segments.segment import LogSegment

SEALED_OPEN_MAX: Final = 2


class LogFiles(Struct, frozen=True):
    """The segments that a log consists of at one moment.

    Attributes:
        generation: Generation of the log; another one after a truncation.
        segments: The segments, each with its size then; the last one is the active one.
    """

    generation: int
    segments: tuple[tuple[LogSegment, int], ...]


class SegmentList:
    """At least one segment; the last one is active.

    Why two plain lists and `bisect`: both are exchanged in one step, so that an interrupt finds them whole.  A `SortedDict`
    instead took 600 ns to find an offset among 1,000 segments and 190 ns for the active one, these 270 and 20 ns, and an
    append asks for the active one three times.

    Invariants:
        - base offsets strictly rise.
    """

    __slots__ = ("_bases", "_closer", "_largest", "_reached", "_read_lately", "_segments")

    def __init__(self, segments: list[LogSegment], closer: FileCloser) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._closer = closer
        self._read_lately: list[LogSegment] = []
        self._largest: list[int] = []  # timestamps of the sealed segments, as far as they were asked for
        self._reached: list[int] = []  # the largest up to each of them

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> LogSegment:
        return self._segments[number]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def active(self) -> LogSegment:
        """The segment that grows."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    def size_from(self, offset: int, log_end_offset: int) -> int:
        """Reckons the bytes from `offset` on: whole segments exactly, a part of one in proportion to its offsets."""
        number = self.number_for(offset)
        first, end = self._segments[number], self.end_offset(number, log_end_offset)
        span = max(1, end - first.base_offset)
        part = first.size_bytes * min(span, max(0, end - offset)) // span
        return part + sum(segment.size_bytes for segment in self._segments[number + 1 :])

    def number_for(self, offset: int) -> int:
        """Returns the number of the segment that may hold `offset`; 0 for offsets before all of them."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_offset(self, number: int, log_end_offset: int) -> int:
        """Returns the offset below which all offsets of segment `number` are."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def first_reaching(self, timestamp: int, first_number: int) -> int:
        """Returns the number of the first segment from `first_number` on that reaches `timestamp`; else `len`."""
        sealed_count = self._learn_timestamps()
        number = bisect_left(self._reached, timestamp)
        if number < first_number:  # reached before it already, which says nothing
            number = first_number
            while number < sealed_count and self._largest[number] < timestamp:
                number += 1
        if number < sealed_count or self.active.largest_timestamp() >= timestamp:
            return number
        return len(self._segments)

    def largest_timestamp(self) -> int:
        """Returns the largest record timestamp, ms; -1 when no record has one."""
        of_active = self.active.largest_timestamp()
        return max(of_active, self._reached[-1]) if self._learn_timestamps() else of_active

    def append(self, segment: LogSegment) -> None:
        """Adds a new active segment."""
        segments, bases = [*self._segments, segment], [*self._bases, segment.base_offset]
        self._segments, self._bases = segments, bases  # in one step: an interrupt comes before it or after

    def remove_last(self) -> None:
        """Deletes the files of the last segment."""
        self._bases.pop()
        self._forget_timestamps()
        self._remove(self._segments.pop())

    def replace(self, first_number: int, count: int, segments: Sequence[LogSegment]) -> list[LogSegment]:
        """Puts sealed segments in the place of others (compaction), or of nothing but the oldest ones (deletion).

        Only the list changes: the caller takes care of the files.

        Args:
            first_number: Number of the first segment that goes.
            count: Number of segments that go, from 0; never the active one.
            segments: The segments that come in their place, in order.

        Returns:
            The segments that went.

        Raises:
            InvariantViolationError: The active segment would go, or base offsets would no longer rise.
        """
        end = first_number + count
        bases = [segment.base_offset for segment in segments]
        around = self._bases[max(0, first_number - 1) : first_number] + bases + self._bases[end : end + 1]
        if not 0 <= first_number <= end < len(self._segments) or sorted(set(around)) != around:
            raise InvariantViolationError(f"segments {first_number} to {end} of {self._bases} cannot become {bases}")
        gone = self._segments[first_number:end]
        self._forget_timestamps()
        self._read_lately = [segment for segment in self._read_lately if segment not in gone]
        kept = [*self._segments[:first_number], *segments, *self._segments[end:]]
        kept_bases = [*self._bases[:first_number], *bases, *self._bases[end:]]
        self._segments, self._bases = kept, kept_bases  # in one step: an interrupt comes before it or after
        return gone

    def touch(self, number: int, flushed_offset: int) -> LogSegment:
        """Returns a segment that is about to be read; closes the one read longest ago when too many are open.

        Args:
            number: Number of the segment.
            flushed_offset: The flushed offset: segments that reach above it have unflushed writes and stay open.
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
        """Closes every descriptor and map: a map, too, would keep the disk from being unmounted."""
        self._read_lately.clear()
        for segment in self._segments:
            segment.release(self._closer)
            segment.drop_maps()

    def _learn_timestamps(self) -> int:
        """Notes the largest timestamps of sealed segments that were not asked for yet.  Returns how many are sealed."""
        sealed_count = len(self._segments) - 1
        for number in range(len(self._largest), sealed_count):
            largest = self._segments[number].largest_timestamp()
            self._largest.append(largest)
            self._reached.append(max(largest, self._reached[-1] if number else largest))
        return sealed_count

    def _forget_timestamps(self) -> None:
        self._largest, self._reached = [], []

    def _remove(self, segment: LogSegment) -> None:
        if segment in self._read_lately:
            self._read_lately.remove(segment)
        segment.remove(self._closer)
