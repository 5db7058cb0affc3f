"""What members of the classic protocol ask, and people ask of groups, as the coordinator is asked and clients are told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from replog.access.principal import ANONYMOUS
from replog.coordinator.classic import requests as classic
from replog.coordinator.describing import requests as describing
from replog.coordinator.offsets.requests import FetchOffsetsResponse
from replog.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidGroupIdError,
    JoinRefusal,
    MemberIdRequiredError,
    NotEnoughReplicasError,
    RebalanceInProgressError,
    ReplogError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from replog.metadata.image import MetadataImage, TopicImage
from replog.protocol.handlers.groups import consumer_groups, group_members, group_offsets, groups
from replog.protocol.handlers.metadata import NOT_ASKED
from replog.tcp.connection import Caller
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka.rights_kit import a_call

TOPIC_ID = UUID(int=7)


class Node:
    """A node whose coordinators answer what a test says."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any, int | None]] = []
        self.image = MetadataImage(topics_by_id={TOPIC_ID: TopicImage("t", TOPIC_ID, {})})

    async def coordinate(self, group_id: str, request: Any, timeout_ms: int | None) -> Any:
        self.asked.append((group_id, request, timeout_ms))
        answer = self.answers.pop(0)
        if isinstance(answer, ReplogError):
            raise answer
        return answer

    async def coordinate_all(self, request: Any, timeout_ms: int) -> Any:
        return [await self.coordinate("", request, timeout_ms)]


async def told(node: Node, handle: Any, request: Any, version: int) -> Any:
    """What a client reads of the answer to what it has sent in a version."""
    sent, written = Writer(), Writer()
    request.write(sent, version)
    received = type(request).read(Reader(memoryview(sent.joined())), version)
    response = await handle(node, received, a_call(version, "client", Caller(ANONYMOUS, "10.0.0.9")))
    response.write(written, version)
    return type(response).read(Reader(memoryview(written.joined())), version)


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
async def test_a_join(version: int) -> None:
    members = (classic.JoinedMember("m", None, b"wish"), classic.JoinedMember("n", "i" if version >= 5 else None, b""))
    node = Node(classic.JoinGroupResponse("m", 3, "consumer", "range", "m", members, skip_assignment=version >= 9))
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", b"wish")]
    asked = JoinGroupRequest("g", 10_000, member_id="m", protocol_type="consumer", protocols=protocols)
    if version >= 1:
        asked.rebalance_timeout_ms = 60_000
    answer: JoinGroupResponse = await told(node, group_members.join_group, asked, version)
    ((group, request, timeout_ms),) = node.asked
    assert (group, timeout_ms, request.client_id, request.client_host) == ("g", None, "client", "/10.0.0.9")
    assert request.protocols == (classic.Protocol("range", b"wish"),)
    assert request.rebalance_timeout_ms == (60_000 if version else 10_000)
    assert (request.is_id_required, request.can_skip_assignment) == (version >= 4, version >= 9)
    assert (answer.error_code, answer.generation_id, answer.protocol_name, answer.leader) == (0, 3, "range", "m")
    assert (answer.protocol_type, answer.skip_assignment) == ("consumer" if version >= 7 else None, version >= 9)
    assert [(each.member_id, each.group_instance_id, bytes(each.metadata)) for each in answer.members] == list(members)


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
async def test_a_member_is_told_its_id_and_comes_again(version: int) -> None:
    node = Node(MemberIdRequiredError("come again", "m"))
    answer = await told(node, group_members.join_group, JoinGroupRequest("g", member_id=""), version)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m", -1)


@pytest.mark.parametrize(
    ("of_consumers", "error", "named"),
    [
        (False, UnknownMemberIdError("no member"), "m"),
        (True, UnknownMemberIdError("no member"), ""),
        (False, GroupMaxSizeReachedError("full"), ""),
        (False, InvalidGroupIdError("no name"), "m"),
    ],
)
async def test_who_is_named_in_a_refusal(of_consumers: bool, error: ReplogError, named: str) -> None:
    if of_consumers and isinstance(error, JoinRefusal):
        error.names_member = False
    answer = await told(Node(error), group_members.join_group, JoinGroupRequest("g", member_id="m"), 9)
    assert (answer.error_code, answer.member_id) == (error.code, named)


@pytest.mark.parametrize("version", SyncGroupRequest.VERSIONS)
async def test_a_sync(version: int) -> None:
    node = Node(classic.SyncGroupResponse("consumer", "range", b"mine"), RebalanceInProgressError("join again"))
    asked = SyncGroupRequest("g", 3, "m", assignments=[SyncGroupRequest.SyncGroupRequestAssignment("m", b"mine")])
    answer: SyncGroupResponse = await told(node, group_members.sync_group, asked, version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"mine")
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    request = classic.SyncGroup("g", "m", 3, {"m": b"mine"})
    assert node.asked == [("g", request, None)]
    answer = await told(node, group_members.sync_group, asked, version)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
async def test_a_heartbeat(version: int) -> None:
    node = Node(
        classic.ClassicHeartbeatResponse(), UnknownMemberIdError("no"), CoordinatorLoadInProgressError("later"),
        RequestTimedOutError("late"), NotEnoughReplicasError("few"),
    )  # fmt: skip
    asked = HeartbeatRequest("g", 3, "m")
    codes = [(await told(node, group_members.heartbeat, asked, version)).error_code for _ in range(5)]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    assert node.asked[0][1] == classic.ClassicHeartbeat("g", "m", 3)


