"""Questions of a producer with a transactional id, put to a broker that answers as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest
from answering_broker import ScriptedBroker

from replog.client.protocol.questions.group_members import TRANSACTION, FindCoordinator
from replog.client.protocol.questions.table import question_of
from replog.client.protocol.questions.transactions import (
    FEATURE,
    AddGroupToTransaction,
    AddToTransaction,
    BeginProducing,
    CommitInTransaction,
    DecideTransaction,
    Producing,
)
from replog.client.types import TopicPartition
from replog.coordinator.offsets.requests import NO_TOPIC_ID, OffsetToCommit, TopicToCommit
from replog.coordinator.transactions.requests import Incarnation
from replog.errors import (
    ConcurrentTransactionsError,
    ErrorCode,
    IllegalGenerationError,
    InvalidProducerEpochError,
    MalformedFrameError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

US = Incarnation(7, 3)


class KafkasBroker(ScriptedBroker):
    """Gives one answer, whatever is asked; requests of less versions are read as Kafka's own."""

    def __init__(self, told: Any, newest: int = 99) -> None:
        super().__init__()
        self._told = told
        self._newest = newest

    async def version(self, request: Any) -> int:
        return int(min(self._newest, request.VERSIONS[-1]))

    def kind_of(self, request: Any) -> Any:
        return next(kind for kind in type(request).__mro__ if kind.__module__.startswith("replog.wire.messages"))

    async def answer(self, request: Any, _version: int) -> Any:
        return self._told


async def put(broker: ScriptedBroker, question: Any) -> Any:
    asked = question_of(type(question))
    assert asked is not None
    return await asked(broker, question, 1000)


@pytest.mark.parametrize("newest", [2, 3, 5])
async def test_a_producer_that_goes_on_says_what_it_knows(newest: int) -> None:
    broker = KafkasBroker(InitProducerIdResponse(producer_id=7, producer_epoch=4), newest)
    broker.features = {FEATURE: 2}
    assert await put(broker, BeginProducing("pay", 9000, US)) == Producing(Incarnation(7, 4), 2)
    known = (7, 3) if newest >= 3 else (-1, -1)
    (request,) = broker.asked
    assert request == InitProducerIdRequest("pay", 9000, *known)


async def test_a_broker_that_tells_of_no_feature_is_of_version_0() -> None:
    broker = KafkasBroker(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    assert (await put(broker, BeginProducing("pay", 9000))).transaction_version == 0


async def test_a_fenced_producer_is_told_what_to_do() -> None:
    broker = KafkasBroker(InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED))
    with pytest.raises(ProducerFencedError, match=r"another producer has taken over.*Close this producer"):
        await put(broker, BeginProducing("pay", 9000, US))


def added(*codes: int) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(number, code) for number, code in enumerate(codes)
    ]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult("t", results)]
    )


ADD = AddToTransaction("pay", US, (TopicPartition("t", 0), TopicPartition("t", 1)))


async def test_partitions_are_added_by_the_version_for_clients() -> None:
    broker = KafkasBroker(added(0, 0))
    await put(broker, ADD)
    (request,) = broker.asked
    assert request.v3_and_below_transactional_id == "pay"
    assert request.v3_and_below_topics == [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0, 1])]


async def test_why_partitions_are_not_added_is_what_one_of_them_says() -> None:
    broker = KafkasBroker(added(ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.CONCURRENT_TRANSACTIONS))
    with pytest.raises(ConcurrentTransactionsError, match="'pay': the last transaction"):
        await put(broker, ADD)


async def test_an_answer_without_a_partition_is_none() -> None:
    with pytest.raises(MalformedFrameError, match="t-1"):
        await put(KafkasBroker(added(0)), ADD)


async def test_a_group_is_added() -> None:
    broker = KafkasBroker(AddOffsetsToTxnResponse())
    await put(broker, AddGroupToTransaction("pay", US, "g"))
    assert broker.asked == [AddOffsetsToTxnRequest("pay", 7, 3, "g")]


def committing(transaction_version: int, member: str = "m") -> CommitInTransaction:
    topics = (TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 11, 5),)),)
    return CommitInTransaction("pay", US, "g", member, 4, None, topics, transaction_version)


def committed(code: int) -> TxnOffsetCommitResponse:
    partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(0, code)
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic("t", [partition])])


@pytest.mark.parametrize(("level", "version"), [(0, 4), (1, 4), (2, 5)])
async def test_offsets_are_committed_for_a_member(level: int, version: int) -> None:
    """Version 5 makes the group part of the transaction, which is wrong where the producer has done so."""

    class Watching(KafkasBroker):
        async def answer(self, request: Any, used: int) -> Any:
            assert used == version
            return await super().answer(request, used)

    broker = Watching(committed(0))
    await put(broker, committing(level))
    (request,) = broker.asked
    assert (request.generation_id, request.member_id) == (4, "m")
    offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 11, 5, "")
    assert request.topics == [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [offset])]


async def test_a_member_that_was_put_out_is_refused() -> None:
    with pytest.raises(IllegalGenerationError, match="another generation"):
        await put(KafkasBroker(committed(ErrorCode.ILLEGAL_GENERATION)), committing(2))


async def test_a_broker_that_cannot_refuse_a_member_is_not_asked() -> None:
    broker = KafkasBroker(committed(0), newest=2)
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5"):
        await put(broker, committing(0))
    assert broker.asked == []
    await put(broker, committing(0, member=""))


@pytest.mark.parametrize(("level", "newest", "after"), [(1, 99, US), (2, 99, Incarnation(7, 4)), (2, 4, US)])
async def test_the_end_of_a_transaction_tells_the_next_epoch(level: int, newest: int, after: Incarnation) -> None:
    broker = KafkasBroker(EndTxnResponse(producer_id=7, producer_epoch=4), newest)
    assert await put(broker, DecideTransaction("pay", US, is_commit=True, transaction_version=level)) == after
    assert broker.asked == [EndTxnRequest("pay", 7, 3, committed=True)]


async def test_a_refused_end_says_which_end() -> None:
    broker = KafkasBroker(EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH))
    with pytest.raises(InvalidProducerEpochError, match=r"to abort the transaction of 'pay'.*time-out"):
        await put(broker, DecideTransaction("pay", US, is_commit=False, transaction_version=2))


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
async def test_the_coordinator_of_transactions_is_another_one(version: int) -> None:
    found = FindCoordinatorResponse(node_id=5, coordinators=[FindCoordinatorResponse.Coordinator("pay", 5)])
    broker = KafkasBroker(found, version)
    assert await put(broker, FindCoordinator("pay", TRANSACTION)) == 5
    (request,) = broker.asked
    assert isinstance(request, FindCoordinatorRequest)
    assert request.key_type == (TRANSACTION if version else 0)
