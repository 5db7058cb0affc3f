"""From offset ranges to Spark tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from replog.spark.snapshot import OffsetRange


def plan_tasks(ranges: Iterable[OffsetRange], min_partitions: int = 0) -> list[OffsetRange]:
    """Returns one range for each task, in order; empty ranges get none.

    Args:
        ranges: The ranges of a snapshot.
        min_partitions: The wished number of tasks: where there are fewer ranges the large ones are split, each in
            proportion to its offsets; the result may have a few more or less, as with Spark's Kafka source.  0: no splitting.
    """
    filled = [each for each in ranges if each.offsets_count > 0]
    if len(filled) >= min_partitions:
        return filled
    total = sum(each.offsets_count for each in filled)
    return [
        piece for each in filled for piece in _split(each, max(1, round(min_partitions * each.offsets_count / total)))
    ]


def _split(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Returns `pieces` ranges of sizes that differ by at most one, or fewer, so that none of them is empty."""
    pieces = min(pieces, whole.offsets_count)
    cuts = [whole.start_offset + whole.offsets_count * number // pieces for number in range(pieces + 1)]
    return [replace(whole, start_offset=start, end_offset=end) for start, end in itertools.pairwise(cuts)]
