"""Topics are created, grow and are deleted: CreateTopics, CreatePartitions, DeleteTopics.

Any broker passes them on to the active controller, one of Apache Kafka as one of replog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import in_order, raise_if_unanswered, told
from replog.controller.requests import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from replog.controller.requests import CreatePartitionsResponse as PartitionsCreated
from replog.controller.requests import CreateTopicsResponse as TopicsCreated
from replog.controller.requests import DeleteTopicsResponse as TopicsDeleted
from replog.errors import ErrorCode, UnsupportedVersionError
from replog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

BY_ID_FROM: Final = 6
"""The first version of DeleteTopics that names topics by their ids (KIP-516)."""

NO_TOPIC_ID: Final = UUID(int=0)

NamedTopic = DeleteTopicsRequest.DeleteTopicState


async def create_topics(broker: Broker, question: CreateTopics, timeout_ms: int) -> TopicsCreated:
    """Creates topics, or judges only whether they could be; raises where nobody has answered for any of them."""
    request = CreateTopicsRequest([_creatable(one) for one in question.topics], timeout_ms, question.validate_only)
    answer = await broker.ask(request, CreateTopicsResponse, timeout_ms=timeout_ms)
    found = {one.name: _created(one) for one in answer.topics}
    if question.validate_only:  # Kafka has drawn ids for what does not exist
        found = {name: replace(one, topic_id=None) for name, one in found.items()}
    raise_if_unanswered(found.values(), answer.throttle_time_ms)
    results = in_order(broker, [one.name for one in question.topics], found)
    return TopicsCreated(results, answer.throttle_time_ms)


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    assigned, config = CreateTopicsRequest.CreatableReplicaAssignment, CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest.CreatableTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [assigned(number, list(replicas)) for number, replicas in enumerate(topic.assignments)],
        [config(one.name, one.value) for one in topic.configs],
    )


def _created(answer: CreateTopicsResponse.CreatableTopicResult) -> TopicResult:
    return TopicResult(
        answer.name,
        *told(answer.error_code, answer.error_message),
        _known_id(answer.topic_id),
        answer.num_partitions,
        answer.replication_factor,
    )


async def create_partitions(broker: Broker, question: CreatePartitions, timeout_ms: int) -> PartitionsCreated:
    """Gives topics more partitions, or judges only whether they could have them; raises as `create_topics`."""
    topics = [_grown(one) for one in question.topics]
    request = CreatePartitionsRequest(topics, timeout_ms, question.validate_only)
    answer = await broker.ask(request, CreatePartitionsResponse, timeout_ms=timeout_ms)
    counts = {one.topic: one.count for one in question.topics}
    found = {
        one.name: TopicResult(
            one.name,
            *_told(one.name, one.error_code, one.error_message),
            num_partitions=-1 if one.error_code else counts.get(one.name, -1),
        )
        for one in answer.results
    }
    raise_if_unanswered(found.values(), answer.throttle_time_ms)
    return PartitionsCreated(in_order(broker, [one.topic for one in question.topics], found), answer.throttle_time_ms)


def _grown(topic: NewPartitions) -> CreatePartitionsRequest.CreatePartitionsTopic:
    assigned = CreatePartitionsRequest.CreatePartitionsAssignment
    # null: the controller places the replicas
    assignments = [assigned(list(replicas)) for replicas in topic.assignments] or None
    return CreatePartitionsRequest.CreatePartitionsTopic(topic.topic, topic.count, assignments)


async def delete_topics(broker: Broker, question: DeleteTopics, timeout_ms: int) -> TopicsDeleted:
    """Deletes topics by name or by id; raises as `create_topics`.

    Raises:
        UnsupportedVersionError: A topic is meant by its id, and the broker knows names only.
    """
    if question.topic_ids and (version := await broker.version(DeleteTopicsRequest)) < BY_ID_FROM:
        raise UnsupportedVersionError(
            f"{broker.address} serves version {version} of DeleteTopics, which has no ids of topics ({BY_ID_FROM} has): "
            "name the topics"
        )
    named = [NamedTopic(name) for name in question.names]
    named += [NamedTopic(None, topic_id) for topic_id in question.topic_ids]
    request = DeleteTopicsRequest(named, list(question.names), timeout_ms)  # the version decides which is written
    answer = await broker.ask(request, DeleteTopicsResponse, timeout_ms=timeout_ms)
    results = [(one.name or "", _known_id(one.topic_id), _deleted(one)) for one in answer.responses]
    raise_if_unanswered((result for *_, result in results), answer.throttle_time_ms)
    by_name: Mapping[str, TopicResult] = {name: result for name, _, result in reversed(results)}
    by_id: Mapping[UUID | None, TopicResult] = {topic_id: result for _, topic_id, result in results}
    found = in_order(broker, question.names, by_name) + in_order(broker, question.topic_ids, by_id)
    return TopicsDeleted(found, answer.throttle_time_ms)


def _deleted(answer: DeleteTopicsResponse.DeletableTopicResult) -> TopicResult:
    name = answer.name or ""
    return TopicResult(name, *_told(name, answer.error_code, answer.error_message), _known_id(answer.topic_id))


def _told(name: str, number: int, message: str | None) -> tuple[ErrorCode, str]:
    """Returns the code and a text that names the topic, also where Kafka says no more than that it is not there."""
    code, text = told(number, message)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name and name not in text:
        text = f'there is no topic "{name}"'
    return code, text


def _known_id(topic_id: UUID) -> UUID | None:
    return None if topic_id == NO_TOPIC_ID else topic_id


QUESTIONS: Final[Mapping[type[Any], Question]] = {
    CreateTopics: create_topics,
    CreatePartitions: create_partitions,
    DeleteTopics: delete_topics,
}
"""By the class of the question."""
