"""How much one batch takes: the limits of a trigger, as pure functions.

Offsets are counted, not records: compaction and the ends of transactions leave gaps.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from replog.spark.options import Limits

K = TypeVar("K", bound=Hashable)

UNKNOWN_OFFSET_BYTES = 1024
"""Taken for one offset of a partition whose size nobody has told."""
_LEAST_OFFSET_BYTES = 2.0**-63
"""One byte for all the offsets there are: what is left of a log that compaction made sparse is never less."""


def wait_ms(limits: Limits, offsets_count: int, waited_ms: float | None) -> float:
    """Returns how long a batch is put off yet, unless more comes; 0: not at all.

    Args:
        limits: The limits of the trigger.
        offsets_count: How many offsets there are to read.
        waited_ms: The time since the last batch; None: this would be the first of the run, which waits for nothing.
    """
    if offsets_count >= limits.min_offsets or waited_ms is None:
        return 0
    return max(0, limits.max_delay_ms - waited_ms)


def admitted_ends(
    begin: Mapping[K, int], end: Mapping[K, int], limits: Limits, bytes_per_offset: Mapping[K, float] | None = None
) -> dict[K, int]:
    """Returns where the batch ends in each partition: never below `begin`, never above the larger of both.

    A limit is shared in proportion to what there is to read, with at least one offset for each partition that has any, so
    that none of them starves.

    Args:
        begin: Where each partition's batch begins.
        end: Where what may be read ends; below `begin` it counts as nothing to read.
        limits: The limits of the trigger.
        bytes_per_offset: The bytes of one offset, on the average; 0 or missing: not known.
    """
    counts = {key: max(0, end[key] - offset) for key, offset in begin.items()}
    if limits.max_offsets is not None:
        counts = shared(counts, limits.max_offsets)
    if limits.max_bytes is not None:
        counts = _within_bytes(counts, limits.max_bytes, bytes_per_offset or {})
    return {key: offset + counts[key] for key, offset in begin.items()}


def shared(counts: Mapping[K, int], limit: int) -> dict[K, int]:
    """Returns the part of each count: together `limit`, or as many as there are counts above 0 where those are more.

    Each count above 0 has 1; what is left of the limit is shared in proportion to what is left of the counts.
    """
    total = sum(counts.values())
    if total <= limit:
        return dict(counts)
    filled_count = sum(count > 0 for count in counts.values())
    spare, wanted = max(0, limit - filled_count), max(1, total - filled_count)
    parts = {key: 1 + spare * (count - 1) // wanted if count else 0 for key, count in counts.items()}
    left = max(0, limit - sum(parts.values()))
    by_size = sorted(counts, key=lambda key: counts[key] - parts[key], reverse=True)
    for key in by_size[:left]:  # at most one each: the parts were rounded down
        parts[key] += 1
    return parts


def _within_bytes(counts: Mapping[K, int], max_bytes: int, bytes_per_offset: Mapping[K, float]) -> dict[K, int]:
    each = {key: max(bytes_per_offset.get(key) or UNKNOWN_OFFSET_BYTES, _LEAST_OFFSET_BYTES) for key in counts}
    sizes = {key: math.ceil(count * each[key]) for key, count in counts.items()}
    if sum(sizes.values()) <= max_bytes:
        return dict(counts)
    parts = shared(sizes, max_bytes)
    return {key: min(count, max(1, int(parts[key] / each[key]))) if count else 0 for key, count in counts.items()}
