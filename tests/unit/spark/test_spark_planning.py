"""From ranges to tasks."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.client.ranges.offset_range import OffsetRange
from replog.errors import ConfigError
from replog.spark import planning
from replog.spark.planning import TaskSizes, plan_tasks
from replog.spark.snapshot import SizedRange

Bounds = tuple[int, int, int]
"""Partition, start, end."""


def parts(*described: tuple[int, int, int | None]) -> list[SizedRange]:
    """Ranges by start, end and size, each of a partition of its own."""
    return [
        SizedRange(OffsetRange("t", UUID(int=1), number, start, end), size)
        for number, (start, end, size) in enumerate(described)
    ]


def plan(
    *described: tuple[int, int, int | None], target: int = 1000, least: int = 0, most: int | None = None
) -> list[list[Bounds]]:
    tasks = plan_tasks(parts(*described), TaskSizes(target, least, most))
    return [[(each.partition, each.start_offset, each.end_offset) for each in ranges] for ranges in tasks]


def test_a_range_without_a_size_is_a_task_and_an_empty_one_is_none() -> None:
    assert plan((0, 5, None), (7, 7, None), (3, 4, None)) == [[(0, 0, 5)], [(2, 3, 4)]]
    assert plan((0, 0, None), least=4) == []
    assert plan() == []


def test_small_ranges_share_a_task_up_to_an_eighth_of_the_wished_size() -> None:
    found = plan((0, 5, 60), (0, 5, 60), (0, 5, 10), (0, 5, 900), (0, 5, 20), (0, 5, 125))
    assert found == [[(0, 0, 5), (1, 0, 5)], [(2, 0, 5)], [(3, 0, 5)], [(4, 0, 5)], [(5, 0, 5)]]


def test_a_task_has_not_too_many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "RANGES_MAX", 3)
    assert [len(task) for task in plan(*[(0, 1, 0)] * 8)] == [3, 3, 2]


def test_a_part_that_brokers_did_not_cut_is_split_by_offsets() -> None:
    assert plan((0, 90, 3500)) == [[(0, 0, 30)], [(0, 30, 60)], [(0, 60, 90)]]
    assert plan((0, 90, 1999)) == [[(0, 0, 90)]]


def test_a_wished_number_of_tasks_is_shared_out_by_bytes() -> None:
    """Example: 900 and 100 bytes in four tasks: four times a fourth of the large one, the small one whole."""
    sized = plan((0, 100, 900), (50, 950, 100), least=4)
    assert sized == [[(0, 0, 25)], [(0, 25, 50)], [(0, 50, 75)], [(0, 75, 100)], [(1, 50, 950)]]
    by_offsets = plan((0, 900, None), (50, 150, None), least=4)
    assert by_offsets == [[(0, 0, 225)], [(0, 225, 450)], [(0, 450, 675)], [(0, 675, 900)], [(1, 50, 150)]]
    assert plan((0, 5, 1), (0, 5, 1), least=2) == [[(0, 0, 5)], [(1, 0, 5)]]


def test_a_range_is_not_split_below_one_offset() -> None:
    assert plan((4, 6, None), least=50) == [[(0, 4, 5)], [(0, 5, 6)]]


def test_no_task_has_more_offsets_than_it_may() -> None:
    assert plan((0, 10, None), (3, 5, None), most=4) == [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 10)], [(1, 3, 5)]]
    assert plan((0, 3, 1), (0, 2, 1), (0, 2, 1), most=4) == [[(0, 0, 3)], [(1, 0, 2), (2, 0, 2)]]


def test_more_tasks_than_spark_can_plan_are_refused() -> None:
    """Goal: a number meant for something else must not fill the driver's memory."""
    with pytest.raises(ConfigError) as caught:
        plan((0, 10**15, None), most=1)
    assert "maxRecordsPerPartition makes 1,000,000,000,000,000 tasks" in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200), st.none() | st.integers(0, 5000)), max_size=6),
    st.integers(1, 2000),
    st.integers(0, 20),
    st.none() | st.integers(1, 60),
)
@settings(max_examples=200, deadline=None)
def test_tasks_cover_each_range_once_and_in_order(
    described: list[tuple[int, int, int | None]], target: int, least: int, most: int | None
) -> None:
    wanted = [(start, start + count, size) for start, count, size in described]
    tasks = plan(*wanted, target=target, least=least, most=most)
    assert all(tasks)
    for task in tasks:
        assert 0 < sum(end - start for _, start, end in task) <= (most or 2_000)
        assert all(start < end for _, start, end in task)
    for number, (start, end, _) in enumerate(wanted):
        read = [n for task in tasks for p, first, last in task if p == number for n in range(first, last)]
        assert read == list(range(start, end))
