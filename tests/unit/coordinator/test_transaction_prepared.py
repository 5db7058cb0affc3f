"""Transactions that are prepared: no time-out ends them, their producer, its successor and operators do."""

from __future__ import annotations

import pytest
from transaction_kit import A0, SPARE, TIMEOUT_MS, Producer, TransactionHost, begun

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import ForgetTransactionalId, Incarnation, PrepareTransaction
from replog.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)

BOTH = pytest.mark.parametrize("bumps", [False, True])
NEVER_MS = 2**31 - 1


@pytest.fixture
def host() -> TransactionHost:
    found = TransactionHost()
    found.lead()
    return found


def prepare(producer: Producer) -> PrepareTransaction:
    return PrepareTransaction(producer.name, producer.at)


@BOTH
def test_no_time_out_ends_what_is_prepared_and_its_producer_does(host: TransactionHost, bumps: bool) -> None:
    producer = begun(host, bumps=bumps)
    host.ask(producer.add())
    host.ask(prepare(producer))
    records_count = len(host.log)
    host.ask(prepare(producer))
    assert len(host.log) == records_count
    assert host.newest().transaction_timeout_ms == NEVER_MS
    host.pass_time(TIMEOUT_MS * 1_000)
    host.change_leader()
    host.pass_time(TIMEOUT_MS * 1_000)
    assert host.status() is TransactionStatus.ONGOING
    for _ in range(2):
        host.ask(producer.commit())
        host.write_markers()
        assert host.status() is TransactionStatus.COMPLETE_COMMIT


@BOTH
def test_the_transaction_after_one_that_was_prepared_has_a_time_out(bumps: bool) -> None:
    host = TransactionHost(TransactionsConfig(max_timeout_ms=TIMEOUT_MS * 2))
    host.lead()
    producer = begun(host, bumps=bumps)
    host.ask(producer.add())
    host.ask(prepare(producer))
    producer.at = host.ask(producer.commit()).producer
    host.write_markers()
    host.ask(producer.add())
    assert host.newest().transaction_timeout_ms == TIMEOUT_MS * 2
    host.pass_time(TIMEOUT_MS * 3)
    host.write_markers()
    assert host.status() is TransactionStatus.COMPLETE_ABORT


def test_whoever_takes_over_aborts_what_is_prepared(host: TransactionHost) -> None:
    producer = begun(host)
    host.ask(producer.add())
    host.ask(prepare(producer))
    assert host.error_of(Producer().init()) is ConcurrentTransactionsError
    host.write_markers()
    assert host.status() is TransactionStatus.COMPLETE_ABORT
    assert host.error_of(producer.commit()) is InvalidTxnStateError
    assert host.error_of(prepare(producer)) is ProducerFencedError


def test_what_cannot_be_prepared(host: TransactionHost) -> None:
    assert host.error_of(PrepareTransaction("nobody", Incarnation(SPARE, 0))) is InvalidProducerIdMappingError
    producer = begun(host)
    assert host.error_of(prepare(producer)) is InvalidTxnStateError
    host.ask(producer.add())
    assert host.error_of(PrepareTransaction("etl", Incarnation(SPARE + 9, 0))) is InvalidProducerIdMappingError
    host.pass_time(TIMEOUT_MS * 2)
    assert host.error_of(prepare(producer)) is ProducerFencedError


def test_a_transactional_id_is_forgotten_once_it_has_no_transaction(host: TransactionHost) -> None:
    forget = ForgetTransactionalId("etl")
    host.ask(forget)
    assert host.log == []
    producer = begun(host)
    host.ask(producer.add(A0))
    assert host.error_of(forget) is InvalidTxnStateError
    host.ask(producer.commit())
    assert host.error_of(forget) is ConcurrentTransactionsError
    host.write_markers()
    host.ask(forget)
    assert host.written()[-1] is None
    host.change_leader()
    assert host.error_of(producer.add()) is InvalidProducerIdMappingError
    host.ask(forget)
