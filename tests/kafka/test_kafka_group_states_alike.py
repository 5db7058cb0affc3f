"""A real Kafka and a replog broker answer the same about groups in each state, whoever asks, and with whichever filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pytest
from member_scripts import FETCH, HEARTBEAT, Identity, Members, settled, speaks, wait_for_rebalance, wait_for_state

from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.heartbeat import HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_commit import OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupResponse

STALE = 113
OF_I, OF_J = {"group_instance_id": "i"}, {"group_instance_id": "j"}
NOTHING = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""An assignment of a consumer that gets nothing."""

PATIENCE = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000}
"""Members that say nothing more stay as they are for as long as a loaded machine takes to ask about them."""

Make: TypeAlias = Callable[[Members], None]


def beat(members: Members, name: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Any:
    asked = speaks(members, name, epoch, owned, **fields)
    return members.ask(name, asked, 1, ConsumerGroupHeartbeatResponse, *HEARTBEAT)


def join(members: Members, name: str, member: str = "", **fields: Any) -> Any:
    return members.ask(name, members.join(name, member, **(PATIENCE | fields)), 9, JoinGroupResponse)


def told_of(members: Members) -> None:
    """What people are told of the group, by each way and in each version."""
    for version in DescribeGroupsRequest.VERSIONS:
        asked = DescribeGroupsRequest([members.group], include_authorized_operations=version >= 3)
        members.ask("", lambda _, asked=asked: asked, version, DescribeGroupsResponse)
    for version in ConsumerGroupDescribeRequest.VERSIONS:
        wanted = ConsumerGroupDescribeRequest([members.group], include_authorized_operations=True)
        members.ask("", lambda _, wanted=wanted: wanted, version, ConsumerGroupDescribeResponse)
    listed(members, ListGroupsRequest(), 5)


def listed(members: Members, asked: ListGroupsRequest, version: int) -> list[Any]:
    """What is listed of those groups whose names begin as that of the members, which is the same on both."""
    found = []
    for side in members._both:
        told = side.plain(members._client(side, "").ask(asked, version, ListGroupsResponse))
        assert told["error_code"] == 0
        ours = [each for each in told["groups"] if each["group_id"].startswith(members.group)]
        found.append(sorted(ours, key=lambda each: str(each["group_id"])))
    assert found[0] == found[1], f"{asked}, version {version}"
    return found[1]


def delete(members: Members) -> Any:
    asked = DeleteGroupsRequest([members.group])
    return members.ask("", lambda _: asked, 2, DeleteGroupsResponse)["results"][0]["error_code"]


# ---- states ---------------------------------------------------------------------------------------------------------------


def simple(members: Members) -> None:
    members.ask("", members.commit("", -1), 9, OffsetCommitResponse)


def told_an_id(members: Members) -> None:
    join(members, "a")
    wait_for_state(members, "Empty")


def completing(members: Members) -> None:
    join(members, "a", **OF_I)


def stable(members: Members) -> None:
    join(members, "a", **OF_I)
    members.ask("a", members.sync("a", 1, ("a", NOTHING)), 5, SyncGroupResponse)


def preparing(members: Members) -> None:
    settled(members)
    members.tell("a", members.join("a", "a"), 9)
    wait_for_rebalance(members, "b", 2)


def empty(members: Members) -> None:
    stable(members)
    gone = LeaveGroupRequest(members.group, members=[Identity("", "i")])
    members.ask("", lambda _: gone, 5, LeaveGroupResponse)


def connect(members: Members) -> None:
    join(members, "a", protocol_type="connect", **OF_I)


def consumers(members: Members) -> None:
    beat(members, "a", 0, instance_id="i")


def reconciling(members: Members) -> None:
    consumers(members)
    beat(members, "b", 0)
    beat(members, "a", 1)


def away(members: Members) -> None:
    consumers(members)
    beat(members, "a", -2, instance_id="i")


def reads_nothing(members: Members) -> None:
    beat(members, "a", 0, instance_id="i", subscribed_topic_names=[])


def all_consumers_gone(members: Members) -> None:
    consumers(members)
    beat(members, "a", -1, instance_id="i")


def mixed(members: Members) -> None:
    beat(members, "b", 0)
    join(members, "a", **OF_I)


CLASSIC: Mapping[Make, int] = dict.fromkeys((simple, told_an_id, completing, stable, empty, connect), 1) | {
    preparing: 2
}
CONSUMERS: Mapping[Make, int] = dict.fromkeys((consumers, reconciling, reads_nothing), 1) | {
    all_consumers_gone: 2,
    mixed: 2,
    away: -2,
}
"""How a group comes into a state, and the generation or epoch of its member a."""


def is_explained(make: Make, name: str | None, epoch: int, version: int | None = None) -> bool:
    """Whether `docs/KAFKA.md` says that the answers differ."""
    if make not in CONSUMERS:
        return False
    if make is away and name == "a" and epoch == CONSUMERS[away]:
        return True
    if version is None:
        return name is None and epoch >= 0
    is_member = name == "a" and epoch == CONSUMERS[make] and make not in {all_consumers_gone, mixed}
    return version < 9 and is_member


@pytest.mark.parametrize("make", [*CLASSIC, *CONSUMERS], ids=lambda make: make.__name__)
def test_offsets_of_a_group_in_each_state(members: Members, make: Make) -> None:
    make(members)
    told_of(members)
    epochs = sorted({-2, -1, 0, (CLASSIC | CONSUMERS)[make], 1, 2, 3})
    asked = [(version, name, epoch) for version in (9, 8, 2) for name in ("", "x", "a") for epoch in epochs]
    for version, name, epoch in asked:
        if not is_explained(make, name, epoch, version):
            for fields in ({}, OF_I, OF_J) if version >= 7 else ({},):
                told = members.commit(name, epoch, **fields)
                members.ask("", told, version, OffsetCommitResponse)
    for name, epoch in [(name, epoch) for name in (None, "", "x", "a") for epoch in epochs]:
        if not is_explained(make, name, epoch):
            told = members.fetch((members.topic, [0, 7]), member=name, epoch=epoch)
            members.ask("", told, FETCH, OffsetFetchResponse)
    for version in OffsetFetchRequest.VERSIONS[:7]:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(members.topic, [0, 7])]
        members.ask("", lambda _, t=topics: OffsetFetchRequest(members.group, t), version, OffsetFetchResponse)
    delete_offsets(members)


