"""Questions of members of groups: who coordinates, and heartbeats (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, require_answer
from replog.coordinator.assignors.model import assignment_of
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import ErrorCode, UnsupportedVersionError
from replog.waiting.asks import Asks
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_FROM: Final = 4
"""The first version of FindCoordinator that asks for several groups at once."""

REGEX_FROM: Final = 1
"""The first version of ConsumerGroupHeartbeat with a regular expression in the place of topics."""


class FindCoordinator(Asks[int], frozen=True):
    """Asks any broker for the id of the one that coordinates a group; where that listens is part of the metadata."""

    group_id: str


async def find_coordinator(broker: Broker, question: FindCoordinator, timeout_ms: int) -> int:
    """Asks who coordinates a group."""
    group, what = question.group_id, f"to say who coordinates group {question.group_id!r}"
    if await broker.version(FindCoordinatorRequest) < SEVERAL_FROM:
        one = await broker.ask(FindCoordinatorRequest(group), FindCoordinatorResponse, timeout_ms=timeout_ms)
        require_answer(broker, one.error_code, one.error_message, what)
        return one.node_id
    request = FindCoordinatorRequest(coordinator_keys=[group])
    answer = await broker.ask(request, FindCoordinatorResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.coordinators if each.key == group), None)
    if found is None:
        raise lacking(broker, f"the coordinator of group {group!r}")
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
        None
        if told is None
        else assignment_of((each.topic_id, number) for each in told.topic_partitions for number in each.partitions),
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


QUESTIONS: Final[Mapping[type, Question]] = {FindCoordinator: find_coordinator, ConsumerHeartbeat: heartbeat}
