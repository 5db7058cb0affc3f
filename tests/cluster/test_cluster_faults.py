"""Faults of `replog chaos run`, here with quick sessions, a tailing consumer, and replicas compared byte for byte."""

from __future__ import annotations

import asyncio

import pytest
from cluster_kit import PATIENCE_S, StartCluster, check_healed, say, until
from cluster_load import Load, Tail

from replog.cli.chaos.fault import Target
from replog.cli.chaos.faults import FAULTS
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"


@pytest.mark.parametrize("name", ["kill-follower", "wipe-node", "recreate-topic"])
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
