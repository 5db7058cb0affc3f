"""Partitions that come while the last transaction of their producer is being ended, and may wait for that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from transaction_kit import A1, B0, Producer, TransactionHost, begun

from replog.coordinator.runtime.messages import Paused, Resigned, Resumed
from replog.coordinator.transactions import held
from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import AddPartitions, Incarnation, TransactionPartition
from replog.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProducerFencedError,
)

WAIT_MS = 400


@pytest.fixture
def host() -> TransactionHost:
    found = TransactionHost()
    found.lead()
    return found


def waiting(producer: Producer, *partitions: TransactionPartition) -> AddPartitions:
    return replace(producer.add(*partitions), wait_ms=WAIT_MS)


def ending(host: TransactionHost) -> Producer:
    """A producer whose transaction is decided, with what it writes with from now on."""
    producer = begun(host)
    host.ask(producer.add())
    producer.at = host.ask(producer.commit()).producer
    return producer


def test_they_become_part_of_the_next_one_when_the_last_is_complete(host: TransactionHost) -> None:
    producer = ending(host)
    requests = [host.submit(waiting(producer, each)) for each in (A1, B0)]
    host.commit()
    assert not host.answers.keys() & set(requests)
    host.write_markers()
    host.commit()
    assert [host.response(each).errors for each in requests] == [(None,), (None,)]
    found = host.describe()
    assert (found.status, set(found.partitions)) == (TransactionStatus.ONGOING, {A1, B0})


def test_they_wait_no_longer_than_they_may(host: TransactionHost) -> None:
    request = host.submit(waiting(ending(host)))
    host.pass_time(WAIT_MS - 1)
    assert request not in host.answers
    host.pass_time(1)
    with pytest.raises(ConcurrentTransactionsError):
        host.response(request)
    host.write_markers()
    assert host.status() is TransactionStatus.COMPLETE_COMMIT


def test_who_is_refused_then_hears_it(host: TransactionHost) -> None:
    producer = ending(host)
    request = host.submit(waiting(replace(producer, at=Incarnation(producer.at.producer_id, 0))))
    host.write_markers()
    host.commit()
    with pytest.raises(ProducerFencedError):
        host.response(request)


def test_a_transaction_without_partitions_lets_them_go_on_too(host: TransactionHost) -> None:
    producer = begun(host)
    producer.at = host.ask(producer.abort()).producer
    host.ask(waiting(producer))
    assert host.status() is TransactionStatus.ONGOING


def test_no_more_wait_than_may(host: TransactionHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 1)
    producer = ending(host)
    request = host.submit(waiting(producer))
    assert host.error_of(waiting(producer)) is ConcurrentTransactionsError
    host.write_markers()
    host.commit()
    assert host.response(request).errors == (None,)


def test_they_ask_again_where_the_node_may_not_serve_or_another_one_does(host: TransactionHost) -> None:
    producer = ending(host)
    request = host.submit(waiting(producer))
    host.step(Paused(host.now_ms))
    with pytest.raises(CoordinatorNotAvailableError):
        host.response(request)
    host.step(Resumed())
    request = host.submit(waiting(producer))
    host.step(Resigned())
    with pytest.raises(NotCoordinatorError):
        host.response(request)
