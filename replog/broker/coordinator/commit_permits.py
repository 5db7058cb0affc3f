"""Offsets that are committed in a transaction: the coordinator of the transaction is asked before the one of the group.

The partition of `__consumer_offsets` that a group belongs to is one of the transaction's partitions, whose marker commits the
offsets.  Newer clients leave it to this broker to make it one (KIP-890 part 2), older ones have done it themselves, and it is
looked up whether they have (part 1): nobody would end a transaction that its coordinator does not know.
"""

from __future__ import annotations

from typing import Final, Protocol

from replog.broker.coordinator.coordinators import Coordinators
from replog.coordinator.offsets.transactions import CommitPermit, GetCommitPermit
from replog.errors import CoordinatorNotAvailableError, ErrorCode, ReplogError, RetriableError
from replog.errors.from_code import error_from_code
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.rpc.transaction_messages import JoinTransactionRequest, JoinTransactionResponse, NamedPartitions

_UNANSWERED: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class AsksTransactions(Protocol):
    """What asks the coordinator of a transactional id, here or on another broker."""

    async def join(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        """Returns which partitions are no part of the transaction; raises RetriableError where nobody can be asked."""
        ...


class CommitPermits:
    """Gives permits to commit offsets in a transaction, on the broker that coordinates the group.

    Args:
        coordinators: The coordinators of groups.
        verifier: What asks the coordinators of transactions.
    """

    def __init__(self, coordinators: Coordinators, verifier: AsksTransactions) -> None:
        self._coordinators = coordinators
        self._verifier = verifier

    async def get(
        self, transactional_id: str, request: GetCommitPermit, *, only_verifies: bool, timeout_ms: int
    ) -> int:
        """Returns the permit of a producer, once its transaction is known to be open.

        Args:
            transactional_id: The transactional id of the producer.
            request: The request.
            only_verifies: Whether the client has made the partition of the group part of the transaction; else it becomes one.
            timeout_ms: The time within which each of the coordinators has to answer.

        Raises:
            CoordinatorNotAvailableError: The coordinator of the transaction cannot be asked just now, or is ending the last
                transaction of an older client.
            InvalidProducerEpochError: The producer has been fenced.
            ReplogError: The transaction is not open, or not with this partition; or as of `Coordinators.submit`.
        """
        permit: CommitPermit = await self._coordinators.submit(request.group_id, request, timeout_ms)
        if not permit.is_open:
            await self._join(transactional_id, request, only_verifies=only_verifies, timeout_ms=timeout_ms)
        return permit.number

    async def _join(
        self, transactional_id: str, asked: GetCommitPermit, *, only_verifies: bool, timeout_ms: int
    ) -> None:
        place = NamedPartitions(OFFSETS_TOPIC, (self._coordinators.partition_id(asked.group_id),))
        producer = asked.writer.producer_id, asked.writer.producer_epoch
        request = JoinTransactionRequest(transactional_id, *producer, only_verifies, (place,))
        try:
            refusals = (await self._verifier.join(request, timeout_ms)).refusals
        except ReplogError as error:
            raise _told(error, only_verifies=only_verifies) from error
        for each in refusals:
            raise _told(error_from_code(each.error, each.message), only_verifies=only_verifies)


def _told(error: ReplogError, *, only_verifies: bool) -> ReplogError:
    """Returns what the client is told for an error of the coordinator of its transaction, which it has not asked itself."""
    if error.code is ErrorCode.PRODUCER_FENCED:
        return error_from_code(ErrorCode.INVALID_PRODUCER_EPOCH, error.told)
    is_ending = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    if error.code in _UNANSWERED or (isinstance(error, RetriableError) and (only_verifies or not is_ending)):
        return CoordinatorNotAvailableError(
            f"the coordinator of the transaction has not answered, ask again: {error.told}"
        )
    return error
