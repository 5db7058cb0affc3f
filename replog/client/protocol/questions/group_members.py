"""Questions of members of groups: who coordinates, heartbeats (KIP-848), and what members of the classic protocol ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, require_answer
from replog.coordinator.assignors import assignment_in
from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import ErrorCode, MemberIdRequiredError, UnsupportedVersionError
from replog.waiting.asks import Asks
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest
from replog.wire.messages.join_group import JoinGroupResponse as Joined
from replog.wire.messages.leave_group import LeaveGroupRequest
from replog.wire.messages.leave_group import LeaveGroupResponse as Left
from replog.wire.messages.sync_group import SyncGroupRequest
from replog.wire.messages.sync_group import SyncGroupResponse as Synced

GROUP: Final = 0
TRANSACTION: Final = 1
CALLED: Final[Mapping[int, str]] = {GROUP: "group", TRANSACTION: "transactional id"}

SEVERAL_FROM: Final = 4
"""The first version of FindCoordinator that asks for several groups at once."""

REGEX_FROM: Final = 1
"""The first version of ConsumerGroupHeartbeat with a regular expression in the place of topics."""

SEVERAL_LEAVE_FROM: Final = 3
"""The first version of LeaveGroup that names several members, and says why they leave."""


class FindCoordinator(Asks[int], frozen=True):
    """Asks any broker for the id of the one that coordinates a group, or the transactions of a transactional id.

    Where that listens is part of the metadata.

    Attributes:
        key: The group id or the transactional id.
        key_type: Which of them it is: `GROUP` or `TRANSACTION`.
    """

    key: str
    key_type: int = GROUP


async def find_coordinator(broker: Broker, question: FindCoordinator, timeout_ms: int) -> int:
    """Asks who coordinates a group, or transactions."""
    key, kind = question.key, question.key_type
    what = f"to say who coordinates {CALLED[kind]} {key!r}"
    if await broker.version(FindCoordinatorRequest) < SEVERAL_FROM:
        one = await broker.ask(FindCoordinatorRequest(key, kind), FindCoordinatorResponse, timeout_ms=timeout_ms)
        require_answer(broker, one.error_code, one.error_message, what)
        return one.node_id
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    answer = await broker.ask(request, FindCoordinatorResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.coordinators if each.key == key), None)
    if found is None:
        raise lacking(broker, f"the coordinator of {CALLED[kind]} {key!r}")
    require_answer(broker, found.error_code, found.error_message, what)
    return found.node_id


async def heartbeat(broker: Broker, question: ConsumerHeartbeat, timeout_ms: int) -> ConsumerHeartbeatResponse:
    """Sends a heartbeat.  What the client is called and where it connects from the broker knows from the connection.

    Raises:
        UnsupportedVersionError: The broker has no groups whose coordinator assigns, or knows no regular expression.
    """
    if not await broker.offers(ConsumerGroupHeartbeatRequest.API_KEY):
        raise _no_such_groups(broker, question.group_id)
    version = await broker.version(ConsumerGroupHeartbeatRequest)
    if question.subscribed_regex is not None and version < REGEX_FROM:
        raise UnsupportedVersionError(
            f"{broker.address} serves ConsumerGroupHeartbeat up to version {version}, which has no regular expression of topics: "
            "subscribe to topics by their names, or use a broker of Kafka 4.0 or newer"
        )
    answer = await broker.ask(_said(question), ConsumerGroupHeartbeatResponse, timeout_ms=timeout_ms)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise _no_such_groups(broker, question.group_id)
    what = f"the heartbeat of a member of group {question.group_id!r}"
    require_answer(broker, answer.error_code, answer.error_message, what)
    told = answer.assignment
    return ConsumerHeartbeatResponse(
        answer.member_id or question.member_id,
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        None if told is None else assignment_in(told.topic_partitions),
    )


def _said(question: ConsumerHeartbeat) -> ConsumerGroupHeartbeatRequest:
    names, owned = question.subscribed_topics, question.owned
    return ConsumerGroupHeartbeatRequest(
        question.group_id,
        question.member_id,
        question.member_epoch,
        question.instance_id,
        question.rack_id,
        question.rebalance_timeout_ms,
        None if names is None else list(names),
        question.subscribed_regex,
        question.server_assignor,
        None
        if owned is None
        else [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id, sorted(owned[topic_id]))
            for topic_id in sorted(owned)
        ],
    )


def _no_such_groups(broker: Broker, group: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{broker.address} serves no ConsumerGroupHeartbeat, which members of group {group!r} speak (KIP-848): it needs Kafka 4.0 or "
        'newer with the feature group.version at 1, or group.coordinator.rebalance.protocols with "consumer" in 3.9'
    )


# ---- the classic protocol ---------------------------------------------------------------------------------------------

_REFUSALS: Final[Mapping[int, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members have no assignor in common with {offered}: give them one of these "
    "(partition.assignment.strategy), or this consumer another group_id",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as the broker's group.max.size allows",
    ErrorCode.FENCED_INSTANCE_ID: "another process has joined by the same instance id: give each its own group_instance_id",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker's group.min.session.timeout.ms and group.max.session.timeout.ms do not "
    "allow the session time-out of {session_ms} ms",
    ErrorCode.ILLEGAL_GENERATION: "the group is of another generation by now",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalanced",
}
"""What the refusals of Kafka mean, which has no text for them here."""


def _require(broker: Broker, number: int, group: str, **facts: object) -> None:
    text = _REFUSALS.get(number)
    told = None if text is None else f"{broker.address} refuses a member of group {group!r}: {text.format(**facts)}"
    require_answer(broker, number, told, f"a member of group {group!r}")


async def join_group(broker: Broker, question: JoinGroup, timeout_ms: int) -> JoinGroupResponse:
    """Takes part in the next generation; answered when all others do.

    Raises:
        MemberIdRequiredError: Join again with the id that it tells.
    """
    request = JoinGroupRequest(
        question.group_id,
        question.session_timeout_ms,
        question.rebalance_timeout_ms,
        question.member_id,
        question.instance_id,
        question.protocol_type,
        [JoinGroupRequest.JoinGroupRequestProtocol(*each) for each in question.protocols],
        question.reason,
    )
    answer = await broker.ask(request, Joined, timeout_ms=timeout_ms)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        raise MemberIdRequiredError(f"{broker.address} wants the id that it tells to be used", answer.member_id)
    offered = " and ".join(each.name for each in question.protocols)
    _require(broker, answer.error_code, question.group_id, offered=offered, session_ms=question.session_timeout_ms)
    return JoinGroupResponse(
        answer.member_id,
        answer.generation_id,
        question.protocol_type,
        answer.protocol_name or "",
        answer.leader,
        tuple(JoinedMember(each.member_id, each.group_instance_id, bytes(each.metadata)) for each in answer.members),
        answer.skip_assignment,
    )


async def sync_group(broker: Broker, question: SyncGroup, timeout_ms: int) -> SyncGroupResponse:
    """Asks what a member gets; answered when the leader of its generation has assigned."""
    request = SyncGroupRequest(
        question.group_id,
        question.generation,
        question.member_id,
        question.instance_id,
        question.protocol_type,
        question.protocol,
        [SyncGroupRequest.SyncGroupRequestAssignment(*each) for each in question.assignments.items()],
    )
    answer = await broker.ask(request, Synced, timeout_ms=timeout_ms)
    _require(broker, answer.error_code, question.group_id)
    return SyncGroupResponse(question.protocol_type or "", question.protocol or "", bytes(answer.assignment))


async def classic_heartbeat(broker: Broker, question: ClassicHeartbeat, timeout_ms: int) -> ClassicHeartbeatResponse:
    """Says that a member is there."""
    request = HeartbeatRequest(question.group_id, question.generation, question.member_id, question.instance_id)
    answer = await broker.ask(request, HeartbeatResponse, timeout_ms=timeout_ms)
    _require(broker, answer.error_code, question.group_id)
    return ClassicHeartbeatResponse()


async def leave_group(broker: Broker, question: LeaveGroup, timeout_ms: int) -> LeaveGroupResponse:
    """Lets one member leave; one that is not known has left."""
    (member,) = question.members
    told = [LeaveGroupRequest.MemberIdentity(member.member_id, member.instance_id, member.reason)]
    is_old = await broker.version(LeaveGroupRequest) < SEVERAL_LEAVE_FROM
    request = LeaveGroupRequest(question.group_id, member.member_id, [] if is_old else told)
    answer = await broker.ask(request, Left, timeout_ms=timeout_ms)
    _require(broker, answer.error_code, question.group_id)
    return LeaveGroupResponse(())


QUESTIONS: Final[Mapping[type, Question]] = {
    FindCoordinator: find_coordinator,
    ConsumerHeartbeat: heartbeat,
    JoinGroup: join_group,
    SyncGroup: sync_group,
    ClassicHeartbeat: classic_heartbeat,
    LeaveGroup: leave_group,
}
