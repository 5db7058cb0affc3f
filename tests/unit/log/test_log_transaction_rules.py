"""What a leader's log takes of a transactional producer, and of those who end its transactions (KIP-98, KIP-890)."""

from __future__ import annotations

import pytest
from log_test_kit import T0, open_log

from replog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from replog.log import Log, LogConfig
from replog.log.producers.guards import GUARDS_MAX, TransactionGuard, TransactionGuards
from replog.log.producers.state import TransactionMarker
from replog.records import encode_batch, encode_end_transaction_marker, parse_header
from replog.testing.simulated_filesystem import SimulatedFileSystem


def data(sequence: int, *, epoch: int = 0, is_transactional: bool = True) -> bytes:
    return encode_batch(
        [(T0, None, b"v", ())],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def marker(*, epoch: int = 0, coordinator_epoch: int = 9, commit: bool = True) -> bytes:
    return encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=T0,
        producer_id=7,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=commit,
    )


def write(log: Log, *batches: bytes) -> None:
    for one in batches:
        log.append_as_leader(one, leader_epoch=0, now_ms=T0)


def opened() -> Log:
    return open_log(SimulatedFileSystem(), config=LogConfig())


def guard(log: Log, sequence: int, *, epoch: int = 0, bumps_epochs: bool = False) -> TransactionGuard:
    header = parse_header(data(sequence, epoch=epoch))
    return log.producers.guards.begin(header, bumps_epochs=bumps_epochs, now_ms=T0)


def test_a_producer_writes_nothing_beside_its_open_transaction() -> None:
    log = opened()
    write(log, data(0))
    with pytest.raises(InvalidTxnStateError, match="end the transaction first"):
        write(log, data(1, is_transactional=False))
    write(log, data(1), marker(), data(2, is_transactional=False))
    assert log.last_stable_offset(4) == 4


def test_a_marker_of_an_earlier_epoch_or_coordinator_is_refused() -> None:
    log = opened()
    write(log, data(0, epoch=3), marker(epoch=3, coordinator_epoch=9), data(1, epoch=3))
    with pytest.raises(InvalidProducerEpochError, match="earlier transaction"):
        write(log, marker(epoch=2))
    with pytest.raises(TransactionCoordinatorFencedError, match="must stop"):
        write(log, marker(epoch=3, coordinator_epoch=8))
    write(log, marker(epoch=3, coordinator_epoch=9))
    assert log.producers.first_unstable_offset(log.log_end_offset) is None


def test_where_epochs_are_bumped_a_late_marker_does_not_end_the_next_transaction() -> None:
    log = opened()
    write(log, data(0), marker(epoch=1))
    again = TransactionMarker(7, 1, 9, T0, 0, is_commit=True)
    log.producers.check_marker(again, bumps_epochs=True)  # harmless: nothing is open
    write(log, data(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        log.producers.check_marker(again, bumps_epochs=True)
    log.producers.check_marker(again)  # `transaction.version` 0 and 1 cannot tell the two apart


def test_a_marker_with_a_bumped_epoch_fences_late_records() -> None:
    log = opened()
    write(log, data(0), marker(epoch=1, commit=False))
    with pytest.raises(InvalidProducerEpochError):
        write(log, data(1))
    with pytest.raises(OutOfOrderSequenceError):
        write(log, data(1, epoch=1))
    write(log, data(0, epoch=1))


def test_batches_of_coordinators_have_no_sequences() -> None:
    log = opened()
    write(log, data(-1), data(-1))
    with pytest.raises(InvalidProducerEpochError):
        write(log, marker(epoch=4), data(-1, epoch=3))
    assert log.log_end_offset == 3


def test_nothing_is_appended_before_the_first_batch_that_waits_for_an_answer() -> None:
    """Batch 0 failed with an error that is tried again; batch 1 must not make it one that can never be appended."""
    log = opened()
    guard(log, 0)
    guard(log, 1)
    with pytest.raises(OutOfOrderSequenceError):
        write(log, data(1))
    write(log, data(0), data(1))
    assert not log.producers.guards


def test_where_epochs_are_bumped_an_unknown_producer_begins_at_the_first_sequence() -> None:
    log = opened()
    guard(log, 4)
    write(log, data(4), marker())  # its earlier batches may have been deleted
    other = opened()
    guard(other, 4, bumps_epochs=True)
    with pytest.raises(OutOfOrderSequenceError):
        write(other, data(4))


def test_a_marker_takes_the_guard_of_its_transaction_but_not_that_of_the_next() -> None:
    log = opened()
    of_first = guard(log, 0)
    write(log, marker(commit=False))
    assert log.producers.guards.get(7) is None
    assert guard(log, 0) is not of_first
    of_next = guard(log, 0, epoch=1, bumps_epochs=True)
    write(log, marker(epoch=1, commit=False))
    assert log.producers.guards.get(7) is of_next
    write(log, marker(epoch=2, commit=False))
    assert log.producers.guards.get(7) is None


def test_guards_are_bounded_and_expire() -> None:
    guards = TransactionGuards()
    headers = [parse_header(data(0))._replace(producer_id=number) for number in range(GUARDS_MAX + 1)]
    for header in headers:
        guards.begin(header, bumps_epochs=False, now_ms=T0)
    assert guards.get(0) is None
    assert guards.get(GUARDS_MAX) is not None
    guards.expire(T0 + 999, 1000)
    assert guards
    guards.expire(T0 + 1000, 1000)
    assert not guards


def test_the_state_after_a_crash_refuses_what_it_refused_before() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=LogConfig())
    write(log, data(0, epoch=3), marker(epoch=4), data(0, epoch=4))
    fs.kill()
    log = open_log(fs, config=LogConfig())
    assert log.producers.is_in_transaction(7, 4)
    assert not log.producers.is_in_transaction(7, 3)
    with pytest.raises(TransactionCoordinatorFencedError):
        write(log, marker(epoch=4, coordinator_epoch=8))
    with pytest.raises(InvalidTxnStateError):
        write(log, data(1, epoch=4, is_transactional=False))
    assert log.last_stable_offset(log.log_end_offset) == 2


def test_a_cut_takes_back_what_a_marker_decided() -> None:
    """A follower that lost its leader has markers that were never replicated."""
    log = opened()
    write(log, data(0), marker(epoch=1), data(0, epoch=1), marker(epoch=2, commit=False))
    guard(log, 0, epoch=2)
    log.truncate_to(3)
    assert log.last_stable_offset(3) == 2
    assert not log.producers.guards
    assert log.aborted_transactions(0, 3) == []
    log.truncate_to(1)
    assert list(log.producers.open_transactions.items()) == [(7, 0)]
    write(log, marker(epoch=1, commit=False))
    assert [one.first_offset for one in log.aborted_transactions(0, 2)] == [0]
    log.truncate_to(0)
    assert log.last_stable_offset(0) == 0
    assert log.producers.producers == {}


def test_a_log_start_within_a_transaction_is_where_readers_begin() -> None:
    log = opened()
    write(log, data(0), data(1), data(2))
    log.set_log_start_offset(2)
    assert log.last_stable_offset(3) == 2
    write(log, marker(commit=False))
    assert [(one.first_offset, one.last_offset) for one in log.aborted_transactions(2, 4)] == [(0, 3)]
    assert log.last_stable_offset(4) == 4
