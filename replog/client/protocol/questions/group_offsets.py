"""Questions about committed offsets.

Our structs name a topic both by its name and by its id.  A replog broker is told both, the id beside the name.  Kafka takes the id since
version 10 of OffsetCommit and OffsetFetch, so that nothing is said of a topic that was made anew under the same name; before that, and
where no id is known, it goes by the name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, TypeVar

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, refusal, require_answer
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitOffsetsResponse,
    CommittedOffset,
    DeleteOffsets,
    DeleteOffsetsResponse,
    FetchOffsets,
    FetchOffsetsResponse,
    PartitionOutcome,
    TopicOffsets,
    TopicOutcome,
    TopicToCommit,
    TopicToFetch,
    TopicToForget,
)
from replog.errors import ErrorCode, UnsupportedVersionError
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

K = TypeVar("K")
V = TypeVar("V")

IDS_FROM: Final = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids."""

SEVERAL_FROM: Final = 8
"""The first version of OffsetFetch that asks for several groups at once."""

EVERY_TOPIC_FROM: Final = 2
"""The first version of OffsetFetch that can ask for everything a group has."""

_OF_A_PARTITION: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""What a commit says of one partition alone; all else is of the group, the member or its coordinator, and stands beside each."""


class CommitByName(OffsetCommitRequest):
    """An OffsetCommit that names its topics."""

    VERSIONS: ClassVar = range(OffsetCommitRequest.VERSIONS.start, IDS_FROM)


class FetchByName(OffsetFetchRequest):
    """An OffsetFetch that names its topics."""

    VERSIONS: ClassVar = range(OffsetFetchRequest.VERSIONS.start, IDS_FROM)


# ---- commit -----------------------------------------------------------------------------------------------------------


async def commit_offsets(broker: Broker, question: CommitOffsets, timeout_ms: int) -> CommitOffsetsResponse:
    """Commits offsets."""
    has_ids = all(topic.topic_id != NO_TOPIC_ID for topic in question.topics)
    kind = OffsetCommitRequest if has_ids else CommitByName
    version = await broker.version(kind)
    request = kind(
        question.group_id,
        question.member_epoch,
        question.member_id,
        question.instance_id,
        question.retention_ms,
        [_to_commit(topic) for topic in question.topics],
    )
    answer = await broker.ask(request, OffsetCommitResponse, timeout_ms=timeout_ms)
    what = f"the commit of group {question.group_id!r}"
    require_answer(broker, answer.request_error_code, answer.error_message, what)
    by_id = version >= IDS_FROM
    told = {
        (topic.topic_id if by_id else topic.name, each.partition_index): each
        for topic in answer.topics
        for each in topic.partitions
    }
    for one in told.values():
        if one.error_code not in _OF_A_PARTITION:
            raise refusal(broker, one.error_code, one.error_message, what)
    outcomes: list[TopicOutcome] = []
    for topic in question.topics:
        found = [
            _found(broker, told, topic.topic_id if by_id else topic.topic, each.partition, topic.topic)
            for each in topic.partitions
        ]
        kept = tuple(_committed(broker, each, f"{what} in {topic.topic}-{each.partition_index}") for each in found)
        outcomes.append(TopicOutcome(topic.topic, topic.topic_id, kept))
    return CommitOffsetsResponse(tuple(outcomes))


def _to_commit(topic: TopicToCommit) -> OffsetCommitRequest.OffsetCommitRequestTopic:
    return OffsetCommitRequest.OffsetCommitRequestTopic(
        topic.topic,
        topic.topic_id,
        [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                each.partition, each.offset, each.leader_epoch, each.metadata
            )
            for each in topic.partitions
        ],
        topic.topic_id,
    )


def _committed(broker: Broker, told: OffsetCommitResponse.OffsetCommitResponsePartition, what: str) -> PartitionOutcome:
    if told.error_code == ErrorCode.NONE:
        return PartitionOutcome(told.partition_index)
    return PartitionOutcome(told.partition_index, refusal(broker, told.error_code, told.error_message, what))


def _found(broker: Broker, told: Mapping[tuple[K, int], V], topic: K, partition: int, name: str) -> V:
    found = told.get((topic, partition))
    if found is None:
        raise lacking(broker, f"partition {name}-{partition}")
    return found


# ---- fetch ------------------------------------------------------------------------------------------------------------


async def fetch_offsets(broker: Broker, question: FetchOffsets, timeout_ms: int) -> FetchOffsetsResponse:
    """Asks for committed offsets.

    A member waits for transactions that have not ended, as Kafka's do: what they commit may be further on.

    Raises:
        UnstableOffsetCommitError: There is such a transaction; ask again.
        UnsupportedVersionError: Everything is asked for, and the broker has no word for that.
    """
    topics = question.topics
    has_ids = topics is not None and all(topic.topic_id != NO_TOPIC_ID for topic in topics)
    kind = OffsetFetchRequest if has_ids else FetchByName
    version = await broker.version(kind)
    if topics is None and version < EVERY_TOPIC_FROM:
        raise UnsupportedVersionError(
            f"{broker.address} serves OffsetFetch up to version {version}, which cannot tell all that a group has committed: "
            "name the topics, or use a broker of Kafka 0.10.2 or newer"
        )
    answer = await broker.ask(_asked(kind, question, version), OffsetFetchResponse, timeout_ms=timeout_ms)
    what = f"to tell the offsets of group {question.group_id!r}"
    told = _told(broker, answer, question.group_id, version, what)
    if topics is None:
        return FetchOffsetsResponse(
            tuple(TopicOffsets(topic.name, topic.named_topic_id, _offsets(topic)) for topic in told)
        )
    by_id = version >= IDS_FROM
    offsets = {
        (topic.topic_id if by_id else topic.name, each.partition): each for topic in told for each in _offsets(topic)
    }
    found: list[TopicOffsets] = []
    for topic in topics:
        name = topic.topic_id if by_id else topic.topic
        kept = tuple(_found(broker, offsets, name, each, topic.topic) for each in topic.partitions)
        found.append(TopicOffsets(topic.topic, topic.topic_id, kept))
    return FetchOffsetsResponse(tuple(found))


_Topics = OffsetFetchResponse.OffsetFetchResponseTopics


def _asked(kind: type[OffsetFetchRequest], question: FetchOffsets, version: int) -> OffsetFetchRequest:
    topics = question.topics
    if version < SEVERAL_FROM:
        named = OffsetFetchRequest.OffsetFetchRequestTopic
        old = None if topics is None else [named(each.topic, list(each.partitions)) for each in topics]
        return kind(question.group_id, old, require_stable=question.wants_stable)
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(
        question.group_id,
        question.member_id,
        question.member_epoch,
        None if topics is None else [_to_fetch(each) for each in topics],
    )
    return kind(groups=[asked], require_stable=question.wants_stable)


def _to_fetch(topic: TopicToFetch) -> OffsetFetchRequest.OffsetFetchRequestTopics:
    return OffsetFetchRequest.OffsetFetchRequestTopics(
        topic.topic, topic.topic_id, list(topic.partitions), topic.topic_id, topic.topic_id == NO_TOPIC_ID
    )


def _told(broker: Broker, answer: OffsetFetchResponse, group: str, version: int, what: str) -> list[_Topics]:
    """Returns the topics of an answer of any version; raises what keeps them back, of the group or of a partition."""
    if version >= SEVERAL_FROM:
        found = next((each for each in answer.groups if each.group_id == group), None)
        if found is None:
            raise lacking(broker, f"group {group!r}")
        require_answer(broker, found.error_code, found.error_message, what)
        topics = found.topics
    else:
        require_answer(broker, answer.error_code, None, what)
        topics = [_Topics(topic.name, partitions=_anew(topic.partitions)) for topic in answer.topics]
    for number in (each.error_code for topic in topics for each in topic.partitions):
        require_answer(broker, number, None, what)
    return topics


def _anew(
    partitions: Iterable[OffsetFetchResponse.OffsetFetchResponsePartition],
) -> list[OffsetFetchResponse.OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponse.OffsetFetchResponsePartitions(
            each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
        )
        for each in partitions
    ]


def _offsets(topic: _Topics) -> tuple[CommittedOffset, ...]:
    return tuple(
        CommittedOffset(
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata or "",
            each.commit_timestamp,
        )
        for each in topic.partitions
    )


# ---- delete -----------------------------------------------------------------------------------------------------------


async def delete_offsets(broker: Broker, question: DeleteOffsets, timeout_ms: int) -> DeleteOffsetsResponse:
    """Asks to forget offsets.  That a topic or partition does not exist is no error: brokers forget what is committed of such."""
    request = OffsetDeleteRequest(
        question.group_id,
        [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                topic.topic, [OffsetDeleteRequest.OffsetDeleteRequestPartition(each) for each in topic.partitions]
            )
            for topic in question.topics
        ],
    )
    answer = await broker.ask(request, OffsetDeleteResponse, timeout_ms=timeout_ms)
    what = f"to forget offsets of group {question.group_id!r}"
    require_answer(broker, answer.error_code, None, what)
    found = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    return DeleteOffsetsResponse(
        tuple(
            TopicOutcome(topic.topic, NO_TOPIC_ID, tuple(_forgotten(broker, topic, found, what)))
            for topic in question.topics
        )
    )


def _forgotten(
    broker: Broker, topic: TopicToForget, found: Mapping[tuple[str, int], int], what: str
) -> Iterator[PartitionOutcome]:
    for each in topic.partitions:
        number = _found(broker, found, topic.topic, each, topic.topic)
        if number in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            yield PartitionOutcome(each)
        else:
            yield PartitionOutcome(each, refusal(broker, number, None, f"{what} in {topic.topic}-{each}"))


QUESTIONS: Final[Mapping[type, Question]] = {
    CommitOffsets: commit_offsets,
    FetchOffsets: fetch_offsets,
    DeleteOffsets: delete_offsets,
}
