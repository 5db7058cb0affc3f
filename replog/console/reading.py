"""Reads some records of a topic and tells which come next: the newest ones, or those from a place on.

What is read is bounded by records, by bytes (`shown_records` keeps the beginning of each only) and by time.  Records of a
partition stay in their order, whatever their timestamps say; those of several are merged by time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from replog.client import Consumer, ConsumerRecord, TopicPartition
from replog.client.consumer.positions import Place, offsets_of
from replog.console import shown_records
from replog.console.context import ASK_MS
from replog.console.shown_records import RecordRow
from replog.rpc.metadata_messages import TopicInfo

READ_S: Final = 8.0
"""What is not read by then is not shown."""

POLL_MS: Final = 300
POLL_RECORDS: Final = 500

WIDER: Final = 10
ROUNDS: Final = 4
"""Compaction and markers leave gaps: where fewer records than offsets were found, ever more offsets are looked at."""

RECORDS_READ_MAX: Final = 20_000
"""For one list; of a topic with hundreds of partitions fewer than asked for are read of each."""


class RecordsFound(Struct):
    """Some records, in the order in which they are shown.

    Attributes:
        rows: The records, as `shown_records.row` says them.
        bounds: The offset of each partition at which the next page begins, or, of the newest records, ends.
        has_more: Whether there are more in that direction.
        is_late: Whether the time was over before all was read.
    """

    rows: list[RecordRow]
    bounds: dict[int, int]
    has_more: bool
    is_late: bool


def readable(info: TopicInfo, wanted: int | None) -> list[TopicPartition]:
    """Returns the partitions of a topic that have a leader; of one partition, if it is named."""
    return [
        TopicPartition(info.name, each.partition_id)
        for each in info.partitions
        if each.leader >= 0 and wanted in {None, each.partition_id}
    ]


async def windows(
    consumer: Consumer, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns the first offset of each partition, and its high watermark."""
    starts = await consumer.beginning_offsets(partitions, timeout_ms=ASK_MS)
    return starts, await consumer.end_offsets(partitions, timeout_ms=ASK_MS)


async def newest(
    consumer: Consumer, partitions: Sequence[TopicPartition], limit: int, before: Mapping[int, int]
) -> RecordsFound:
    """Reads the newest records, the newest first.

    Args:
        consumer: A consumer without assignment.
        partitions: The partitions to read; none: nothing is found.
        limit: The number of records, 1 or more.
        before: The offset before which each partition is read; one that is not in it is read up to its end.

    Raises:
        ReplogError: A leader does not answer, or what it sends is damaged.
    """
    starts, ends = await windows(consumer, partitions)
    ends = {each: max(starts[each], min(end, before.get(each.partition, end))) for each, end in ends.items()}
    each_max = max(1, min(limit, RECORDS_READ_MAX // max(1, len(partitions))))
    span, deadline_s = each_max, asyncio.get_running_loop().time() + READ_S
    for attempt in range(ROUNDS):
        begins = {each: max(starts[each], end - span) for each, end in ends.items()}
        kept: dict[int, deque[RecordRow]] = {each.partition: deque(maxlen=each_max) for each in ends}
        is_late = await _read(consumer, begins, ends, deadline_s, partial(_keep, kept))
        if is_late or begins == starts or sum(map(len, kept.values())) >= limit or attempt == ROUNDS - 1:
            break
        span *= WIDER
    taken = _merged({number: list(reversed(rows)) for number, rows in kept.items()}, limit, newest_first=True)
    bounds = {each.partition: end if kept[each.partition] else begins[each] for each, end in ends.items()}
    bounds |= {row.partition: row.offset for row in taken}
    has_more = any(bounds[each.partition] > start for each, start in starts.items())
    return RecordsFound(taken, bounds, has_more, is_late)


async def onward(
    consumer: Consumer, partitions: Sequence[TopicPartition], limit: int, start: Place | Mapping[int, int]
) -> RecordsFound:
    """Reads records from a place on, the oldest first.

    Args:
        consumer: A consumer without assignment.
        partitions: The partitions to read; none: nothing is found.
        limit: The number of records, 1 or more.
        start: The place, or the offset of each partition; one that is not in it is read from its start.

    Raises:
        ReplogError: A leader does not answer, or what it sends is damaged.
    """
    starts, ends = await windows(consumer, partitions)
    if isinstance(start, Mapping):
        begins = {each: min(max(start.get(each.partition, 0), starts[each]), end) for each, end in ends.items()}
    else:
        begins = await offsets_of(consumer, partitions, start, ASK_MS)
    each_max = max(1, min(limit, RECORDS_READ_MAX // max(1, len(partitions))))
    kept: dict[int, list[RecordRow]] = {each.partition: [] for each in ends}

    def keep(record: ConsumerRecord) -> bool:
        rows = kept[record.partition]
        if len(rows) < each_max:
            rows.append(shown_records.row(record))
        return len(rows) < each_max

    deadline_s = asyncio.get_running_loop().time() + READ_S
    is_late = await _read(consumer, begins, ends, deadline_s, keep)
    taken = _merged(kept, limit, newest_first=False)
    bounds = {each.partition: begins[each] if kept[each.partition] or is_late else end for each, end in ends.items()}
    bounds |= {row.partition: row.offset + 1 for row in taken}
    return RecordsFound(taken, bounds, any(bounds[each.partition] < end for each, end in ends.items()), is_late)


async def one(consumer: Consumer, partition: TopicPartition, offset: int) -> ConsumerRecord | None:
    """Reads the record at an offset; None where there is none (any more, or yet).

    Raises:
        ReplogError: The leader does not answer, or what it sends is damaged.
    """
    starts, ends = await windows(consumer, [partition])
    if not starts[partition] <= offset < ends[partition]:
        return None
    await consumer.assign([partition], start={partition: offset}, timeout_ms=ASK_MS)
    deadline_s = asyncio.get_running_loop().time() + READ_S
    while asyncio.get_running_loop().time() < deadline_s and consumer.position(partition) <= offset:
        for record in await consumer.poll(1, POLL_MS):
            return record if record.offset == offset else None
    return None


async def _read(
    consumer: Consumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    deadline_s: float,
    keep: Callable[[ConsumerRecord], bool],
) -> bool:
    """Reads [begin, end) of each partition, or until `keep` wants no more of it; returns whether the time was over before."""
    begun: dict[tuple[str, int], int] = {each: begin for each, begin in begins.items() if begin < ends[each]}
    await consumer.assign([], timeout_ms=ASK_MS)
    await consumer.assign(begun, start=begun, timeout_ms=ASK_MS)
    left = set(consumer.assignment())
    while left and asyncio.get_running_loop().time() < deadline_s:
        for record in await consumer.poll(POLL_RECORDS, POLL_MS):
            name = TopicPartition(record.topic, record.partition)
            if name in left and (record.offset >= ends[name] or not keep(record)):
                left.discard(name)
                consumer.pause(name)
        for name in [name for name in left if consumer.position(name) >= ends[name]]:
            left.discard(name)
            consumer.pause(name)
    return bool(left)


def _keep(kept: Mapping[int, deque[RecordRow]], record: ConsumerRecord) -> bool:
    kept[record.partition].append(shown_records.row(record))
    return True


def _merged(by_partition: Mapping[int, Iterable[RecordRow]], limit: int, *, newest_first: bool) -> list[RecordRow]:
    """Merges the records of partitions by time; each partition's stay in their order."""
    sign = -1 if newest_first else 1
    merged = heapq.merge(*by_partition.values(), key=lambda row: sign * row.timestamp)
    return [row for row, _ in zip(merged, range(limit), strict=False)]
