"""A leader that stops for longer than its session (SIGSTOP, as a long pause or a frozen machine would) and wakes up."""

from __future__ import annotations

import asyncio
import random

import pytest
from cluster_kit import Cluster, StartCluster, check_healed, say, until
from cluster_load import LatestWatch, Load, Tail, paused
from cluster_raw import RawClient

from replog.errors import ErrorCode
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"

REFUSALS = {
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}


@pytest.mark.parametrize("leads", ["the partition", "the partition and the metadata quorum"])
async def test_leader_paused_beyond_its_session(start_cluster: StartCluster, leads: str) -> None:
    """Woken up it serves nothing stale: not to who waited, nor to who asks now, until it is heard again."""
    cluster, history = await start_cluster(3), History()
    controller = await cluster.controller_id()
    leader = controller if "quorum" in leads else controller % 3 + 1
    others = [node_id for node_id in cluster.node_ids if node_id != leader]
    info = await cluster.admin.create_topic(
        TOPIC, assignments=[[leader, *others], [*others, leader]], configs={"min.insync.replicas": 2}
    )
    async with (
        Load(cluster, TOPIC, history) as load,
        Tail(cluster, TOPIC, history),
        LatestWatch(cluster, TOPIC, load),
        RawClient(cluster, leader, info.topic_id) as raw,
    ):
        await load.more_acknowledged(100)
        end_offset = (await raw.latest()).offset
        await raw.send_fetch(end_offset + 1_000_000, max_wait_ms=0)
        await raw.receive_fetch()  # the stream is warm
        async with paused(cluster, leader):
            waiting = asyncio.create_task(raw.latest())
            await raw.send_fetch(0, max_wait_ms=0)
            await raw.send_produce(b"written to a leader of the past", acks=1)
            successor = await cluster.leader_other_than(leader, TOPIC)
            say(f"node {leader} sleeps, node {successor} leads")
            await load.more_acknowledged(100)
        latest = await waiting
        assert latest.error in REFUSALS, latest
        fetched, values = await raw.receive_fetch()
        assert (fetched.error in REFUSALS, values) == (True, []), fetched
        produced = await raw.receive_produce()
        assert produced.error in REFUSALS, produced
        await cluster.isr_is(cluster.node_ids, TOPIC)
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)


async def test_pause_again_and_again(start_cluster: StartCluster) -> None:
    """Pauses around the length of the session, of nodes of any role: now one is missed, now it is not."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    rng = random.Random(5)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history), LatestWatch(cluster, TOPIC, load):
        for _ in range(4):
            async with paused(cluster, rng.choice(cluster.node_ids)):
                await asyncio.sleep(rng.uniform(0.5, 2.5))  # the length of the pause is the point
            await load.more_acknowledged(20)
    await check_healed(cluster, TOPIC, history)


async def test_all_paused_together(start_cluster: StartCluster) -> None:
    """A suspended machine: everybody's session is over at the same moment, and nobody is to blame."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history), LatestWatch(cluster, TOPIC, load):
        async with paused(cluster, *cluster.node_ids):
            await asyncio.sleep(2.5)  # longer than the session
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)


async def test_paused_follower_holds_nothing_up_for_long(start_cluster: StartCluster) -> None:
    """After its session it is out of the ISR; after the pause it catches up and comes back."""
    cluster, history = await start_cluster(3), History()
    controller = await cluster.controller_id()
    follower = controller % 3 + 1
    others = [node_id for node_id in cluster.node_ids if node_id != follower]
    await cluster.admin.create_topic(TOPIC, assignments=[[*others, follower]], configs={"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        async with paused(cluster, follower):
            await load.more_acknowledged(200)
            assert await isr_without(cluster, follower)
        await cluster.isr_is(cluster.node_ids, TOPIC)
    await check_healed(cluster, TOPIC, history)


async def isr_without(cluster: Cluster, node_id: int) -> bool:
    async def gone() -> bool:
        return node_id not in (await cluster.partitions(TOPIC))[0].isr

    return await until(gone, f"node {node_id} is out of the ISR")
