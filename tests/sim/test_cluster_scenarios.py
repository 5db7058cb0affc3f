"""Whole clusters with the real client in virtual time: scenarios that read like a lab book."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from replog.controller.requests import CreateTopics, NewTopic
from replog.testing.history import History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_network import NetworkConditions
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.data_cluster_simulation import TOPIC
from tests.sim.data_topics import Load, newest_image

SETTINGS = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 800,
    "controller.quorum.request.timeout.ms": 800,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_000,
    "min.insync.replicas": 2,
    "log.dir.reserve.bytes": 0,
}


def partition_leader(cluster: SimulatedCluster) -> int:
    """Of the topic's only partition, as the newest metadata says."""
    return newest_image(cluster).topics_by_name[TOPIC].partitions[0].leader


def run(trouble: Callable[[SimulatedCluster], Awaitable[None]]) -> int:
    """Three nodes with both roles under load, then `trouble`, then everything is read; returns how many were acknowledged."""
    loop = VirtualLoop(random.Random(1), steps_max=5_000_000)
    cluster = SimulatedCluster(
        loop,
        random.Random(2),
        controllers=(1, 2, 3),
        brokers=(1, 2, 3),
        settings=SETTINGS,
        conditions=NetworkConditions(straggler=0.01, stream_break=0.001),
    )
    history = History()

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await cluster.client("admin").ask(1, CreateTopics((NewTopic(TOPIC, 1, 3),)))
        load = Load(cluster, history)
        tasks = [asyncio.create_task(load.produce()), asyncio.create_task(load.consume())]
        await asyncio.sleep(2)
        await trouble(cluster)
        await cluster.wait_until(cluster.is_settled)
        before = history.acknowledged_count
        await cluster.wait_until(lambda: history.acknowledged_count > before + 20)
        load.stop()
        await asyncio.gather(*tasks)
        await load.read_all()

    loop.run(main())
    assert loop.problems == []
    history.check_or_raise()
    return history.acknowledged_count


def test_records_survive_their_leaders() -> None:
    """The partition's leader loses power three times, wherever it is by then."""

    async def trouble(cluster: SimulatedCluster) -> None:
        for _ in range(3):
            leader = partition_leader(cluster)
            cluster.crash(leader)
            await cluster.wait_until(lambda leader=leader: partition_leader(cluster) not in (-1, leader))  # type: ignore[misc]  # bound at once
            await asyncio.sleep(1)
            cluster.start(leader)
            await cluster.wait_until(cluster.is_settled)
            await asyncio.sleep(2)

    assert run(trouble) > 200


def test_records_survive_a_power_cut_of_everything() -> None:
    """The mains fail: no machine has time for anything."""

    async def trouble(cluster: SimulatedCluster) -> None:
        for node_id in cluster.nodes:
            cluster.crash(node_id)
        await asyncio.sleep(3)
        for node_id in cluster.nodes:
            cluster.start(node_id)

    assert run(trouble) > 100


def test_a_leader_that_is_paused_and_wakes_up_serves_nothing_stale() -> None:
    """SIGSTOP longer than the session; the others go on; it wakes up and believes that it still leads."""

    async def trouble(cluster: SimulatedCluster) -> None:
        leader = partition_leader(cluster)
        cluster.pause(leader)
        await asyncio.sleep(4)
        cluster.resume(leader)

    assert run(trouble) > 100


def test_a_leader_that_hears_nobody_and_is_heard() -> None:
    """A one-way cut: what it says arrives, what is said to it does not."""

    async def trouble(cluster: SimulatedCluster) -> None:
        leader = partition_leader(cluster)
        cluster.isolate(leader, outgoing=False)
        await asyncio.sleep(6)
        cluster.mend_all()

    assert run(trouble) > 100


def test_one_replica_of_three_is_enough() -> None:
    """f + 1 replicas survive f failures: of three brokers, beside three controllers, two lose power for good under load."""
    loop = VirtualLoop(random.Random(1), steps_max=5_000_000)
    cluster = SimulatedCluster(
        loop,
        random.Random(2),
        controllers=(1, 2, 3),
        brokers=(4, 5, 6),
        settings={**SETTINGS, "min.insync.replicas": 1},
    )
    history = History()

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await cluster.client("admin").ask(1, CreateTopics((NewTopic(TOPIC, 1, 3),)))
        load = Load(cluster, history)
        tasks = [asyncio.create_task(load.produce()), asyncio.create_task(load.consume())]
        await asyncio.sleep(2)
        for _ in range(2):
            leader = partition_leader(cluster)
            cluster.crash(leader)
            await cluster.wait_until(lambda leader=leader: partition_leader(cluster) not in (-1, leader))  # type: ignore[misc]  # bound at once
            before = history.acknowledged_count
            await cluster.wait_until(lambda before=before: history.acknowledged_count > before + 20)  # type: ignore[misc]
        load.stop()
        await asyncio.gather(*tasks)
        await load.read_all()

    loop.run(main())
    assert loop.problems == []
    assert [node.config.node_id for node in cluster.running if node.config.is_broker] == [partition_leader(cluster)]
    history.check_or_raise()
    assert history.acknowledged_count > 100
