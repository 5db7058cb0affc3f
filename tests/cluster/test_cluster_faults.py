"""Faults of `replog chaos run`, here with quick sessions, a tailing consumer, and replicas compared byte for byte."""

from __future__ import annotations

import asyncio

import pytest
from cluster_kit import PATIENCE_S, StartCluster, check_healed, check_replicas_identical, say, until
from cluster_load import Load, Tail

from replog.errors import ErrorCode
from replog.testing.history import History
from replog_chaos.fault import Target
from replog_chaos.faults import FAULTS
from replog_chaos.reassign_faults import Move, moving

pytestmark = pytest.mark.cluster

TOPIC = "flights"


@pytest.mark.parametrize("name", ["wipe-node", "recreate-topic"])
async def test_nothing_is_lost(start_cluster: StartCluster, name: str) -> None:
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    target = Target(cluster.local, cluster.admin, TOPIC, cluster.bootstrap_servers)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        async with asyncio.timeout(PATIENCE_S):
            async with FAULTS[name].happens(target) as nodes:
                say(f"{name}: node {nodes}")
                await load.more_acknowledged(100)
        await until(lambda: back(target), "every node is back")
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)
    assert target.anomalies == []


async def back(target: Target) -> bool:
    await target.cluster.wait_until_ready()
    return True


async def test_a_partition_arrives_without_the_leader_that_died_on_the_way_for_good(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3)
    target = Target(cluster.local, cluster.admin, TOPIC, cluster.bootstrap_servers)
    async with moving(target) as (move, _):
        await cluster.local.kill(move.source)
        assert await until(lambda: move.is_under_way(target), "a controller answers"), "it was still moving"
        await until(lambda: move.has_arrived(target), "the partition has arrived")
        await check_replicas_identical(cluster, move.topic)
        assert not cluster.local.nodes[move.source].is_alive
    assert target.anomalies == []


async def test_a_partition_is_moved_off_a_broker_that_is_dead_already(start_cluster: StartCluster) -> None:
    cluster, history = await start_cluster(3), History()
    target = Target(cluster.local, cluster.admin, TOPIC, cluster.bootstrap_servers)
    controller = await cluster.controller_id()
    dead, goal = (node_id for node_id in cluster.node_ids if node_id != controller)
    move = Move(TOPIC, source=dead, stays=controller, goal=goal)
    await cluster.admin.create_topic(TOPIC, assignments=[[move.source, move.stays]])
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        await cluster.local.kill(dead)
        await load.more_acknowledged(100)
        (result,) = await cluster.admin.reassign_partitions({(TOPIC, 0): [move.goal, move.stays]})
        assert result.error is ErrorCode.NONE
        await until(lambda: move.has_arrived(target), "the partition has arrived")
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)
