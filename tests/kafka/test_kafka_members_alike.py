"""A real Kafka and a replog broker answer the same to members that come late, twice, under a wrong name or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from member_scripts import (
    COMMIT,
    FETCH,
    HEARTBEAT,
    REBALANCE_MS,
    Identity,
    Members,
    settled,
    speaks,
    wait_for_state,
    wait_until_out,
)

from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.heartbeat import HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupResponse

FENCED, UNRELEASED = 110, 111
OF_I, OF_J = {"group_instance_id": "i"}, {"group_instance_id": "j"}

Beat: TypeAlias = Callable[..., Any]


@pytest.fixture
def beat(members: Members) -> Beat:
    """A heartbeat of a member of KIP-848."""

    def made(name: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Any:
        asked = speaks(members, name, epoch, owned, **fields)
        return members.ask(name, asked, 1, ConsumerGroupHeartbeatResponse, *HEARTBEAT)

    return made


def commit(members: Members, name: str, epoch: int, version: int = COMMIT, **fields: Any) -> None:
    members.ask(name, members.commit(name, epoch, **fields), version, OffsetCommitResponse)


def fetch(members: Members, member: str | None, epoch: int) -> None:
    members.ask("", members.fetch((members.topic, [0]), member=member, epoch=epoch), FETCH, OffsetFetchResponse)


def delete_offsets(members: Members) -> None:
    part, named = OffsetDeleteRequest.OffsetDeleteRequestPartition, OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [named(members.topic, [part(0), part(9)]), named("none", [part(0)])]
    members.ask("", lambda _: OffsetDeleteRequest(members.group, topics), 0, OffsetDeleteResponse)


def leave(members: Members, version: int, *who: tuple[str, str | None]) -> None:
    def made(side: Any) -> LeaveGroupRequest:
        gone = [Identity(members.id(side, name), instance) for name, instance in who]
        return LeaveGroupRequest(members.group, members=gone)

    members.ask("", made, version, LeaveGroupResponse)


# ---- KIP-848 ----------------------------------------------------------------------------------------------------------


def test_heartbeats_come_again_and_late(members: Members, beat: Beat) -> None:
    everything = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": [members.topic]}
    beat("a", 0)
    beat("a", 0)
    beat("a", 1)
    beat("a", 1, [0, 1, 2, 3], **everything)
    beat("b", 0)
    beat("b", 0)
    for owned in (None, [0, 1, 2, 3], [0, 1], [0, 1], [0, 1, 2], None, []):
        beat("a", 1, owned)
    beat("a", 1, [0], **everything)
    beat("b", 2)
    beat("b", 1)
    beat("b", 2, [2, 3], **everything)
    members.described_consumers()
    beat("a", -1)
    beat("a", -1)
    beat("a", 0)
    beat("b", 3)
    members.described_consumers()


def test_what_members_want_changes(members: Members, beat: Beat) -> None:
    """Goal: an epoch begins where Kafka begins one: that a member which wants nothing comes is no reason."""
    beat("a", 0)
    beat("a", 1, subscribed_topic_names=[])
    beat("a", 2, [])
    beat("b", 0, subscribed_topic_names=[])
    members.described_consumers()
    beat("c", 0, subscribed_topic_names=["none"])
    beat("a", 2, server_assignor="range")
    members.described_consumers()
    beat("a", 3, [], server_assignor="range", subscribed_topic_names=[members.topic, members.topic])
    members.described_consumers()
    beat("b", 2, [], rack_id="r")
    members.described_consumers()


def test_a_static_member_leaves_for_a_while(members: Members, beat: Beat) -> None:
    beat("a", 0, instance_id="i")
    beat("b", 0, instance_id="j")
    beat("a", 1, [0, 1], instance_id="i")
    beat("b", 2, instance_id="j")
    for name, epoch, instance in (("a", 2, "none"), ("a", 2, "j"), ("a", 2, None), ("a", 3, "i")):
        beat(name, epoch, instance_id=instance)
    for name, epoch, instance in (("x", -2, "i"), ("x", -1, "i"), ("a", -2, "none")):
        beat(name, epoch, instance_id=instance)
    for fields in ({}, OF_I, OF_J):
        commit(members, "a", 2, **fields)
    beat("a", -2, instance_id="i")
    members.described_consumers()
    beat("a", -2, instance_id="i")
    beat("a", 2, instance_id="i")
    beat("a", 1, instance_id="i")
    commit(members, "a", 2, **OF_I)  # ours refuses one in epoch -2, too: see test_kafka_group_states_alike.py
    for epoch in (2, -1):
        fetch(members, "a", epoch)
    beat("b", 2, instance_id="j")
    beat("a2", 0, instance_id="i")
    members.described_consumers()
    for name in ("a", "a2"):
        beat(name, 2, instance_id="i")
        commit(members, name, 2)
    beat("a2", -2, instance_id="i")
    beat("a2", 0, instance_id="i")
    beat("a2", 2, instance_id="i")
    members.described_consumers()
    beat("a2", -1, instance_id="i")
    beat("a2", -1, instance_id="i")
    beat("b", 2, instance_id="j")
    beat("b", -1)
    members.described_consumers()
    beat("c", 0, instance_id="k")
    beat("c", -2, instance_id="k")
    beat("c", -1, instance_id="k")
    members.described_consumers()


def test_one_that_gives_nothing_back_in_time_is_out(members: Members, beat: Beat) -> None:
    beat("a", 0, rebalance_timeout_ms=1_500)
    beat("b", 0)
    beat("a", 1)
    wait_until_out(members, "a")
    beat("a", 1)
    beat("a", 1, [0, 1])
    commit(members, "a", 1)
    beat("b", 2)
    beat("b", 3)
    members.described_consumers()


def test_one_that_joins_again_under_its_own_id(members: Members, beat: Beat) -> None:
    """Note: it says that it reads nothing, so ours takes it in at once; with Kafka it has to wait for the end of its session."""

    def joined(name: str, **fields: Any) -> tuple[int, int]:
        return members.differ(speaks(members, name, 0, **fields), 1, ConsumerGroupHeartbeatResponse)

    beat("a", 0)
    beat("s", 0, instance_id="i")
    beat("a", 1)
    beat("a", 1, [0, 1])
    assert joined("a") == (FENCED, 0)
    assert joined("s", instance_id="i") == (UNRELEASED, 0)


# ---- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_of_members_of_kip_848(members: Members, beat: Beat) -> None:
    """Note: before version 9 a member of KIP-848 may not commit with Kafka; with ours it may, in its epoch."""
    beat("a", 0)
    for version in OffsetCommitRequest.VERSIONS[:-1]:
        for name, epoch in (("a", 5), ("x", 1), ("", -1), ("", 1), ("a", -1)):
            commit(members, name, epoch, version)
    commit(members, "a", 1)
    commit(members, "a", 1, group_instance_id="none")
    for name, epoch in (("a", 1), ("a", 0), ("a", 5), ("a", -1), ("x", 1), ("x", -1), ("", -1), ("", 1), (None, -1)):
        fetch(members, name, epoch)
    delete_offsets(members)
    for version in DescribeGroupsRequest.VERSIONS:
        members.described(version)
    beat("a", -1)
    for version in (5, 8, 9):
        for name, epoch in (("a", 1), ("", -1), ("", 1), ("a", -1)):
            commit(members, name, epoch, version)
    for name, epoch in (("a", 1), ("", -1), (None, -1), ("a", -1), ("", 0)):
        fetch(members, name, epoch)
    delete_offsets(members)
    members.described()


# ---- both protocols ---------------------------------------------------------------------------------------------------


def test_members_of_kip_848_speak_to_a_classic_group(members: Members, beat: Beat) -> None:
    settled(members)
    for epoch, instance in ((1, None), (-1, None), (-2, "i"), (1, "i")):
        beat("x", epoch, instance_id=instance)
    members.ask("a", members.leave("a", "b"), 5, LeaveGroupResponse)
    members.described()
    members.described_consumers()
    beat("x", 1)
    beat("x", -1)
    members.described()
    beat("x", 0)
    members.described_consumers()
    members.described()


def test_a_static_member_of_a_mixed_group(members: Members, beat: Beat) -> None:
    beat("m", 0)
    members.ask("s", members.join("s", **OF_I), 9, JoinGroupResponse)
    members.ask("s", members.join("s", "nobody", **OF_I), 9, JoinGroupResponse)
    members.ask("s", members.join("s", "s", **OF_J), 9, JoinGroupResponse)
    for name, generation, fields in (
        ("s", 2, {}),
        ("s", 2, {"protocol_type": "connect"}),
        ("s", 2, {"protocol_name": "other"}),
        ("s", 3, {}),
        ("nobody", 2, {}),
    ):
        members.ask("s", members.sync(name, generation, **fields), 5, SyncGroupResponse)
    for fields in ({}, OF_I, OF_J):
        for name, generation in (("s", 2), ("s", 1), ("nobody", 2)):
            members.ask("s", members.beat(name, generation, **fields), 4, HeartbeatResponse)
            commit(members, name, generation, **fields)
    for version in (5, 8):
        commit(members, "s", 1, version)
        commit(members, "s", 2, version)
    for name, epoch in (("s", 2), ("s", 1), ("m", 1), ("m", 5)):
        fetch(members, name, epoch)
    for version in (5, 4, 3):
        leave(members, version, ("nobody", "i"), ("", "j"), ("s", "j"), ("", None), ("m", "i"))
    for field, value in (("protocols", []), ("protocol_type", ""), ("session_timeout_ms", 1)):
        asked = members.join("x", **{field: value})
        members.ask("x", asked, 9, JoinGroupResponse)
    members.ask("s", lambda _: LeaveGroupRequest(members.group, "m"), 1, LeaveGroupResponse)
    asked = DescribeGroupsRequest([members.group])  # Kafka tells what the member is to have, ours what it has
    members.ask("", lambda _: asked, 6, DescribeGroupsResponse, "member_assignment")
    members.ask("s", members.beat("s", 2), 4, HeartbeatResponse)


# ---- the classic protocol ---------------------------------------------------------------------------------------------


def test_a_static_member_says_who_it_is(members: Members) -> None:
    members.ask("a", members.join("a", **OF_I), 9, JoinGroupResponse)
    members.ask("a", members.join("a", **OF_I), 9, JoinGroupResponse)
    members.ask("a", members.join("a", "a", **OF_I), 9, JoinGroupResponse)
    members.described()
    for what in (b"all", b"other"):
        members.ask("a", members.sync("a", 1, ("a", what)), 5, SyncGroupResponse)
    members.ask("a", members.beat("a", 1), 4, HeartbeatResponse)
    members.ask("a", members.join("a", "a", **OF_J), 9, JoinGroupResponse)
    members.ask("x", members.join("a", "nobody", **OF_I), 9, JoinGroupResponse)
    for name, fields in (("a", OF_J), ("nobody", OF_I)):
        members.ask("a", members.beat(name, 1, **fields), 4, HeartbeatResponse)
        commit(members, name, 1, **fields)
    for version in (3, 4, 5):
        leave(members, version, ("nobody", "i"), ("", "j"), ("a", "j"), ("", None))
        leave(members, version)
    for version in (0, 1, 2):
        members.ask("a", lambda _: LeaveGroupRequest(members.group, "nobody"), version, LeaveGroupResponse)
    for version in (9, 8, 5):
        members.ask("again", members.join("a", **OF_I), version, JoinGroupResponse)
        members.ask("again", members.sync("again", 1), 5, SyncGroupResponse)
    members.described()


def test_requests_whose_answers_are_lost_come_again(members: Members) -> None:
    settled(members)
    members.ask("b", members.join("b", "b"), 9, JoinGroupResponse)
    members.ask("b", members.sync("b", 2), 5, SyncGroupResponse)
    members.ask("b", members.beat("b", 2), 4, HeartbeatResponse)
    members.tell("a", members.join("a", "a"), 9)
    wait_for_state(members, "PreparingRebalance")
    members.ask("b", members.beat("b", 2), 4, HeartbeatResponse)
    members.ask("b", members.sync("b", 2), 5, SyncGroupResponse)
    commit(members, "b", 2)
    members.tell("b", members.join("b", "b"), 9)
    for name in "ba":
        members.hear(name, JoinGroupResponse, 9)
    for generation in (2, 3):
        commit(members, "b", generation)
    for name in "ba":
        members.ask(name, members.join(name, name), 9, JoinGroupResponse)
    members.ask("b", members.beat("b", 3), 4, HeartbeatResponse)
    members.tell("b", members.sync("b", 3), 5)
    members.ask("a", members.sync("a", 3, ("a", b"half")), 5, SyncGroupResponse)
    members.hear("b", SyncGroupResponse, 5)
    members.ask("b", members.sync("b", 3), 5, SyncGroupResponse)
