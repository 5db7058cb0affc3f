"""Questions of operators about groups of both protocols: which there are, how they are, and that one is to be deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, refusal, require_answer
from replog.coordinator.assignors import assignment_in
from replog.coordinator.consumers.requests import DeleteGroup, DeleteGroupResponse
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    GroupType,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.errors import ErrorCode, GroupIdNotFoundError, RequestTimedOutError, UnsupportedVersionError
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.list_groups import ListGroupsRequest
from replog.wire.messages.list_groups import ListGroupsResponse as Listed

STATES_FROM: Final = 4
"""The first version of ListGroups that tells the states of groups, and lists those of some."""

TYPES_FROM: Final = 5
"""The first version of ListGroups that tells the types of groups, and lists those of some."""

DEAD: Final = "Dead"
"""The state of a group that there is not, in versions of DescribeGroups without an error for it."""

_TYPES: Final = {each.value: each for each in GroupType}
_CLASSIC_MEMBER: Final = 0
"""Of ConsumerGroupDescribe: the type of a member that speaks the classic protocol."""

# ---- deletions --------------------------------------------------------------------------------------------------------


async def delete_group(broker: Broker, question: DeleteGroup, timeout_ms: int) -> DeleteGroupResponse:
    """Asks to delete a group.

    Raises:
        RequestTimedOutError: The log of the coordinator did not take the deletion in time; it may take it yet.
    """
    group = question.group_id
    answer = await broker.ask(DeleteGroupsRequest([group]), DeleteGroupsResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.results if each.group_id == group), None)
    if found is None:
        raise lacking(broker, f"group {group!r}")
    what = f"to delete group {group!r}"
    is_in_doubt = (
        found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and not found.error_message
    )  # as Kafka says it
    if is_in_doubt or found.may_be_done:
        raise RequestTimedOutError(str(refusal(broker, found.error_code, found.error_message, what)))
    require_answer(broker, found.error_code, found.error_message, what)
    return DeleteGroupResponse()


# ---- lists ------------------------------------------------------------------------------------------------------------


async def list_groups(broker: Broker, question: ListGroups, timeout_ms: int) -> ListGroupsResponse:
    """Asks for the groups that a broker coordinates.  Those of types that replog does not have (share, streams) are left out.

    Raises:
        UnsupportedVersionError: Groups of some states or types are asked for, and the broker tells of none.
    """
    version = await broker.version(ListGroupsRequest)
    _require(broker, version, STATES_FROM, bool(question.states), "states")
    _require(broker, version, TYPES_FROM, bool(question.types), "types")
    request = ListGroupsRequest([each.strip() for each in question.states], list(question.types))
    answer = await broker.ask(request, Listed, timeout_ms=timeout_ms)
    require_answer(broker, answer.error_code, answer.error_message, "to list its groups")
    return ListGroupsResponse(
        tuple(
            ListedGroup(each.group_id, each.protocol_type, each.group_state, _TYPES[kind])
            for each in answer.groups
            if (kind := each.group_type.lower() or GroupType.CLASSIC.value) in _TYPES
        )
    )


def _require(broker: Broker, version: int, needed: int, is_asked: bool, what: str) -> None:
    if is_asked and version < needed:
        raise UnsupportedVersionError(
            f"{broker.address} serves ListGroups up to version {version}, which knows no {what} of groups (those come with version "
            f"{needed}): list all groups, or use a newer broker"
        )


# ---- groups of the classic protocol -----------------------------------------------------------------------------------


async def describe_group(broker: Broker, question: DescribeGroup, timeout_ms: int) -> DescribedGroup:
    """Asks for a group of the classic protocol.

    Raises:
        GroupIdNotFoundError: There is no such group, or it is one of KIP-848.
    """
    group = question.group_id
    answer = await broker.ask(DescribeGroupsRequest([group]), DescribeGroupsResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.groups if each.group_id == group), None)
    if found is None:
        raise lacking(broker, f"group {group!r}")
    require_answer(broker, found.error_code, found.error_message, f"to describe group {group!r}")
    if found.group_state == DEAD:
        raise GroupIdNotFoundError(f"{broker.address} has no group {group!r}")
    return DescribedGroup(
        group,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        tuple(
            DescribedMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                _host(each.client_host),
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in found.members
        ),
    )


# ---- groups of KIP-848 ------------------------------------------------------------------------------------------------


async def describe_consumer_group(
    broker: Broker, question: DescribeConsumerGroup, timeout_ms: int
) -> DescribedConsumerGroup:
    """Asks for a group of KIP-848.

    Raises:
        GroupIdNotFoundError: There is no such group, or it is one of the classic protocol, which all are where the broker does not
            serve the new one.
    """
    group = question.group_id
    if not await broker.offers(ConsumerGroupDescribeRequest.API_KEY):
        raise GroupIdNotFoundError(f"{broker.address} has no groups of KIP-848, and so no {group!r}")
    request = ConsumerGroupDescribeRequest([group])
    answer = await broker.ask(request, ConsumerGroupDescribeResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.groups if each.group_id == group), None)
    if found is None:
        raise lacking(broker, f"group {group!r}")
    if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise GroupIdNotFoundError(f"{broker.address} has no groups of KIP-848, and so no {group!r}")
    require_answer(broker, found.error_code, found.error_message, f"to describe group {group!r}")
    return DescribedConsumerGroup(
        group,
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        tuple(map(_consumer, found.members)),
    )


def _consumer(member: ConsumerGroupDescribeResponse.Member) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        _host(member.client_host),
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex or "",
        assignment_in(member.assignment.topic_partitions),
        assignment_in(member.target_assignment.topic_partitions),
        GroupType.CLASSIC if member.member_type == _CLASSIC_MEMBER else GroupType.CONSUMER,
    )


def _host(told: str) -> str:
    """Returns an address without what Java puts before one that has no name: "/127.0.0.1"."""
    return told.removeprefix("/")


QUESTIONS: Final[Mapping[type, Question]] = {
    DeleteGroup: delete_group,
    ListGroups: list_groups,
    DescribeGroup: describe_group,
    DescribeConsumerGroup: describe_consumer_group,
}
