"""Questions of operators about transactions (KIP-664): which there are, where they are, who writes to partitions; and ending one in a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, told
from replog.client.protocol.questions.transactions import require_done
from replog.client.protocol.transactions import (
    ActiveProducer,
    DescribedProducers,
    DescribeProducers,
    DescribeTransactionalId,
    ListTransactionalIds,
    OffersPreparing,
    ProducersOfPartition,
    TransactionDetails,
    TransactionListing,
)
from replog.client.types import TopicPartition
from replog.coordinator.transactions.requests import PrepareTransaction
from replog.errors import ErrorCode, UnsupportedVersionError
from replog.protocol.private import PRIVATE_APIS
from replog.rpc.transaction_messages import Marker, PartitionRefusal, WriteMarkersRequest, WriteMarkersResponse
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

DURATION_FROM: Final = 1
"""The first version of ListTransactions that leaves out those that are not open for long."""

PATTERN_FROM: Final = 2
"""The first version of ListTransactions that leaves out those whose transactional id is another."""


# ---- the coordinators ------------------------------------------------------------------------------------------------


async def list_ids(broker: Broker, question: ListTransactionalIds, timeout_ms: int) -> tuple[TransactionListing, ...]:
    """Asks for the transactional ids of a broker; of a state that it does not know it has none.

    Raises:
        UnsupportedVersionError: They are to be chosen by what the broker does not know of.
    """
    version = await broker.version(ListTransactionsRequest)
    _require(broker, version, DURATION_FROM, question.open_longer_than_ms >= 0, "how long one is open")
    _require(broker, version, PATTERN_FROM, bool(question.pattern), "a pattern")
    request = ListTransactionsRequest(
        list(question.states),
        list(question.producer_ids),
        question.open_longer_than_ms,
        question.pattern or None,
    )
    answer = await broker.ask(request, ListTransactionsResponse, timeout_ms=timeout_ms)
    require_done(broker, answer.error_code, "to list transactions")
    return tuple(
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
        for each in answer.transaction_states
    )


async def offers_preparing(broker: Broker, _question: OffersPreparing, _timeout_ms: int) -> bool:
    """Looks at the APIs that the broker has told of."""
    return await broker.offers(PRIVATE_APIS[PrepareTransaction].API_KEY)


def _require(broker: Broker, version: int, needed: int, is_asked: bool, what: str) -> None:
    if is_asked and version < needed:
        raise UnsupportedVersionError(
            f"{broker.address} serves ListTransactions up to version {version}, which cannot choose by {what} (that comes with version "
            f"{needed}): list all transactions, or use a newer broker"
        )


async def describe_id(broker: Broker, question: DescribeTransactionalId, timeout_ms: int) -> TransactionDetails:
    """Asks for one transactional id.

    Raises:
        TransactionalIdNotFoundError: There is none.
    """
    name = question.transactional_id
    answer = await broker.ask(DescribeTransactionsRequest([name]), DescribeTransactionsResponse, timeout_ms=timeout_ms)
    found = next((each for each in answer.transaction_states if each.transactional_id == name), None)
    if found is None:
        raise lacking(broker, f"transactional id {name!r}")
    require_done(broker, found.error_code, f"to describe transactional id {name!r}")
    partitions = (TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions)
    return TransactionDetails(
        name,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(sorted(partitions)),
    )


# ---- the leaders of partitions ---------------------------------------------------------------------------------------


async def describe_producers(broker: Broker, question: DescribeProducers, timeout_ms: int) -> DescribedProducers:
    """Asks for producers; a partition that the answer leaves out has no result."""
    topics: dict[str, list[int]] = {}
    for each in question.partitions:
        topics.setdefault(each.topic, []).append(each.partition_id)
    request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest(*item) for item in topics.items()])
    answer = await broker.ask(request, DescribeProducersResponse, timeout_ms=timeout_ms)
    found = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
    missing = next((each for each in question.partitions if (each.topic, each.partition_id) not in found), None)
    if missing is not None:
        raise lacking(broker, f"the producers of {missing.topic}-{missing.partition_id}")
    return DescribedProducers(
        tuple(
            ProducersOfPartition(
                each.topic_id,
                each.partition_id,
                *told(one.error_code, one.error_message),
                tuple(map(_producer, one.active_producers)),
            )
            for each in question.partitions
            for one in (found[each.topic, each.partition_id],)
        )
    )


def _producer(each: DescribeProducersResponse.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        each.producer_id,
        each.producer_epoch,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset,
    )


async def write_markers(broker: Broker, question: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse:
    """Asks the leader of partitions to write markers into them; answered when they have committed."""
    request = WriteTxnMarkersRequest([_marker(each) for each in question.markers])
    answer = await broker.ask(request, WriteTxnMarkersResponse, timeout_ms=timeout_ms)
    if len(answer.markers) != len(question.markers):
        raise lacking(broker, "every marker")
    return WriteMarkersResponse(
        tuple(
            tuple(
                PartitionRefusal(topic.name, each.partition_index, *told(each.error_code, None))
                for topic in one.topics
                for each in topic.partitions
                if each.error_code != ErrorCode.NONE
            )
            for one in answer.markers
        )
    )


def _marker(marker: Marker) -> WriteTxnMarkersRequest.WritableTxnMarker:
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return WriteTxnMarkersRequest.WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.is_commit,
        [topic(each.topic, list(each.partition_ids)) for each in marker.topics],
        marker.coordinator_epoch,
    )


QUESTIONS: Final[Mapping[type, Question]] = {
    ListTransactionalIds: list_ids,
    OffersPreparing: offers_preparing,
    DescribeTransactionalId: describe_id,
    DescribeProducers: describe_producers,
    WriteMarkersRequest: write_markers,
}
