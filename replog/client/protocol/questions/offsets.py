"""Questions about offsets and records to the leaders of partitions, about named topics, and for producer ids.

Kafka names topics here, and we mean one by its id: a replog broker compares that with its own, in a tagged field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.metadata import topic_infos
from replog.client.protocol.records import READ_COMMITTED, READ_UNCOMMITTED, known_code, text_of
from replog.errors import ErrorCode, UnsupportedVersionError
from replog.errors.from_code import error_from_number
from replog.protocol.private import FIRST_KEY
from replog.rpc import messages as ours
from replog.rpc.messages import FROM_OFFSET_TIMESTAMP
from replog.rpc.metadata_messages import ClusterMetadata, MetadataRequest
from replog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.metadata import MetadataRequest as KafkaMetadata
from replog.wire.messages.metadata import MetadataResponse
from replog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

CONSUMER: Final = -1
"""The replica id of a client."""

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Of a producer without transactions, for which it means nothing; 0 is refused."""


class _Asked(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_id(self) -> int: ...


P = TypeVar("P", bound=_Asked)
K = TypeVar("K")
T = TypeVar("T")


def _by_topic(
    partitions: Iterable[P], topic: Callable[[str, list[K], UUID], T], partition: Callable[[P], K]
) -> list[T]:
    """Returns Kafka's topics, each with its partitions."""
    topics: dict[tuple[str, UUID], list[K]] = {}
    for each in partitions:
        topics.setdefault((each.topic, each.topic_id), []).append(partition(each))
    return [topic(name, found, topic_id) for (name, topic_id), found in topics.items()]


def _ids(partitions: Sequence[_Asked]) -> Mapping[str, UUID]:
    return {each.topic: each.topic_id for each in partitions}


async def list_offsets(broker: Broker, question: ours.ListOffsetsRequest, timeout_ms: int) -> ours.ListOffsetsResponse:
    """Asks for an offset of each partition, of what is committed unless the question says otherwise.

    Raises:
        UnsupportedVersionError: The first record from an offset on is asked for, which only replog brokers tell.
    """
    is_from_offset = any(each.timestamp == FROM_OFFSET_TIMESTAMP for each in question.partitions)
    if is_from_offset and not await broker.offers(FIRST_KEY):
        raise UnsupportedVersionError(
            f"{broker.address} does not tell the time of the record at an offset: Kafka has no such question"
        )

    def partition(each: ours.ListOffsetsPartition) -> ListOffsetsRequest.ListOffsetsPartition:
        return ListOffsetsRequest.ListOffsetsPartition(
            each.partition_id, each.leader_epoch, each.timestamp, each.from_offset
        )

    topics = _by_topic(question.partitions, ListOffsetsRequest.ListOffsetsTopic, partition)
    isolation = READ_UNCOMMITTED if question.read_uncommitted else READ_COMMITTED
    asked = ListOffsetsRequest(CONSUMER, isolation, topics, timeout_ms)
    answer = await broker.ask(asked, ListOffsetsResponse, timeout_ms=timeout_ms)
    ids = _ids(question.partitions)
    return ours.ListOffsetsResponse(
        tuple(
            ours.ListOffsetsResult(
                ids[topic.name],
                told.partition_index,
                known_code(told.error_code),
                told.offset,
                told.timestamp,
                told.leader_epoch,
                message=text_of(told.error_code, told.error_message),
            )
            for topic in answer.topics
            if topic.name in ids
            for told in topic.partitions
        )
    )


async def epoch_ends(broker: Broker, question: ours.EpochEndsRequest, timeout_ms: int) -> ours.EpochEndsResponse:
    """Asks where leader epochs end."""

    def partition(each: ours.EpochEndPartition) -> OffsetForLeaderEpochRequest.OffsetForLeaderPartition:
        return OffsetForLeaderEpochRequest.OffsetForLeaderPartition(each.partition_id, each.leader_epoch, each.epoch)

    topics = _by_topic(question.partitions, OffsetForLeaderEpochRequest.OffsetForLeaderTopic, partition)
    asked = OffsetForLeaderEpochRequest(CONSUMER, topics)
    answer = await broker.ask(asked, OffsetForLeaderEpochResponse, timeout_ms=timeout_ms)
    ids = _ids(question.partitions)
    return ours.EpochEndsResponse(
        tuple(
            ours.EpochEndResult(
                ids[topic.topic],
                told.partition,
                known_code(told.error_code),
                told.leader_epoch,
                told.end_offset,
                message=text_of(told.error_code, told.error_message),
            )
            for topic in answer.topics
            if topic.topic in ids
            for told in topic.partitions
        )
    )


async def delete_records(
    broker: Broker, question: ours.DeleteRecordsRequest, timeout_ms: int
) -> ours.DeleteRecordsResponse:
    """Deletes what is below an offset of each partition."""

    def partition(each: ours.DeleteRecordsPartition) -> DeleteRecordsRequest.DeleteRecordsPartition:
        return DeleteRecordsRequest.DeleteRecordsPartition(each.partition_id, each.offset)

    topics = _by_topic(question.partitions, DeleteRecordsRequest.DeleteRecordsTopic, partition)
    asked = DeleteRecordsRequest(topics, timeout_ms)
    answer = await broker.ask(asked, DeleteRecordsResponse, timeout_ms=timeout_ms)
    ids = _ids(question.partitions)
    return ours.DeleteRecordsResponse(
        tuple(
            ours.DeleteRecordsResult(
                ids[topic.name],
                told.partition_index,
                known_code(told.error_code),
                told.low_watermark,
                message=text_of(told.error_code, told.error_message),
            )
            for topic in answer.topics
            if topic.name in ids
            for told in topic.partitions
        )
    )


async def init_producer_id(
    broker: Broker, _question: ours.InitProducerIdRequest, timeout_ms: int
) -> ours.InitProducerIdResponse:
    """Asks for the id of a new idempotent producer."""
    asked = InitProducerIdRequest(None, TRANSACTION_TIMEOUT_MS)
    answer = await broker.ask(asked, InitProducerIdResponse, timeout_ms=timeout_ms)
    if answer.error_code != ErrorCode.NONE:
        raise error_from_number(answer.error_code, text_of(answer.error_code, answer.error_message))
    return ours.InitProducerIdResponse(answer.producer_id, answer.producer_epoch)


async def metadata(broker: Broker, question: MetadataRequest, timeout_ms: int) -> ClusterMetadata:
    """Asks for brokers, controller and named topics."""
    names = [KafkaMetadata.MetadataRequestTopic(name=name) for name in dict.fromkeys(question.topics)]
    asked = KafkaMetadata(names, allow_auto_topic_creation=False)
    answer = await broker.ask(asked, MetadataResponse, timeout_ms=timeout_ms)
    if answer.error_code != ErrorCode.NONE:
        raise error_from_number(answer.error_code, text_of(answer.error_code, answer.error_message))
    brokers, topics = topic_infos(answer)
    return ClusterMetadata(answer.cluster_id or "", -1, answer.controller_id, -1, brokers, topics)


QUESTIONS: Final[Mapping[type, Question]] = {
    ours.ListOffsetsRequest: list_offsets,
    ours.EpochEndsRequest: epoch_ends,
    ours.DeleteRecordsRequest: delete_records,
    ours.InitProducerIdRequest: init_producer_id,
    MetadataRequest: metadata,
}