def delete_offsets(members: Members) -> None:
    part, named = OffsetDeleteRequest.OffsetDeleteRequestPartition, OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [named(members.topic, [part(0), part(9)]), named("none", [part(0)])]
    members.ask("", lambda _: OffsetDeleteRequest(members.group, topics), 0, OffsetDeleteResponse)


@pytest.mark.parametrize("make", [*CLASSIC, *CONSUMERS], ids=lambda make: make.__name__)
def test_a_group_in_each_state_is_deleted_or_not(members: Members, make: Make) -> None:
    make(members)
    if delete(members) == 0:
        told_of(members)
        delete_offsets(members)
        members.ask("", members.fetch(member="a", epoch=1), FETCH, OffsetFetchResponse)
        assert delete(members) != 0
        if make is told_an_id:
            join(members, "a", "a")


# ---- filters --------------------------------------------------------------------------------------------------------------

STATES = [
    *("", "Stable", "stable", " STABLE ", "Empty", "Dead", "PreparingRebalance", "completingrebalance"),
    *("Assigning", "RECONCILING", "Unknown", "none", "NotReady"),
]
TYPES = ["", "classic", "CLASSIC", " classic", "Consumer", "consumer ", "share", "streams", "unknown", "none"]


def test_groups_are_filtered(members: Members) -> None:
    name, made = members.group, (simple, stable, completing, empty, told_an_id, connect, consumers, reconciling, mixed)
    for make in (*made, all_consumers_gone):
        members.group = f"{name}-{make.__name__}"
        make(members)
        told_of(members)
    members.group = name
    assert len(listed(members, ListGroupsRequest(), 0)) == len(made) + 1
    for state in STATES:
        listed(members, ListGroupsRequest([state]), 4)
        for kind in ("", "classic", "Consumer"):
            listed(members, ListGroupsRequest([state], [kind]), 5)
    for kind in TYPES:
        listed(members, ListGroupsRequest([], [kind]), 5)
    assert listed(members, ListGroupsRequest(["stable", "empty", "none"], ["classic", "none"]), 5)


# ---- static members that are away -------------------------------------------------------------------------------------------


