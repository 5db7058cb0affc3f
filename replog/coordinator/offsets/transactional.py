"""Decides on requests about transactions: permits, commits, and their ends."""

from __future__ import annotations

from typing import Final, assert_never

from replog.coordinator.offsets.manager import OffsetManager
from replog.coordinator.offsets.state import OffsetState
from replog.coordinator.offsets.transactions import (
    CommitPermit,
    CommitTransactionalOffsets,
    CompleteTransaction,
    CompleteTransactionResponse,
    GetCommitPermit,
)
from replog.coordinator.runtime.machine import Moment, Outcome
from replog.coordinator.runtime.messages import Reply
from replog.coordinator.runtime.transactions import EndMarker, TransactionWriter
from replog.errors import CoordinatorLoadInProgressError, InvalidProducerEpochError

PERMITS_MAX: Final = 10_000
"""The permits that are kept; the oldest one goes, and who has it asks for another."""


class Permits:
    """The permit of each producer that has one.  They are no part of the log: another coordinator gives others."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # the oldest first
        self._last = 0

    def give(self, producer_id: int, now_ms: int) -> int:
        """Returns the permit of a producer; a new one where it has none.

        Args:
            producer_id: The producer.
            now_ms: The monotonic milliseconds, which make it another one than those of earlier leaderships of this process.
        """
        number = self._numbers.get(producer_id)
        if number is None:
            number = self._last = max(self._last + 1, now_ms << 20)
            self._numbers[producer_id] = number
            if len(self._numbers) > PERMITS_MAX:
                del self._numbers[next(iter(self._numbers))]
        return number

    def is_valid(self, producer_id: int, number: int) -> bool:
        """Whether a permit has not been taken back."""
        return self._numbers.get(producer_id) == number

    def take_back(self, producer_id: int) -> None:
        """Makes the permit of a producer invalid, if it has one."""
        self._numbers.pop(producer_id, None)

    def stop(self) -> None:
        """Takes back all of them."""
        self._numbers.clear()


class TransactionalOffsets:
    """Offsets that are committed with a transaction.

    Args:
        state: The offsets.
        manager: The manager of plain commits, which knows what may be committed.
    """

    def __init__(self, state: OffsetState, manager: OffsetManager) -> None:
        self._state = state
        self._manager = manager
        self._permits = Permits()

    def stop(self) -> None:
        """Forgets what is no part of the log."""
        self._permits.stop()

    def handle(
        self,
        request_id: int,
        request: GetCommitPermit | CommitTransactionalOffsets | CompleteTransaction,
        moment: Moment,
    ) -> Outcome:
        """Handles a request.

        Raises:
            InvalidProducerEpochError: A newer incarnation of the producer has an open transaction here, or the end of an
                earlier one comes late.
            CoordinatorLoadInProgressError: The permit has been taken back: the transaction may have ended.
            ReplogError: The group does not let it commit (`OffsetManager.commit_in_transaction`).
        """
        match request:
            case GetCommitPermit():
                is_open = self._is_open(request.writer)
                permit = CommitPermit(self._permits.give(request.writer.producer_id, moment.now_ms), is_open)
                return Outcome(answers=(Reply(request_id, permit),))
            case CommitTransactionalOffsets():
                return self._commit(request_id, request, moment)
            case CompleteTransaction():
                return self._complete(request_id, request)
            case _ as unreachable:
                assert_never(unreachable)

    def _commit(self, request_id: int, request: CommitTransactionalOffsets, moment: Moment) -> Outcome:
        self._is_open(request.writer)
        records, response = self._manager.commit_in_transaction(request, moment)
        if not self._permits.is_valid(request.writer.producer_id, request.permit):
            raise CoordinatorLoadInProgressError(
                f"a transaction of producer {request.writer.producer_id} has ended meanwhile; ask again"
            )
        return Outcome(records, (Reply(request_id, response),), writer=request.writer)

    def _complete(self, request_id: int, request: CompleteTransaction) -> Outcome:
        """Ends the transaction of a producer, whether it has kept something here or not: the log has to know its epoch."""
        is_open = self._is_open(TransactionWriter(request.producer_id, request.producer_epoch))
        if is_open and request.bumps_epochs:
            raise InvalidProducerEpochError(
                f"the end of a transaction of producer {request.producer_id} comes with epoch {request.producer_epoch}, which the "
                "open one has: it is of the one before"
            )
        self._permits.take_back(request.producer_id)
        marker = EndMarker(request.producer_id, request.producer_epoch, request.coordinator_epoch, request.is_commit)
        return Outcome(answers=(Reply(request_id, CompleteTransactionResponse()),), marker=marker)

    def _is_open(self, writer: TransactionWriter) -> bool:
        """Whether this incarnation of a producer has something pending.

        Raises:
            InvalidProducerEpochError: A newer one has.
        """
        epoch = self._state.pending.open_epoch(writer.producer_id)
        if epoch is not None and writer.producer_epoch < epoch:
            raise InvalidProducerEpochError(
                f"producer {writer.producer_id} comes with epoch {writer.producer_epoch}, and epoch {epoch} has an open "
                "transaction: this one is a zombie and must stop"
            )
        return epoch == writer.producer_epoch
