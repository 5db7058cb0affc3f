"""`Admin` and consumer groups: who is asked, what is asked again, and what a lost answer means."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from replog.client.admin.operations import RECORDS_TOGETHER
from replog.client.protocol.questions.group_members import FindCoordinator
from replog.coordinator.consumers.requests import DeleteGroup, DeleteGroupResponse
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedGroup,
    DescribeGroup,
    GroupType,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitOffsetsResponse,
    CommittedOffset,
    FetchOffsets,
    FetchOffsetsResponse,
    TopicOffsets,
)
from replog.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from replog.rpc.transport import ConnectionLostError


def listed(name: str) -> ListedGroup:
    return ListedGroup(name, "consumer", "Stable", GroupType.CONSUMER)


async def test_every_broker_lists_its_groups_and_one_that_loads_is_waited_for(answering: Any) -> None:
    loading = [CoordinatorLoadInProgressError("loading")]

    def answer(node_id: int, request: Any) -> Any:
        assert request == ListGroups(("Stable",), ("consumer",))
        return loading.pop() if node_id == 3 and loading else ListGroupsResponse((listed(f"g-{4 - node_id}"),))

    async with answering(answer) as admin:
        found = await admin.list_groups(states=[" stable"], types=["Consumer"])
    assert found == (listed("g-1"), listed("g-2"), listed("g-3"))
    assert not loading


async def test_a_list_that_lacks_the_groups_of_a_broker_is_none(answering: Any) -> None:
    def answer(node_id: int, _request: Any) -> Any:
        return ConnectionLostError("broker 1 is cut off") if node_id == 1 else ListGroupsResponse((listed("g"),))

    async with answering(answer) as admin:
        with pytest.raises(RequestTimedOutError, match="broker 1 is cut off"):
            await admin.list_groups(timeout_ms=300)


async def test_a_coordinator_that_has_moved_is_looked_for_again(answering: Any) -> None:
    def answer(node_id: int, request: Any) -> Any:
        match request:
            case FindCoordinator():
                return 3 if asked else 1
            case DescribeConsumerGroup():
                asked.append(node_id)
                return NotCoordinatorError("not me") if node_id == 1 else GroupIdNotFoundError("of another kind")
            case DescribeGroup(name):
                return DescribedGroup(name, "Empty", "", "", ())

    asked: list[int] = []
    async with answering(answer) as admin:
        found = await admin.describe_groups(["g"])
    assert (asked, found["g"].coordinator_id, found["g"].group_type) == ([1, 3], 3, GroupType.CLASSIC)


async def test_a_group_that_a_lost_attempt_has_deleted_is_deleted(answering: Any) -> None:
    lost = [ConnectionLostError("the answer was lost")]

    def answer(_node_id: int, request: Any) -> Any:
        match request:
            case DeleteGroup("lost") if lost:
                return lost.pop()
            case DeleteGroup("kept"):
                return NonEmptyGroupError("it has members")
            case DeleteGroup("there"):
                return DeleteGroupResponse()
            case DeleteGroup():
                return GroupIdNotFoundError("no such group")

    async with answering(answer) as admin:
        found = await admin.delete_groups(["lost", "kept", "there", "unknown", "there"])
    assert [type(found[name]) for name in found] == [type(None), NonEmptyGroupError, type(None), GroupIdNotFoundError]
    assert "`replog groups list`" in str(found["unknown"])


async def test_many_offsets_are_committed_in_parts(answering: Any) -> None:
    sizes: list[int] = []

    def answer(node_id: int, request: Any) -> Any:
        if isinstance(request, CommitOffsets):
            assert (node_id, request.member_id, request.member_epoch) == (2, "", -1)
            sizes.append(sum(len(topic.partitions) for topic in request.topics))
            return CommitOffsetsResponse(())
        return None

    async with answering(answer) as admin:
        await admin.alter_group_offsets("g", {("t", 0): 1, ("t", 1): 2})
        await admin.alter_group_offsets("g", {})
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 2"):
            await admin.alter_group_offsets("g", {("t", 0): 1, ("t", 2): 1})
        assert sizes == [2]
        await admin.create_topic("wide", RECORDS_TOGETHER + 1, 1)
        await admin.alter_group_offsets("g", {("wide", number): 1 for number in range(RECORDS_TOGETHER + 1)})
    assert sizes == [2, RECORDS_TOGETHER, 1]


async def test_offsets_of_a_group_with_members_are_not_altered(answering: Any) -> None:
    def answer(_node_id: int, request: Any) -> Any:
        return UnknownMemberIdError("who?") if isinstance(request, CommitOffsets) else None

    async with answering(answer) as admin:
        with pytest.raises(NonEmptyGroupError, match="stop them first"):
            await admin.alter_group_offsets("g", {("t", 0): 1})


async def test_what_was_committed_of_an_earlier_topic_is_not_told(answering: Any) -> None:
    former = UUID(int=2**100)
    topics = tuple(
        TopicOffsets(name, topic_id, (CommittedOffset(0, 5), CommittedOffset(1)))
        for name, topic_id in (("t", former), ("gone", former), ("by name", NO_TOPIC_ID))
    )

    def answer(_node_id: int, request: Any) -> Any:
        match request:
            case FetchOffsets("g", None):
                return FetchOffsetsResponse(topics)
            case FetchOffsets():
                return FetchOffsetsResponse(())
            case DescribeConsumerGroup() | DescribeGroup():
                return GroupIdNotFoundError("no such group")

    async with answering(answer) as admin:
        assert await admin.group_offsets("g") == {("gone", 0): 5, ("by name", 0): 5}
        with pytest.raises(GroupIdNotFoundError):
            await admin.group_offsets("unknown")
