"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: members of the classic protocol, one of which assigns.

A join is answered when the others have joined, a sync when the leader has assigned: only the requests behind it on the same
connection wait with it.
"""

from __future__ import annotations

from replog.access.entries import AclOperation, ResourceKind
from replog.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from replog.coordinator.classic.requests import JoinGroupResponse as Joined
from replog.coordinator.classic.requests import LeaveGroupResponse as Left
from replog.coordinator.classic.requests import SyncGroupResponse as Synced
from replog.errors import ErrorCode, JoinRefusal, MemberIdRequiredError, ReplogError
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, failure_of, group_code
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ID_REQUIRED_FROM = 4
"""The first version of JoinGroup whose new members come again with the id that they are told (KIP-394)."""

NO_PROTOCOL_FROM = 7
"""The first version of JoinGroup in which an error has no protocol, instead of one without a name."""

SKIPS_FROM = 9
"""The first version of JoinGroup whose leader may be told that it need not assign (KIP-814)."""

SEVERAL_LEAVE_FROM = 3
"""The first version of LeaveGroup in which several members may leave."""

# ---- join -------------------------------------------------------------------------------------------------------------


async def join_group(node: KafkaNode, request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    """Lets a member take part in the next generation."""
    rebalance_ms = request.rebalance_timeout_ms
    asked = JoinGroup(
        request.group_id,
        request.member_id,
        request.protocol_type,
        await beside(len(request.protocols), _protocols, request),
        request.session_timeout_ms,
        request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        request.group_instance_id,
        request.reason or "",
        call.version >= ID_REQUIRED_FROM,
        call.version >= SKIPS_FROM,
        call.client_id,
        call.client_host,
    )
    try:
        call.rights.require(AclOperation.READ, ResourceKind.GROUP, request.group_id)
        joined: Joined = await node.coordinate(request.group_id, asked, None)
    except ReplogError as error:
        response = refuse_join_group(request, failure_of(error))
        if isinstance(error, MemberIdRequiredError):
            response.member_id = error.member_id
        elif isinstance(error, JoinRefusal) and not error.names_member:
            response.member_id = NO_MEMBER_ID
        if call.version >= NO_PROTOCOL_FROM:
            response.protocol_name = None
        return response
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata)
            for each in joined.members
        ],
    )


def _protocols(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    return tuple(Protocol(each.name, bytes(each.metadata)) for each in request.protocols)


def refuse_join_group(request: JoinGroupRequest, failure: Failure) -> JoinGroupResponse:
    """Returns the answer to a join that failed."""
    return JoinGroupResponse(
        error_code=group_code(failure.code), generation_id=-1, protocol_name="", member_id=request.member_id
    )


# ---- sync -------------------------------------------------------------------------------------------------------------


async def sync_group(node: KafkaNode, request: SyncGroupRequest, call: Call) -> SyncGroupResponse:  # noqa: ARG001 -- the shape of handlers
    """Tells a member its assignment."""
    asked = SyncGroup(
        request.group_id,
        request.member_id,
        request.generation_id,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
    )
    try:
        synced: Synced = await node.coordinate(request.group_id, asked, None)
    except ReplogError as error:
        return refuse_sync_group(request, failure_of(error))
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
    )


def refuse_sync_group(_request: SyncGroupRequest, failure: Failure) -> SyncGroupResponse:
    """Returns the answer to a sync that failed."""
    return SyncGroupResponse(error_code=group_code(failure.code))


# ---- heartbeat, leave -------------------------------------------------------------------------------------------------


async def heartbeat(node: KafkaNode, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:  # noqa: ARG001 -- the shape of handlers
    """Notes that a member is alive."""
    asked = ClassicHeartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    try:
        await node.coordinate(request.group_id, asked, TIMEOUT_MS)
    except ReplogError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # as Kafka: a member that is told so would join again for nothing
        return refuse_heartbeat(request, failure_of(error))
    return HeartbeatResponse()


def refuse_heartbeat(_request: HeartbeatRequest, failure: Failure) -> HeartbeatResponse:
    """Returns the answer to a heartbeat that failed."""
    return HeartbeatResponse(error_code=group_code(failure.code))


async def leave_group(node: KafkaNode, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """Lets members leave."""
    members: tuple[LeavingMember, ...] = (LeavingMember(request.member_id),)
    if call.version >= SEVERAL_LEAVE_FROM:
        members = tuple(
            LeavingMember(each.member_id, each.group_instance_id, each.reason or "") for each in request.members
        )
    try:
        left: Left = await node.coordinate(request.group_id, LeaveGroup(request.group_id, members), TIMEOUT_MS)
    except ReplogError as error:
        return refuse_leave_group(request, failure_of(error))
    codes = [ErrorCode.NONE if each.error is None else group_code(each.error.code) for each in left.members]
    if call.version < SEVERAL_LEAVE_FROM:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(each.member_id, each.instance_id, code)
            for each, code in zip(left.members, codes, strict=True)
        ]
    )


def refuse_leave_group(_request: LeaveGroupRequest, failure: Failure) -> LeaveGroupResponse:
    """Returns the answer to a request that failed as a whole."""
    return LeaveGroupResponse(error_code=group_code(failure.code))
