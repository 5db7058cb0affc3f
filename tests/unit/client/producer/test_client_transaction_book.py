"""Where a producer with a transactional id is: the states of its book, without a network."""

from __future__ import annotations

import pytest

from replog.client.producer.batch import ProducerIdentity
from replog.client.producer.transactions import (
    Phase,
    TransactionBook,
    is_certainly_not_committed,
    is_fencing_who_goes_on,
)
from replog.client.types import TopicPartition
from replog.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
)

FIRST, SECOND = ProducerIdentity(7, 0, is_transactional=True), ProducerIdentity(7, 1, is_transactional=True)


def ready(version: int = 2) -> TransactionBook:
    book = TransactionBook("pay")
    book.take_over(FIRST, version)
    return book


def opened(version: int = 2) -> TransactionBook:
    book = ready(version)
    book.open()
    return book


def test_nothing_can_begin_before_there_is_a_producer_id() -> None:
    with pytest.raises(InvalidRequestError):
        TransactionBook("pay").open()


@pytest.mark.parametrize(("version", "is_bumping"), [(0, False), (1, False), (2, True), (3, True)])
def test_from_version_2_on_each_transaction_has_an_epoch(version: int, is_bumping: bool) -> None:
    assert ready(version).is_bumping == is_bumping


def test_a_transaction_begins_with_nothing_of_the_one_before() -> None:
    book = opened()
    book.is_reached = book.was_given_up = True
    book.joined.add(TopicPartition("t", 0))
    book.fail(RequestTimedOutError("slow"))
    book.begin_end()
    book.end(SECOND)
    book.open()
    assert (book.phase, book.identity, book.failure) == (Phase.OPEN, SECOND, None)
    assert (book.is_reached, book.was_given_up, book.joined) == (False, False, set())


def test_the_first_failure_is_kept() -> None:
    book = opened()
    assert book.fail(RequestTimedOutError("first"))
    assert not book.fail(RequestTimedOutError("second"))
    with pytest.raises(TransactionAbortableError, match="first") as told:
        book.raise_if_not_open()
    assert isinstance(told.value.__cause__, RequestTimedOutError)


def test_what_fails_behind_the_end_is_of_no_transaction() -> None:
    book = opened()
    book.begin_end()
    assert not book.fail(RequestTimedOutError("late"))
    assert book.failure is None


@pytest.mark.parametrize(
    ("after", "was_given_up", "phase"),
    [
        (FIRST, False, Phase.READY),  # all was answered: the next sequences follow
        (FIRST, True, Phase.NEW),  # what may still arrive must find a later epoch
        (SECOND, True, Phase.READY),  # and does, where each transaction has one
        (None, False, Phase.NEW),
    ],
)
def test_an_epoch_of_which_something_was_given_up_is_not_used_again(
    after: ProducerIdentity | None, was_given_up: bool, phase: Phase
) -> None:
    book = opened()
    book.was_given_up = was_given_up
    book.begin_end()
    book.end(after)
    assert book.phase is phase
    assert book.identity == (after or FIRST)  # which the coordinator is told, where the producer has to begin anew


def test_who_was_fenced_stays_fenced() -> None:
    book = opened()
    book.fence(ProducerFencedError("another one"))
    for refuse in (book.raise_if_fenced, book.raise_if_not_open):
        with pytest.raises(ProducerFencedError, match="another one"):
            refuse()
    assert not book.fail(RequestTimedOutError("late"))


def test_a_producer_that_goes_on_is_fenced_by_either_answer() -> None:
    assert is_fencing_who_goes_on(ProducerFencedError(""))
    assert is_fencing_who_goes_on(InvalidProducerEpochError(""))
    assert not is_fencing_who_goes_on(InvalidTxnStateError(""))


@pytest.mark.parametrize(
    ("error", "may_have_arrived", "is_certain"),
    [
        (InvalidTxnStateError(""), True, True),  # it was decided the other way
        (RequestTimedOutError(""), False, True),  # each attempt was answered: not now
        (RequestTimedOutError(""), True, False),
        (ProducerFencedError(""), False, True),
        (ProducerFencedError(""), True, False),  # the first attempt may have come before the other producer
    ],
)
def test_what_an_error_says_of_a_commit(
    error: InvalidTxnStateError | RequestTimedOutError | ProducerFencedError, may_have_arrived: bool, is_certain: bool
) -> None:
    assert is_certainly_not_committed(error, may_have_arrived=may_have_arrived) == is_certain
