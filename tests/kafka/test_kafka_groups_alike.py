"""A real Kafka and a replog broker answer the same to members of groups, step by step, right or wrong (`member_scripts.py`)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from member_scripts import (
    COMMIT,
    FETCH,
    HEARTBEAT,
    REBALANCE_IN_PROGRESS,
    SESSION_MS,
    Identity,
    Members,
    Protocol,
    settled,
    speaks,
)
from sides import Side

from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.heartbeat import HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupResponse

# ---- the classic protocol ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS[2:])
def test_two_members_meet_in_every_version(members: Members, version: int) -> None:
    settled(members, version)
    for name in "ab":
        for generation in (2, 1, 3):
            members.ask(name, members.beat(name, generation), min(version, 4), HeartbeatResponse)
    members.described()


def test_wrong_joins(members: Members) -> None:
    wrong: list[dict[str, Any]] = [
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 2**31 - 1},
        {"protocols": []},
        {"protocol_type": ""},
    ]
    for fields in wrong:
        members.ask("", members.join("x", **fields), 9, JoinGroupResponse)
    members.ask("", members.join("x", "nobody"), 9, JoinGroupResponse)
    members.ask("", lambda _: JoinGroupRequest("", SESSION_MS, protocol_type="consumer"), 9, JoinGroupResponse)
    settled(members)
    for fields in ({"protocol_type": "connect"}, {"protocols": [Protocol("other", b"")]}):
        members.ask("", members.join("x", **fields), 9, JoinGroupResponse)
    members.ask("", members.join("x", "nobody"), 9, JoinGroupResponse)


def test_wrong_syncs_and_heartbeats(members: Members) -> None:
    members.ask("", members.sync("nobody", 1), 5, SyncGroupResponse)
    members.ask("", members.beat("nobody", 1), 4, HeartbeatResponse)
    settled(members)
    for fields in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        members.ask("a", members.sync("a", 2, **fields), 5, SyncGroupResponse)
    for name, generation in (("a", 1), ("a", 3), ("nobody", 2), ("", 2)):
        members.ask("a", members.sync(name, generation), 5, SyncGroupResponse)
        members.ask("a", members.beat(name, generation), 4, HeartbeatResponse)
    members.ask("a", members.sync("a", 2), 5, SyncGroupResponse)
    members.ask("a", members.beat("a", 2, group_instance_id="none"), 4, HeartbeatResponse)


def test_members_leave(members: Members) -> None:
    settled(members)
    members.ask("b", members.leave("nobody", "b", "b"), 5, LeaveGroupResponse)
    members.ask("a", members.beat("a", 2), 4, HeartbeatResponse)
    members.ask("a", lambda side: LeaveGroupRequest(members.group, members.id(side, "a")), 2, LeaveGroupResponse)
    members.ask("a", members.beat("a", 2), 4, HeartbeatResponse)
    members.described()
    members.ask("", members.leave("a"), 5, LeaveGroupResponse)


def test_a_session_ends(members: Members) -> None:
    settled(members)
    is_out = {side.name: False for side in members._both}

    def is_alone(side: Side) -> bool:
        told = members._client(side, "a").ask(members.beat("a", 2)(side), 4, HeartbeatResponse)
        is_out[side.name] = is_out[side.name] or told.error_code == REBALANCE_IN_PROGRESS
        return is_out[side.name]

    while not all([is_alone(side) for side in members._both]):  # noqa: C419 -- a's own session goes on on both
        time.sleep(0.1)
    members.ask("b", members.beat("b", 2), 4, HeartbeatResponse)
    members.ask("a", members.join("a", "a"), 9, JoinGroupResponse)


def test_a_static_member_comes_back(members: Members) -> None:
    instance = {"group_instance_id": "i"}
    members.ask("a", members.join("a", **instance), 9, JoinGroupResponse)
    members.ask("a", members.sync("a", 1, ("a", b"all")), 5, SyncGroupResponse)
    members.ask("again", members.join("a", **instance), 9, JoinGroupResponse)
    for name in ("a", "again"):
        members.ask(name, members.beat(name, 1, **instance), 4, HeartbeatResponse)
        members.ask(name, members.commit(name, 1, **instance), COMMIT, OffsetCommitResponse)
    members.ask("again", members.sync("again", 1), 5, SyncGroupResponse)
    members.described()
    leaving = [Identity("", "i"), Identity("", "none")]
    members.ask("", lambda _: LeaveGroupRequest(members.group, members=leaving), 5, LeaveGroupResponse)


# ---- KIP-848 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ConsumerGroupHeartbeatRequest.VERSIONS)
def test_members_of_kip_848_come_and_go(members: Members, version: int) -> None:
    def beat(name: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Any:
        asked = speaks(members, name, epoch, owned, **fields)
        return members.ask(name, asked, version, ConsumerGroupHeartbeatResponse, *HEARTBEAT)

    beat("a", 0)
    beat("a", 1, [0, 1, 2, 3])
    beat("b", 0)
    beat("a", 1)
    members.described_consumers()
    told = beat("a", 1, [0, 1])
    beat("b", 2)
    beat("b", 2, [2, 3])
    for name, epoch in (("a", 1), ("a", 5), ("nobody", 2), ("b", told["member_epoch"])):
        members.ask(name, members.commit(name, epoch), COMMIT, OffsetCommitResponse)
        members.ask("", members.fetch(member=name, epoch=epoch), FETCH, OffsetFetchResponse)
    beat("a", 7)
    beat("nobody", 3)
    members.described_consumers()
    beat("b", -1)
    beat("b", 2)
    members.ask("", lambda _: DeleteGroupsRequest([members.group]), 2, DeleteGroupsResponse)
    beat("a", -1)
    members.described_consumers()
    members.ask("", lambda _: DeleteGroupsRequest([members.group]), 2, DeleteGroupsResponse)


def test_wrong_heartbeats(members: Members) -> None:
    wrong: list[dict[str, Any]] = [
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"owned": [1]},
        {"server_assignor": "none"},
        {"server_assignor": ""},
        {"instance_id": ""},
        {"rack_id": ""},
    ]
    for fields in wrong:
        asked = speaks(members, "x", 0, **fields)
        members.ask("", asked, 0, ConsumerGroupHeartbeatResponse, *HEARTBEAT)
    for epoch in (1, -1, -2, -3):
        members.ask("", speaks(members, "x", epoch), 0, ConsumerGroupHeartbeatResponse, *HEARTBEAT)
    asked = ConsumerGroupHeartbeatRequest("", "x", 0)
    members.ask("", lambda _: asked, 0, ConsumerGroupHeartbeatResponse, *HEARTBEAT)


def test_a_static_member_of_kip_848_comes_back(members: Members) -> None:
    def beat(name: str, epoch: int, owned: list[int] | None = None) -> Any:
        asked = speaks(members, name, epoch, owned, instance_id="i")
        return members.ask(name, asked, 1, ConsumerGroupHeartbeatResponse, *HEARTBEAT)

    beat("a", 0)
    beat("b", 0)
    beat("a", -2)
    beat("b", 0)
    beat("a", 1)
    members.described_consumers()


# ---- offsets and groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", OffsetCommitRequest.VERSIONS[:-1])
def test_offsets_without_members(members: Members, version: int) -> None:
    topic = members.topic
    parts = ((topic, 0, 7), (topic, 3, 0), (topic, 9, 1), ("none", 0, 1))
    members.ask("", members.commit("", -1, *parts), version, OffsetCommitResponse)
    members.ask("", members.commit("", 1), version, OffsetCommitResponse)
    members.ask("", members.commit("x", 1), version, OffsetCommitResponse)
    members.ask("", members.fetch((topic, [0, 1, 3, 9]), ("none", [0])), FETCH, OffsetFetchResponse)
    members.ask("", members.fetch(), FETCH, OffsetFetchResponse)
    members.ask("", members.fetch(member="x", epoch=4), FETCH, OffsetFetchResponse)
    members.described()
    members.described_consumers()


def test_offsets_of_members(members: Members) -> None:
    settled(members)
    for name, generation in (("a", 2), ("b", 1), ("b", 3), ("nobody", 2), ("", -1), ("", 2)):
        members.ask("", members.commit(name, generation), 8, OffsetCommitResponse)
    part, named = OffsetDeleteRequest.OffsetDeleteRequestPartition, OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [named(members.topic, [part(0), part(9)]), named("none", [part(0)])]
    members.ask("", lambda _: OffsetDeleteRequest(members.group, topics), 0, OffsetDeleteResponse)
    members.ask("", lambda _: OffsetDeleteRequest("no-such-group", topics), 0, OffsetDeleteResponse)
    members.ask("", lambda _: DeleteGroupsRequest([members.group, "no-such-group", ""]), 2, DeleteGroupsResponse)


@pytest.mark.parametrize("version", ListGroupsRequest.VERSIONS)
def test_groups_are_listed(members: Members, version: int) -> None:
    settled(members)
    for state, kind in (("", ""), ("stable", ""), ("Empty", ""), ("", "consumer"), ("", "classic"), ("none", "")):
        if (state and version < 4) or (kind and version < 5):
            continue
        asked = ListGroupsRequest([state] if state else [], [kind] if kind else [])
        for side in members._both:
            answer = members._client(side, "").ask(asked, version, ListGroupsResponse)
            found = [each for each in answer.groups if each.group_id == members.group]
            is_wanted = state in {"", "stable"} and kind in {"", "classic"}
            assert [answer.error_code, len(found)] == [0, is_wanted], (side.name, state, kind)
            for each in found:
                told = (each.protocol_type, each.group_state, each.group_type)
                assert told == ("consumer", "Stable" if version >= 4 else "", "classic" if version >= 5 else "")


@pytest.mark.parametrize("version", DescribeGroupsRequest.VERSIONS)
def test_groups_are_described(members: Members, version: int) -> None:
    asked, of_consumers = (
        DescribeGroupsRequest(["no-such-group", ""]),
        ConsumerGroupDescribeRequest(["", "no-such-group"]),
    )
    members.ask("", lambda _: asked, version, DescribeGroupsResponse)
    members.ask("", lambda _: of_consumers, 1, ConsumerGroupDescribeResponse)
    settled(members)
    members.described(version)
    members.described_consumers()
