"""`Admin` and transactions: who is asked, which transactions hang, and what aborts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from replog.client import Admin, HangingTransaction, TopicPartition, TransactionDetails, TransactionListing
from replog.client.admin.transactions import SILENT_MS
from replog.client.protocol.questions.transactions import BeginProducing, Producing
from replog.client.protocol.transactions import (
    ActiveProducer,
    DescribedProducers,
    DescribeProducers,
    DescribeTransactionalId,
    ListTransactionalIds,
    ProducersOfPartition,
)
from replog.coordinator.transactions.requests import Incarnation
from replog.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    RequestTimedOutError,
    TransactionalIdNotFoundError,
)
from replog.rpc.transaction_messages import PartitionRefusal, WriteMarkersRequest, WriteMarkersResponse
from replog.rpc.transport import ConnectionLostError

LONG_AGO = 1_000
PAY = TransactionDetails("pay", "Ongoing", 7, 3, 500, LONG_AGO, (TopicPartition("t", 0),))


class Brokers:
    """What brokers know: transactional ids at broker 2, and producers of partitions at their leaders.

    Attributes:
        markers: The markers that leaders have written: each ends what is open of its producer.
        asked: The requests.
        errors: The errors to raise, once each, by the class of the request.
        loses: Whether the answer to the first marker is lost.
    """

    def __init__(
        self, ids: Mapping[str, TransactionDetails], producers: Mapping[int, tuple[ActiveProducer, ...]]
    ) -> None:
        self.ids = dict(ids)
        self.producers = dict(producers)
        self.markers: list[Any] = []
        self.asked: list[Any] = []
        self.errors: dict[type, Exception] = {}
        self.loses = False

    def __call__(self, node_id: int, request: Any) -> Any:
        self.asked.append(request)
        if type(request) in self.errors:
            return self.errors.pop(type(request))
        match request:
            case ListTransactionalIds():
                wanted = request.producer_ids
                found = [one for one in self.ids.values() if not wanted or one.producer_id in wanted]
                told = [TransactionListing(one.transactional_id, one.producer_id, one.state) for one in found]
                return tuple(told) if node_id == 2 else ()
            case DescribeTransactionalId(name):
                assert node_id == 2
                return self.ids.get(name) or TransactionalIdNotFoundError("scripted: none")
            case BeginProducing():
                return Producing(Incarnation(7, 4), 2)
            case DescribeProducers(partitions):
                return DescribedProducers(
                    tuple(
                        ProducersOfPartition(
                            one.topic_id, one.partition_id, ErrorCode.NONE, "", self.producers.get(one.partition_id, ())
                        )
                        for one in partitions
                    )
                )
            case WriteMarkersRequest(markers):
                return self._written(markers)
        return None

    def _written(self, markers: Any) -> Any:
        self.markers += markers
        for marker in markers:
            for number in marker.topics[0].partition_ids:
                ended = (
                    replace(one, first_offset=-1) if one.producer_id == marker.producer_id else one
                    for one in self.producers[number]
                )
                self.producers[number] = tuple(ended)
        return ConnectionLostError("scripted: no answer") if self.loses else WriteMarkersResponse(((),))


def silent(producer_id: int, first_offset: int, last_ms: int = LONG_AGO) -> ActiveProducer:
    return ActiveProducer(producer_id, 3, last_ms, -1, first_offset)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


Answering = Callable[[Any], Admin]


async def test_every_broker_lists_and_one_that_loads_is_waited_for(answering: Answering) -> None:
    brokers = Brokers({"pay": PAY, "bill": replace(PAY, transactional_id="bill", producer_id=8)}, {})
    brokers.errors[ListTransactionalIds] = CoordinatorLoadInProgressError("scripted: not yet")
    async with answering(brokers) as admin:
        found = await admin.list_transactions(states=[" ongoing"], open_longer_than_ms=5, pattern=".*")
    assert found == (TransactionListing("bill", 8, "Ongoing", 2), TransactionListing("pay", 7, "Ongoing", 2))
    assert brokers.asked[-1] == ListTransactionalIds(("Ongoing",), (), 5, ".*")


async def test_a_list_that_lacks_those_of_a_broker_is_none(answering: Answering) -> None:
    def answer(node_id: int, _request: Any) -> Any:
        return ConnectionLostError("broker 1 is cut off") if node_id == 1 else ()

    async with answering(answer) as admin:
        with pytest.raises(RequestTimedOutError, match="broker 1 is cut off"):
            await admin.list_transactions(timeout_ms=300)
        with pytest.raises(InvalidRequestError, match="no transaction has the state 'open'; there are: Empty, Ongoing"):
            await admin.list_transactions(states=["open"])


async def test_descriptions_name_the_coordinator(answering: Answering) -> None:
    async with answering(Brokers({"pay": PAY}, {})) as admin:
        assert await admin.describe_transactions(["pay"]) == {"pay": replace(PAY, coordinator_id=2)}
        with pytest.raises(TransactionalIdNotFoundError, match=r"no transactional id \"x\".*replog transactions list"):
            await admin.describe_transactions(["pay", "x"])


async def test_a_transaction_hangs_where_no_coordinator_knows_of_it(answering: Answering) -> None:
    """Known: producer 7 in t-0.  Unknown: producer 7 in t-1, which "pay" has not, and producer 9, which has no transactional id."""
    producers = {
        0: (silent(7, 10), silent(8, -1)),
        1: (silent(7, 20), silent(9, 30), silent(10, 40, now_ms() - SILENT_MS // 2)),
    }
    async with answering(Brokers({"pay": PAY}, producers)) as admin:
        found = await admin.find_hanging_transactions()
        assert [(one.partition, one.producer_id, one.first_offset, one.transactional_id) for one in found] == [
            (1, 7, 20, "pay"),
            (1, 9, 30, ""),
        ]
        assert min(one.silent_ms for one in found) > SILENT_MS
        assert [one.producer_id for one in await admin.find_hanging_transactions([("t", 1)], silent_for_ms=0)] == [
            7,
            9,
            10,
        ]
        assert await admin.find_hanging_transactions([("t", 0)]) == ()
        assert await admin.find_hanging_transactions([]) == ()


async def test_another_producer_of_the_transactional_id_does_not_know_of_it(answering: Answering) -> None:
    brokers = Brokers({"pay": PAY}, {0: (silent(7, 10),)})
    brokers.ids["pay"] = replace(PAY, producer_id=99)
    async with answering(brokers) as admin:
        assert len(await admin.find_hanging_transactions()) == 1


async def test_one_that_has_ended_meanwhile_does_not_hang(answering: Answering) -> None:
    brokers = Brokers({}, {0: (silent(7, 10),)})

    def answer(node_id: int, request: Any) -> Any:
        if isinstance(request, ListTransactionalIds):
            brokers.producers.clear()  # its marker comes now
        return brokers(node_id, request)

    async with answering(answer) as admin:
        assert await admin.find_hanging_transactions() == ()


async def test_a_transactional_id_is_taken_over(answering: Answering) -> None:
    brokers = Brokers({"pay": PAY}, {})
    brokers.errors[BeginProducing] = ConcurrentTransactionsError("scripted: its markers are being written")
    async with answering(brokers) as admin:
        assert (await admin.abort_transaction("pay")).partitions == PAY.partitions
    assert [one for one in brokers.asked if isinstance(one, BeginProducing)] == [BeginProducing("pay", 500)] * 2


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("Empty", "has no transaction open .*its producer goes on"),
        ("CompleteCommit", "has no transaction open"),
        ("PrepareCommit", r"is being committed.*left: t-0.*`replog status`"),
        ("PrepareAbort", "is being aborted"),
    ],
)
async def test_who_has_nothing_open_is_not_fenced(answering: Answering, state: str, text: str) -> None:
    brokers = Brokers({"pay": replace(PAY, state=state)}, {})
    async with answering(brokers) as admin:
        with pytest.raises(InvalidTxnStateError, match=text):
            await admin.abort_transaction("pay")
        with pytest.raises(TransactionalIdNotFoundError):  # taking it over would make it
            await admin.abort_transaction("x")
    assert not any(isinstance(one, BeginProducing) for one in brokers.asked)


@pytest.mark.parametrize("loses", [False, True])
async def test_a_hanging_transaction_gets_one_marker(answering: Answering, loses: bool) -> None:
    brokers = Brokers({}, {0: (silent(7, 10), silent(8, 5))})
    brokers.loses = loses
    async with answering(brokers) as admin:
        found = await admin.abort_hanging_transaction(("t", 0), 10)
    assert isinstance(found, HangingTransaction)
    (marker,) = brokers.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.is_commit) == (7, 3, 0, False)
    assert [one.first_offset for one in brokers.producers[0]] == [-1, 5]


async def test_no_marker_is_written_where_nothing_hangs(answering: Answering) -> None:
    brokers = Brokers({"pay": PAY}, {0: (silent(7, 10),)})
    async with answering(brokers) as admin:
        with pytest.raises(InvalidTxnStateError, match="transactional id 'pay' has it open"):
            await admin.abort_hanging_transaction(("t", 0), 10)
        with pytest.raises(InvalidRequestError, match="t-0 has no open transaction that begins at offset 11"):
            await admin.abort_hanging_transaction(("t", 0), 11)
    assert brokers.markers == []


async def test_a_leader_that_refuses_the_marker_says_why(answering: Answering) -> None:
    brokers = Brokers({}, {0: (silent(7, 10),)})

    def answer(node_id: int, request: Any) -> Any:
        if isinstance(request, WriteMarkersRequest):
            return WriteMarkersResponse(((PartitionRefusal("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH),),))
        return brokers(node_id, request)

    async with answering(answer) as admin:
        with pytest.raises(InvalidProducerEpochError, match="t-0: another incarnation of the producer"):
            await admin.abort_hanging_transaction(("t", 0), 10)
