"""Produces and fetches: our structs as Kafka's messages, and the answers back.

Topics go by their ids where the broker takes them, so that a topic of the same name that was made anew is another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from replog.errors import CorruptRecordError, ErrorCode, InvalidRecordError
from replog.records import decode_batch, scan
from replog.records._crc32c import crc32c
from replog.records.control import ControlRecordType, control_record_type
from replog.records.header import CONTROL_BIT, BatchHeader
from replog.rpc.messages import (
    AbortedTransaction,
    Buffer,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    LeaderEndpoint,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched
from replog.wire.messages.produce import ProduceRequest as KafkaProduce
from replog.wire.messages.produce import ProduceResponse as KafkaProduced

BY_ID_FROM: Final = 13
"""The first version of Produce and of Fetch that names topics by their ids (KIP-516)."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

JOINING_FROM: Final = 12
"""The first version of Produce with which a batch makes its partition part of the transaction (KIP-890)."""


P = TypeVar("P", ProducePartition, FetchPartition)


def known_code(number: int) -> ErrorCode:
    """Returns a code; UNKNOWN_SERVER_ERROR for one that this version does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def text_of(number: int, message: str | None) -> str:
    """Returns the text beside a code; of one that this version does not know it tells the number."""
    try:
        code = ErrorCode(number)
    except ValueError:
        return f"error {number}" + (f": {message}" if message else "")
    return message or ("" if code is ErrorCode.NONE else code.name)


# ---- produce ---------------------------------------------------------------------------------------------------------


def produce_request(request: ProduceRequest) -> KafkaProduce:
    """Returns a produce as Kafka's message."""
    topics: dict[UUID, KafkaProduce.TopicProduceData] = {}
    for partition, batch in zip(request.partitions, request.batches, strict=True):
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = KafkaProduce.TopicProduceData(partition.topic, partition.topic_id)
        records = batch if isinstance(batch, bytes) else memoryview(batch)
        topic.partition_data.append(KafkaProduce.PartitionProduceData(partition.partition_id, records))
    name = None if request.transaction is None else request.transaction.transactional_id
    return KafkaProduce(name, request.acks, request.timeout_ms, list(topics.values()))


def produce_response(request: ProduceRequest, answer: KafkaProduced, version: int) -> ProduceResponse:
    """Returns what became of the batches, by partition; of those that were sent only."""
    ids = _ids(request.partitions)
    asked = {(each.topic_id, each.partition_id) for each in request.partitions}
    return ProduceResponse(
        request.correlation_id,
        tuple(
            _produced(topic_id, told)
            for topic in answer.responses
            if (topic_id := ids.get(topic.name) if version < BY_ID_FROM else topic.topic_id) is not None
            for told in topic.partition_responses
            if (topic_id, told.index) in asked
        ),
        _endpoints(answer),
    )


def _produced(topic_id: UUID, told: KafkaProduced.PartitionProduceResponse) -> ProduceResult:
    leader = told.current_leader
    return ProduceResult(
        topic_id,
        told.index,
        known_code(told.error_code),
        text_of(told.error_code, told.error_message),
        told.base_offset,
        told.log_start_offset,
        told.log_append_time_ms,
        -1 if leader is None else leader.leader_id,
        -1 if leader is None else leader.leader_epoch,
        tuple(each.batch_index for each in told.record_errors),
    )


# ---- fetch -----------------------------------------------------------------------------------------------------------


def fetch_request(
    request: FetchRequest,
    changed: Iterable[FetchPartition],
    forgotten: Iterable[FetchPartition] = (),
    *,
    session_id: int = 0,
    session_epoch: int = 0,
) -> KafkaFetch:
    """Returns a consumer's fetch as Kafka's message, of committed records only.

    Args:
        request: The fetch.
        changed: The partitions that it names; all of the fetch if it has no session.
        forgotten: The partitions that its session has and it does not ask for any more.
        session_id: The session, or 0.
        session_epoch: The number of the fetch in the session; 0: it asks for a session.
    """
    topics: dict[UUID, KafkaFetch.FetchTopic] = {}
    for partition in changed:
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = KafkaFetch.FetchTopic(partition.topic, partition.topic_id)
        topic.partitions.append(
            KafkaFetch.FetchPartition(
                partition.partition_id,
                partition.leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                partition_max_bytes=partition.max_bytes,
            )
        )
    gone: dict[UUID, KafkaFetch.ForgottenTopic] = {}
    for partition in forgotten:
        left = gone.get(partition.topic_id)
        if left is None:
            left = gone[partition.topic_id] = KafkaFetch.ForgottenTopic(partition.topic, partition.topic_id)
        left.partitions.append(partition.partition_id)
    return KafkaFetch(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=READ_COMMITTED,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(gone.values()),
        offsets_only=request.offsets_only,
    )


