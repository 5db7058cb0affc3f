"""Forks of topics on real processes: under load, while nodes are killed, with transactions open; and what becomes of both."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from cli_runs import replog
from cluster_kit import (
    PATIENCE_S,
    Cluster,
    StartCluster,
    check_healed,
    check_replicas_identical,
    stored_batches,
    until,
    wait_until_whole,
)
from cluster_load import Load

from replog.client import Consumer, Producer
from replog.errors import ReplogError, TopicExistsError, UnknownTopicOrPartitionError
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.testing.history import History

pytestmark = pytest.mark.cluster

SOURCE, COPY = "flights", "flights-try"
TRANSACTIONS = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}


async def ends_of(cluster: Cluster, topic: str) -> list[int]:
    places = [(topic, each.partition_id) for each in await cluster.partitions(topic)]
    found = await cluster.admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    return [found[place].offset for place in sorted(found)]


async def check_copy(cluster: Cluster, copy: str, at_least: dict[int, int]) -> None:
    """All replicas of the copy have the same bytes, those of the source, and all that was acknowledged before."""
    await wait_until_whole(cluster, copy)
    await check_replicas_identical(cluster, copy)
    for number, end in enumerate(await ends_of(cluster, copy)):
        assert end >= at_least.get(number, 0)
        for node_id in cluster.node_ids:
            of_copy, of_source = (
                stored_batches(cluster.replica_directory(node_id, f"{topic}-{number}"), end) for topic in (copy, SOURCE)
            )
            assert of_copy == of_source, f"node {node_id}, partition {number}, up to {end}"


async def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    async with Consumer(cluster.bootstrap_servers) as consumer, asyncio.timeout(PATIENCE_S):
        partitions = await consumer.assign_topic(topic)
        ends = await consumer.end_offsets(partitions)
        found: list[bytes | None] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [each.value for each in await consumer.poll(timeout_ms=100)]
        return found


def delays(seed: int) -> Iterator[float]:
    rng = random.Random(seed)
    while True:
        yield rng.choice([0, 0.01, 0.03, 0.1])


async def test_forks_under_load_while_nodes_are_killed(start_cluster: StartCluster) -> None:
    """Each fork has all that was acknowledged before it was asked for, and no byte that the source has not."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(SOURCE, 2, 3, {"min.insync.replicas": 2})
    before: dict[str, dict[int, int]] = {}
    async with Load(cluster, SOURCE, history) as load:
        for number, delay_s in zip(range(4), delays(5), strict=False):
            await load.more_acknowledged(200)
            copy = f"{COPY}-{number}"
            before[copy] = dict(load.acknowledged_ends)
            forking = asyncio.create_task(cluster.admin.fork_topic(SOURCE, copy, timeout_ms=int(PATIENCE_S * 1000)))
            victim = cluster.node_ids[number % 3]
            if number:
                await asyncio.sleep(delay_s)  # when it dies is the point
                await cluster.local.kill(victim)
            await forking
            if number:
                cluster.local.start_node(victim)
                await cluster.local.wait_until_ready(PATIENCE_S)
                await cluster.admin.wait_until_in_sync(SOURCE, timeout_ms=int(PATIENCE_S * 1000))
    await check_healed(cluster, SOURCE, history)
    for copy, at_least in before.items():
        await check_copy(cluster, copy, at_least)


@pytest.mark.parametrize("seed", range(3))
async def test_a_fork_is_whole_or_not_there_when_all_nodes_are_killed_during_it(
    start_cluster: StartCluster, seed: int
) -> None:
    cluster = await start_cluster(3)
    await cluster.admin.create_topic(SOURCE, 2, 3, {"min.insync.replicas": 2, "segment.bytes": 1 << 20})
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(3_000):
            await producer.send(SOURCE, bytes(1_000), partition=number % 2)
    forking = asyncio.create_task(cluster.admin.fork_topic(SOURCE, COPY, timeout_ms=20_000))
    await asyncio.sleep(0.01 + 0.03 * seed)  # when they die is the point
    await cluster.local.kill_all()
    for node_id in cluster.node_ids:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready(PATIENCE_S)
    (outcome,) = await asyncio.gather(forking, return_exceptions=True)
    assert not isinstance(outcome, BaseException) or isinstance(outcome, ReplogError)
    if COPY in await cluster.admin.list_topics():
        await check_copy(cluster, COPY, {0: 1_500, 1: 1_500})
        return
    with pytest.raises(UnknownTopicOrPartitionError):
        await cluster.admin.delete_topic(COPY)


