"""From the ranges of a batch to Spark tasks: many small ranges share one.

A task costs Spark some 50 ms of a processor, which is more than reading a thousand records; a topic of a hundred
partitions with a little news in each would cost seconds for every batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from replog.spark.planning import TaskSizes, plan_tasks
from replog.spark.snapshot import OffsetRange, SizedRange

TASK_OFFSETS = 20_000
"""What makes a task worth its while; smaller ranges are put together."""

TASK_RANGES_MAX = 100
"""Of one task: each range costs a look at its leader."""


def plan_stream_tasks(ranges: Sequence[OffsetRange], sizes: TaskSizes) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task; no task is without records.

    Args:
        ranges: The ranges of the batch.
        sizes: What the user wishes of tasks: so many as are wished are not put together, and none where the offsets of
            a task are bounded.

    Raises:
        ConfigError: As `plan_tasks`.
    """
    apart = replace(sizes, min_tasks=max(1, sizes.min_tasks))
    tasks = plan_tasks([SizedRange(each, None) for each in ranges], apart)
    if sizes.max_offsets is not None:
        return tasks
    pieces = [piece for task in tasks for piece in task]
    small = [each.offsets_count for each in pieces if each.offsets_count < TASK_OFFSETS]
    worthwhile = len(pieces) - len(small) + -(-sum(small) // TASK_OFFSETS)
    worthwhile = max(worthwhile, -(-len(pieces) // TASK_RANGES_MAX), sizes.min_tasks)
    return _evenly(pieces, min(worthwhile, len(pieces)))


def _evenly(pieces: Sequence[OffsetRange], tasks_count: int) -> list[tuple[OffsetRange, ...]]:
    """Distributes pieces, the largest first, each to the task that has least."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(tasks_count)]
    heap = [(0, number) for number in range(tasks_count)]
    for piece in sorted(pieces, key=lambda each: each.offsets_count, reverse=True):
        offsets_count, number = heapq.heappop(heap)
        tasks[number].append(piece)
        if len(tasks[number]) < TASK_RANGES_MAX:
            heapq.heappush(heap, (offsets_count + piece.offsets_count, number))
    return [tuple(sorted(task, key=lambda each: (each.topic, each.partition, each.start_offset))) for task in tasks]
