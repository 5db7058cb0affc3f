"""Producers and transactions as their coordinator has them: who may begin, go on, end, and who is fenced."""

from __future__ import annotations

import pytest
from transaction_kit import A0, A1, B0, SPARE, TIMEOUT_MS, Producer, TransactionHost, begun

from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import Incarnation
from replog.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)

BOTH = pytest.mark.parametrize("bumps", [False, True])
LAST = 32_766
"""The last epoch that a producer is told."""


@pytest.fixture
def host() -> TransactionHost:
    found = TransactionHost()
    found.lead()
    return found


# ---- producers -------------------------------------------------------------------------------------------------------


def test_the_first_producer_gets_the_spare_id_and_the_next_one_another_epoch(host: TransactionHost) -> None:
    assert host.ask(Producer().init()).producer == Incarnation(SPARE, 0)
    assert host.ask(Producer(spare=99).init(timeout_ms=1)).producer == Incarnation(SPARE, 1)
    first, second = host.written()
    assert first is not None
    assert second is not None
    assert (first.transaction_status, first.transaction_partitions, first.transaction_start_timestamp_ms) == (
        0,
        None,
        -1,
    )
    assert (first.transaction_timeout_ms, second.transaction_timeout_ms) == (TIMEOUT_MS, 1)


def test_a_producer_that_goes_on_gets_another_epoch_and_the_same_one_when_it_asks_again(host: TransactionHost) -> None:
    """KIP-360: the answer may be lost; whoever knows the epoch before has not been fenced."""
    producer = begun(host)
    assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)
    for _ in range(2):
        assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)
    host.change_leader()
    assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)


def test_whoever_was_fenced_does_not_come_back_with_what_it_knows(host: TransactionHost) -> None:
    fenced = begun(host)
    begun(host)
    assert host.error_of(fenced.init(knows=True)) is ProducerFencedError
    fenced.at = Incarnation(SPARE + 1, 1)
    assert host.error_of(fenced.init(knows=True)) is ProducerFencedError
    fenced.at = Incarnation(SPARE, -1)
    assert host.error_of(fenced.init(knows=True)) is ProducerFencedError


def test_without_tagged_fields_a_producer_that_asks_again_is_fenced(host: TransactionHost) -> None:
    """Docs: what a log of `transaction.version` 0 cannot hold, its coordinator does not know."""
    host.cluster.transaction_version = 0
    producer = begun(host, bumps=False)
    assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)
    assert host.error_of(producer.init(knows=True)) is ProducerFencedError


@pytest.mark.parametrize("knows", [False, True])
def test_a_producer_at_the_end_of_its_epochs_gets_another_id(host: TransactionHost, knows: bool) -> None:
    producer = begun(host, epoch=LAST)
    assert producer.at == Incarnation(SPARE, LAST)
    other = Incarnation(producer.spare, 0)
    assert host.ask(producer.init(knows=knows)).producer == other
    if knows:
        host.change_leader()
        assert host.ask(producer.init(knows=True)).producer == other
        assert host.ask(producer.init(knows=True)).producer == other
    producer.at = other
    assert host.ask(producer.init(knows=True)).producer == Incarnation(producer.spare, 1)


def test_one_epoch_before_the_end_is_asked_for_again(host: TransactionHost) -> None:
    producer = begun(host, epoch=LAST - 1)
    for _ in range(2):
        assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, LAST)
    producer.at = Incarnation(SPARE, LAST - 2)
    assert host.error_of(producer.init(knows=True)) is ProducerFencedError


