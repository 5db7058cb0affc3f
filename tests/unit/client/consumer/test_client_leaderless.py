"""A partition that nobody leads holds up no other: it is read from once it has a leader."""

from __future__ import annotations

import asyncio
import logging

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import Consumer, SyncConsumer
from replog.errors import LeaderNotAvailableError, OffsetOutOfRangeError, RequestTimedOutError
from replog.records import encode_batch

NOBODY = -1


def half_led_cluster() -> FakeCluster:
    """Partition 0 has records 0 to 2 and a leader; partition 1 has records 5 to 7 and none."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    for partition in range(2):
        for _ in range(3 + 5 * partition):
            cluster.logs["t", partition].append(encode_batch([(1000, None, b"%d" % partition, ())]))
    cluster.logs["t", 1].log_start_offset = 5
    cluster.move_leader("t", 1, NOBODY)
    return cluster


def consumer_of(cluster: FakeCluster) -> Consumer:
    return Consumer(cluster.bootstrap, transport=cluster.transport(), fetch_max_wait_ms=20)  # type: ignore[arg-type]


async def test_the_others_are_read_at_once_and_it_when_it_has_a_leader(caplog: pytest.LogCaptureFixture) -> None:
    cluster = half_led_cluster()
    async with consumer_of(cluster) as consumer, asyncio.timeout(60):
        with caplog.at_level(logging.WARNING, "replog"):
            await consumer.assign_topic("t")
        assert "t-1 has no leader; it waits for one of the brokers 1,2; it is read as soon" in caplog.text
        assert [record.value for record in await consumer.poll()] == [b"0"] * 3
        assert consumer.position(("t", 0)) == 3
        with pytest.raises(LeaderNotAvailableError, match="t-1 has no leader"):
            consumer.position(("t", 1))
        assert await consumer.poll(timeout_ms=50) == []
        cluster.move_leader("t", 1, 2)
        records = [await anext(consumer) for _ in range(3)]
        assert [(record.partition, record.offset) for record in records] == [(1, 5), (1, 6), (1, 7)]
        assert consumer.position(("t", 1)) == 8


async def test_a_log_that_is_empty_has_a_position_once_it_has_a_leader() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.logs["t", 0].log_start_offset = cluster.logs["t", 0].end_offset = 7
    cluster.move_leader("t", 0, NOBODY)
    async with consumer_of(cluster) as consumer:
        await consumer.assign_topic("t")
        cluster.move_leader("t", 0, 1)
        await until(lambda: not consumer._reader.states["t", 0].is_at_log_start)  # type: ignore[index]
        assert consumer.position(("t", 0)) == 7


async def test_a_seek_settles_where_it_begins() -> None:
    cluster = half_led_cluster()
    async with consumer_of(cluster) as consumer:
        await consumer.assign_topic("t")
        consumer.seek(("t", 1), 6)
        assert consumer.position(("t", 1)) == 6
        consumer.seek(("t", 0), 3)
        cluster.move_leader("t", 1, 2)
        assert (await anext(consumer)).offset == 6
        consumer.seek(("t", 1), 2)
        with pytest.raises(OffsetOutOfRangeError):
            await anext(consumer)


async def test_it_can_be_unassigned_and_kept() -> None:
    cluster = half_led_cluster()
    async with consumer_of(cluster) as consumer:
        await consumer.assign_topic("t")
        await consumer.assign([("t", 1)])
        with pytest.raises(LeaderNotAvailableError):
            consumer.position(("t", 1))
        await consumer.assign([("t", 0)])
        assert consumer.assignment() == [("t", 0)]


async def test_the_latest_offset_is_a_leaders_to_tell() -> None:
    cluster = half_led_cluster()
    text = "list offsets: no success within 100 ms.*t-1 has no leader; it waits for one of the brokers 1,2"
    async with consumer_of(cluster) as consumer:
        with pytest.raises(RequestTimedOutError, match=text):
            await consumer.assign_topic("t", start="latest", timeout_ms=100)
        assert consumer.assignment() == []
        await consumer.assign([("t", 0)], start="latest", timeout_ms=5_000)
        assert consumer.position(("t", 0)) == 3


def test_without_async() -> None:
    cluster = half_led_cluster()
    with SyncConsumer(cluster.bootstrap, transport=cluster.transport(), fetch_max_wait_ms=20) as consumer:  # type: ignore[arg-type]
        consumer.assign_topic("t", timeout_ms=5_000)
        assert len(consumer.poll()) == 3
        with pytest.raises(LeaderNotAvailableError):
            consumer.position(("t", 1))
