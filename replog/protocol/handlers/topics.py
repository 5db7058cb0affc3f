"""Topics are created, grow, lose records and are deleted; CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords.

The active controller decides about topics: any broker passes a request on to it.  Records are deleted by leaders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from replog.access.entries import AclOperation, ResourceKind
from replog.controller.requests import (
    ConfigEntry,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    ReplogError,
)
from replog.metadata.image import MetadataImage
from replog.metadata.records import ResourceType
from replog.protocol.handlers.known_configs import source_number
from replog.protocol.handlers.node import (
    NO_TOPIC_ID,
    Call,
    Failure,
    KafkaNode,
    beside,
    fitting,
    in_steps,
    mutating,
    own_text,
    require_few,
    text,
)
from replog.protocol.handlers.partitions import named_topic
from replog.protocol.handlers.unkept_configs import is_so
from replog.rpc.messages import DeleteRecordsPartition, DeleteRecordsResult
from replog.rpc.messages import DeleteRecordsRequest as RecordsToDelete
from replog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

CONFIGS_FROM = 5
"""The first version of CreateTopics that tells the configuration of the new topic (KIP-525)."""

BY_ID_FROM = 6
"""The first version of DeleteTopics that names topics by their ids (KIP-516)."""

CREATION_STRICT_FROM, GROWTH_STRICT_FROM, DELETION_STRICT_FROM = 6, 3, 5
"""The first versions of CreateTopics, CreatePartitions and DeleteTopics whose clients know that a quota refuses (KIP-599); those before wait."""

NO_LOW_WATERMARK = -1
"""Stands for the low watermark if records were not deleted."""

GIVEN_TWICE = "the topic is given more than once in the request: name it once"

NewTopicAnswer = CreateTopicsResponse.CreatableTopicResult
DeletedTopicAnswer = DeleteTopicsResponse.DeletableTopicResult
GrownTopicAnswer = CreatePartitionsResponse.CreatePartitionsTopicResult
DeletedRecordsAnswer = DeleteRecordsResponse.DeleteRecordsPartitionResult


# ---- create ----------------------------------------------------------------------------------------------------------


async def create_topics(node: KafkaNode, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    """Creates topics, or only checks whether they could be created."""
    count = sum(1 + len(topic.assignments) + len(topic.configs) for topic in request.topics)
    require_few(count, "topics, assignments and configurations", PolicyViolationError)
    wanted, answers = await beside(count, _new_topics, request.topics)
    throttle_time_ms = 0
    if wanted:
        asked = CreateTopics(tuple(wanted), request.validate_only, mutating(call, CREATION_STRICT_FROM))
        created = await node.change(asked, request.timeout_ms, call.rights)
        throttle_time_ms = created.throttle_time_ms
        made = zip(wanted, created.topics, strict=True)
        for answer in await in_steps(made, lambda one: _created(node, *one, call)):
            answers[answer.name] = answer
    return CreateTopicsResponse(throttle_time_ms, list(answers.values()))


def refuse_create_topics(request: CreateTopicsRequest, failure: Failure) -> CreateTopicsResponse:
    """Returns the answer to a request that failed as a whole."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_not_created(name, failure.code, failure.message) for name in names])


def _new_topics(
    topics: Sequence[CreateTopicsRequest.CreatableTopic],
) -> tuple[list[NewTopic], dict[str, NewTopicAnswer]]:
    """Returns the topics that the controller is asked to create, and the answers for the others."""
    repeated = _repeated(topic.name for topic in topics)
    wanted: list[NewTopic] = []
    answers: dict[str, NewTopicAnswer] = {}
    for topic in topics:
        try:
            wanted.append(_new_topic(topic, repeated))
        except ReplogError as error:
            answers[topic.name] = _not_created(topic.name, error.code, error.told)
    return wanted, answers


def _new_topic(topic: CreateTopicsRequest.CreatableTopic, repeated: Collection[str]) -> NewTopic:
    if topic.name in repeated:
        raise InvalidRequestError(GIVEN_TWICE)
    assignments = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    if len(assignments) < len(topic.assignments) or set(assignments) != set(range(len(assignments))):
        raise InvalidReplicaAssignmentError(
            f"replicas are assigned to the partitions {sorted(one.partition_index for one in topic.assignments)}; "
            f"a new topic has the partitions 0, 1, ... without a gap, each once"
        )
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple(assignments[index] for index in range(len(assignments))),
        tuple(ConfigEntry(each.name, each.value) for each in topic.configs if not is_so(each.name, each.value)),
    )


