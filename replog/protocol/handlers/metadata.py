"""Metadata: the brokers that clients can reach, and the leaders and replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast
from uuid import UUID

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.controller.requests import CreateTopics, NewTopic
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import NO_LEADER, BrokerEndpoint
from replog.metadata.registrations import PartitionRegistration
from replog.metadata.topic_names import INTERNAL_TOPICS, topic_name_trouble
from replog.protocol.handlers.node import NO_TOPIC_ID, Call, Failure, KafkaNode, in_steps, mutating
from replog.protocol.written_steps import Steps, WrittenElements, written_in_steps
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse

BY_ID_FROM = 12
"""The first version in which a topic may be asked for by its id; 10 and 11 have the field, and are not to use it."""

LISTENERS_FROM = 6
"""The first version whose clients know LISTENER_NOT_FOUND; others are told LEADER_NOT_AVAILABLE, as by Kafka."""

CREATED_MAX = 100
"""Topics that one request for metadata makes at most; a client asks again for what is not there."""

CREATION_WAIT_MS = 5_000
"""How long a request for metadata waits for them: it also asks for topics that are there."""

NOT_ASKED = -(2**31)
"""Stands for operations that were not asked for."""

_Found: TypeAlias = TopicImage | MetadataResponse.MetadataResponseTopic
"""A topic, or why there is none."""


async def metadata(node: KafkaNode, request: MetadataRequest, call: Call) -> MetadataResponse:
    """Returns the brokers and the topics that are asked for: all, none, by name or by id."""
    image, endpoints = node.image, reachable(node, call.listener)
    found = _asked(image, request, call)
    if node.creates_missing_topics and request.allow_auto_topic_creation and request.topics:
        found = await in_steps(found, lambda each: each)
        await _create_missing(node, found, call)
    told = request.include_topic_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(broker_id, at.host, at.port, image.brokers[broker_id].rack)
            for broker_id, at in endpoints.items()
        ],
        cluster_id=node.cluster_id,
        controller_id=told_controller(node, endpoints),
        topics=await _written(found, endpoints, call.rights if told else None, call.version),
        cluster_authorized_operations=cluster_operations(
            call.rights, are_asked=request.include_cluster_authorized_operations
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


def cluster_operations(rights: Rights, *, are_asked: bool) -> int:
    """Returns the operations on the cluster that a client may do, none of which it is told if it may not describe it (KIP-430)."""
    if not are_asked:
        return NOT_ASKED
    cluster = ResourceKind.CLUSTER
    return rights.operations(cluster) if rights.allows(AclOperation.DESCRIBE, cluster) else 0


def reachable(node: KafkaNode, listener: str) -> dict[int, BrokerEndpoint]:
    """Returns the endpoints, for the clients of a listener, of the brokers that are not fenced, by id."""
    found = {broker_id: node.endpoint(broker_id, listener) for broker_id in sorted(node.image.brokers)}
    return {broker_id: at for broker_id, at in found.items() if at is not None}


def told_controller(node: KafkaNode, endpoints: Mapping[int, BrokerEndpoint]) -> int:
    """Returns the broker that clients are told is the controller: any that they can reach, since each passes requests on."""
    active = node.controller_id()
    return active if active in endpoints else min(endpoints, default=-1)


def _asked(image: MetadataImage, request: MetadataRequest, call: Call) -> Iterable[_Found | None]:
    """Returns what is asked for; None in the place of a topic that is hidden, so that looking for others goes in steps too."""
    topics, version, rights = request.topics, call.version, call.rights
    if topics is None or (version == 0 and not topics):
        every = image.topics_by_name.values()
        return every if rights.is_open else (each if _is_seen(rights, each.name) else None for each in every)
    if version < BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in topics):
        raise InvalidRequestError(
            f"topics are asked for by id from version {BY_ID_FROM} of Metadata on, not in {version}"
        )
    return _found(image, topics, rights)


def _is_seen(rights: Rights, name: str) -> bool:
    return rights.sees(AclOperation.DESCRIBE, ResourceKind.TOPIC, name)


def _found(
    image: MetadataImage, topics: Iterable[MetadataRequest.MetadataRequestTopic], rights: Rights
) -> Iterator[_Found]:
    """Yields each topic that is asked for, or its error, once."""
    seen: set[tuple[str | None, UUID]] = set()
    for topic in topics:
        name = topic.name, topic.topic_id
        if name not in seen:
            seen.add(name)
            yield _find(image, topic, rights)


def _find(image: MetadataImage, asked: MetadataRequest.MetadataRequestTopic, rights: Rights) -> _Found:
    if asked.name is None or asked.topic_id != NO_TOPIC_ID:
        by_id = image.topics_by_id.get(asked.topic_id)
        if by_id is not None and not rights.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, by_id.name):
            return _unknown(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id)
        return by_id or _unknown(ErrorCode.UNKNOWN_TOPIC_ID, asked.name, asked.topic_id)
    if not rights.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, asked.name):
        return _unknown(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.name, NO_TOPIC_ID)
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


async def _create_missing(node: KafkaNode, found: Iterable[_Found | None], call: Call) -> None:
    """Creates the missing topics, and says so in their answers."""
    missing: dict[str, MetadataResponse.MetadataResponseTopic] = {}
    rights = call.rights
    may_all = rights.sees(AclOperation.CREATE, ResourceKind.CLUSTER)
    for one in found:
        if isinstance(one, MetadataResponse.MetadataResponseTopic) and one.name:
            if one.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if may_all or rights.allows(AclOperation.CREATE, ResourceKind.TOPIC, one.name):
                missing[one.name] = one
            else:
                one.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name, code in (await _create(node, list(missing), call)).items() if missing else ():
        missing[name].error_code = code


async def _create(node: KafkaNode, names: Sequence[str], call: Call) -> dict[str, ErrorCode]:
    """Creates topics with the partitions and replicas that the cluster gives by default.

    Args:
        node: The node that was asked.
        names: The names of topics that it does not know.
        call: The context of the request: its client has a quota of what it creates.

    Returns:
        What the client is told of each: LEADER_NOT_AVAILABLE where the topic will be there soon; else why it will not.
    """
    own = [name for name in names if name not in INTERNAL_TOPICS]  # those are made by who needs them, in their own way
    if not own:
        return {}
    wanted = CreateTopics(tuple(map(NewTopic, own[:CREATED_MAX])), client=mutating(call, strict_from=0))
    try:
        created = await node.change(wanted, min(CREATION_WAIT_MS, node.request_timeout_ms), call.rights)
    except ReplogError:  # the client asks again
        return {}
    return {result.name: _told_of_new(result.error) for result in created.topics}


def _told_of_new(code: ErrorCode) -> ErrorCode:
    """Returns the code for a topic; that it exists by now is what was wanted."""
    is_there = code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    return ErrorCode.LEADER_NOT_AVAILABLE if is_there else code


async def _written(
    found: Iterable[_Found | None],
    endpoints: Mapping[int, BrokerEndpoint],
    rights: Rights | None,
    version: int,
) -> list[MetadataResponse.MetadataResponseTopic]:
    """Returns the topics as the answer has them; the node does other work in between.

    Args:
        found: The topics.
        endpoints: The brokers that the client can reach.
        rights: The rights of the client, if it is told what it may do to each.
        version: The version of the answer.
    """
    topics, steps = WrittenElements(version), Steps()
    for each in found:
        if each is not None:
            operations = NOT_ASKED if rights is None else rights.operations(ResourceKind.TOPIC, each.name or "")
            topics.add(await _topic(each, endpoints, operations, version, steps))
        await steps.next()
    return cast("list[MetadataResponse.MetadataResponseTopic]", topics)


async def _topic(
    found: _Found,
    endpoints: Mapping[int, BrokerEndpoint],
    operations: int,
    version: int,
    steps: Steps,
) -> MetadataResponse.MetadataResponseTopic:
    if isinstance(found, MetadataResponse.MetadataResponseTopic):
        if found.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
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
