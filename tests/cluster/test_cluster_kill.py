"""kill -9 under load: whoever dies, and however many, no acknowledged record is lost, doubled or moved."""

from __future__ import annotations

import asyncio
import random

import pytest
from cluster_kit import Cluster, StartCluster, check_healed, say, until
from cluster_load import LatestWatch, Load, Tail

from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"


async def three_nodes(start_cluster: StartCluster) -> Cluster:
    cluster = await start_cluster(3)
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    return cluster


async def restart(cluster: Cluster, *node_ids: int) -> None:
    for node_id in node_ids:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready(60.0)


async def test_killed_leader(start_cluster: StartCluster) -> None:
    """Also: no latest offset below what was acknowledged, in a tight loop across the failover."""
    cluster, history = await three_nodes(start_cluster), History()
    async with (
        Load(cluster, TOPIC, history) as load,
        Tail(cluster, TOPIC, history),
        LatestWatch(cluster, TOPIC, load) as watch,
    ):
        leader = await cluster.leader(TOPIC, 0)
        await load.more_acknowledged(100)
        await cluster.local.kill(leader)
        successor = await cluster.leader_other_than(leader, TOPIC, 0)
        say(f"node {leader} killed, node {successor} leads")
        await load.more_acknowledged(200)
        await restart(cluster, leader)
        await load.more_acknowledged(100)

        async def has_looked_often() -> bool:
            return watch.answers["NONE"] > 100

        await until(has_looked_often, "the latest offset was asked for 100 times")
    await check_healed(cluster, TOPIC, history)


async def test_killed_follower(start_cluster: StartCluster) -> None:
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        leaders = {partition.leader for partition in await cluster.partitions(TOPIC)}
        follower = next(node_id for node_id in cluster.node_ids if node_id not in leaders)
        await cluster.local.kill(follower)
        await cluster.isr_is([node_id for node_id in cluster.node_ids if node_id != follower], TOPIC, 0)
        await load.more_acknowledged(200)
        await restart(cluster, follower)
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)


async def test_killed_controller(start_cluster: StartCluster) -> None:
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        controller = await cluster.controller_id()
        await cluster.local.kill(controller)
        await load.more_acknowledged(200)
        assert await cluster.controller_id() != controller
        await restart(cluster, controller)
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)


async def test_killed_all(start_cluster: StartCluster) -> None:
    """Every member of every ISR restarts uncleanly: the `recovered` election."""
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        await load.more_acknowledged(200)
        await cluster.local.kill_all()
        await restart(cluster, *cluster.node_ids)
        await load.more_acknowledged(200)
    await check_healed(cluster, TOPIC, history)


async def test_killed_one_after_the_other_until_none_is_left(start_cluster: StartCluster) -> None:
    """The last leader has been alone; only it has everything, or it must not have acknowledged alone."""
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        first = await cluster.leader(TOPIC, 0)
        await cluster.local.kill(first)
        second = await cluster.leader_other_than(first, TOPIC, 0)
        await load.more_acknowledged(100)
        await cluster.local.kill(second)
        await cluster.local.kill_all()
        await restart(cluster, first, second, *(n for n in cluster.node_ids if n not in {first, second}))
        await load.more_acknowledged(200)
    await check_healed(cluster, TOPIC, history)


async def test_storm_of_kills(start_cluster: StartCluster) -> None:
    """One node after the other, again and again, some killed before the last one has caught up."""
    cluster, history = await three_nodes(start_cluster), History()
    rng = random.Random(3)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        for _ in range(4):
            victim = rng.choice(cluster.node_ids)
            await cluster.local.kill(victim)
            await asyncio.sleep(rng.choice([0, 0.3, 2.5]))  # the length of the outage is the point
            cluster.local.start_node(victim)
            await load.more_acknowledged(rng.choice([1, 50]))
    await check_healed(cluster, TOPIC, history)