@BOTH
@pytest.mark.parametrize("knows", [False, True])
def test_an_open_transaction_is_aborted_first(host: TransactionHost, bumps: bool, knows: bool) -> None:
    """The epoch in between is told to nobody, so nobody writes with it."""
    host.cluster.transaction_version = 2 if bumps else 1
    producer = begun(host, bumps=bumps)
    host.ask(producer.add())
    assert host.error_of(producer.init(knows=knows)) is ConcurrentTransactionsError
    assert host.status() is TransactionStatus.PREPARE_ABORT
    assert host.error_of(producer.init(knows=knows)) is ConcurrentTransactionsError
    (end,) = host.write_markers()
    assert (end.producer, end.is_commit, end.bumps_epochs) == (Incarnation(SPARE, 1), False, bumps)
    assert host.newest().last_producer_epoch == (0 if bumps else -1)
    if not knows:
        assert host.ask(producer.init()).producer == Incarnation(SPARE, 2)
    elif bumps:  # nobody else has had it
        assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)
    else:
        assert host.error_of(producer.init(knows=True)) is ProducerFencedError


def test_one_that_was_fenced_does_not_abort_the_transaction_of_its_successor(host: TransactionHost) -> None:
    """Docs: Kafka aborts it, and fences the successor with it."""
    producer = begun(host)
    successor = begun(host)
    host.ask(successor.add())
    assert host.error_of(producer.init(knows=True)) is ProducerFencedError
    assert host.status() is TransactionStatus.ONGOING
    assert host.ask(successor.commit()).producer == Incarnation(SPARE, 2)


@pytest.mark.parametrize("knows", [False, True])
def test_a_transaction_that_is_aborted_at_the_end_of_the_epochs(host: TransactionHost, knows: bool) -> None:
    """Docs: Kafka fails unexpectedly where the producer says what it knows."""
    producer = begun(host, epoch=LAST)
    host.ask(producer.add())
    assert host.error_of(producer.init(knows=knows)) is ConcurrentTransactionsError
    (end,) = host.write_markers()
    assert end.producer == Incarnation(SPARE, LAST + 1)
    hostile = Producer(at=end.producer)
    for request in (hostile.add(), hostile.abort(), hostile.commit()):
        assert host.error_of(request) is ProducerFencedError
    for _ in range(1 + knows):
        assert host.ask(producer.init(knows=knows)).producer == Incarnation(producer.spare, 0)


def test_a_time_out_at_the_end_of_the_epochs(host: TransactionHost) -> None:
    """Docs: Kafka tells the producer that repeats its abort an epoch with which it can do nothing."""
    producer = begun(host, epoch=LAST)
    host.ask(producer.add())
    assert host.error_of(Producer().init()) is ConcurrentTransactionsError
    host.write_markers()
    assert host.error_of(producer.commit()) is InvalidTxnStateError
    for _ in range(2):
        assert host.ask(producer.abort()).producer == Incarnation(producer.spare, 0)
    assert host.ask(producer.init(knows=True)).producer == Incarnation(producer.spare, 0)


# ---- partitions ------------------------------------------------------------------------------------------------------


@BOTH
def test_a_transaction_begins_with_its_first_partitions(host: TransactionHost, bumps: bool) -> None:
    producer = begun(host, bumps=bumps)
    host.now_ms = 5
    assert host.ask(producer.add(A0, B0, A0)).errors == (None, None, None)
    began_ms = host.describe().start_ms
    host.now_ms = 9
    host.ask(producer.add(A1, B0))
    told = host.describe()
    assert (told.status, told.start_ms, told.timeout_ms) == (TransactionStatus.ONGOING, began_ms, TIMEOUT_MS)
    assert told.partitions == (A0, A1, B0)
    assert told.producer == producer.at
    assert host.newest().client_transaction_version == (2 if bumps else 0)
    appended_count = len(host.log)
    host.ask(producer.add(A1, B0))
    assert len(host.log) == appended_count, "what is part of it already is written again"


@BOTH
def test_partitions_of_another_transaction_are_not_taken_over(host: TransactionHost, bumps: bool) -> None:
    producer = begun(host, bumps=bumps)
    host.ask(producer.add(A0))
    producer.at = host.ask(producer.commit()).producer
    host.write_markers()
    host.now_ms = 7
    host.ask(producer.add(B0))
    told = host.describe()
    assert told.partitions == (B0,)
    assert told.start_ms == host.newest().transaction_last_update_timestamp_ms


