"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions: what coordinators of transactions are asked.

Clients tell by the version of a request which `transaction.version` they go by: level 2 for EndTxn from 5 on.  From version 4 on
AddPartitionsToTxn is of brokers, which make the partitions of a producer of that level part of its transaction; ours ask in
their own way.  Whether topics exist is decided here, from the metadata.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final, cast

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransaction,
    EndTransaction,
    EndTransactionResponse,
    Incarnation,
    ListTransactions,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionPartition,
)
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.metadata.image import MetadataImage
from replog.metadata.topic_names import INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, failure_of, group_code
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, require_few
from replog.protocol.handlers.producer_ids import spare_producer_id
from replog.protocol.written_steps import Steps, WrittenElements, visible, written_in_steps
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest
from replog.wire.messages.list_transactions import ListTransactionsResponse as Listed

FENCED_FROM: Final = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know PRODUCER_FENCED (KIP-588)."""

OF_BROKERS_FROM: Final = 4
"""The first version of AddPartitionsToTxn that asks for several transactions (KIP-890)."""

BUMPS_FROM: Final = 5
"""The first version of EndTxn whose producers get another epoch with each transaction (KIP-890)."""

SPARE_ID_FROM: Final = 32_000
"""The epoch from which on a producer may need another id at the end of its transaction."""

NO_SPARE: Final = -1

DESCRIBED_MAX: Final = 1_000
"""Transactional ids that one request may have described: each has up to thousands of partitions."""

STATUS_NAMES: Final = {status: status.name.title().replace("_", "") for status in TransactionStatus}
"""What Kafka calls each status."""

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_State = DescribeTransactionsResponse.TransactionState
_TopicData = DescribeTransactionsResponse.TopicData

_STATUS_BY_NAME: Final = {name: status for status, name in STATUS_NAMES.items()}


def told_code(code: ErrorCode, version: int, fenced_from: int = FENCED_FROM) -> ErrorCode:
    """Returns the code that a producer is told: an older one takes INVALID_PRODUCER_EPOCH for the end of it.

    Args:
        code: The code of the error.
        version: The version of the request.
        fenced_from: The first version of the API whose clients know PRODUCER_FENCED.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return group_code(code)


# ---- partitions ------------------------------------------------------------------------------------------------------


