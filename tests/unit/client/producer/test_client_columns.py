"""`send_columns` against scripted brokers: rows of columns reach the log as records one by one would."""

from __future__ import annotations

import array
import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import Producer, SyncProducer
from replog.errors import (
    BrokerClosedError,
    ErrorCode,
    InvalidRecordError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from replog.records import Columns, RecordInput, decode_columns, encode_batch
from replog.records.key_hash import murmur2

ROWS: list[RecordInput] = [
    (1000 + i, None if i % 5 == 0 else b"key%d" % (i % 7), None if i % 11 == 0 else b"%d" % i, (("h", b"%d" % i),))
    for i in range(2000)
]


def columns_of(rows: Sequence[RecordInput]) -> Columns:
    return decode_columns(encode_batch(rows), with_headers=True)


def make(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), **settings)


async def test_rows_go_where_their_keys_belong_and_keep_their_order() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    async with make(cluster, batch_size_bytes=1000) as producer:
        bulk = await producer.send_columns("t", columns_of(ROWS))
        ranges = await bulk
    assert bulk.records_count == bulk.acknowledged_count == sum(each.records_count for each in ranges) == 2000
    found = [(number, record) for (_, number), log in cluster.logs.items() for record in log.records()]
    assert sorted((each[1:] for _, each in found), key=lambda each: each[0]) == ROWS
    for number, record in found:
        assert record.key is None or (murmur2(record.key) & 0x7FFFFFFF) % 3 == number
    for log in cluster.logs.values():
        times = [record.timestamp for record in log.records() if record.key is not None]
        assert times == sorted(times)
        assert max(map(len, log.batches)) <= 1000


async def test_a_given_partition_goes_before_the_key() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    given = array.array("i", [i % 3 if i % 2 else -1 for i in range(2000)])
    async with make(cluster) as producer:
        await (await producer.send_columns("t", columns_of(ROWS), partitions=given.tobytes()))
        with pytest.raises(InvalidRecordError, match="row 1: there is no partition 3, there are 3"):
            await producer.send_columns("t", columns_of(ROWS[:2]), partitions=array.array("i", [0, 3]).tobytes())
        with pytest.raises(InvalidRecordError, match="partitions is too short"):
            await producer.send_columns("t", columns_of(ROWS[:2]), partitions=b"1234")
    for (_, number), log in cluster.logs.items():
        numbers = {record.timestamp - 1000 for record in log.records()}
        assert numbers >= {i for i in range(2000) if i % 2 and i % 3 == number}


class ByLength:
    """A partitioner of the caller's: by the length of the key."""

    def partition(self, topic: str, key: bytes | None, size_bytes: int, count: int, available: Sequence[int]) -> int:
        return len(key or b"") % count


async def test_a_partitioner_of_the_callers_is_asked_for_each_row_without_a_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    rows = [(1, b"x" * (i % 4) if i % 4 else None, b"%d" % i, ()) for i in range(40)]
    async with make(cluster, partitioner=ByLength()) as producer:
        await (await producer.send_columns("t", columns_of(rows)))
    for (_, number), log in cluster.logs.items():
        assert [record.value for record in log.records()] == [b"%d" % i for i in range(40) if i % 4 % 3 == number]


async def test_memory_is_bounded_and_the_caller_waits() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    async with make(cluster, buffer_memory_bytes=10_000) as producer:
        node.hold_replies = True
        sending = asyncio.create_task(producer.send_columns("t", columns_of([(1, None, b"x" * 500, ())] * 100)))
        await until(lambda: bool(producer._accumulator.memory._waiters))
        assert producer._accumulator.memory.held_bytes <= 10_000
        await node.release_held()
        await (await sending)
        assert producer._accumulator.memory.held_bytes == 0
    assert cluster.logs["t", 0].values() == [b"x" * 500] * 100


async def test_large_rows_go_alone_and_too_large_ones_are_named() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    sizes = [10, 5000, 10, 3000, 10]
    async with make(cluster, batch_size_bytes=1000, max_request_bytes=10_000) as producer:
        await (await producer.send_columns("t", columns_of([(1, None, b"x" * size, ()) for size in sizes])))
        with pytest.raises(RecordTooLargeError, match=r"t: row 1: a record of up to 20097 bytes.*10000"):
            await producer.send_columns("t", columns_of([(1, None, b"x" * size, ()) for size in (10, 20_000)]))
    assert [len(value or b"") for value in cluster.logs["t", 0].values()] == [*sizes, 10]


async def test_what_cannot_be_sent_is_told_and_how_much_was_acknowledged() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].script.extend([lambda *_: "append", lambda *_: ErrorCode.MESSAGE_TOO_LARGE])
    async with make(cluster, batch_size_bytes=1000) as producer:
        bulk = await producer.send_columns("t", columns_of([(1, None, b"%0400d" % i, ()) for i in range(6)]))
        with pytest.raises(RecordTooLargeError, match="t-0"):
            await bulk
        await producer.flush()
        assert bulk.acknowledged_count == 4
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_columns("nowhere", columns_of(ROWS))
        nothing = await producer.send_columns("t", decode_columns(b""))
        assert list(await nothing) == []
    with pytest.raises(BrokerClosedError):
        await producer.send_columns("t", columns_of(ROWS))


def test_the_sync_producer_has_it_too() -> None:
    producer = SyncProducer("127.0.0.1:1", transport=FakeCluster().transport())
    try:
        with pytest.raises(InvalidRecordError, match="too short"):
            producer.send_columns("t", columns_of(ROWS)._replace(count=5000))
    finally:
        producer.close(timeout_ms=0)
