"""Metadata: the brokers that clients can reach, and the leaders and replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast
from uuid import UUID

from replog.controller.requests import CreateTopics, NewTopic
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import NO_LEADER, BrokerEndpoint
from replog.metadata.registrations import PartitionRegistration
from replog.metadata.topic_names import INTERNAL_TOPICS, topic_name_trouble
from replog.protocol.handlers.node import NO_TOPIC_ID, Call, Failure, KafkaNode, in_steps
from replog.protocol.written_steps import Steps, WrittenElements, written_in_steps
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse

BY_ID_FROM = 12
"""The first version in which a topic may be asked for by its id; 10 and 11 have the field, and are not to use it."""

LISTENERS_FROM = 6
"""The first version whose clients know LISTENER_NOT_FOUND; others are told LEADER_NOT_AVAILABLE, as by Kafka."""

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
TOPIC_OPERATIONS = 0b1101_1111_1000
GROUP_OPERATIONS = 0b1101_0100_1000
"""All operations on a cluster, on a topic, on a group: none is denied to a client.  The bits are Kafka's codes."""

CREATED_MAX = 100
"""Topics that one request for metadata makes at most; a client asks again for what is not there."""

CREATION_WAIT_MS = 5_000
"""How long a request for metadata waits for them: it also asks for topics that are there."""

NOT_ASKED = -(2**31)
"""Stands for operations that were not asked for."""


