"""Plans a compaction: how much of a log is dirty, whether that is enough, and which segments become one.

::

    log start          first dirty offset          end of the cleanable part             active segment
       |--- clean segments ---|------ dirty segments ------|-- too young, or not decided --|------->

Cleanable is the part that can never change again: whole sealed segments below the high watermark, below every open transaction, on
stable storage, and old enough (`min.compaction.lag.ms`).  The dirty share of the bytes up to there is compared with
`min.cleanable.dirty.ratio`; a record older than `max.compaction.lag.ms` makes the log due for any share.

Segments shrink when they are compacted, so neighbours are grouped: as many as fit into `segment.bytes`, into the index
size, and into the 31 bits of a relative offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from replog.log.config import LogConfig
from replog.log.segments.offset_index import RELATIVE_OFFSET_MAX
from replog.log.segments.scan import read_header
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList


class Dirtiness(Struct, frozen=True):
    """How much there is to do in one log.

    Attributes:
        first_dirty_offset: The offset below which everything was compacted before.
        end_offset: End of the cleanable part, exclusive; at or below `first_dirty_offset` when nothing is cleanable.
        segments_count: Number of segments of the cleanable part, from the oldest.
        clean_bytes: Bytes of the cleanable segments that lie below the first dirty offset.
        dirty_bytes: Bytes of the other cleanable segments.
        is_overdue: Whether a dirty record is older than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    end_offset: int
    segments_count: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Share of the cleanable bytes that is dirty, 0 to 1."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a pass is worth it."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


class SourceSegment(Struct, frozen=True):
    """One segment as a job reads it, in another thread.

    Attributes:
        segment: The segment of the log; only compared, never used by the job.
        path: Path of its `.log` file.
        base_offset: Base offset of the segment.
        end_offset: Base offset of the next segment.
        size_bytes: Bytes of its batches.
    """

    segment: LogSegment
    path: str
    base_offset: int
    end_offset: int
    size_bytes: int


def measure(
    segments: SegmentList, config: LogConfig, *, first_dirty_offset: int, ceiling: int, now_ms: int
) -> Dirtiness:
    """Measures how dirty a log is, and where its cleanable part ends.

    Args:
        segments: The segments of the log.
        config: Settings of the log.
        first_dirty_offset: The offset below which everything was compacted before.
        ceiling: The offset above which nothing may reach that is touched.
        now_ms: Wall time.
    """
    first_dirty = segments.number_for(first_dirty_offset)
    count = clean_bytes = dirty_bytes = 0
    while count < len(segments) - 1 and segments[count + 1].base_offset <= ceiling:
        segment = segments[count]
        if count < first_dirty:
            clean_bytes += segment.size_bytes
        elif _is_too_young(segment, config, now_ms):
            break
        else:
            dirty_bytes += segment.size_bytes
        count += 1
    end_offset = segments[count].base_offset
    is_overdue = count > first_dirty and dirty_bytes > 0 and _is_overdue(segments, first_dirty, count, config, now_ms)
    return Dirtiness(first_dirty_offset, end_offset, count, clean_bytes, dirty_bytes, is_overdue)


def group_sources(
    sources: Sequence[SourceSegment], index_bytes: Sequence[int], config: LogConfig
) -> list[Sequence[SourceSegment]]:
    """Groups neighbours that may become one segment, in order; a segment that is too large for company stays alone.

    Args:
        sources: The segments to group, without a gap in the list, oldest first.
        index_bytes: Bytes of the larger index of each source.
        config: Settings of the log, with the limits.
    """
    groups: list[Sequence[SourceSegment]] = []
    start = size = index_size = 0
    for number, source in enumerate(sources):
        size += source.size_bytes
        index_size += index_bytes[number]
        too_far = source.end_offset - 1 - sources[start].base_offset > RELATIVE_OFFSET_MAX
        if number > start and (size > config.segment_bytes or index_size > config.segment_index_bytes or too_far):
            groups.append(sources[start:number])
            start, size, index_size = number, source.size_bytes, index_bytes[number]
    groups.append(sources[start:])
    return groups


def _is_too_young(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if config.min_compaction_lag_ms == 0:
        return False
    newest_ms = segment.largest_timestamp()
    if newest_ms < 0:  # records without timestamps: the file's age
        newest_ms = segment.modified_ms()
    return newest_ms > now_ms - config.min_compaction_lag_ms


def _is_overdue(segments: SegmentList, first: int, end: int, config: LogConfig, now_ms: int) -> bool:
    """Whether the first batch of a dirty segment is older than the limit (-1, no timestamp, is not looked at)."""
    oldest_ms = now_ms - config.max_compaction_lag_ms
    if oldest_ms <= 0:
        return False
    for number in range(first, end):
        segment = segments.touch(number, segments[end].base_offset)
        if segment.size_bytes and 0 <= read_header(segment.file, 0).max_timestamp < oldest_ms:
            return True
    return False
