"""From offset ranges to Spark tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from replog.errors import ConfigError
from replog.spark.options.table import TASKS_MAX
from replog.spark.snapshot import OffsetRange


def plan_tasks(
    ranges: Iterable[OffsetRange], min_partitions: int = 0, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """Returns one range for each task, in order; empty ranges get none.

    Args:
        ranges: The ranges of a snapshot.
        min_partitions: The wished number of tasks: where there are fewer ranges the large ones are split, each in
            proportion to its offsets; the result may have a few more or less, as with Spark's Kafka source.  0: no splitting.
        max_records_per_partition: The most offsets of one task: larger ranges are split first; None: no limit.

    Raises:
        ConfigError: The ranges would be split into more than TASKS_MAX tasks.
    """
    filled = [each for each in ranges if each.offsets_count > 0]
    if max_records_per_partition is not None:
        _require_few(filled, max_records_per_partition)
        filled = [piece for each in filled for piece in _split(each, _pieces_count(each, max_records_per_partition))]
    if len(filled) >= min_partitions:
        return filled
    total = sum(each.offsets_count for each in filled)
    return [
        piece for each in filled for piece in _split(each, max(1, round(min_partitions * each.offsets_count / total)))
    ]


def _require_few(ranges: Iterable[OffsetRange], max_records: int) -> None:
    tasks_count = sum(_pieces_count(each, max_records) for each in ranges)
    if tasks_count > TASKS_MAX:
        name = "maxRecordsPerPartition"
        text = f"{name} is {max_records}, which makes {tasks_count:,} tasks: more than {TASKS_MAX:,}"
        raise ConfigError(name, max_records, f"{text}. Give a larger number, or read less at a time.")


def _pieces_count(whole: OffsetRange, max_records: int) -> int:
    return -(-whole.offsets_count // max_records)


def _split(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Returns `pieces` ranges of sizes that differ by at most one, or fewer, so that none of them is empty."""
    pieces = min(pieces, whole.offsets_count)
    cuts = [whole.start_offset + whole.offsets_count * number // pieces for number in range(pieces + 1)]
    return [replace(whole, start_offset=start, end_offset=end) for start, end in itertools.pairwise(cuts)]