async def metadata(node: KafkaNode, request: MetadataRequest, call: Call) -> MetadataResponse:
    """Returns the brokers and the topics that are asked for: all, none, by name or by id."""
    image, endpoints = node.image, reachable(node, call.listener)
    found = _asked(image, request, call.version)
    if node.creates_missing_topics and request.allow_auto_topic_creation and request.topics:
        found = await in_steps(found, lambda each: each)
        await _create_missing(node, found)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(broker_id, at.host, at.port, image.brokers[broker_id].rack)
            for broker_id, at in endpoints.items()
        ],
        cluster_id=node.cluster_id,
        controller_id=told_controller(node, endpoints),
        topics=await _written(found, endpoints, operations, call.version),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def refuse_metadata(request: MetadataRequest, failure: Failure) -> MetadataResponse:
    """Returns the answer to a request that failed as a whole."""
    return MetadataResponse(
        error_code=failure.code,
        error_message=failure.message,
        topics=[
            MetadataResponse.MetadataResponseTopic(failure.code, topic.name or "", topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def reachable(node: KafkaNode, listener: str) -> dict[int, BrokerEndpoint]:
    """Returns the endpoints, for the clients of a listener, of the brokers that are not fenced, by id."""
    found = {broker_id: node.endpoint(broker_id, listener) for broker_id in sorted(node.image.brokers)}
    return {broker_id: at for broker_id, at in found.items() if at is not None}


def told_controller(node: KafkaNode, endpoints: Mapping[int, BrokerEndpoint]) -> int:
    """Returns the broker that clients are told is the controller: any that they can reach, since each passes requests on."""
    active = node.controller_id()
    return active if active in endpoints else min(endpoints, default=-1)


def _asked(
    image: MetadataImage, request: MetadataRequest, version: int
) -> Iterable[TopicImage | MetadataResponse.MetadataResponseTopic]:
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        return image.topics_by_name.values()
    if version < BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in topics):
        raise InvalidRequestError(
            f"topics are asked for by id from version {BY_ID_FROM} of Metadata on, not in {version}"
        )
    return _found(image, topics)


def _found(
    image: MetadataImage, topics: Iterable[MetadataRequest.MetadataRequestTopic]
) -> Iterator[TopicImage | MetadataResponse.MetadataResponseTopic]:
    """Yields each topic that is asked for, or its error, once."""
    seen: set[tuple[str | None, UUID]] = set()
    for topic in topics:
        name = topic.name, topic.topic_id
        if name not in seen:
            seen.add(name)
            yield _find(image, topic)


def _find(
    image: MetadataImage, asked: MetadataRequest.MetadataRequestTopic
) -> TopicImage | MetadataResponse.MetadataResponseTopic:
    if asked.name is None or asked.topic_id != NO_TOPIC_ID:
        by_id = image.topics_by_id.get(asked.topic_id)
        return by_id or _unknown(ErrorCode.UNKNOWN_TOPIC_ID, asked.name, asked.topic_id)
    by_name = find_topic(image, asked.name)
    return by_name if isinstance(by_name, TopicImage) else _unknown(by_name, asked.name, NO_TOPIC_ID)


def find_topic(image: MetadataImage, name: str) -> TopicImage | ErrorCode:
    """Returns the topic of a name, or the error for it."""
    if found := image.topics_by_name.get(name):
        return found
    is_wrong = topic_name_trouble(name) is not None
    return ErrorCode.INVALID_TOPIC_EXCEPTION if is_wrong else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _unknown(code: ErrorCode, name: str | None, topic_id: UUID) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(code, name, topic_id)


async def _create_missing(
    node: KafkaNode, found: Iterable[TopicImage | MetadataResponse.MetadataResponseTopic]
) -> None:
    """Creates the missing topics, and says so in their answers."""
    missing = {
        one.name: one
        for one in found
        if not isinstance(one, TopicImage) and one.name and one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    for name, code in (await _create(node, list(missing))).items() if missing else ():
        missing[name].error_code = code


async def _create(node: KafkaNode, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Creates topics with the partitions and replicas that the cluster gives by default.

    Args:
        node: The node that was asked.
        names: The names of topics that it does not know.

    Returns:
        What the client is told of each: LEADER_NOT_AVAILABLE where the topic will be there soon; else why it will not.
    """
    own = [name for name in names if name not in INTERNAL_TOPICS]  # those are made by who needs them, in their own way
    if not own:
        return {}
    wanted = CreateTopics(tuple(map(NewTopic, own[:CREATED_MAX])))
    try:
        created = await node.change(wanted, min(CREATION_WAIT_MS, node.request_timeout_ms))
    except ReplogError:  # the client asks again
        return {}
    return {result.name: _told_of_new(result.error) for result in created.topics}


def _told_of_new(code: ErrorCode) -> ErrorCode:
    """Returns the code for a topic; that it exists by now is what was wanted."""
    is_there = code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    return ErrorCode.LEADER_NOT_AVAILABLE if is_there else code


async def _written(
    found: Iterable[TopicImage | MetadataResponse.MetadataResponseTopic],
    endpoints: Mapping[int, BrokerEndpoint],
    operations: int,
    version: int,
) -> list[MetadataResponse.MetadataResponseTopic]:
    """Returns the topics as the answer has them; the node does other work in between."""
    topics, steps = WrittenElements(version), Steps()
    for each in found:
        topics.add(await _topic(each, endpoints, operations, version, steps))
        await steps.next()
    return cast("list[MetadataResponse.MetadataResponseTopic]", topics)


async def _topic(
    found: TopicImage | MetadataResponse.MetadataResponseTopic,
    endpoints: Mapping[int, BrokerEndpoint],
    operations: int,
    version: int,
    steps: Steps,
) -> MetadataResponse.MetadataResponseTopic:
    if isinstance(found, MetadataResponse.MetadataResponseTopic):
        found.topic_authorized_operations = operations
        return found
    partitions = (
        _partition(number, found.partitions[number], endpoints, version) for number in sorted(found.partitions)
    )
    return MetadataResponse.MetadataResponseTopic(
        ErrorCode.NONE,
        found.name,
        found.topic_id,
        is_internal=found.name in INTERNAL_TOPICS,
        partitions=await written_in_steps(partitions, version, steps),
        topic_authorized_operations=operations,
    )


def _partition(
    number: int, partition: PartitionRegistration, endpoints: Mapping[int, BrokerEndpoint], version: int
) -> MetadataResponse.MetadataResponsePartition:
    code = partition_code(partition, endpoints)
    knows_listeners = version >= LISTENERS_FROM
    return MetadataResponse.MetadataResponsePartition(
        code if knows_listeners or code is ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE,
        number,
        partition.leader if code is ErrorCode.NONE else NO_LEADER,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        [replica for replica in partition.replicas if replica not in endpoints],
    )


def partition_code(partition: PartitionRegistration, endpoints: Mapping[int, BrokerEndpoint]) -> ErrorCode:
    """Returns the code that says why clients cannot reach the leader of a partition."""
    if partition.leader == NO_LEADER:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if partition.leader in endpoints else ErrorCode.LISTENER_NOT_FOUND
