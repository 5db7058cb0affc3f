"""Where the log of a partition may be cut into parts of about equal size, for readers that share the work.

Only memory and offset indexes are looked at, never the log itself: sizes are reckoned, and a wrong index costs
balance, not correctness, for each part is read by its offsets.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList

LOOK_UPS_MAX = 64
"""Look-ups in offset indexes for one log, of a few pages each; where more would be needed, only ends of segments are cuts."""


class LogCut(NamedTuple):
    """The end of a part.

    Attributes:
        offset: The first offset after the part: no batch lies on both sides of it.
        size_bytes: About how many bytes the batches of the part have.
    """

    offset: int
    size_bytes: int


def find_cuts(
    segments: SegmentList, start_offset: int, end_offset: int, log_end_offset: int, *, target_bytes: int, cuts_max: int
) -> list[LogCut]:
    """Cuts [start, end) into parts of about `target_bytes`, larger ones where there would be more than `cuts_max`.

    Args:
        segments: The segments of the log.
        start_offset: The first offset.
        end_offset: The end, exclusive, at most the log end; it is always the last cut.
        log_end_offset: The end of the log.
        target_bytes: The wished size of a part.
        cuts_max: The most cuts; at least 1.
    """
    spans = list(_spans(segments, start_offset, end_offset, log_end_offset))
    total_bytes = sum(span.size_bytes for span in spans)
    step_bytes = max(1, target_bytes, -(-total_bytes // cuts_max))
    return _Cutter(start_offset, end_offset, step_bytes, cuts_max).cut(spans)


class _Span(Struct, frozen=True):
    """The bytes of a segment that belong to the range, and the end of its offsets in the range."""

    segment: LogSegment
    position: int
    end_position: int
    end_offset: int

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


def _spans(segments: SegmentList, start_offset: int, end_offset: int, log_end_offset: int) -> list[_Span]:
    found: list[_Span] = []
    for number in range(segments.number_for(start_offset), len(segments)):
        segment, segment_end = segments[number], segments.end_offset(number, log_end_offset)
        if segment.base_offset >= end_offset:
            break
        position = segment.position_near(start_offset) if start_offset > segment.base_offset else 0
        end_position = segment.position_near(end_offset) if end_offset < segment_end else segment.size_bytes
        found.append(_Span(segment, position, max(position, end_position), min(segment_end, end_offset)))
    return found


class _Cutter:
    """Walks over spans and cuts wherever `step_bytes` have come together."""

    def __init__(self, start_offset: int, end_offset: int, step_bytes: int, cuts_max: int) -> None:
        self._last_offset = start_offset
        self._end_offset = end_offset
        self._step_bytes = step_bytes
        self._cuts_max = cuts_max
        self._waiting_bytes = 0
        self._look_ups = 0
        self._cuts: list[LogCut] = []

    def cut(self, spans: list[_Span]) -> list[LogCut]:
        """Returns the cuts, the end among them where there is anything before it."""
        for span in spans:
            self._cut_inside(span)
            if self._waiting_bytes >= self._step_bytes:
                self._add(span.end_offset)
        if self._last_offset < self._end_offset:
            self._cuts.append(LogCut(self._end_offset, self._waiting_bytes))
        return self._cuts

    def _cut_inside(self, span: _Span) -> None:
        position = span.position
        while self._waiting_bytes + span.end_position - position > self._step_bytes and self._may_look_up():
            self._look_ups += 1
            wanted = position + max(1, self._step_bytes - self._waiting_bytes)
            entry = span.segment.entry_near(wanted)
            offset = entry.offset + 1
            if entry.position <= position or not self._last_offset < offset < span.end_offset:
                break  # the index has nothing between here and there: a few large batches, or an index of another log
            self._waiting_bytes += entry.position - position
            position = entry.position
            self._add(offset)
        self._waiting_bytes += span.end_position - position

    def _may_look_up(self) -> bool:
        return self._look_ups < LOOK_UPS_MAX and len(self._cuts) < self._cuts_max - 1

    def _add(self, offset: int) -> None:
        is_needed = offset == self._end_offset or len(self._cuts) < self._cuts_max - 1
        if is_needed and offset > self._last_offset:
            self._cuts.append(LogCut(offset, self._waiting_bytes))
            self._last_offset, self._waiting_bytes = offset, 0
