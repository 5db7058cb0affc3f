"""Racks: replicas are spread over them, and a consumer reads from the replica in its own."""

from __future__ import annotations

import pytest
from cluster_kit import Cluster, StartCluster, until

from replog.client import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.cluster

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


async def produce(cluster: Cluster, first: int, count: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(first, first + count):
            await (await producer.send(TOPIC, b"%d" % number, partition=0))


async def read(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        offsets += [record.offset for record in await consumer.poll(timeout_ms=10_000)]
    return offsets


def source(consumer: Consumer) -> int:
    """Which broker the partition is read from."""
    leader = consumer._reader.states[PARTITION].leader
    return -1 if leader is None else leader.broker_id


async def test_a_consumer_reads_from_its_rack_and_from_elsewhere_when_that_is_gone(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(4, racks=RACKS, replica_selector="rack-aware")
    await cluster.admin.create_topic(TOPIC, assignments=[[1, 3]])
    await cluster.admin.wait_until_in_sync(TOPIC)
    await produce(cluster, 0, 50)
    async with Consumer(cluster.bootstrap_servers, client_rack="b") as consumer:
        await consumer.assign([PARTITION])
        assert await read(consumer, 50) == list(range(50))
        assert source(consumer) == 3
        await produce(cluster, 50, 50)
        assert await read(consumer, 50) == list(range(50, 100))
        assert source(consumer) == 3
        await cluster.local.kill(3)
        await produce(cluster, 100, 50)
        assert await read(consumer, 50) == list(range(100, 150))
        assert source(consumer) == 1
        cluster.local.start_node(3)

        async def is_back() -> bool:
            return source(consumer) == 3

        await until(is_back, "the replica in the rack is in sync and read from again")
        await produce(cluster, 150, 10)
        assert await read(consumer, 10) == list(range(150, 160))


async def test_without_a_rack_aware_selector_leaders_serve(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(4, racks=RACKS)
    await cluster.admin.create_topic(TOPIC, assignments=[[1, 3]])
    await produce(cluster, 0, 50)
    async with Consumer(cluster.bootstrap_servers, client_rack="b") as consumer:
        await consumer.assign([PARTITION])
        assert await read(consumer, 50) == list(range(50))
        assert source(consumer) == 1


async def test_replicas_are_spread_over_racks(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(4, racks=RACKS)
    info = await cluster.admin.create_topic("spread", 8, 2)
    for partition in info.partitions:
        assert {RACKS[broker_id] for broker_id in partition.replicas} == {"a", "b"}
