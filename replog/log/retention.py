"""Retention: how many of the oldest segments may go (docs/KAFKA.md 4.8)."""

from __future__ import annotations

from replog.errors import CorruptRecordError
from replog.log.config import LogConfig
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList


def segments_to_delete(
    segments: SegmentList,
    config: LogConfig,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    log_end_offset: int,
) -> int:
    """Returns the number of segments, from the oldest, that a rule allows to delete.

    A segment goes when all of it lies below the log start, or its newest record is older than `retention.ms`, or the
    log without it is still at least `retention.bytes` large.  Never one that reaches above the high watermark.  The
    active one is judged like the others where it holds records, so that a quiet log does not keep them for
    `segment.ms`; only a log start at the end of the log does not delete it.

    Args:
        segments: The segments of the log.
        config: Settings of the log, with the rules.
        now_ms: Wall time.
        high_watermark: The high watermark, exclusive.
        log_start_offset: First offset that is still wanted.
        log_end_offset: Exclusive end of the log.
    """
    size_bytes = segments.size_bytes
    count = 0
    for number in range(len(segments)):
        segment, is_active = segments[number], number == len(segments) - 1
        end_offset = log_end_offset if is_active else segments[number + 1].base_offset
        if end_offset > high_watermark or (is_active and segment.size_bytes == 0):
            break
        below_start = end_offset <= log_start_offset and not is_active
        too_large = config.deletes and 0 <= config.retention_bytes <= size_bytes - segment.size_bytes
        if not (below_start or too_large or _is_too_old(segment, config, now_ms)):
            break
        size_bytes -= segment.size_bytes
        count += 1
    return count


def _is_too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms < 0 or not config.deletes:
        return False
    try:
        newest_ms = segment.largest_timestamp()
    except CorruptRecordError:
        return False  # damaged, and its time index too: nothing is deleted on a guess
    if newest_ms < 0:  # records without timestamps: the file's age
        newest_ms = segment.modified_ms()
    return now_ms - newest_ms > config.retention_ms
