"""Where the good batches of a segment end for certain: no checksum covers a batch's offset.

A bit that flips in one makes the batch jump up.  It looks whole, and the batch behind it looks like the damage, at an
offset above the flushed ones: a torn write, to be cut.  Two things tell::

    offsets      16   17   18 -> 50   19   20   21       19 goes back, and its checksum is right: 50 is wrong
    flushed to                          ^ 20             a flush ends where a batch ends: none reaches over 20

Without damage the second one is judged only if compaction cannot have taken the border away.
"""

from __future__ import annotations

from replog.errors import CorruptRecordError
from replog.log.segments.reader import Found
from replog.log.segments.scan import PlacedHeader, read_header, scan_batches, scan_headers
from replog.log.segments.segment import LogSegment


def certain_end(
    segment: LogSegment,
    good_bytes: int,
    file_bytes: int,
    expected_offset: int,
    flushed_offset: int,
    *,
    has_no_gaps: bool,
) -> tuple[int, int]:
    """Returns the byte and the offset at which the batches end whose offsets are not in doubt.

    Args:
        segment: A segment that is damaged behind its good batches.
        good_bytes: The size of the good batches.
        file_bytes: The size of the file.
        expected_offset: The end of the segment before it.
        flushed_offset: The flushed offset, exclusive.
        has_no_gaps: Whether no compaction can have taken the batch that ended there.
    """
    last: PlacedHeader | None = None
    end_offset = end_before = max(segment.base_offset, expected_offset)
    for placed in scan_headers(segment.file, 0, good_bytes):
        last, end_before = placed, end_offset
        end_offset = placed.header.next_offset
        begins_below = has_no_gaps or placed.header.base_offset < flushed_offset
        if end_before < flushed_offset < end_offset and begins_below:
            return placed.position, end_before
    following = _offset_of_whole_batch(segment, good_bytes, file_bytes)
    if last is not None and following is not None and end_before <= following < end_offset:
        return last.position, end_before
    return good_bytes, end_offset


def batch_over(segment: LogSegment, offset: int, *, has_no_gaps: bool) -> Found | None:
    """Returns the first batch that reaches over `offset`, although none ends there; None: one does, or all end before.

    Args:
        segment: One whose batches and indexes are known.
        offset: Where a flush ended.
        has_no_gaps: Whether no compaction can have taken the batch that ended there; then one behind `offset` is wrong, too.
    """
    found = segment.find(offset - 1) if offset > segment.base_offset else None
    if found is None or (found.base_offset >= offset and not has_no_gaps):
        return None
    if read_header(segment.file, found.position).next_offset == offset:
        return None
    return found


def _offset_of_whole_batch(segment: LogSegment, position: int, file_bytes: int) -> int | None:
    """Returns the base offset of the batch at a byte; None: there is none with a right checksum."""
    try:
        for batch in scan_batches(segment.file, position, file_bytes):
            return batch.header.base_offset
    except CorruptRecordError:
        pass
    return None
