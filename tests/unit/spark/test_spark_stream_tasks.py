"""From the ranges of a batch to tasks."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from replog.spark.planning import TaskSizes
from replog.spark.snapshot import OffsetRange
from replog.spark.stream.tasks import TASK_OFFSETS, TASK_RANGES_MAX, plan_stream_tasks

NO_WISH = TaskSizes(1 << 27)


def ranges(*counts: int) -> list[OffsetRange]:
    return [OffsetRange("t", UUID(int=1), number, 10, 10 + count) for number, count in enumerate(counts)]


def counts(tasks: list[tuple[OffsetRange, ...]]) -> list[list[int]]:
    return [[each.offsets_count for each in task] for task in tasks]


def test_small_ranges_share_a_task() -> None:
    assert counts(plan_stream_tasks(ranges(*[5] * 50), NO_WISH)) == [[5] * 50]
    assert plan_stream_tasks(ranges(0, 0), NO_WISH) == []
    assert plan_stream_tasks([], NO_WISH) == []


def test_large_ranges_have_tasks_of_their_own() -> None:
    large = TASK_OFFSETS
    assert counts(plan_stream_tasks(ranges(large, large, large), NO_WISH)) == [[large]] * 3
    assert sorted(counts(plan_stream_tasks(ranges(3 * large, 5, 5, large), NO_WISH))) == [[5, 5], [large], [3 * large]]


def test_the_user_asks_for_more_tasks() -> None:
    assert len(plan_stream_tasks(ranges(5, 5, 5, 5), TaskSizes(1 << 27, min_tasks=3))) == 3
    assert len(plan_stream_tasks(ranges(100), TaskSizes(1 << 27, min_tasks=4))) == 4
    assert counts(plan_stream_tasks(ranges(25, 5), TaskSizes(1 << 27, max_offsets=10))) == [[8], [8], [9], [5]]


@given(st.lists(st.integers(0, 100_000), max_size=300), st.integers(0, 20), st.none() | st.integers(1_000, 200_000))
def test_every_range_is_in_one_task_and_no_task_is_empty(
    sizes: list[int], min_partitions: int, max_records: int | None
) -> None:
    tasks = plan_stream_tasks(ranges(*sizes), TaskSizes(1 << 27, min_partitions, max_records))
    assert all(task and all(each.offsets_count > 0 for each in task) for task in tasks)
    assert all(len(task) <= TASK_RANGES_MAX for task in tasks)
    pieces = sorted((each.partition, each.start_offset, each.end_offset) for task in tasks for each in task)
    merged: dict[int, int] = {}
    for partition, start, end in pieces:
        assert start == merged.get(partition, 10)
        merged[partition] = end
    assert merged == {number: 10 + count for number, count in enumerate(sizes) if count}
