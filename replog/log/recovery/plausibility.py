"""Cheap checks of files that a start believes without reading them: sealed segments, leader epochs, the log start.

Why: below the recovery point nothing is scanned, so a lost file, a segment cut at the border of two batches or one flipped
digit in a checkpoint would go unnoticed, and the log would have a hole or give wrong answers.  What can be compared is
compared; a few preads per segment and per epoch.

| damage                                             | witness                                             | then    |
|----------------------------------------------------|-----------------------------------------------------|---------|
| a sealed `.log` is shorter or empty                | its index files name a later batch                  | refused |
| a sealed `.log` is missing                         | its index files are there, no `.log.deleted` is     | refused |
| an epoch or its start offset is wrong              | the batches at both sides of that offset            | rebuilt |
| the log start lies above the log end               | the recovery point, which every such step lowers first | refused |

A witness is believed only where it cannot be wrong by itself: an index that fits neither is made again from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import CorruptRecordError
from replog.log.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_file_name,
)
from replog.log.segments.scan import read_header
from replog.log.segments.segment import LogSegment
from replog.records import BatchHeader


def lost_segments(names: Sequence[str], log_start_offset: int, *, was_clean: bool) -> list[int]:
    """Returns the base offsets of segments of which only indexes are left, although the log did not delete them.

    A deletion renames the `.log` first, so half a deletion leaves an index beside a `.log.deleted`, and no `.index.deleted`.  With
    both, or after an orderly stop, which leaves nothing half done, they are those of the segment before a compaction.

    Args:
        names: The names of the files in the partition folder.
        log_start_offset: The log start; segments that end at or below it are not missed.
        was_clean: Whether the log was closed in order.

    Returns:
        Each offset once, rising.
    """
    present = set(names)
    parsed_names = [parsed for parsed in map(parse_file_name, names) if parsed is not None]
    bases = sorted(offset for offset, suffix in parsed_names if suffix == LOG_SUFFIX)
    lost: set[int] = set()
    for offset, suffix in parsed_names:
        log_name = f"{offset:020d}{LOG_SUFFIX}"
        is_half_deleted = (
            not was_clean
            and f"{log_name}{DELETED_SUFFIX}" in present
            and f"{offset:020d}{suffix}{DELETED_SUFFIX}" not in present
        )
        if suffix not in {INDEX_SUFFIX, TIME_INDEX_SUFFIX} or log_name in present or is_half_deleted:
            continue
        following = next((base for base in bases if base > offset), None)
        if following is None or following > log_start_offset:
            lost.add(offset)
    return sorted(lost)


def epochs_fit(
    entries: Sequence[tuple[int, int]], segments: Sequence[LogSegment], log_start_offset: int, end_offset: int
) -> bool:
    """Whether the batches at both sides of every epoch's start carry the epochs that the checkpoint says.

    Args:
        entries: The checkpoint, (epoch, start offset), oldest first.
        segments: The segments in which the epochs below `end_offset` can be looked up.
        log_start_offset: The log start; Kafka forgets the epochs below it, also inside a segment.
        end_offset: The offset from which on epochs are not judged, because the scan finds them.
    """
    judged = [entry for entry in entries if entry[1] < end_offset]
    if not judged:
        return _has_no_epochs(segments)
    first_base = segments[0].base_offset
    ends = [*(start for _, start in judged[1:]), end_offset]
    try:
        if judged[0][1] > max(first_base, log_start_offset) and not _has_no_epochs(segments):
            return False
        for (epoch, start), end in zip(judged, ends, strict=True):
            if end <= first_base:
                continue
            first, last = _batch_at(segments, max(start, first_base)), _batch_at(segments, end - 1, is_last=True)
            for header in (first, last):
                if header is not None and start <= header.base_offset < end and header.partition_leader_epoch != epoch:
                    return False
            straddles = first is not None and first.base_offset < start and start > first_base
            if straddles and start != judged[0][1]:
                return False
    except CorruptRecordError:
        return False
    return True


def _batch_at(segments: Sequence[LogSegment], offset: int, *, is_last: bool = False) -> BatchHeader | None:
    """Finds the first batch that ends at or above `offset` in its segment; None: there is none (a gap, the log's end).

    With `is_last` a batch that begins above `offset` is none.
    """
    number = max(0, sum(segment.base_offset <= offset for segment in segments) - 1)
    segment = segments[number]
    if not segment.size_bytes:
        return None
    with segment.opened_briefly():
        found = segment.find(offset)
        if found is None or (is_last and found.base_offset > offset):
            return None
        return read_header(segment.file, found.position)


def _has_no_epochs(segments: Sequence[LogSegment]) -> bool:
    """Whether the first batch, if there is one, is from before leader epochs."""
    header = _batch_at(segments, segments[0].base_offset)
    return header is None or header.partition_leader_epoch < 0
