"""Questions about many transactions, put to a broker that answers as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest
from answering_broker import ScriptedBroker

from replog.client.protocol.questions.table import question_of
from replog.client.protocol.questions.transaction_lists import OffersPreparing, list_transactions, offers_preparing
from replog.client.protocol.questions.transactions import FEATURE, DecideTransaction, decide
from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import Incarnation, ListedTransaction, ListTransactions
from replog.errors import CoordinatorLoadInProgressError, ErrorCode, UnsupportedVersionError
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_State = ListTransactionsResponse.TransactionState


def broker_with(answer: ListTransactionsResponse, newest: int = 2) -> ScriptedBroker:
    return ScriptedBroker({ListTransactionsRequest: answer}, {ListTransactionsRequest: newest})


async def test_the_transactional_ids_of_a_broker() -> None:
    states = [_State("a", 7, "Ongoing"), _State("b", 8, "PrepareCommit"), _State("c", 9, "Elsewhere")]
    broker = broker_with(ListTransactionsResponse(transaction_states=states))
    wanted = ListTransactions(
        frozenset({TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT}), frozenset({7}), 5, "a.*"
    )
    assert question_of(ListTransactions) is list_transactions
    found = await list_transactions(broker, wanted, 1_000)
    assert found.transactions == (
        ListedTransaction("a", 7, TransactionStatus.ONGOING),
        ListedTransaction("b", 8, TransactionStatus.PREPARE_COMMIT),
    )
    (asked,) = broker.asked
    assert (asked.state_filters, asked.producer_id_filters) == (["Ongoing", "PrepareCommit"], [7])
    assert (asked.duration_filter, asked.transactional_id_pattern) == (5, "a.*")


@pytest.mark.parametrize(
    ("newest", "wanted", "reason"),
    [
        (0, ListTransactions(open_longer_than_ms=5), "how long a transaction has been open"),
        (1, ListTransactions(pattern="a"), "names"),
    ],
)
async def test_what_an_older_broker_cannot_look_for_is_not_asked(
    newest: int, wanted: ListTransactions, reason: str
) -> None:
    broker = broker_with(ListTransactionsResponse(), newest)
    with pytest.raises(UnsupportedVersionError, match=reason):
        await list_transactions(broker, wanted, 1_000)
    assert broker.asked == []
    await list_transactions(broker, ListTransactions(), 1_000)


async def test_a_broker_that_cannot_tell_says_so() -> None:
    broker = broker_with(ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    with pytest.raises(CoordinatorLoadInProgressError):
        await list_transactions(broker, ListTransactions(), 1_000)


async def test_kafkas_brokers_cannot_prepare() -> None:
    assert not await offers_preparing(ScriptedBroker(), OffersPreparing(), 1_000)


class EndingBroker(ScriptedBroker):
    """Ends each transaction, at a level of `transaction.version`."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.features[FEATURE] = level

    def kind_of(self, _request: Any) -> Any:
        return EndTxnRequest

    async def answer(self, _request: Any, _version: int) -> EndTxnResponse:
        return EndTxnResponse(producer_id=7, producer_epoch=4)


@pytest.mark.parametrize(("level", "after"), [(1, Incarnation(7, 3)), (2, Incarnation(7, 4))])
async def test_whoever_decides_for_others_goes_by_the_level_that_the_cluster_is_at(
    level: int, after: Incarnation
) -> None:
    question = DecideTransaction("a", Incarnation(7, 3), is_commit=True, transaction_version=None)
    assert await decide(EndingBroker(level), question, 1_000) == after
