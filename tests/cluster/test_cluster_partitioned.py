"""Links between real processes cut by proxies or in network namespaces: black holes for a node, a pair, one way only."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster_kit import QUICK, Cluster, check_healed, say
from cluster_load import Load, Tail
from cluster_raw import RawClient

from replog.errors import ErrorCode
from replog.testing.history import History
from replog_chaos.fault import Scene, Target
from replog_chaos.namespaces import namespaces_are_missing
from replog_chaos.network_faults import network_of
from replog_chaos.scenes import prepared

pytestmark = pytest.mark.cluster

TOPIC = "flights"
CONFIG = {**QUICK, "broker.session.timeout.ms": 3_000, "replica.lag.time.max.ms": 3_000}
REFUSALS = {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


@contextlib.asynccontextmanager
async def cuttable(directory: Path, scene: Scene = Scene.PROXIED) -> AsyncIterator[tuple[Cluster, Target]]:
    """Three nodes; the links of clients can be cut too, only a `RawClient` goes past that."""
    if scene is Scene.NAMESPACES and (reason := namespaces_are_missing()):
        pytest.skip(reason)
    async with prepared(scene, directory / "cluster", 3, CONFIG, TOPIC) as target:
        yield Cluster(target.cluster, target.admin, target.bootstrap_servers), target


async def led_by(cluster: Cluster, controller_leads: bool) -> tuple[int, list[int]]:
    """Creates the topic; who leads it, and who follows."""
    controller = await cluster.controller_id()
    leader = controller if controller_leads else controller % 3 + 1
    followers = [node_id for node_id in cluster.node_ids if node_id != leader]
    await cluster.admin.create_topic(TOPIC, assignments=[[leader, *followers]], configs={"min.insync.replicas": 2})
    return leader, followers


@pytest.mark.parametrize(
    ("scene", "controller_leads"),
    [(Scene.PROXIED, True), (Scene.NAMESPACES, False)],
    ids=["proxies-leader-and-controller", "namespaces-leader"],
)
async def test_an_isolated_leader_acknowledges_nothing_after_its_lease(
    tmp_path: Path, scene: Scene, controller_leads: bool
) -> None:
    """Another leads after its session; when it is back it cuts what only it has, and follows."""
    history = History()
    async with cuttable(tmp_path, scene) as (cluster, target):
        leader, _ = await led_by(cluster, controller_leads)
        info = (await cluster.admin.describe_topics([TOPIC]))[TOPIC]
        async with (
            Load(cluster, TOPIC, history) as load,
            Tail(cluster, TOPIC, history),
            RawClient(cluster, leader, info.topic_id, address=network_of(target).address_aside(leader)) as raw,
        ):
            network_of(target).isolate(leader)
            await raw.send_produce(b"only the isolated leader has this", acks=1)
            accepted = await raw.receive_produce()
            assert accepted.error is ErrorCode.NONE, "its lease is not over yet, and acks=1 asks nobody else"
            successor = await cluster.leader_other_than(leader, TOPIC)
            say(f"node {leader} isolated, node {successor} leads")
            await raw.send_produce(b"written to a leader of the past", acks=1)
            refused = await raw.receive_produce()
            assert refused.error in REFUSALS, refused
            await load.more_acknowledged(100)
            network_of(target).mend()
            await cluster.isr_is(cluster.node_ids, TOPIC)
            await load.more_acknowledged(100)
        await check_healed(cluster, TOPIC, history)
        assert f"{TOPIC}-0: truncated from" in cluster.log_text(leader)


async def test_a_leader_that_does_not_reach_one_follower_goes_on_with_the_other(tmp_path: Path) -> None:
    history = History()
    async with cuttable(tmp_path) as (cluster, target):
        leader, followers = await led_by(cluster, controller_leads=False)
        controller = await cluster.controller_id()
        (cut_off,) = (node_id for node_id in followers if node_id != controller)
        async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
            network_of(target).cut((leader, cut_off), (cut_off, leader))
            await cluster.isr_is([leader, controller], TOPIC)
            await load.more_acknowledged(100)
            assert await cluster.leader(TOPIC) == leader, "both reach the controller, so nobody is fenced"
            network_of(target).mend()
            await cluster.isr_is(cluster.node_ids, TOPIC)
            await load.more_acknowledged(100)
        await check_healed(cluster, TOPIC, history)


async def test_a_leader_that_hears_nobody_is_replaced(tmp_path: Path) -> None:
    """Its heartbeats arrive and keep its session alive, their answers do not: until it gives up the silent connection."""
    history = History()
    async with cuttable(tmp_path) as (cluster, target):
        leader, _ = await led_by(cluster, controller_leads=False)
        async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
            network_of(target).isolate(leader, outgoing=False, clients=False)
            await cluster.leader_other_than(leader, TOPIC)
            network_of(target).mend()
            await load.more_acknowledged(100)
        await check_healed(cluster, TOPIC, history)