async def test_open_transactions_are_aborted_and_the_same_producer_writes_both(start_cluster: StartCluster) -> None:
    """Goal: a batch for the copy is never taken for one that the producer had written into the source."""
    cluster = await start_cluster(3, **TRANSACTIONS)
    await cluster.admin.create_topic(SOURCE, 1, 3)

    def transactional(name: str) -> Producer:
        return Producer(cluster.bootstrap_servers, transactional_id=name)

    async with (
        transactional("done") as done,
        transactional("open") as left_open,
        Producer(cluster.bootstrap_servers) as plain,
    ):
        await (await plain.send(SOURCE, b"plain"))
        async with done.transaction():
            await (await done.send(SOURCE, b"committed"))
            async with left_open.transaction():
                await (await left_open.send(SOURCE, b"open"))
                await cluster.admin.fork_topic(SOURCE, "early")
        await cluster.admin.fork_topic(SOURCE, "late")
        assert await values(cluster, SOURCE) == [b"plain", b"committed", b"open"]
        assert await values(cluster, "early") == [b"plain"]
        assert await values(cluster, "late") == [b"plain", b"committed", b"open"]
        await (await plain.send("early", b"again"))
        async with left_open.transaction():
            await left_open.send("early", b"later")
        await until(lambda: has_all(cluster), "the marker is there")
    await cluster.local.kill(await cluster.leader("early"))
    await until(lambda: is_led(cluster, "early"), "another node leads")
    assert await has_all(cluster)


async def has_all(cluster: Cluster) -> bool:
    return await values(cluster, "early") == [b"plain", b"again", b"later"]


async def is_led(cluster: Cluster, topic: str) -> bool:
    (partition,) = await cluster.partitions(topic)
    return partition.leader >= 0 and len(partition.isr) == 2


async def test_both_topics_go_on_alone_and_what_is_refused(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    admin: Any = cluster.admin
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.fork_topic(SOURCE, COPY)
    await admin.create_topic(SOURCE, 2, 3, {"segment.bytes": 1 << 20})
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(2_000):
            await producer.send(SOURCE, bytes(1_000), partition=number % 2)
        await producer.flush()
        assert len((await admin.fork_topic(SOURCE, COPY)).partitions) == 2
        with pytest.raises(TopicExistsError):
            await admin.fork_topic(SOURCE, COPY)
        await check_copy(cluster, COPY, {0: 1_000, 1: 1_000})
        arguments = ("topics", "fork", COPY, "by-hand", "--bootstrap-servers", cluster.bootstrap_servers)
        done = await asyncio.to_thread(replog, *arguments)
        assert (done.status, done.out) == (0, f"by-hand has all records of {COPY}: 2 partitions\n"), done.err
        again = await asyncio.to_thread(replog, *arguments)
        assert again.status != 0
        assert '"by-hand" exists' in again.err
        await check_copy(cluster, "by-hand", {0: 1_000, 1: 1_000})
        for topic, count in ((SOURCE, 1), (COPY, 2)):
            for _ in range(count):
                await (await producer.send(topic, b"own", partition=0))
    assert await ends_of(cluster, SOURCE) == [1_001, 1_000]
    await admin.delete_topic(SOURCE)
    for node_id in cluster.node_ids:
        await cluster.local.stop(node_id)
    for node_id in cluster.node_ids:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready(PATIENCE_S)
    assert await ends_of(cluster, COPY) == [1_002, 1_000]
    assert (await values(cluster, COPY)).count(b"own") == 2
    await check_replicas_identical(cluster, COPY)