def test_what_a_static_member_was_to_give_back_is_free_while_it_is_away(members: Members) -> None:
    reconciling(members)
    members.described_consumers()
    beat(members, "a", -2, instance_id="i")
    members.described_consumers()
    beat(members, "b", 2)
    beat(members, "b", 2, [2, 3])
    members.described_consumers()
    beat(members, "a2", 0, instance_id="i")
    beat(members, "a2", 2, [0, 1], instance_id="i")
    told_of(members)


def test_in_the_epoch_of_its_leave_a_member_commits_and_asks_only_with_kafka(members: Members) -> None:
    """Goal: what it was to give back is read by others, whose offsets it must not move."""
    away(members)
    client = members._client
    members.tell("", members.commit("a", -2), 9)
    committed = [client(side, "").receive(OffsetCommitResponse, 9) for side in members._both]
    assert [each.topics[0].partitions[0].error_code for each in committed] == [0, STALE]
    members.tell("", members.fetch((members.topic, [0]), member="a", epoch=-2), FETCH)
    fetched = [client(side, "").receive(OffsetFetchResponse, FETCH) for side in members._both]
    assert [each.groups[0].error_code for each in fetched] == [0, STALE]


def test_one_that_waits_for_partitions_is_away(members: Members) -> None:
    beat(members, "a", 0, instance_id="i")
    beat(members, "b", 0, instance_id="j")
    beat(members, "b", -2, instance_id="j")
    beat(members, "a", 1, instance_id="i")
    beat(members, "a", 1, [0, 1], instance_id="i")
    members.described_consumers()
    beat(members, "b2", 0, instance_id="j")
    members.described_consumers()
    beat(members, "b2", 2, [2, 3], instance_id="j")
    told_of(members)


def test_one_comes_back_under_another_id_and_reads_other_topics(members: Members) -> None:
    other = members._both.topic(3)
    reconciling(members)
    beat(members, "a", 1, [0, 1], instance_id="i")
    beat(members, "b", 2)
    beat(members, "a", -2, instance_id="i")
    beat(members, "a2", 0, instance_id="i", subscribed_topic_names=[members.topic, other])
    members.described_consumers()
    beat(members, "b", 2)
    beat(members, "a2", 3, instance_id="i")
    beat(members, "a2", -2, instance_id="i")
    beat(members, "b", 3, subscribed_topic_names=[other], server_assignor="range")
    members.described_consumers()
    beat(members, "a3", 0, instance_id="i")
    beat(members, "b", 4, [])
    beat(members, "a3", 4)
    members.described_consumers()


def test_the_others_go_while_one_is_away(members: Members) -> None:
    reconciling(members)
    beat(members, "a", 1, [0, 1], instance_id="i")
    beat(members, "a", -2, instance_id="i")
    beat(members, "b", -1)
    members.described_consumers()
    beat(members, "a", 0, instance_id="i")
    told_of(members)


def test_one_that_is_away_is_put_out_by_people(members: Members) -> None:
    away(members)
    beat(members, "b", 0)
    for who in (Identity("", "i"), Identity("b", None), Identity("", "none"), Identity("nobody", None)):
        asked = LeaveGroupRequest(members.group, members=[who])
        members.ask("", lambda _, asked=asked: asked, 5, LeaveGroupResponse)
        members.described_consumers()
    for epoch in (-1, -2, 1):
        beat(members, "a", epoch, instance_id="i")


def test_one_of_the_classic_protocol_stays_while_the_other_is_away(members: Members) -> None:
    beat(members, "a", 0, instance_id="i")
    join(members, "s", **OF_J)
    beat(members, "a", 1)
    beat(members, "a", -2, instance_id="i")
    members.ask("s", members.beat("s", 2, **OF_J), 4, HeartbeatResponse)
    join(members, "s", "s", **OF_J)
    members.ask("s", members.sync("s", 2), 5, SyncGroupResponse)
    members.described_consumers()


def test_a_dynamic_member_is_not_away(members: Members) -> None:
    beat(members, "a", 0)
    beat(members, "b", 0, instance_id="k")
    for name, instance in (("a", "i"), ("a", None), ("b", None), ("x", None), ("x", "q")):
        beat(members, name, -2, instance_id=instance)
        members.described_consumers()
