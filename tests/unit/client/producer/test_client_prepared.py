"""Transactions that are prepared: what waits for a decision by somebody else, against a scripted coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import Producer
from replog.client.producer.transaction import PreparedTransaction
from replog.client.protocol.questions.transactions import BeginProducing, DecideTransaction
from replog.coordinator.transactions.requests import Incarnation, PrepareTransaction
from replog.errors import (
    ConcurrentTransactionsError,
    ErrorCode,
    InvalidRequestError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)

VERSIONS = pytest.mark.parametrize("version", [1, 2])


def make_cluster(version: int = 2) -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic("t", 1)
    cluster.transactions.version = version
    return cluster


def make(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), transactional_id="pay", **settings)


@VERSIONS
async def test_what_is_prepared_is_neither_committed_nor_aborted_here(version: int) -> None:
    cluster = make_cluster(version)
    transactions = cluster.transactions
    transactions.script[PrepareTransaction].extend([ConcurrentTransactionsError("scripted"), "lose"])
    async with make(cluster) as producer, producer.transaction() as txn:
        delivery = await producer.send("t", b"a")
        prepared = await txn.prepare()
        assert delivery.done()
        with pytest.raises(InvalidRequestError):
            await producer.send("t", b"b")
    assert isinstance(prepared, PreparedTransaction)
    assert Incarnation(prepared.producer_id, prepared.producer_epoch) == transactions.producers["pay"]
    assert prepared.transactional_id == "pay"
    assert len(transactions.asked_of(PrepareTransaction)) == 3
    assert transactions.decided == []
    assert transactions.asked_of(DecideTransaction) == []


async def test_nothing_is_prepared_where_nothing_was_sent() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer, producer.transaction() as txn:
        assert await txn.prepare() is None
    assert cluster.transactions.asked_of(PrepareTransaction) == []


async def test_the_next_transaction_takes_the_id_over_anew() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        async with producer.transaction() as txn:
            await producer.send("t", b"a")
            await txn.prepare()
        async with producer.transaction():
            await producer.send("t", b"b")
    assert len(cluster.transactions.asked_of(BeginProducing)) == 2
    assert cluster.transactions.decided == [False, True]  # whoever takes over aborts what is prepared
    assert cluster.transactions.committed("t") == [b"b"]


async def test_a_record_that_has_failed_lets_nothing_be_prepared() -> None:
    cluster = make_cluster()
    cluster.nodes[1].script.append(lambda *_: ErrorCode.MESSAGE_TOO_LARGE)
    async with make(cluster) as producer:
        transaction = producer.transaction()
        await transaction.__aenter__()
        delivery = await producer.send("t", b"a")
        with pytest.raises(TransactionAbortableError) as caught:
            await transaction.prepare()
        await transaction.__aexit__(TransactionAbortableError, caught.value, None)
        with pytest.raises(RecordTooLargeError):
            await delivery
    assert cluster.transactions.asked_of(PrepareTransaction) == []


async def test_a_time_out_that_came_first_is_told_and_nothing_is_left() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        transaction = producer.transaction()
        await transaction.__aenter__()
        await (await producer.send("t", b"a"))
        cluster.transactions.time_out("pay")
        with pytest.raises(ProducerFencedError) as caught:
            await transaction.prepare()
        await transaction.__aexit__(ProducerFencedError, caught.value, None)
    assert cluster.transactions.committed("t") == []