def _not_created(name: str, code: ErrorCode, message: str) -> NewTopicAnswer:
    return NewTopicAnswer(name, error_code=code, error_message=text(message))


def _created(node: KafkaNode, topic: NewTopic, result: TopicResult, call: Call) -> NewTopicAnswer:
    if result.error is not ErrorCode.NONE:
        return _not_created(result.name, result.error, result.message)
    topic_id = result.topic_id or NO_TOPIC_ID
    if not call.rights.allows(AclOperation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, result.name):
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return NewTopicAnswer(result.name, topic_id, error_message=None, topic_config_error_code=hidden)
    return NewTopicAnswer(
        result.name,
        topic_id,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=_configs_of(node, topic) if call.version >= CONFIGS_FROM else [],
    )


def _configs_of(node: KafkaNode, topic: NewTopic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """Returns the configuration of a topic that was created this moment: the image may not have it yet."""
    own: Mapping[str, str] = {config.name: config.value or "" for config in topic.configs}
    try:
        found = node.configs(ResourceType.TOPIC, topic.name, own)
    except BrokerNotAvailableError:  # it has passed the request on, and has not read the metadata since its start
        return []
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            config.name, config.value, read_only=config.is_read_only, config_source=source_number(config.source)
        )
        for config in found
    ]


# ---- grow ------------------------------------------------------------------------------------------------------------


