"""Produce: one batch for each partition goes to the node's log as it came."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from replog.access.entries import AclOperation, ResourceKind
from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import AT_ONCE_MAX, Call, Failure, KafkaNode, ProduceTurn, text
from replog.protocol.handlers.partitions import endpoints, told_code
from replog.records import Codec
from replog.records.header import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC, TRANSACTIONAL_BIT
from replog.records.model import HEADER_BYTES, LOG_OVERHEAD_BYTES
from replog.rpc.messages import ACKS_ALL, ProducedTransaction, ProducePartition, ProduceResult
from replog.rpc.messages import ProduceRequest as NodeRequest
from replog.rpc.request_limits import check_partitions
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Reader

BY_ID_FROM = 13
"""The first version that names topics by their ids (KIP-516)."""

STORAGE_ERROR_FROM = 4
"""The first version whose clients know KAFKA_STORAGE_ERROR (KIP-112)."""

ACKS_WAIT_MAX_MS = 120_000
"""The longest wait for an acknowledgement, even if the client asks for more: its bytes are held for as long."""

ADDS_PARTITIONS_FROM = 12
"""The first version whose transactional batches make their partitions part of the transaction (KIP-890 part 2)."""

TRANSACTION_ABORTABLE_FROM = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""

NO_TRANSACTIONAL_ID = "a batch of a transaction came without a transactional id: set transactional.id"
SEVERAL_PRODUCERS = (
    "batches of several producers, or of several epochs, are in one request: one transaction is of one producer"
)
NO_BATCH = (
    "a partition of a Produce request has exactly one batch of records, whole and of magic 2, and here it has none"
)
ZSTD_FROM = 7
"""The first version whose batches may be compressed with zstd (KIP-110)."""

TOO_OLD_FOR_ZSTD = f"zstd needs version {ZSTD_FROM} of Produce: take another compression.type, or a newer client"
NO_KEY = "a compacted topic (cleanup.policy) takes no record without a key"
TWICE = "a partition stands twice in the request: name it once"

WrongRecord = ProduceResponse.BatchIndexAndErrorMessage

TOPICS_AT_ONCE = 1_000
"""Topics of a request that are read in one turn of the loop: some 5 ms."""

_acks_and_timeout = struct.Struct(">hi")
_batch_start = struct.Struct(">8xi4xB4xh")  # length, magic, attributes
_batch_producer = struct.Struct(">43xqh")  # producer id, producer epoch


class _Batch(Struct, frozen=True, gc=False):
    """A partition's batch, and the place of its answer."""

    answer: ProduceResponse.PartitionProduceResponse
    partition: ProducePartition
    records: memoryview | bytes

    @property
    def is_transactional(self) -> bool:
        return bool(self.records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)


_Opened: TypeAlias = tuple[ProduceResponse, list[_Batch]]


async def read_in_turns(reader: Reader, version: int) -> ProduceRequest:
    """Reads a request as `ProduceRequest.read` does, some topics in each turn of the loop: ten thousand take 50 ms.

    Raises:
        MalformedFrameError: The bytes are no such request.
    """
    flexible = version >= ProduceRequest.FLEXIBLE_FROM
    request = ProduceRequest(reader.nullable_text(flexible), *reader.fixed(_acks_and_timeout))
    for number in range(1, reader.count(flexible, 1) + 1):
        request.topic_data.append(ProduceRequest.TopicProduceData.read(reader, version))
        if number % TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if flexible:
        reader.tagged()
    return request


async def produce(node: KafkaNode, request: ProduceRequest, call: Call) -> ProduceResponse:
    """Appends the batches, and answers as `acks` asks."""
    check_partitions(count := sum(len(topic.partition_data) for topic in request.topic_data))
    opening = _opening(node.image, request, call.version)
    large: asyncio.Task[ProduceResponse] | None = None
    turn = call.turn or ProduceTurn(call.caller.in_order)
    await turn.take()
    try:
        if count > AT_ONCE_MAX:
            opened = next(opening)
            for each in opening:
                opened = each
                await asyncio.sleep(0)
            large = asyncio.create_task(_produced(node, request, call, opened))
            await asyncio.sleep(0)  # it has begun, and none behind it overtakes it
    finally:
        turn.give_back()
    if large is not None:
        return await large
    *_, opened = opening
    return await _produced(node, request, call, opened)


