"""A partition is described from what its brokers say, and silence is said too."""

from __future__ import annotations

from uuid import UUID

import pytest
from fake_cluster import FakeCluster
from msgspec.structs import replace

from replog.client import Admin
from replog.client.admin.partition_description import DOWN, NO_ANSWER, NOT_REGISTERED, described
from replog.errors import UnknownTopicOrPartitionError
from replog.rpc.metadata_messages import BrokerInfo, PartitionInfo, TopicInfo
from replog.rpc.node_messages import DescribeNodeResponse, LeaderView, ReplicaProgress, ReplicaStatus

PARTITION = PartitionInfo(0, leader=2, leader_epoch=5, partition_epoch=7, replicas=(1, 2, 3), isr=(2, 3))
BROKERS = {number: BrokerInfo(number, "127.0.0.1", 9000 + number, 1, fenced=False) for number in (1, 2, 3)}
TOPIC = TopicInfo("flights", UUID(int=9), (PARTITION,))
VIEW = LeaderView(
    partition_epoch=8,
    epoch_start_offset=4,
    maximal_isr=(2, 3, 1),
    elr=(),
    min_insync_replicas=2,
    recovering=False,
    waiting_produces=3,
    replicas=(
        ReplicaProgress(1, 90, 80, lag_records=10, lag_ms=1_500, broker_epoch=31),
        ReplicaProgress(2, 100, 70, lag_records=0, lag_ms=0, broker_epoch=-1),
        ReplicaProgress(3, -1, -1, lag_records=100, lag_ms=-1, broker_epoch=-1),
    ),
)


def answer(node_id: int, *replicas: ReplicaStatus) -> DescribeNodeResponse:
    return DescribeNodeResponse(node_id, UUID(int=1), "running", 30 + node_id, "", 1, 1, 1, 1, replicas=replicas)


def status(node_id: int, *, topic: str = "flights", view: LeaderView | None = None, reason: str = "") -> ReplicaStatus:
    is_leader = view is not None
    state = "leader" if is_leader else "follower, fetching"
    return ReplicaStatus(topic, 0, is_leader, 5, 3, 100, 70, 95, (2, 3), state, reason, leader=view)


def test_leader_and_replicas_are_put_together() -> None:
    found = described(
        TOPIC,
        PARTITION,
        {
            1: answer(1, status(1, topic="another"), status(1, reason="slow")),
            2: answer(2, status(2, view=VIEW)),
            3: None,
        },
        BROKERS,
    )
    assert (found.leader, found.partition_epoch, found.maximal_isr) == (2, 8, (2, 3, 1))
    assert (found.log_start_offset, found.log_end_offset, found.high_watermark) == (3, 100, 95)
    assert (found.min_insync_replicas, found.waiting_produces) == (2, 3)
    first, second, third = found.replicas
    assert (first.state, first.reason, first.is_in_isr) == ("follower, fetching", "slow", False)
    assert (first.log_end_offset, first.lag_records, first.lag_ms, first.broker_epoch) == (100, 10, 1_500, 31)
    assert (second.state, second.lag_records, second.broker_epoch) == ("leader", 0, 32)
    assert (third.state, third.log_end_offset, third.lag_records, third.lag_ms) == (NO_ANSWER, -1, 100, -1)


def test_a_replica_that_does_not_answer_is_told_as_its_leader_heard_it() -> None:
    found = described(TOPIC, PARTITION, {1: None, 2: answer(2, status(2, view=VIEW)), 3: answer(3)}, BROKERS)
    first, _, third = found.replicas
    assert (first.state, first.log_end_offset, first.flushed_offset, first.broker_epoch) == (NO_ANSWER, 90, 80, 31)
    assert third.state == "no replica here yet"


@pytest.mark.parametrize(("fenced", "state"), [(True, DOWN), (None, NOT_REGISTERED)])
def test_of_a_stopped_member_of_the_elr_nothing_is_told_that_is_not_known(*, fenced: bool | None, state: str) -> None:
    """It stopped with everything, and flushed after its last fetch; it is no more caught up now than it runs now."""
    brokers = {2: BROKERS[2]} if fenced is None else {**BROKERS, 1: replace(BROKERS[1], fenced=fenced)}
    heard = (ReplicaProgress(1, 100, 0, lag_records=0, lag_ms=0, broker_epoch=31), *VIEW.replicas[1:])
    leader = answer(2, status(2, view=replace(VIEW, elr=(1,), replicas=heard)))
    found = described(TOPIC, replace(PARTITION, isr=(2,), elr=(1,)), {1: None, 2: leader, 3: answer(3)}, brokers)
    first = found.replicas[0]
    assert (first.state, first.is_in_isr, first.is_in_elr) == (state, False, True)
    assert (first.log_end_offset, first.lag_records, first.broker_epoch) == (100, 0, 31)
    assert (first.flushed_offset, first.lag_ms) == (-1, -1)
    assert not found.replicas[1].is_in_elr


def test_a_leader_that_never_heard_a_stopped_replica_does_not_know_its_lag() -> None:
    """The whole log, it would say, of a replica that may have all of it."""
    brokers = {**BROKERS, 3: replace(BROKERS[3], fenced=True)}
    found = described(TOPIC, PARTITION, {1: None, 2: answer(2, status(2, view=VIEW)), 3: None}, brokers)
    third = found.replicas[2]
    assert (third.state, third.log_end_offset, third.lag_records, third.lag_ms) == (DOWN, -1, -1, -1)


def test_without_the_leader_only_the_metadata_is_known() -> None:
    for leader_says in (None, answer(2, status(2))):  # silent, or it does not lead any more
        found = described(TOPIC, PARTITION, {1: answer(1, status(1)), 2: leader_says, 3: None}, BROKERS)
        assert (found.partition_epoch, found.isr, found.maximal_isr) == (7, (2, 3), (2, 3))
        assert (found.log_end_offset, found.high_watermark, found.min_insync_replicas) == (-1, -1, -1)
        assert found.replicas[0].log_end_offset == 100, "of its own log a replica can tell"
        assert {replica.lag_records for replica in found.replicas} == {-1}


async def test_a_partition_that_is_none_is_named() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("flights", 2)
    async with Admin(cluster.bootstrap, transport=cluster.transport()) as admin:
        found = await admin.describe_partition("flights", 1)
        assert (found.topic, found.partition_id) == ("flights", 1)
        with pytest.raises(UnknownTopicOrPartitionError, match="flights has no partition 2: it has 2"):
            await admin.describe_partition("flights", 2)
        with pytest.raises(UnknownTopicOrPartitionError, match='topic "nowhere" does not exist'):
            await admin.describe_partition("nowhere", 0, visible_within_ms=20)
