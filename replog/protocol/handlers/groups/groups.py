"""DeleteGroups, ListGroups, DescribeGroups: administration of groups of both kinds."""

from __future__ import annotations

from replog.access.entries import AclOperation, ResourceKind
from replog.coordinator.consumers.requests import DeleteGroup
from replog.coordinator.describing.requests import (
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.errors import ErrorCode, ReplogError, RequestTimedOutError
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, each_or_failure, failure_of, group_code
from replog.protocol.handlers.node import Call, Failure, KafkaNode, require_few, text
from replog.protocol.written_steps import Steps, visible, written_in_steps
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.list_groups import ListGroupsRequest
from replog.wire.messages.list_groups import ListGroupsResponse as Listed

DEAD = "Dead"
"""The state of a group that does not exist, in versions without an error for it."""

NOT_FOUND_FROM = 6
"""The first version of DescribeGroups with an error for a group that does not exist."""

_NO_GROUP = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID}
"""Requests about groups count a group without a name as one that does not exist."""

# ---- deletions --------------------------------------------------------------------------------------------------------


async def delete_groups(node: KafkaNode, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:  # noqa: ARG001 -- the shape of handlers
    """Deletes groups without members, each for itself."""
    require_few(len(request.groups_names), "groups")
    return DeleteGroupsResponse(results=[await _deleted(node, name) for name in dict.fromkeys(request.groups_names)])


async def _deleted(node: KafkaNode, name: str) -> DeleteGroupsResponse.DeletableGroupResult:
    try:
        await node.coordinate(name, DeleteGroup(name), TIMEOUT_MS)
    except ReplogError as error:
        failure, may_be_done = failure_of(error), isinstance(error, RequestTimedOutError)
        return DeleteGroupsResponse.DeletableGroupResult(name, _deleted_code(failure), failure.message, may_be_done)
    return DeleteGroupsResponse.DeletableGroupResult(name)


def _deleted_code(failure: Failure) -> ErrorCode:
    return ErrorCode.GROUP_ID_NOT_FOUND if failure.code in _NO_GROUP else failure.code


def refuse_delete_groups(request: DeleteGroupsRequest, failure: Failure) -> DeleteGroupsResponse:
    """Returns the answer to a request that failed as a whole."""
    code = group_code(failure.code)
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(name, code, failure.message) for name in request.groups_names
        ]
    )


# ---- lists ------------------------------------------------------------------------------------------------------------


async def list_groups(node: KafkaNode, request: ListGroupsRequest, call: Call) -> Listed:
    """Lists the groups that this broker coordinates."""
    asked = ListGroups(tuple(request.states_filter), tuple(request.types_filter))
    try:
        _ = node.image  # raises where it is not known: it says whose groups this broker coordinates
        answers: list[ListGroupsResponse] = await node.coordinate_all(asked, TIMEOUT_MS)
    except ReplogError as error:
        return refuse_list_groups(request, failure_of(error))
    rights = call.rights
    sees_all = rights.sees(AclOperation.DESCRIBE, ResourceKind.CLUSTER)
    listed = (
        Listed.ListedGroup(each.group_id, each.protocol_type, each.state, each.group_type.value)
        for each in await visible(
            (each for answer in answers for each in answer.groups),
            lambda each: sees_all or rights.sees(AclOperation.DESCRIBE, ResourceKind.GROUP, each.group_id),
        )
    )
    return Listed(groups=await written_in_steps(listed, call.version, Steps()))


def refuse_list_groups(_request: ListGroupsRequest, failure: Failure) -> Listed:
    """Returns the answer to a request that failed."""
    return Listed(error_code=group_code(failure.code), error_message=failure.message)


# ---- descriptions -----------------------------------------------------------------------------------------------------


async def describe_groups(node: KafkaNode, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    """Describes groups of the classic protocol, each for itself."""
    require_few(len(request.groups), "groups")
    found = await each_or_failure(request.groups, lambda name: node.coordinate(name, DescribeGroup(name), TIMEOUT_MS))
    groups = [_described(name, told, call.version) for name, told in found]
    for each in groups:
        if request.include_authorized_operations and each.error_code == ErrorCode.NONE:
            each.authorized_operations = call.rights.operations(ResourceKind.GROUP, each.group_id)
    return DescribeGroupsResponse(groups=groups)


def refuse_describe_groups(request: DescribeGroupsRequest, failure: Failure) -> DescribeGroupsResponse:
    """Returns the answer to a request that failed as a whole."""
    return DescribeGroupsResponse(groups=[_without(name, failure) for name in request.groups])


def _without(name: str, failure: Failure) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(group_code(failure.code), text(failure.message), name)


def _described(name: str, told: DescribedGroup | Failure, version: int) -> DescribeGroupsResponse.DescribedGroup:
    if isinstance(told, Failure):
        found = _without(name, told)
        if told.code in _NO_GROUP:
            found.group_state = DEAD
            found.error_code = ErrorCode.NONE if version < NOT_FOUND_FROM else ErrorCode.GROUP_ID_NOT_FOUND
        return found
    return DescribeGroupsResponse.DescribedGroup(
        group_id=name,
        group_state=told.state,
        protocol_type=told.protocol_type,
        protocol_data=told.protocol,
        members=list(map(_member, told.members)),
    )


def _member(member: DescribedMember) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata,
        member.assignment,
    )
