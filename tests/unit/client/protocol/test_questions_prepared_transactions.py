"""Questions about prepared transactions, put to a broker that answers as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest
from answering_broker import ScriptedBroker

from replog.client.protocol.questions.table import question_of
from replog.client.protocol.questions.transactions import FEATURE, DecideTransaction, decide
from replog.client.protocol.transactions import OffersPreparing
from replog.coordinator.transactions.requests import Incarnation
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


async def test_kafkas_brokers_cannot_prepare() -> None:
    offers_preparing = question_of(OffersPreparing)
    assert offers_preparing is not None
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