async def add_partitions_to_txn(
    node: KafkaNode, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    """Makes partitions part of transactions, or says whether they are."""
    if call.version >= OF_BROKERS_FROM:
        call.rights.require(AclOperation.CLUSTER_ACTION, ResourceKind.CLUSTER)
        asked = request.transactions
    else:
        name = request.v3_and_below_transactional_id
        call.rights.require(AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)
        asked = [_alone(request)]
    count = sum(1 + sum(1 + len(topic.partitions) for topic in one.topics) for one in asked)
    require_few(count, "transactions, topics and partitions")
    steps = Steps()
    results = []
    for one in asked:
        results.append(_Result(one.transactional_id, await _added(node, one, call)))
        await steps.next()
    if call.version >= OF_BROKERS_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def refuse_add_partitions_to_txn(request: AddPartitionsToTxnRequest, failure: Failure) -> AddPartitionsToTxnResponse:
    """Returns the answer to a request that failed as a whole: in older versions there is no field for that."""
    topics = [_TopicResult(topic.name, _results(topic, failure.code)) for topic in request.v3_and_below_topics]
    return AddPartitionsToTxnResponse(error_code=failure.code, results_by_topic_v3_and_below=topics)


def _alone(request: AddPartitionsToTxnRequest) -> _Transaction:
    """Returns the only transaction of a client's request."""
    return _Transaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _added(node: KafkaNode, asked: _Transaction, call: Call) -> list[_TopicResult]:
    version = call.version
    denied = set[str]() if version >= OF_BROKERS_FROM else await _denied(asked.topics, call.rights)
    count = sum(len(topic.partitions) for topic in asked.topics)
    partitions = await beside(count, _partitions, asked.topics)
    refused = await beside(count, _refused, node.image, partitions, version, denied)
    if refused:
        codes = [refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions]
    else:
        codes = await _codes(node, asked, partitions, version)
    return await beside(count, _topic_results, asked.topics, codes)


async def _denied(topics: Iterable[_Topic], rights: Rights) -> set[str]:
    """Returns the topics that a client may not write to; internal ones are refused to everybody anyway."""
    allows, denied, steps = rights.allows, set[str](), Steps()
    for name in dict.fromkeys(topic.name for topic in topics):
        if name not in INTERNAL_TOPICS and not allows(AclOperation.WRITE, ResourceKind.TOPIC, name):
            denied.add(name)
        await steps.next()
    return denied


def _partitions(topics: Iterable[_Topic]) -> tuple[TransactionPartition, ...]:
    return tuple(TransactionPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _topic_results(topics: Iterable[_Topic], codes: Iterable[ErrorCode]) -> list[_TopicResult]:
    """Returns the results in the order of the request."""
    left = iter(codes)
    return [
        _TopicResult(topic.name, [_PartitionResult(number, next(left)) for number in topic.partitions])
        for topic in topics
    ]


def _refused(
    image: MetadataImage, partitions: Iterable[TransactionPartition], version: int, denied: Container[str]
) -> dict[TransactionPartition, ErrorCode]:
    """Returns the partitions that no transaction of this request may have.

    Offsets get into transactions by AddOffsetsToTxn, or by the coordinator of a group, which asks as brokers do.  What
    coordinators of transactions write has no markers: a transaction with it would never be complete.
    """
    kept_out = INTERNAL_TOPICS if version < OF_BROKERS_FROM else {TRANSACTIONS_TOPIC}
    topics = image.topics_by_name
    found: dict[TransactionPartition, ErrorCode] = {}
    for each in partitions:
        topic = topics.get(each.topic)
        if each.topic in kept_out or each.topic in denied:
            found[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or each.partition not in topic.partitions:
            found[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


async def _codes(
    node: KafkaNode, asked: _Transaction, partitions: tuple[TransactionPartition, ...], version: int
) -> list[ErrorCode]:
    request = AddPartitions(
        asked.transactional_id,
        Incarnation(asked.producer_id, asked.producer_epoch),
        partitions,
        only_verifies=asked.verify_only,
        bumps_epochs=version >= OF_BROKERS_FROM,
    )
    try:
        answer: AddPartitionsResponse = await node.coordinate_transaction(asked.transactional_id, request, TIMEOUT_MS)
    except ReplogError as error:
        return [told_code(error.code, version)] * len(partitions)
    return [ErrorCode.NONE if error is None else told_code(error.code, version) for error in answer.errors]


def _results(topic: _Topic, code: ErrorCode) -> list[_PartitionResult]:
    return [_PartitionResult(number, code) for number in topic.partitions]


async def add_offsets_to_txn(node: KafkaNode, request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    """Makes the partition that keeps the offsets of a group part of a transaction; asked for by producers below level 2."""
    try:
        place = TransactionPartition(*await node.group_place(request.group_id))
        asked = AddPartitions(
            request.transactional_id, Incarnation(request.producer_id, request.producer_epoch), (place,)
        )
        answer: AddPartitionsResponse = await node.coordinate_transaction(request.transactional_id, asked, TIMEOUT_MS)
    except ReplogError as error:
        return AddOffsetsToTxnResponse(error_code=told_code(error.code, call.version))
    codes = [told_code(error.code, call.version) for error in answer.errors if error is not None]
    return AddOffsetsToTxnResponse(error_code=codes[0] if codes else ErrorCode.NONE)


# ---- ends ------------------------------------------------------------------------------------------------------------


async def end_txn(node: KafkaNode, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    """Decides a transaction; the partitions get their markers afterwards."""
    try:
        spare = await spare_producer_id(node) if request.producer_epoch >= SPARE_ID_FROM else NO_SPARE
        asked = EndTransaction(
            request.transactional_id,
            Incarnation(request.producer_id, request.producer_epoch),
            request.committed,
            bumps_epochs=call.version >= BUMPS_FROM,
            spare_producer_id=spare,
        )
        answer: EndTransactionResponse = await node.coordinate_transaction(request.transactional_id, asked, TIMEOUT_MS)
    except ReplogError as error:
        return EndTxnResponse(error_code=told_code(error.code, call.version))
    return EndTxnResponse(producer_id=answer.producer.producer_id, producer_epoch=answer.producer.producer_epoch)


# ---- what people ask -------------------------------------------------------------------------------------------------


async def describe_transactions(
    node: KafkaNode, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    """Returns where transactional ids of this broker are; one that is named again is answered once."""
    names = list(dict.fromkeys(request.transactional_ids))
    if len(names) > DESCRIBED_MAX:
        raise InvalidRequestError(
            f"one request describes at most {DESCRIBED_MAX:,} transactional ids, not {len(names):,}; ask in several requests"
        )
    states, steps = WrittenElements(call.version), Steps()  # with up to 10,000 partitions each, they are kept as bytes
    for name in names:
        states.add(await _described(node, name, call.rights))
        await steps.next()
    return DescribeTransactionsResponse(transaction_states=cast("list[_State]", states))


def refuse_describe_transactions(
    request: DescribeTransactionsRequest, failure: Failure
) -> DescribeTransactionsResponse:
    """Returns the answer to a request that failed as a whole."""
    names = request.transactional_ids[:DESCRIBED_MAX]
    return DescribeTransactionsResponse(transaction_states=[_State(failure.code, name) for name in names])


async def _described(node: KafkaNode, name: str, rights: Rights) -> _State:
    try:
        found: TransactionDescription = await node.coordinate_transaction(name, DescribeTransaction(name), TIMEOUT_MS)
    except ReplogError as error:
        return _State(failure_of(error).code, name)
    topics: dict[str, list[int]] = {}
    for each in found.partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    seen = await visible(sorted(topics), lambda topic: rights.sees(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic))
    return _State(
        transactional_id=name,
        transaction_state=STATUS_NAMES[found.status],
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.producer_epoch,
        topics=[_TopicData(topic, sorted(topics[topic])) for topic in seen],
    )


async def list_transactions(node: KafkaNode, request: ListTransactionsRequest, call: Call) -> Listed:
    """Returns the transactional ids of this broker that are asked for."""
    require_few(len(request.state_filters) + len(request.producer_id_filters), "states and producers")
    wanted = frozenset(_STATUS_BY_NAME[name] for name in request.state_filters if name in _STATUS_BY_NAME)
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _STATUS_BY_NAME]
    if unknown and not wanted:
        return Listed(unknown_state_filters=unknown)
    asked = ListTransactions(
        wanted,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        request.transactional_id_pattern or "",
    )
    answers: Sequence[ListTransactionsResponse] = await node.coordinate_all_transactions(asked, TIMEOUT_MS)
    found = (
        Listed.TransactionState(each.transactional_id, each.producer_id, STATUS_NAMES[each.status])
        for each in await visible(
            (each for answer in answers for each in answer.transactions),
            lambda each: call.rights.sees(AclOperation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, each.transactional_id),
        )
    )
    return Listed(
        unknown_state_filters=unknown, transaction_states=await written_in_steps(found, call.version, Steps())
    )


def refuse_list_transactions(_request: ListTransactionsRequest, failure: Failure) -> Listed:
    """Returns the answer to a request that failed."""
    return Listed(error_code=group_code(failure.code))