def test_who_may_not_add(host: TransactionHost) -> None:
    producer = begun(host)
    assert host.error_of(Producer(name="none").add()) is InvalidProducerIdMappingError
    assert host.error_of(Producer(name="").add()) is InvalidRequestError
    assert host.error_of(Producer(at=Incarnation(SPARE + 1, 0)).add()) is InvalidProducerIdMappingError
    for epoch in (1, -1):
        assert host.error_of(Producer(at=Incarnation(SPARE, epoch)).add()) is ProducerFencedError
    host.ask(producer.add())
    host.ask(producer.commit())
    for at in (Incarnation(SPARE, 1), Incarnation(SPARE, 0), Incarnation(SPARE + 1, 0)):
        assert host.error_of(Producer(at=at).add()) is ConcurrentTransactionsError


def test_verification_changes_nothing_and_tells_what_is_missing(host: TransactionHost) -> None:
    """KIP-890 part 1: the leader of a partition asks before it takes records of older producers."""
    producer = begun(host, bumps=False)
    host.ask(producer.add(A0))
    appended_count = len(host.log)
    first, second, third = host.ask(producer.verify(B0, A0, A1)).errors
    assert (type(first), second, type(third)) == (TransactionAbortableError, None, TransactionAbortableError)
    assert host.error_of(Producer(at=Incarnation(1, 0)).verify()) is InvalidProducerIdMappingError
    assert host.error_of(Producer(at=Incarnation(SPARE, 9)).verify()) is ProducerFencedError
    host.ask(producer.commit())
    assert host.error_of(producer.verify()) is ConcurrentTransactionsError
    assert host.error_of(Producer(at=Incarnation(1, 0)).verify()) is InvalidProducerIdMappingError
    host.write_markers()
    assert type(host.ask(producer.verify()).errors[0]) is TransactionAbortableError
    assert len(host.log) == appended_count + 2


# ---- ends ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_transaction_ends_when_its_partitions_have_their_marker(
    host: TransactionHost, bumps: bool, is_commit: bool
) -> None:
    producer = begun(host, bumps=bumps)
    host.ask(producer.add(A0, B0))
    after = host.ask(producer.commit() if is_commit else producer.abort()).producer
    assert after == Incarnation(SPARE, 1 if bumps else 0)
    assert host.status() is (TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT)
    (end,) = host.write_markers()
    assert (end.producer, end.is_commit, end.bumps_epochs, end.partitions) == (after, is_commit, bumps, (A0, B0))
    assert end.coordinator_epoch == host.epoch
    assert host.status() is (TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT)
    assert host.newest().transaction_partitions == []
    producer.at = after
    host.ask(producer.add())
    assert host.status() is TransactionStatus.ONGOING


NONE, AGAIN, ENDS = "none", "again", "ends"
ITS, PF, CT, MAPPING = (
    InvalidTxnStateError,
    ProducerFencedError,
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
)

KAFKAS_TABLE = {
    # what was before: (abort again, abort now, commit again, commit now), as TransactionCoordinator of Kafka 4.1.1 has it
    "empty": (PF, ENDS, PF, ITS),
    "aborted": (AGAIN, ENDS, ITS, ITS),
    "committed": (ITS, ENDS, AGAIN, ITS),
    "open": (PF, ENDS, PF, ENDS),
    "deciding": (CT, CT, CT, CT),
}


@pytest.mark.parametrize("before", KAFKAS_TABLE)
@pytest.mark.parametrize("case", range(4))
def test_who_may_end_with_bumped_epochs(host: TransactionHost, before: str, case: int) -> None:
    producer = begun(host)
    if before in {"aborted", "committed"}:
        host.ask(producer.add())
        producer.at = host.ask(producer.commit() if before == "committed" else producer.abort()).producer
        host.write_markers()
    elif before == "empty":
        producer = begun(host)
    else:
        producer = begun(host)
        host.ask(producer.add())
        if before == "deciding":
            producer.at = host.ask(producer.commit()).producer
    is_retry, now = case in {0, 2}, producer.at
    producer.at = Incarnation(SPARE, now.producer_epoch - 1) if is_retry else now
    request = producer.abort() if case < 2 else producer.commit()
    expected = KAFKAS_TABLE[before][case]
    appended_count = len(host.log)
    if expected == AGAIN:
        assert host.ask(request).producer == now
    elif expected == ENDS:
        assert host.ask(request).producer == Incarnation(SPARE, now.producer_epoch + 1)
    else:
        assert host.error_of(request) is expected
    assert len(host.log) - appended_count == (0 if expected != ENDS else 1 if before == "open" else 2)


