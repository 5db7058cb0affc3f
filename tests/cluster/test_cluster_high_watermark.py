"""Nothing at or above the high watermark is ever seen, and fewer in-sync replicas than the minimum acknowledge nothing.

A follower is stopped, so that the high watermark stands still while the log grows.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from cluster_kit import Cluster, StartCluster, say, until, wait_until_whole
from cluster_load import paused
from cluster_raw import RawClient

from replog.client import Consumer, Producer
from replog.errors import ErrorCode, NotEnoughReplicasError, RequestTimedOutError

pytestmark = pytest.mark.cluster

TOPIC = "flights"
VISIBLE = [b"visible-%d" % number for number in range(10)]
HIDDEN = [b"hidden-%d" % number for number in range(5)]
SLOW_SESSION = {"broker_session_timeout_ms": 10_000, "broker_heartbeat_interval_ms": 500}
"""Time enough, on a busy machine too, to look at a follower that is stopped and still counts as in sync."""


async def topic_on(cluster: Cluster, *replicas: int) -> UUID:
    info = await cluster.admin.create_topic(TOPIC, assignments=[replicas], configs={"min.insync.replicas": 2})
    return info.topic_id


async def produce_all(cluster: Cluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for value in VISIBLE:
            await producer.send(TOPIC, value, partition=0)


async def check_hidden(address: str, raw: RawClient, high_watermark: int, log_end_offset: int) -> None:
    """Clients see the log end at `high_watermark`; a fetch between the two waits and is not out of range.

    Args:
        address: where clients start: a node that answers.
    """
    latest = await raw.latest()
    assert (latest.error, latest.offset) == (ErrorCode.NONE, high_watermark)
    for offset in range(high_watermark, log_end_offset + 1):
        result, values = await raw.fetch(offset, max_wait_ms=50)
        assert (result.error, result.high_watermark, values) == (ErrorCode.NONE, high_watermark, [])
    result, values = await raw.fetch(0)
    assert len(values) == high_watermark
    result, values = await raw.fetch(log_end_offset + 1, max_wait_ms=50)
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    async with Consumer(address) as consumer:
        await consumer.assign([(TOPIC, 0)])
        assert await consumer.end_offsets([(TOPIC, 0)]) == {(TOPIC, 0): high_watermark}
        seen: list[bytes] = []

        async def read() -> bool:
            seen.extend(record.value or b"" for record in await consumer.poll(timeout_ms=100))
            return len(seen) >= high_watermark

        await until(read, "the visible records are read")
        assert await consumer.poll(timeout_ms=100) == []
        assert len(seen) == high_watermark


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_follower_gone_with_two_replicas(start_cluster: StartCluster, how: str) -> None:
    """In the ISR it holds the high watermark back; out of it, the ISR is below the minimum and holds it back too."""
    cluster = await start_cluster(3, **SLOW_SESSION)
    follower = await cluster.controller_id() % 3 + 1  # not the controller: this is about data
    leader = next(node_id for node_id in cluster.node_ids if node_id != follower)
    topic_id = await topic_on(cluster, leader, follower)
    await produce_all(cluster)
    async with RawClient(cluster, leader, topic_id) as raw:
        if how == "stopped":
            cluster.local.pause(follower)
        else:
            await cluster.local.kill(follower)
        # the stopped follower may have one fetch waiting at the leader; it takes what comes next and asks no more
        appended = await raw.produce(*HIDDEN, acks=1)
        assert (appended.error, appended.base_offset) == (ErrorCode.NONE, len(VISIBLE))
        if how == "stopped":  # who is killed may be out of it already: its broken connection is noticed
            assert set((await cluster.replica(leader, TOPIC)).isr) == {leader, follower}
        await check_hidden(cluster.address(leader), raw, len(VISIBLE), len(VISIBLE) + len(HIDDEN))

        async def alone() -> bool:
            return (await cluster.replica(leader, TOPIC)).isr == (leader,)

        await until(alone, "the follower is out of the ISR")
        await check_hidden(cluster.address(leader), raw, len(VISIBLE), len(VISIBLE) + len(HIDDEN))
        refused = await raw.produce(b"refused")
        assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert "below min.insync.replicas" in refused.message
        assert "replog topics describe" in refused.message
        await until(
            lambda: is_told_why(cluster.address(leader)), "a producer is told that in-sync replicas are missing"
        )
        await check_hidden(cluster.address(leader), raw, len(VISIBLE), len(VISIBLE) + len(HIDDEN))

        if how == "stopped":
            cluster.local.resume(follower)
        else:
            cluster.local.start_node(follower)
        await wait_until_whole(cluster, TOPIC)
        _, values = await raw.fetch(0, max_wait_ms=5_000)
        assert values == [*VISIBLE, *HIDDEN]
        acknowledged = await raw.produce(b"acknowledged")
        assert (acknowledged.error, acknowledged.base_offset) == (ErrorCode.NONE, len(VISIBLE) + len(HIDDEN))


async def is_told_why(address: str) -> bool:
    """Whether a producer that gives up after a second says that in-sync replicas are missing.

    On a busy machine a second may be over before the leader has answered once.
    """
    with pytest.raises(RequestTimedOutError) as raised:
        async with Producer(address, delivery_timeout_ms=1_000, request_timeout_ms=500) as producer:
            await (await producer.send(TOPIC, b"refused too", partition=0))
    return isinstance(raised.value.__cause__, NotEnoughReplicasError) or "in-sync replicas" in str(raised.value)


async def test_both_followers_stopped(start_cluster: StartCluster) -> None:
    """Cut off from everybody, the leader shows nothing new, and after its session it answers nobody."""
    cluster = await start_cluster(3, **SLOW_SESSION)
    topic_id = await topic_on(cluster, 1, 2, 3)
    await produce_all(cluster)
    async with RawClient(cluster, 1, topic_id) as raw:
        async with paused(cluster, 2, 3):
            appended = await raw.produce(*HIDDEN, acks=1)
            assert appended.error is ErrorCode.NONE
            latest = await raw.latest()
            assert (latest.error, latest.offset) == (ErrorCode.NONE, len(VISIBLE))
            result, values = await raw.fetch(len(VISIBLE), max_wait_ms=200)
            assert (result.error, result.high_watermark, values) == (ErrorCode.NONE, len(VISIBLE), [])
            unanswered = await raw.produce(b"in doubt", timeout_ms=500)
            assert unanswered.error is ErrorCode.REQUEST_TIMED_OUT

            async def refuses() -> bool:
                return (await raw.latest()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

            await until(refuses, "the leader refuses because nobody hears it")
            assert (await raw.produce(b"refused", acks=1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            result, values = await raw.fetch(0)
            assert (result.error, values) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
            assert "cut off from the controller" in result.message
        await wait_until_whole(cluster, TOPIC)

        async def readable() -> bool:
            result, values = await raw.fetch(0)
            return result.error is ErrorCode.NONE and values[: len(VISIBLE)] == VISIBLE

        await until(readable, "the leader serves again")


async def test_high_watermark_is_known_after_a_restart(start_cluster: StartCluster) -> None:
    """One node, killed right after the acknowledgement: the latest offset never lies below it, not even at first."""
    cluster = await start_cluster(1)
    info = await cluster.admin.create_topic(TOPIC, 1, 1)
    await produce_all(cluster)
    await cluster.local.kill(1)
    cluster.local.start_node(1)
    raw = RawClient(cluster, 1, info.topic_id)
    try:
        answers: Counter[str] = Counter()

        async def answered() -> bool:
            result = await raw.latest()
            answers[result.error.name] += 1
            assert result.error is not ErrorCode.NONE or result.offset == len(VISIBLE)
            return result.error is ErrorCode.NONE

        await until(answered, "the latest offset is known")
        say(f"{dict(answers)}")
    finally:
        await raw.close()