async def create_partitions(node: KafkaNode, request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    """Gives topics more partitions, or only checks whether they could have them."""
    count = sum(1 + len(topic.assignments or ()) for topic in request.topics)
    require_few(count, "topics and assignments", PolicyViolationError)
    repeated = _repeated(topic.name for topic in request.topics)
    wanted = await beside(count, _new_partitions, request.topics, repeated)
    throttle_time_ms = 0
    answers = [GrownTopicAnswer(name, ErrorCode.INVALID_REQUEST, GIVEN_TWICE) for name in repeated]
    if wanted:
        asked = CreatePartitions(wanted, request.validate_only, mutating(call, GROWTH_STRICT_FROM))
        grown = await node.change(asked, request.timeout_ms, call.rights)
        throttle_time_ms = grown.throttle_time_ms
        answers += [GrownTopicAnswer(one.name, one.error, text(one.message)) for one in grown.topics]
    return CreatePartitionsResponse(throttle_time_ms, answers)


def _new_partitions(
    topics: Iterable[CreatePartitionsRequest.CreatePartitionsTopic], repeated: Collection[str]
) -> tuple[NewPartitions, ...]:
    return tuple(
        NewPartitions(topic.name, topic.count, _assignments(topic.assignments))
        for topic in topics
        if topic.name not in repeated
    )


def _assignments(
    given: Iterable[CreatePartitionsRequest.CreatePartitionsAssignment] | None,
) -> tuple[tuple[int, ...], ...]:
    """Returns assignments for the controller, which chooses them where there are none.

    An empty list leaves nothing to choose: it becomes one that is refused, as Kafka refuses it.
    """
    return () if given is None else tuple(tuple(one.broker_ids) for one in given) or ((),)


def refuse_create_partitions(request: CreatePartitionsRequest, failure: Failure) -> CreatePartitionsResponse:
    """Returns the answer to a request that failed as a whole."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[GrownTopicAnswer(name, failure.code, text(failure.message)) for name in names]
    )


# ---- delete ----------------------------------------------------------------------------------------------------------


async def delete_topics(node: KafkaNode, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    """Deletes topics by name or, if the version has ids, by id."""
    require_few(len(request.topics) + len(request.topic_names), "topics", PolicyViolationError)
    states = _to_delete(request, call.version)
    answers = [_misnamed(state) for state in states if (state.name is None) == (state.topic_id == NO_TOPIC_ID)]
    named = [state for state in states if (state.name is None) != (state.topic_id == NO_TOPIC_ID)]
    names = tuple(state.name for state in named if state.name is not None)
    topic_ids = tuple(state.topic_id for state in named if state.name is None)
    throttle_time_ms = 0
    if named:
        asked = DeleteTopics(names, topic_ids, mutating(call, DELETION_STRICT_FROM))
        deleted = await node.change(asked, request.timeout_ms, call.rights)
        throttle_time_ms = deleted.throttle_time_ms
        answers += [_deleted(result) for result in deleted.topics]
    return DeleteTopicsResponse(throttle_time_ms, answers)


def refuse_delete_topics(request: DeleteTopicsRequest, failure: Failure) -> DeleteTopicsResponse:
    """Returns the answer to a request that failed as a whole."""
    states = _to_delete(request, BY_ID_FROM if request.topics else 0)
    return DeleteTopicsResponse(
        responses=[DeletedTopicAnswer(one.name, one.topic_id, failure.code, text(failure.message)) for one in states]
    )


def _to_delete(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicsRequest.DeleteTopicState]:
    if version >= BY_ID_FROM:
        return request.topics
    return [DeleteTopicsRequest.DeleteTopicState(name) for name in request.topic_names]


def _misnamed(state: DeleteTopicsRequest.DeleteTopicState) -> DeletedTopicAnswer:
    problem = "neither the name nor the id" if state.name is None else "both the name and the id"
    message = f"{problem} of a topic is given: give one of them"
    return DeletedTopicAnswer(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, message)


def _deleted(result: TopicResult) -> DeletedTopicAnswer:
    # an unknown id comes without a name; "" is a name, though of no topic
    name = None if result.topic_id and not result.name else result.name
    return DeletedTopicAnswer(name, result.topic_id or NO_TOPIC_ID, result.error, text(result.message))


# ---- records ---------------------------------------------------------------------------------------------------------


async def delete_records(node: KafkaNode, request: DeleteRecordsRequest, _call: Call) -> DeleteRecordsResponse:
    """Deletes records from the front of partitions that this broker leads; a client asks the leader of each."""
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    response, known = await beside(count, _opened, node.image, request)
    if known:
        asked = RecordsToDelete(tuple(partition for partition, _ in known))
        deleted = await node.call(asked, request.timeout_ms)
        for (_, answer), result in zip(known, deleted.results, strict=True):
            _fill(answer, result)
    return response


def refuse_delete_records(request: DeleteRecordsRequest, failure: Failure) -> DeleteRecordsResponse:
    """Returns the answer to a request that failed as a whole."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                topic.name,
                [
                    DeletedRecordsAnswer(one.partition_index, NO_LOW_WATERMARK, failure.code, failure.message)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _opened(
    image: MetadataImage, request: DeleteRecordsRequest
) -> tuple[DeleteRecordsResponse, list[tuple[DeleteRecordsPartition, DeletedRecordsAnswer]]]:
    """Returns the answer with the partitions of unknown topics refused, and the requests for the others."""
    response = DeleteRecordsResponse()
    known: list[tuple[DeleteRecordsPartition, DeletedRecordsAnswer]] = []
    for topic in request.topics:
        found = named_topic(image, topic.name, topic.topic_id)
        code, message = ErrorCode.NONE, ""
        if found is None:
            code, message = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                fitting(f'there is no such topic "{topic.name}" (any more)'),
            )
        answers = [
            DeletedRecordsAnswer(one.partition_index, NO_LOW_WATERMARK, code, message) for one in topic.partitions
        ]
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(topic.name, answers))
        if found is not None:
            asked = (
                DeleteRecordsPartition(found.topic_id, one.partition_index, one.offset) for one in topic.partitions
            )
            known += zip(asked, answers, strict=True)
    return response, known


def _fill(answer: DeletedRecordsAnswer, result: DeleteRecordsResult) -> None:
    answer.error_code, answer.error_message = result.error, own_text(result.error, result.message)
    if result.error is ErrorCode.NONE:
        answer.low_watermark = result.low_watermark


def _repeated(names: Iterable[str]) -> dict[str, int]:
    return {name: times for name, times in Counter(names).items() if times > 1}