async def _produced(node: KafkaNode, request: ProduceRequest, call: Call, opened: _Opened) -> ProduceResponse:
    response, batches = opened
    if request.acks not in (0, 1, ACKS_ALL):
        _refuse_all(response, ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, and may be 0, 1 or -1 (all)")
        return response
    producers = {_batch_producer.unpack_from(batch.records) for batch in batches if batch.is_transactional}
    if producers and request.transactional_id is None:
        _refuse_all(response, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONAL_ID)
        return response
    if producers and request.transactional_id is not None:
        name = request.transactional_id
        if (refused := call.rights.refused(AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)) is not None:
            _refuse_all(response, refused.code, str(refused))
            return response
    if len(producers) > 1:
        _refuse_all(response, ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS)
        return response
    if batches:
        answered = await node.produce(
            NodeRequest(
                0,
                min(max(0, request.timeout_ms), ACKS_WAIT_MAX_MS),
                request.acks,
                tuple(batch.partition for batch in batches),
                tuple(batch.records for batch in batches),
                _transaction(request.transactional_id, call.version) if producers else None,
            ),
            call.caller,
        )
        for batch, result in zip(batches, answered.results, strict=True):
            _fill(batch.answer, result, call.version)
        response.node_endpoints = _new_leaders(node, response, call.listener)
    return response


def _transaction(transactional_id: str | None, version: int) -> ProducedTransaction | None:
    if transactional_id is None:
        return None
    return ProducedTransaction(
        transactional_id,
        adds_partitions=version >= ADDS_PARTITIONS_FROM,
        knows_abortable=version >= TRANSACTION_ABORTABLE_FROM,
    )


def refuse_produce(request: ProduceRequest, failure: Failure) -> ProduceResponse:
    """Returns the answer to a request that failed as a whole."""
    *_, (response, _) = _opening(MetadataImage(), request, 0)
    _refuse_all(response, failure.code, failure.message)
    return response


def has_failed(response: ProduceResponse) -> bool:
    """Whether a batch was refused: if no answer is awaited, the end of the connection tells the client."""
    return any(partition.error_code for partition in _partitions(response))


def _opening(image: MetadataImage, request: ProduceRequest, version: int) -> Iterator[_Opened]:
    """Yields the answer with the batches that are refused at once, and those that the node decides: after each thousand
    partitions as far as it is, and at the end whole."""
    count = 0
    response, batches = ProduceResponse(), []
    seen: set[tuple[object, int]] = set()
    for topic in request.topic_data:
        by_id = version >= BY_ID_FROM
        image_topic = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
        answers = ProduceResponse.TopicProduceResponse(topic.name, topic.topic_id)
        response.responses.append(answers)
        for partition in topic.partition_data:
            answer = ProduceResponse.PartitionProduceResponse(partition.index, base_offset=-1)
            answers.partition_responses.append(answer)
            key = (topic.topic_id if by_id else topic.name, partition.index)
            if key in seen:
                _refuse(answer, ErrorCode.INVALID_REQUEST, TWICE)
            elif image_topic is None:
                _refuse(
                    answer,
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "this broker does not know the topic (yet, or any more)",
                )
            elif trouble := _batch_trouble(partition.records, version):
                _refuse(answer, *trouble)
            else:
                node_partition = ProducePartition(image_topic.topic_id, partition.index)
                batches.append(_Batch(answer, node_partition, partition.records or b""))
            seen.add(key)
            count += 1
            if count % AT_ONCE_MAX == 0:
                yield response, batches
    yield response, batches


def _batch_trouble(records: memoryview | bytes | None, version: int) -> tuple[ErrorCode, str] | None:
    """Returns why there is no batch to append, if Kafka's code for it differs from the log's.

    A client sends a batch again that the log calls damaged.  One that is cut off or too old would be no better then.
    """
    if not records or len(records) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD, NO_BATCH
    length, magic, attributes = _batch_start.unpack_from(records)
    if length > 0 and (magic < MAGIC or LOG_OVERHEAD_BYTES + length > len(records)):
        return ErrorCode.INVALID_RECORD, NO_BATCH
    if version < ZSTD_FROM and attributes & CODEC_MASK == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, TOO_OLD_FOR_ZSTD
    return None


def _fill(answer: ProduceResponse.PartitionProduceResponse, result: ProduceResult, version: int) -> None:
    answer.error_code = told_code(
        result.error, by_id=version >= BY_ID_FROM, knows_storage=version >= STORAGE_ERROR_FROM
    )
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.append_time_ms
    answer.log_start_offset = result.log_start_offset
    answer.record_errors = [WrongRecord(place, NO_KEY) for place in result.keyless]
    if result.error is not ErrorCode.NONE:
        answer.error_message = text(result.message or result.error.name)
    if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and result.leader_id >= 0:
        answer.current_leader = ProduceResponse.LeaderIdAndEpoch(result.leader_id, result.leader_epoch)


def _new_leaders(node: KafkaNode, response: ProduceResponse, listener: str) -> list[ProduceResponse.NodeEndpoint]:
    """Returns the endpoints of the leaders that the answer names (KIP-951)."""
    named = (p.current_leader.leader_id for p in _partitions(response) if p.current_leader is not None)
    return [ProduceResponse.NodeEndpoint(*at) for at in endpoints(node, named, listener)]


def _partitions(response: ProduceResponse) -> Iterator[ProduceResponse.PartitionProduceResponse]:
    return (partition for topic in response.responses for partition in topic.partition_responses)


def _refuse_all(response: ProduceResponse, code: ErrorCode, message: str) -> None:
    for partition in _partitions(response):
        _refuse(partition, code, message)


def _refuse(answer: ProduceResponse.PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    answer.error_code, answer.error_message, answer.base_offset = code, message, -1
