"""A real Kafka and a replog broker answer the same where groups may have two members, and sessions are short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from member_scripts import HEARTBEAT, Members, joined, settled, speaks, wait_for_count, wait_for_rebalance
from served_cluster import served_cluster
from sides import Side, Sides, sides
from waiting import until

from replog.coordinator.classic.subscription import write_assignment
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from replog.wire.messages.join_group import JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupResponse
from replog.wire.messages.sync_group import SyncGroupResponse

FULL = 81
OF_I, OF_J, OF_K = ({"group_instance_id": each} for each in "ijk")
SMALL = {
    "group.max.size": 2,
    "group.consumer.max.size": 2,
    "group.consumer.session.timeout.ms": 8_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
BELOW = {"group.consumer.min.session.timeout.ms": 1_000, "group.consumer.min.heartbeat.interval.ms": 1_000}
"""Kafka allows such sessions only where it is told to."""


@pytest.fixture(scope="module")
def both(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Brokers of their own."""
    node = KafkaNode(kafka, tmp_path_factory.mktemp("small-kafka") / "node", SMALL | BELOW)
    keys = {key.replace(".", "_"): value for key, value in SMALL.items()}
    try:
        node.start()
        with (
            served_cluster(tmp_path_factory.mktemp("small-replog") / "cluster", **keys) as cluster,
            sides(Side(of_kafka(node)), Side(of_replog(cluster))) as pair,
        ):
            yield pair
    finally:
        node.give_up()


def beat(members: Members, name: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Any:
    asked = speaks(members, name, epoch, owned, **fields)
    return members.ask(name, asked, 1, ConsumerGroupHeartbeatResponse, *HEARTBEAT)


def join(members: Members, name: str, member: str = "", version: int = 9, **fields: Any) -> Any:
    return members.ask(name, members.join(name, member, **fields), version, JoinGroupResponse)


# ---- full groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 6, 3, 0])
def test_nobody_joins_a_full_classic_group(members: Members, version: int) -> None:
    settled(members)
    for member in ("", "x"):
        assert join(members, "c", member, version)["error_code"] == FULL
    if version >= 5:
        for member in ("", "x"):
            assert join(members, "c", member, version, **OF_K)["error_code"] == FULL
    assert join(members, "b", "b", version)["error_code"] == 0
    members.described()


def test_the_last_place_is_for_the_first_that_joins_with_an_id(members: Members) -> None:
    settled(members)
    members.ask("b", members.leave("b"), 5, LeaveGroupResponse)
    for name in "cd":
        join(members, name)
    members.tell("c", members.join("c", "c"), 9)
    wait_for_count(members, 2)
    members.tell("a", members.join("a", "a"), 9)
    members.ask("", members.leave("d"), 5, LeaveGroupResponse)
    for name in "ca":
        members.hear(name, JoinGroupResponse, 9)
    for member in ("", "d"):
        join(members, "d", member)
    members.described()


def test_one_whose_place_was_taken_meanwhile_is_refused(members: Members) -> None:
    """Note: with Kafka the others are told of their generation only after its rebalance timeout."""
    settled(members)
    members.tell("a", members.join("a", "a"), 9)
    wait_for_rebalance(members, "b", 2)
    joined(members, "c")
    wait_for_count(members, 3)
    assert join(members, "b", "b")["error_code"] == FULL
    wait_for_count(members, 2)


def test_nobody_joins_a_full_group_whose_coordinator_assigns(members: Members) -> None:
    beat(members, "a", 0, instance_id="i")
    beat(members, "b", 0)
    for fields in ({}, {"instance_id": "k"}):
        assert beat(members, "c", 0, **fields)["error_code"] == FULL
    for member in ("", "x"):
        assert join(members, "c", member)["error_code"] == FULL
        assert join(members, "c", member, **OF_K)["error_code"] == FULL
    beat(members, "b", 0, [])
    beat(members, "a", -2, instance_id="i")
    assert beat(members, "c", 0)["error_code"] == FULL
    beat(members, "a", 0, instance_id="i")
    beat(members, "a", -1, instance_id="i")
    beat(members, "c", 0)
    members.described_consumers()


def test_nobody_joins_a_full_group_of_both_protocols(members: Members) -> None:
    join(members, "s", **OF_I)
    everything = write_assignment(1, {members.topic: range(4)})
    members.ask("s", members.sync("s", 1, ("s", everything)), 5, SyncGroupResponse)
    beat(members, "m", 0, subscribed_topic_names=[])
    assert beat(members, "n", 0)["error_code"] == FULL
    for member in ("", "x"):
        assert join(members, "t", member)["error_code"] == FULL
        assert join(members, "t", member, **OF_J)["error_code"] == FULL
    join(members, "s", "s", **OF_I)
    members.described_consumers()


def test_a_static_member_comes_back_to_a_full_group(members: Members) -> None:
    """Note: with Kafka it has to wait until its own session is over."""

    def told(ask: Any, answer: type[Any], version: int) -> tuple[int, int]:
        return members.differ(ask, version, answer)

    join(members, "a", **OF_I)
    members.ask("a", members.sync("a", 1, ("a", b"all")), 5, SyncGroupResponse)
    members.tell("b", members.join("b", **OF_J), 9)
    wait_for_rebalance(members)
    members.tell("a", members.join("a", "a", **OF_I), 9)
    for name in "ba":
        members.hear(name, JoinGroupResponse, 9)
    members.ask("a", members.sync("a", 2, ("a", b"half")), 5, SyncGroupResponse)
    assert told(members.join("a", **OF_I), JoinGroupResponse, 9) == (FULL, 0)


def test_a_static_member_comes_back_to_a_full_group_whose_coordinator_assigns(members: Members) -> None:
    """Note: as with the classic protocol."""
    beat(members, "a", 0, instance_id="i")
    beat(members, "b", 0)
    beat(members, "a", -2, instance_id="i")
    returns = speaks(members, "a2", 0, instance_id="i")
    assert members.differ(returns, 1, ConsumerGroupHeartbeatResponse) == (FULL, 0)


# ---- static members that are away -----------------------------------------------------------------------------------------


def test_the_session_of_a_static_member_ends_while_it_is_away(members: Members) -> None:
    beat(members, "a", 0, instance_id="i")
    beat(members, "b", 0)
    beat(members, "a", 1, [0, 1], instance_id="i")
    beat(members, "b", 2)
    beat(members, "a", -2, instance_id="i")
    members.described_consumers()

    def is_out(side: Side) -> bool:
        """Looks first: the heartbeat behind it tells b of the epoch without a."""
        asked = ConsumerGroupDescribeRequest([members.group])
        told = members._client(side, "").ask(asked, 1, ConsumerGroupDescribeResponse)
        members._client(side, "b").ask(speaks(members, "b", 2)(side), 1, ConsumerGroupHeartbeatResponse)
        return len(told.groups[0].members) == 1

    until(lambda: all([is_out(side) for side in members._both]))  # noqa: C419 -- b's own session goes on on both
    beat(members, "b", 3, [])
    members.described_consumers()
    for epoch in (-2, -1, 2):
        beat(members, "a", epoch, instance_id="i")
    beat(members, "a2", 0, instance_id="i")
    members.described_consumers()