@pytest.mark.parametrize("version", LeaveGroupRequest.VERSIONS)
async def test_members_leave(version: int) -> None:
    left = (classic.LeftMember("m", error=UnknownMemberIdError("no")), classic.LeftMember("n", "i"))
    node = Node(classic.LeaveGroupResponse(left if version >= 3 else left[:1]))
    if version >= 3:
        members = [LeaveGroupRequest.MemberIdentity("m"), LeaveGroupRequest.MemberIdentity("n", "i")]
        asked = LeaveGroupRequest("g", members=members)
    else:
        asked = LeaveGroupRequest("g", "m")
    answer: LeaveGroupResponse = await told(node, group_members.leave_group, asked, version)
    if version >= 3:
        codes = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
        assert codes == [("m", None, ErrorCode.UNKNOWN_MEMBER_ID), ("n", "i", 0)]
    else:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.member_id for each in node.asked[0][1].members] == (["m", "n"] if version >= 3 else ["m"])


@pytest.mark.parametrize("version", ListGroupsRequest.VERSIONS)
async def test_groups_are_listed(version: int) -> None:
    group = describing.ListedGroup("g", "consumer", "Stable", describing.GroupType.CONSUMER)
    node = Node(describing.ListGroupsResponse((group,)), CoordinatorLoadInProgressError("later"))
    asked = ListGroupsRequest(["Stable"] if version >= 4 else [], ["consumer"] if version >= 5 else [])
    answer: ListGroupsResponse = await told(node, groups.list_groups, asked, version)
    ((_, request, _),) = node.asked
    assert request.states == (("Stable",) if version >= 4 else ())
    assert request.types == (("consumer",) if version >= 5 else ())
    (listed,) = answer.groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("consumer" if version >= 5 else "")
    answer = await told(node, groups.list_groups, asked, version)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", DescribeGroupsRequest.VERSIONS)
async def test_groups_are_described(version: int) -> None:
    member = describing.DescribedMember("m", None, "client", "/host", b"wish", b"got")
    node = Node(
        describing.DescribedGroup("g", "Stable", "consumer", "range", (member,)), GroupIdNotFoundError("no such group")
    )
    answer: DescribeGroupsResponse = await told(
        node, groups.describe_groups, DescribeGroupsRequest(["g", "h"]), version
    )
    found, missing = answer.groups
    assert (found.group_id, found.group_state, found.protocol_type, found.protocol_data) == (
        *("g", "Stable"),
        *("consumer", "range"),
    )
    (one,) = found.members
    assert (one.member_id, one.client_host, bytes(one.member_metadata), bytes(one.member_assignment)) == (
        *("m", "/host"),
        *(b"wish", b"got"),
    )
    assert (missing.group_id, missing.group_state) == ("h", "Dead")
    if version >= 6:
        assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
    else:
        assert missing.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", ConsumerGroupDescribeRequest.VERSIONS)
async def test_groups_of_kip_848_are_described(version: int) -> None:
    member = describing.DescribedConsumer(
        *("m", "i", "r", 4, "client", "/host", ("t",), ""),
        assignment={TOPIC_ID: frozenset({1, 0})},
        target={UUID(int=8): frozenset({2})},
    )
    node = Node(
        describing.DescribedConsumerGroup("g", "Stable", 4, 4, "uniform", (member,)),
        GroupIdNotFoundError("no such group"),
    )
    asked = ConsumerGroupDescribeRequest(["g", "h"])
    answer: ConsumerGroupDescribeResponse = await told(node, consumer_groups.describe, asked, version)
    found, missing = answer.groups
    (one,) = found.members
    places = [(each.topic_name, list(each.partitions)) for each in one.assignment.topic_partitions]
    targets = [(each.topic_name, each.topic_id) for each in one.target_assignment.topic_partitions]
    assert (found.group_state, found.group_epoch, found.assignor_name, one.member_epoch) == ("Stable", 4, "uniform", 4)
    assert (places, targets) == ([("t", [0, 1])], [("", UUID(int=8))])
    assert one.member_type == (1 if version else -1)
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "no such group")


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_what_may_be_done_with_a_group(is_wanted: bool) -> None:
    missing = GroupIdNotFoundError("no such group")
    node = Node(describing.DescribedGroup("g", "Stable", "", "", ()), missing)
    asked = DescribeGroupsRequest(["g", "h"], is_wanted)
    answer = await told(node, groups.describe_groups, asked, 6)
    assert [each.authorized_operations for each in answer.groups] == [3400 if is_wanted else NOT_ASKED, NOT_ASKED]
    node = Node(describing.DescribedConsumerGroup("g", "Stable", 4, 4, "uniform", ()), missing)
    answer = await told(node, consumer_groups.describe, ConsumerGroupDescribeRequest(["g", "h"], is_wanted), 1)
    assert [each.authorized_operations for each in answer.groups] == [3400 if is_wanted else NOT_ASKED, NOT_ASKED]


@pytest.mark.parametrize(
    ("handle", "request_", "answer", "version"),
    [
        (
            groups.describe_groups,
            DescribeGroupsRequest(["g"] * 5_000),
            describing.DescribedGroup("g", "Stable", "", "", ()),
            6,
        ),
        (
            consumer_groups.describe,
            ConsumerGroupDescribeRequest(["g"] * 5_000),
            describing.DescribedConsumerGroup("g", "Stable", 4, 4, "uniform", ()),
            1,
        ),
        (
            group_offsets.offset_fetch,
            OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup("g") for _ in range(5_000)]),
            FetchOffsetsResponse(()),
            9,
        ),
    ],
)
async def test_a_group_that_is_named_often_is_answered_once(
    handle: Any, request_: Any, answer: Any, version: int
) -> None:
    """Goal: what a short request may cost is what its groups are large, not that times as often as they are named."""
    node = Node(answer, GroupIdNotFoundError("asked again"))
    found = await told(node, handle, request_, version)
    assert [each.group_id for each in found.groups] == ["g"]
    assert len(node.asked) == 1