@pytest.mark.parametrize(
    ("before", "abort", "commit"),
    [
        ("empty", ITS, ITS),
        ("aborted", AGAIN, ITS),
        ("committed", ITS, AGAIN),
        ("open", ENDS, ENDS),
        ("deciding", CT, CT),
    ],
)
@pytest.mark.parametrize("is_commit", [False, True])
def test_who_may_end_without_bumped_epochs(
    host: TransactionHost, before: str, abort: object, commit: object, is_commit: bool
) -> None:
    host.cluster.transaction_version = 1
    producer = begun(host, bumps=False)
    if before != "empty":
        host.ask(producer.add())
    if before in {"aborted", "committed", "deciding"}:
        host.ask(producer.abort() if before == "aborted" else producer.commit())
    if before in {"aborted", "committed"}:
        host.write_markers()
    expected, request = (commit, producer.commit()) if is_commit else (abort, producer.abort())
    if expected in {AGAIN, ENDS}:
        assert host.ask(request).producer == producer.at
    else:
        assert host.error_of(request) is expected
    producer.at = Incarnation(SPARE, 1)
    assert host.error_of(producer.commit() if is_commit else producer.abort()) is PF
    producer.at = Incarnation(SPARE + 1, 0)
    assert host.error_of(producer.commit() if is_commit else producer.abort()) is MAPPING


@pytest.mark.parametrize("moves", [False, True])
def test_an_end_with_the_last_epoch_gives_another_producer_id(host: TransactionHost, moves: bool) -> None:
    """Docs: the log keeps the next id, so that a coordinator that has just begun knows it, too; Kafka's does not."""
    producer = begun(host, epoch=LAST)
    host.ask(producer.add())
    after = host.ask(producer.commit()).producer
    assert after == Incarnation(producer.spare, 0)
    if moves:
        host.change_leader()
    successor = Producer(at=after)
    assert host.error_of(successor.add()) is ConcurrentTransactionsError
    (end,) = host.write_markers()
    assert end.producer == Incarnation(SPARE, LAST + 1)
    if moves:
        host.change_leader()
    assert host.ask(producer.commit()).producer == after
    assert host.error_of(producer.abort()) is InvalidTxnStateError
    assert host.ask(producer.init(knows=True)).producer == after
    host.ask(successor.add())
    assert host.error_of(producer.commit()) is InvalidProducerIdMappingError
    assert host.ask(successor.commit()).producer == Incarnation(producer.spare, 1)


def test_an_abort_of_nothing_with_the_last_epoch(host: TransactionHost) -> None:
    producer = begun(host, epoch=LAST)
    assert host.ask(producer.abort()).producer == Incarnation(producer.spare, 0)
    assert host.status() is TransactionStatus.COMPLETE_ABORT
    assert host.ask(producer.abort()).producer == Incarnation(producer.spare, 0)


def test_the_versions_of_records(host: TransactionHost) -> None:
    """What bumps epochs is written with all that it needs, whatever the cluster says meanwhile."""
    for transaction_version, bumps, expected in ((0, False, 0), (1, False, 1), (2, True, 1), (0, True, 1)):
        host.cluster.transaction_version = transaction_version
        producer = begun(host, bumps=bumps, name=f"{transaction_version}{bumps}")
        host.ask(producer.add())
        assert host.log[-1][1][:2] == bytes((0, expected))
        host.ask(producer.commit())
        assert host.log[-1][1][:2] == bytes((0, expected))
        host.write_markers()
        host.change_leader()
        assert host.status(producer.name) is TransactionStatus.COMPLETE_COMMIT
