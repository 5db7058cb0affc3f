"""From offset ranges to Spark tasks of about equal size.

A task costs Spark tens of milliseconds, so small ranges share one; a large partition must not be one task that all others
wait for, so it is cut.  Sizes are reckoned by the brokers, from indexes; where none are known, offsets are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from replog.client.ranges.offset_range import OffsetRange
from replog.errors import ConfigError
from replog.spark.options.table import TASKS_MAX
from replog.spark.snapshot import SizedRange

MERGE_FRACTION = 8
"""Ranges share a task up to this fraction of the wished size: few enough of them that idle cores find work."""

RANGES_MAX = 1_000
"""Ranges of one task: each is opened by itself."""


class TaskSizes(Struct, frozen=True):
    """What the user wishes of tasks.

    Attributes:
        target_bytes: The wished size of a task.
        min_tasks: The wished number of tasks: where there are fewer, the large ones are split; 0: no wish.
        max_offsets: The most offsets of one task; None: no limit.
    """

    target_bytes: int
    min_tasks: int = 0
    max_offsets: int | None = None


def plan_tasks(parts: Iterable[SizedRange], sizes: TaskSizes) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task, in order; empty ranges are left out.

    With a wished number of tasks nothing shares a task, and the result may have a few more or less, as with Spark's Kafka source.

    Args:
        parts: The ranges to read, which brokers have cut already as far as they could.
        sizes: What the user wishes of tasks.

    Raises:
        ConfigError: There would be more than TASKS_MAX tasks.
    """
    filled = [part for part in parts if part.range.offsets_count > 0]
    counts = [_pieces_count(part, sizes) for part in filled]
    _require_few(sum(counts), sizes)
    pieces = [piece for part, count in zip(filled, counts, strict=True) for piece in _split(part, count)]
    if sizes.min_tasks == 0:
        return list(_shared(pieces, sizes))
    if len(pieces) < sizes.min_tasks:
        pieces = [piece for part, count in _shares(pieces, sizes.min_tasks) for piece in _split(part, count)]
    return [(piece.range,) for piece in pieces]


def _pieces_count(part: SizedRange, sizes: TaskSizes) -> int:
    """Returns into how many pieces a part must be split, whatever the wished number of tasks."""
    by_offsets = 1 if sizes.max_offsets is None else -(-part.range.offsets_count // sizes.max_offsets)
    by_bytes = 1 if part.size_bytes is None else part.size_bytes // sizes.target_bytes  # 1 up to twice the wished size
    return max(1, by_offsets, min(by_bytes, part.range.offsets_count))


def _require_few(tasks_count: int, sizes: TaskSizes) -> None:
    if tasks_count > TASKS_MAX:
        names = "targetBytesPerPartition" if sizes.max_offsets is None else "maxRecordsPerPartition"
        text = f"{names} makes {tasks_count:,} tasks, more than {TASKS_MAX:,}"
        raise ConfigError(names, tasks_count, f"{text}. Give a larger number, or read less at a time.")


def _shares(pieces: Sequence[SizedRange], tasks_count: int) -> Iterator[tuple[SizedRange, int]]:
    """Shares a number of tasks out over pieces, in proportion to their bytes, or to their offsets where those are not known."""
    in_bytes = all(piece.size_bytes for piece in pieces)
    weights = [(piece.size_bytes if in_bytes else None) or piece.range.offsets_count for piece in pieces]
    total = sum(weights)
    for piece, weight in zip(pieces, weights, strict=True):
        yield piece, max(1, round(tasks_count * weight / total))


def _split(part: SizedRange, count: int) -> list[SizedRange]:
    """Returns `count` ranges of sizes that differ by at most one offset, or fewer, so that none of them is empty."""
    whole = part.range
    count = min(count, whole.offsets_count)
    cuts = [whole.start_offset + whole.offsets_count * number // count for number in range(count + 1)]
    size_bytes = None if part.size_bytes is None else part.size_bytes // count
    return [
        SizedRange(replace(whole, start_offset=start, end_offset=end), size_bytes)
        for start, end in itertools.pairwise(cuts)
    ]


def _shared(pieces: Iterable[SizedRange], sizes: TaskSizes) -> Iterator[tuple[OffsetRange, ...]]:
    """Puts neighbours together that are small."""
    most_bytes = sizes.target_bytes // MERGE_FRACTION
    waiting: list[OffsetRange] = []
    size_bytes, offsets_count = 0, 0
    for piece in pieces:
        size_bytes += most_bytes + 1 if piece.size_bytes is None else piece.size_bytes
        offsets_count += piece.range.offsets_count
        is_too_much = size_bytes > most_bytes or (sizes.max_offsets is not None and offsets_count > sizes.max_offsets)
        if waiting and (is_too_much or len(waiting) == RANGES_MAX):
            yield tuple(waiting)
            waiting = []
            size_bytes = most_bytes + 1 if piece.size_bytes is None else piece.size_bytes
            offsets_count = piece.range.offsets_count
        waiting.append(piece.range)
    if waiting:
        yield tuple(waiting)
