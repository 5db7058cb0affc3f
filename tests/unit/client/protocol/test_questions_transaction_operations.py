"""Questions of operators about transactions, put to a broker that answers as Kafka does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from answering_broker import ScriptedBroker

from replog.client.protocol.questions.table import question_of
from replog.client.protocol.transactions import (
    ActiveProducer,
    AskedProducers,
    DescribeProducers,
    DescribeTransactionalId,
    ListTransactionalIds,
    TransactionDetails,
    TransactionListing,
)
from replog.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    InvalidRegularExpressionError,
    MalformedFrameError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from replog.rpc.transaction_messages import Marker, NamedPartitions, PartitionRefusal, WriteMarkersRequest
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

TOPIC_ID = UUID(int=7)
Partition = DescribeProducersResponse.PartitionResponse
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
MARKER = Marker(7, 3, 2, is_commit=False, bumps_epochs=False, topics=(NamedPartitions("t", (0, 1)),))


async def put(broker: ScriptedBroker, question: Any) -> Any:
    asked = question_of(type(question))
    assert asked is not None
    return await asked(broker, question, 1000)


async def test_a_list_is_asked_for_in_full_and_told_in_kafkas_words() -> None:
    told = ListTransactionsResponse.TransactionState("pay", 7, "OfTheFuture")
    broker = ScriptedBroker({ListTransactionsRequest: ListTransactionsResponse(transaction_states=[told])})
    question = ListTransactionalIds(("Ongoing",), (7,), 1000, "p.*")
    assert await put(broker, question) == (TransactionListing("pay", 7, "OfTheFuture"),)
    assert broker.asked == [ListTransactionsRequest(["Ongoing"], [7], 1000, "p.*")]


@pytest.mark.parametrize(
    ("question", "version"),
    [(ListTransactionalIds(open_longer_than_ms=0), 0), (ListTransactionalIds(pattern="p"), 1)],
)
async def test_a_broker_that_cannot_choose_is_not_asked(question: ListTransactionalIds, version: int) -> None:
    """Goal: a list of all would look like one of those that were asked for."""
    broker = ScriptedBroker({ListTransactionsRequest: ListTransactionsResponse()}, {ListTransactionsRequest: version})
    with pytest.raises(UnsupportedVersionError, match=f"up to version {version}, which cannot choose by"):
        await put(broker, question)
    assert broker.asked == []
    assert await put(broker, ListTransactionalIds()) == ()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CoordinatorLoadInProgressError),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidRegularExpressionError),
    ],
)
async def test_a_list_that_is_refused(code: ErrorCode, error: type[Exception]) -> None:
    broker = ScriptedBroker({ListTransactionsRequest: ListTransactionsResponse(error_code=code)})
    with pytest.raises(error, match="broker:9092 refuses to list transactions: "):
        await put(broker, ListTransactionalIds())


def described(**fields: Any) -> ScriptedBroker:
    state = DescribeTransactionsResponse.TransactionState(**fields)
    return ScriptedBroker({DescribeTransactionsRequest: DescribeTransactionsResponse(transaction_states=[state])})


async def test_a_transactional_id_is_described() -> None:
    topics = [DescribeTransactionsResponse.TopicData(*each) for each in (("u", [3, 1]), ("t", [0]))]
    broker = described(
        transactional_id="pay",
        transaction_state="Ongoing",
        transaction_timeout_ms=9,
        transaction_start_time_ms=5,
        producer_id=7,
        producer_epoch=3,
        topics=topics,
    )
    partitions = (("t", 0), ("u", 1), ("u", 3))
    assert await put(broker, DescribeTransactionalId("pay")) == TransactionDetails(
        "pay", "Ongoing", 7, 3, 9, 5, partitions
    )


async def test_a_transactional_id_that_there_is_not() -> None:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(TransactionalIdNotFoundError, match="there is no such transactional id"):
        await put(described(transactional_id="pay", error_code=code), DescribeTransactionalId("pay"))
    with pytest.raises(MalformedFrameError, match="without transactional id 'pay'"):
        await put(described(transactional_id="other"), DescribeTransactionalId("pay"))


async def test_producers_of_partitions() -> None:
    producer = DescribeProducersResponse.ProducerState(7, 3, 9, 1000, -1, 12)
    partitions = [Partition(0, active_producers=[producer]), Partition(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)]
    answer = DescribeProducersResponse(topics=[DescribeProducersResponse.TopicResponse("t", partitions)])
    broker = ScriptedBroker({DescribeProducersRequest: answer})
    asked = tuple(AskedProducers("t", TOPIC_ID, number) for number in range(2))
    found, refused = (await put(broker, DescribeProducers(asked))).results
    assert (found.error, found.producers) == (ErrorCode.NONE, (ActiveProducer(7, 3, 1000, -1, 12),))
    assert (refused.topic_id, refused.partition_id, refused.error) == (TOPIC_ID, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(MalformedFrameError, match="without the producers of t-2"):
        await put(broker, DescribeProducers((*asked, AskedProducers("t", TOPIC_ID, 2))))


async def test_a_marker_is_written_and_refusals_are_told() -> None:
    codes = [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_PRODUCER_EPOCH)]
    partitions = [WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(*each) for each in codes]
    answer = WriteTxnMarkersResponse(
        [Result(7, [WriteTxnMarkersResponse.WritableTxnMarkerTopicResult("t", partitions)])]
    )
    broker = ScriptedBroker({WriteTxnMarkersRequest: answer})
    ((refusal,),) = (await put(broker, WriteMarkersRequest((MARKER,)))).refusals
    assert (refusal.topic, refusal.partition_id, refusal.error) == ("t", 1, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert isinstance(refusal, PartitionRefusal)
    (marker,) = broker.asked[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch) == (
        7,
        3,
        False,
        2,
    )
    assert [(each.name, each.partition_indexes) for each in marker.topics] == [("t", [0, 1])]


async def test_an_answer_that_leaves_out_a_marker_is_none() -> None:
    broker = ScriptedBroker({WriteTxnMarkersRequest: WriteTxnMarkersResponse([])})
    with pytest.raises(MalformedFrameError, match="without every marker"):
        await put(broker, WriteMarkersRequest((MARKER,)))
