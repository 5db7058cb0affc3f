"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of KIP-848, whose coordinator assigns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.coordinator.assignors import Assignment, assignment_in
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    GroupType,
)
from replog.errors import ErrorCode, InvalidGroupIdError, ReplogError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, each_or_failure, failure_of, group_code
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, require_few, text
from replog.protocol.written_steps import Steps
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Heartbeat = ConsumerGroupHeartbeatRequest
Describe = ConsumerGroupDescribeResponse

HAS_HIDDEN_TOPICS = (
    "the group has topics that this principal may not DESCRIBE: have who administers the cluster allow it"
)

_MEMBER_TYPES: Mapping[GroupType, int] = {GroupType.CLASSIC: 0, GroupType.CONSUMER: 1}

# ---- heartbeats -------------------------------------------------------------------------------------------------------


async def heartbeat(node: KafkaNode, request: Heartbeat, call: Call) -> ConsumerGroupHeartbeatResponse:
    """Takes in the heartbeat of a member."""
    names, owned = request.subscribed_topic_names, request.topic_partitions
    count = sum(1 + len(each.partitions) for each in owned or ())
    asked = ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else await beside(count, assignment_in, owned),
        call.client_id,
        call.client_host,
        None if call.rights.is_open else partial(call.rights.sees, AclOperation.DESCRIBE, ResourceKind.TOPIC),
    )
    try:
        answer: ConsumerHeartbeatResponse = await node.coordinate(request.group_id, asked, TIMEOUT_MS)
    except InvalidGroupIdError as error:  # to this API the request is wrong, as where another field is empty
        return refuse_heartbeat(request, Failure(ErrorCode.INVALID_REQUEST, str(error)))
    except ReplogError as error:
        return refuse_heartbeat(request, failure_of(error))
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assigned(answer.assignment),
    )


def refuse_heartbeat(_request: Heartbeat, failure: Failure) -> ConsumerGroupHeartbeatResponse:
    """Returns the answer to a heartbeat that failed."""
    return ConsumerGroupHeartbeatResponse(error_code=group_code(failure.code), error_message=failure.message)


def _assigned(assignment: Assignment) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        [
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id, sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )


# ---- descriptions -----------------------------------------------------------------------------------------------------


async def describe(node: KafkaNode, request: ConsumerGroupDescribeRequest, call: Call) -> Describe:
    """Describes groups, each for itself."""
    require_few(len(request.group_ids), "groups")
    found = await each_or_failure(
        request.group_ids, lambda name: node.coordinate(name, DescribeConsumerGroup(name), TIMEOUT_MS)
    )
    count = sum(len(told.members) for _, told in found if not isinstance(told, Failure))
    groups = await beside(len(found) + count, _all_described, node.image, found)
    if not call.rights.is_open:
        groups = [await _seen(each, call.rights) for each in groups]
    for each in groups:
        if request.include_authorized_operations and each.error_code == ErrorCode.NONE:
            each.authorized_operations = call.rights.operations(ResourceKind.GROUP, each.group_id)
    return Describe(groups=groups)


async def _seen(group: Describe.DescribedGroup, rights: Rights) -> Describe.DescribedGroup:
    """Returns a group, or that it has topics which the client may not see, as Kafka does."""
    names, steps = set[str](), Steps()
    for member in group.members:
        names.update(topic.topic_name for topic in member.assignment.topic_partitions)
        names.update(topic.topic_name for topic in member.target_assignment.topic_partitions)
        await steps.next()
    for name in sorted(names):
        if (refused := rights.refused(AclOperation.DESCRIBE, ResourceKind.TOPIC, name)) is not None:
            return _without(group.group_id, Failure(refused.code, HAS_HIDDEN_TOPICS))
        await steps.next()
    return group


def refuse_describe(request: ConsumerGroupDescribeRequest, failure: Failure) -> Describe:
    """Returns the answer to a request that failed as a whole."""
    return Describe(groups=[_without(name, failure) for name in request.group_ids])


def _without(name: str, failure: Failure) -> Describe.DescribedGroup:
    return Describe.DescribedGroup(group_code(failure.code), text(failure.message), name)


def _all_described(
    image: MetadataImage, found: Iterable[tuple[str, DescribedConsumerGroup | Failure]]
) -> list[Describe.DescribedGroup]:
    return [_described(image, name, told) for name, told in found]


def _described(image: MetadataImage, name: str, told: DescribedConsumerGroup | Failure) -> Describe.DescribedGroup:
    if isinstance(told, Failure):
        return _without(name, told)
    return Describe.DescribedGroup(
        group_id=name,
        group_state=told.state,
        group_epoch=told.epoch,
        assignment_epoch=told.target_epoch,
        assignor_name=told.assignor,
        members=[_member(image, each) for each in told.members],
    )


def _member(image: MetadataImage, member: DescribedConsumer) -> Describe.Member:
    return Describe.Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.subscribed_topics),
        member.subscribed_regex or "",
        _partitions(image, member.assignment),
        _partitions(image, member.target),
        _MEMBER_TYPES[member.group_type],
    )


def _partitions(image: MetadataImage, assignment: Assignment) -> Describe.Assignment:
    return Describe.Assignment(
        [
            Describe.TopicPartitions(topic_id, _name(image, topic_id), sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )


def _name(image: MetadataImage, topic_id: UUID) -> str:
    """Returns the name of a topic; nothing where it has just been deleted."""
    found = image.topics_by_id.get(topic_id)
    return "" if found is None else found.name
