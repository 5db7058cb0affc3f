"""Where a producer with a transactional id is, and what the answers of its coordinator mean.  Pure.

========== =========================================== =======================================================================
state      what the producer may do                    how it goes on
========== =========================================== =======================================================================
NEW        begin, once it has been given a producer id `take_over` -> READY
READY      begin a transaction                         `open` -> OPEN
OPEN       send, commit offsets, commit, abort         `fail` -> FAILED; `begin_end` -> ENDING
FAILED     abort                                       `begin_end` -> ENDING
ENDING     wait                                        `end` -> READY, or NEW where the producer id has to be asked for again
FENCED     nothing: another producer has its name      never
========== =========================================== =======================================================================

An open transaction of which nothing has left the producer is nothing to its coordinator, and is ended without a word to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from replog.client.producer.batch import ProducerIdentity
from replog.client.types import TopicPartition
from replog.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
    raised_anew,
)

BUMPING = 2
"""The level of `transaction.version` from which on each transaction has an epoch of its own, and partitions join by their batches."""

_REFUSALS: Final = (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
    RequestTimedOutError,  # of all attempts: each was answered that nothing was done
)
"""Answers to the first question for a commit after which it was certainly not committed; a coordinator that has broken, or whose
answer was not understood, may have committed before."""


class Phase(Enum):
    """Where a producer is."""

    NEW = "has to be given a producer id first"
    READY = "is in no transaction"
    OPEN = "is in a transaction"
    FAILED = "is in a transaction that can only be aborted"
    ENDING = "is ending a transaction"
    FENCED = "was fenced"


class TransactionBook:
    """Keeps what a producer knows of its transaction.

    Invariants:
        - an identity belongs to one transaction at a time, and to no two of which one was given up;
        - the first failure of a transaction is kept until it is ended.

    Args:
        transactional_id: The transactional id.

    Attributes:
        name: The transactional id.
        identity: What batches are written with; None until the coordinator has given one.
        version: The level of `transaction.version` in the cluster.
        failure: Why the transaction can only be aborted; None: it can be committed.
        is_reached: Whether something of the transaction has left, so that the coordinator may know of it.
        was_given_up: Whether it is not known what has become of something that has left.
        joined: The partitions, and the groups by their ids, that the producer has made part of the transaction.
    """

    def __init__(self, transactional_id: str) -> None:
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.version = 0
        self.failure: ReplogError | None = None
        self.is_reached = False
        self.was_given_up = False
        self.joined: set[TopicPartition | str] = set()
        self.name = transactional_id
        self._fence: ReplogError | None = None

    @property
    def is_bumping(self) -> bool:
        """Whether each transaction has an epoch of its own, and partitions and groups join with what is sent."""
        return self.version >= BUMPING

    def rename(self, transactional_id: str) -> None:
        """Goes on under another transactional id, of which nothing is known yet; no transaction is open."""
        self.name = transactional_id
        self.identity = self._fence = None
        self.phase = Phase.NEW

    def take_over(self, identity: ProducerIdentity, version: int) -> None:
        """Takes in what the coordinator has given: the producer may begin."""
        self.identity, self.version = identity, version
        self.phase = Phase.READY

    def open(self) -> None:
        """Begins a transaction; the producer is READY.

        Raises:
            InvalidRequestError: It is not.
        """
        if self.phase is not Phase.READY:
            raise InvalidRequestError(f"the producer {self.name!r} {self.phase.value}")
        self.phase = Phase.OPEN
        self.failure = None
        self.is_reached = self.was_given_up = False
        self.joined.clear()

    def fail(self, error: ReplogError) -> bool:
        """Lets the open transaction be one that can only be aborted; returns whether that is news."""
        if self.phase is not Phase.OPEN:
            return False
        self.phase, self.failure = Phase.FAILED, raised_anew(error)
        self.was_given_up = True
        return True

    def begin_end(self) -> None:
        """Ends what may be sent of the transaction."""
        self.phase = Phase.ENDING

    def note_arrivals(self, errors: Sequence[RetriableError]) -> None:
        """Notes that the end was asked for before, without an answer: what is late of that must not end the next transaction.

        Below `BUMPING` both have the same epoch, unless the producer id is asked for again.
        """
        self.was_given_up |= bool(errors)

    def end(self, identity: ProducerIdentity | None) -> None:
        """Ends the transaction.

        Args:
            identity: What the coordinator has told for the next one; None: nothing, the producer id has to be asked for again.
        """
        if identity is None or (identity == self.identity and self.was_given_up):
            self.phase = Phase.NEW
        else:
            self.phase, self.identity = Phase.READY, identity

    def fence(self, error: ReplogError) -> None:
        """Ends the producer: another one has its transactional id."""
        self.phase, self._fence = Phase.FENCED, raised_anew(error)

    def raise_if_fenced(self) -> None:
        """Raises: ProducerFencedError: The producer was fenced."""
        if self._fence is not None:
            raise ProducerFencedError(
                f"this producer cannot go on, and a new one of transactional_id {self.name!r} would fence the other: {self._fence}"
            ) from self._fence

    def raise_if_not_open(self) -> None:
        """Refuses what can be done in an open transaction only.

        Raises:
            ProducerFencedError: The producer was fenced.
            TransactionAbortableError: The transaction can only be aborted; the text says why.
            InvalidRequestError: There is no open transaction.
        """
        self.raise_if_fenced()
        if self.phase is Phase.FAILED:
            raise TransactionAbortableError(
                f"the transaction of {self.name!r} can only be aborted, because something of it has failed: {self.failure}. "
                "Leave its block, and do the work again in a new one"
            ) from self.failure
        if self.phase is not Phase.OPEN:
            raise InvalidRequestError(
                f"the producer {self.name!r} is in no open transaction: send inside of `async with producer.transaction():`, or by "
                "a producer without transactional_id"
            )

    def aborted_error(self) -> TransactionAbortableError:
        """Returns the error of a transaction that was aborted in the place of a commit."""
        error = TransactionAbortableError(
            f"the transaction of {self.name!r} was aborted, because something of it has failed: {self.failure}. Nothing of it "
            "will be read as committed; do the work again in a new transaction"
        )
        error.__cause__ = None if self.failure is None else raised_anew(self.failure)
        return error


def is_fencing(error: ReplogError) -> bool:
    """Whether an answer of the coordinator says that another producer has the transactional id."""
    return isinstance(error, ProducerFencedError)


def is_fencing_who_goes_on(error: ReplogError) -> bool:
    """Whether the answer to a producer that asks to go on with what it was told before says so."""
    return isinstance(error, ProducerFencedError | InvalidProducerEpochError)


def is_certainly_not_committed(error: ReplogError, *, may_have_arrived: bool) -> bool:
    """Whether an error at the end of a commit says that the transaction was not committed.

    Args:
        error: The last answer, or why there was none.
        may_have_arrived: Whether an attempt before was not answered, or answered so that it may have been carried out.
    """
    return isinstance(error, InvalidTxnStateError) or (not may_have_arrived and isinstance(error, _REFUSALS))
