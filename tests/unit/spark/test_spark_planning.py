"""From ranges to tasks."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.errors import ConfigError
from replog.spark.planning import plan_tasks
from replog.spark.snapshot import OffsetRange


def ranges(*bounds: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange("t", UUID(int=1), number, start, end) for number, (start, end) in enumerate(bounds)]


def bounds(tasks: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(task.partition, task.start_offset, task.end_offset) for task in tasks]


def test_one_task_per_range_and_none_for_an_empty_one() -> None:
    assert bounds(plan_tasks(ranges((0, 5), (7, 7), (3, 4)))) == [(0, 0, 5), (2, 3, 4)]
    assert plan_tasks(ranges((0, 0)), min_partitions=4) == []
    assert plan_tasks([]) == []


def test_large_ranges_are_split_in_proportion() -> None:
    """Example: 900 and 100 offsets in four tasks: four times a fourth of the large one, the small one whole."""
    tasks = plan_tasks(ranges((0, 900), (50, 150)), min_partitions=4)
    assert bounds(tasks) == [(0, 0, 225), (0, 225, 450), (0, 450, 675), (0, 675, 900), (1, 50, 150)]


def test_a_range_is_not_split_below_one_offset() -> None:
    assert bounds(plan_tasks(ranges((4, 6)), min_partitions=50)) == [(0, 4, 5), (0, 5, 6)]


def test_no_task_has_more_than_it_may() -> None:
    assert bounds(plan_tasks(ranges((0, 10), (3, 5)), max_records_per_partition=4)) == [
        (0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 3, 5),
    ]  # fmt: skip
    both = plan_tasks(ranges((0, 10)), min_partitions=5, max_records_per_partition=4)
    assert len(both) >= 5
    assert max(task.offsets_count for task in both) <= 4


def test_more_tasks_than_spark_can_plan_are_refused() -> None:
    """Goal: a number meant for something else must not fill the driver's memory."""
    with pytest.raises(ConfigError) as caught:
        plan_tasks(ranges((0, 10**15)), max_records_per_partition=1)
    assert "makes 1,000,000,000,000,000 tasks" in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=6),
    st.integers(0, 20),
    st.none() | st.integers(1, 60),
)
@settings(max_examples=100, deadline=None)
def test_tasks_cover_each_range_once_and_in_order(
    sizes: list[tuple[int, int]], min_partitions: int, max_records: int | None
) -> None:
    wanted = ranges(*((start, start + size) for start, size in sizes))
    tasks = plan_tasks(wanted, min_partitions, max_records)
    assert all(0 < task.offsets_count <= (max_records or 1_000) for task in tasks)
    for each in wanted:
        offsets = [
            n for task in tasks if task.partition == each.partition for n in range(task.start_offset, task.end_offset)
        ]
        assert offsets == list(range(each.start_offset, each.end_offset))