def fetch_response(
    request: FetchRequest,
    asked: Mapping[tuple[UUID, int], FetchPartition],
    answer: KafkaFetched,
    version: int,
) -> FetchResponse:
    """Returns what is told of the partitions that were asked for; a fetch that fails as a whole has its code for each."""
    if answer.error_code != ErrorCode.NONE:
        return _all_refused(request, answer.error_code)
    ids = _ids(request.partitions) if version < BY_ID_FROM else {}
    results, batches = [], []
    for topic in answer.responses:
        topic_id = ids.get(topic.topic) if version < BY_ID_FROM else topic.topic_id
        for told in topic.partitions:
            if topic_id is None or (question := asked.get((topic_id, told.partition_index))) is None:
                continue
            results.append(_fetched(question, told))
            batches.append(hide_aborted(told.records or b"", _aborted(told)))
    return FetchResponse(request.correlation_id, tuple(results), tuple(batches), _endpoints(answer))


def _aborted(told: KafkaFetched.PartitionData) -> list[AbortedTransaction]:
    return [AbortedTransaction(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()]


def _all_refused(request: FetchRequest, code: int) -> FetchResponse:
    results = tuple(
        FetchResult(each.topic_id, each.partition_id, known_code(code), each.fetch_offset, message=text_of(code, ""))
        for each in request.partitions
    )
    return FetchResponse(request.correlation_id, results, (b"",) * len(results))


def _fetched(asked: FetchPartition, told: KafkaFetched.PartitionData) -> FetchResult:
    """Returns what is told of a partition.  Its high watermark is that for readers of what is committed: no open transaction is
    below it.
    """
    readable_end = told.high_watermark
    if 0 <= told.last_stable_offset < readable_end:
        readable_end = told.last_stable_offset
    leader, parted = told.current_leader, told.diverging_epoch
    return FetchResult(
        asked.topic_id,
        asked.partition_id,
        known_code(told.error_code),
        asked.fetch_offset,
        readable_end,
        told.log_start_offset if told.start_offset < 0 else told.start_offset,
        told.end_offset,
        None if parted is None or parted.end_offset < 0 else DivergingEpoch(parted.epoch, parted.end_offset),
        -1 if leader is None else leader.leader_id,
        -1 if leader is None else leader.leader_epoch,
        text_of(told.error_code, told.error_message),
        told.last_stable_offset,
        size_bytes=told.size_bytes,
    )


def _endpoints(answer: KafkaProduced | KafkaFetched) -> tuple[LeaderEndpoint, ...]:
    """Returns where the leaders are that an answer names (KIP-951)."""
    return tuple(LeaderEndpoint(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints)


def _ids(partitions: Iterable[P]) -> dict[str, UUID]:
    return {each.topic: each.topic_id for each in partitions}


_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21

_crc = struct.Struct(">I")
_attributes = struct.Struct(">h")


def hide_aborted(data: Buffer, aborted: Sequence[AbortedTransaction]) -> Buffer:
    """Returns an answer in which batches of aborted transactions are control batches, which nobody reads as records.

    Their offsets and sizes stay, so that positions go past them.  The bytes are those given where nothing was aborted.

    Args:
        data: Whole batches, and perhaps the beginning of another one, in the order of their offsets.
        aborted: The aborted transactions of which a batch may be among them: each begins at its first offset and ends with
            the next abort marker of its producer.
    """
    if not aborted:
        return data
    hidden = bytearray(data)
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)  # the next one last
    begun: set[int] = set()
    try:
        for header in scan(data):
            while waiting and waiting[-1].first_offset <= header.last_offset:
                begun.add(waiting.pop().producer_id)
            if header.is_control:
                if header.producer_id in begun and _is_abort(data, header):
                    begun.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in begun:
                _hide(hidden, header)
    except CorruptRecordError:  # the reader finds it, and says where
        pass
    return memoryview(hidden)


def _is_abort(data: Buffer, header: BatchHeader) -> bool:
    """Whether a control batch ends a transaction as aborted."""
    try:
        return any(
            control_record_type(record) is ControlRecordType.ABORT
            for record in islice(decode_batch(data, header.position), 1)
        )
    except InvalidRecordError:
        return False


def _hide(data: bytearray, header: BatchHeader) -> None:
    at = header.position + _ATTRIBUTES_AT
    (attributes,) = _attributes.unpack_from(data, at)
    _attributes.pack_into(data, at, attributes | CONTROL_BIT)
    _crc.pack_into(data, header.position + _CRC_AT, crc32c(memoryview(data)[at : header.end_position]))
