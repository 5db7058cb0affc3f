"""Leaders are elected and replicas moved: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replog.controller.requests import (
    AlterPartitionReassignments,
    ElectLeaders,
    NamedPartition,
    PartitionResult,
    Reassignment,
)
from replog.errors import InvalidRequestError, PolicyViolationError
from replog.metadata.image import TopicImage
from replog.metadata.records import ElectionType
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, require_few, text
from replog.waiting.sorting import sorted_in_pieces
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_ELECTIONS = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}
"""Elections by Kafka's numbers (KIP-460)."""

ElectedTopic = ElectLeadersResponse.ReplicaElectionResult
ElectedPartition = ElectLeadersResponse.PartitionResult
MovedTopic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
MovedPartition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
MovingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
MovingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


# ---- elect -----------------------------------------------------------------------------------------------------------


async def elect_leaders(node: KafkaNode, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    """Elects the leaders of the partitions that are named, or of all that need it."""
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise InvalidRequestError(f"there is no election of type {request.election_type}: 0 is preferred, 1 unclean")
    count = sum(len(one.partitions) for one in request.topic_partitions or ())
    require_few(count, "partitions", PolicyViolationError)
    named = None if request.topic_partitions is None else tuple(_named(request))
    elected = await node.change(ElectLeaders(election, named), request.timeout_ms, call.rights)
    return ElectLeadersResponse(
        replica_election_results=[
            ElectedTopic(topic, [ElectedPartition(one.partition_id, one.error, text(one.message)) for one in results])
            for topic, results in _by_topic(elected.partitions).items()
        ]
    )


def refuse_elect_leaders(request: ElectLeadersRequest, failure: Failure) -> ElectLeadersResponse:
    """Returns the answer to a request that failed as a whole."""
    return ElectLeadersResponse(
        error_code=failure.code,
        replica_election_results=[
            ElectedTopic(
                one.topic, [ElectedPartition(number, failure.code, failure.message) for number in one.partitions]
            )
            for one in request.topic_partitions or ()
        ],
        error_message=failure.message,
    )


def _named(request: ElectLeadersRequest) -> Iterable[NamedPartition]:
    return (NamedPartition(one.topic, number) for one in request.topic_partitions or () for number in one.partitions)


# ---- move ------------------------------------------------------------------------------------------------------------


async def alter(
    node: KafkaNode, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    """Begins, alters and cancels reassignments; the answer comes when the request is noted, not when the data has moved."""
    count = sum(len(topic.partitions) for topic in request.topics)
    require_few(count, "partitions", PolicyViolationError)
    items = await beside(count, _wishes, request)
    may_change_factor = request.allow_replication_factor_change
    altered = await node.change(AlterPartitionReassignments(items, may_change_factor), request.timeout_ms, call.rights)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        error_message=None,
        responses=[
            MovedTopic(topic, [MovedPartition(one.partition_id, one.error, text(one.message)) for one in results])
            for topic, results in _by_topic(altered.partitions).items()
        ],
    )


def _wishes(request: AlterPartitionReassignmentsRequest) -> tuple[Reassignment, ...]:
    return tuple(
        Reassignment(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))
        for topic in request.topics
        for one in topic.partitions
    )


def refuse_alter(request: AlterPartitionReassignmentsRequest, failure: Failure) -> AlterPartitionReassignmentsResponse:
    """Returns the answer to a request that failed as a whole."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=failure.code,
        error_message=failure.message,
        responses=[
            MovedTopic(
                topic.name,
                [MovedPartition(one.partition_index, failure.code, failure.message) for one in topic.partitions],
            )
            for topic in request.topics
        ],
    )


async def list_moving(
    node: KafkaNode, request: ListPartitionReassignmentsRequest, _call: Call
) -> ListPartitionReassignmentsResponse:
    """Returns the reassignments under way, as of a moment after the request came: a client asks whether its own is done."""
    await node.catch_up(request.timeout_ms)
    topics, named = node.image.topics_by_name, request.topics
    sizes = (len(topic.partitions) for topic in topics.values())
    count = sum(sizes) if named is None else sum(1 + len(topic.partition_indexes) for topic in named)
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=await beside(count, _moving_topics, topics, request)
    )


def _moving_topics(topics: Mapping[str, TopicImage], request: ListPartitionReassignmentsRequest) -> list[MovingTopic]:
    asked: Mapping[str, Iterable[int] | None]
    if request.topics is None:
        asked = dict.fromkeys(sorted_in_pieces(topics))
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    found = ((name, _moving(topics[name], numbers)) for name, numbers in asked.items() if name in topics)
    return [MovingTopic(name, partitions) for name, partitions in found if partitions]


def _moving(topic: TopicImage, numbers: Iterable[int] | None) -> list[MovingPartition]:
    found = (
        (number, topic.partitions.get(number)) for number in sorted(topic.partitions if numbers is None else numbers)
    )
    return [
        MovingPartition(
            number,
            list(partition.replicas),
            list(partition.adding_replicas),
            list(partition.removing_replicas),
        )
        for number, partition in found
        if partition is not None and partition.is_reassigning
    ]


def _by_topic(results: Iterable[PartitionResult]) -> dict[str, list[PartitionResult]]:
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return topics
