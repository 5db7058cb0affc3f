"""Who may still write to a transaction, by the producers that the log of a group coordinator knows.

The log decides in the end, and knows producers that have nothing pending, too.  But when it refuses a change its shard goes
back, and others that have come at the same time are told to ask again: so whoever comes too late is refused before.
"""

from __future__ import annotations

from typing import Any

from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, CompleteTransaction, GetCommitPermit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import InvalidProducerEpochError
from replog.log.producers.state import ProducerStateManager, TransactionMarker


def check_not_fenced(producers: ProducerStateManager, request: Any) -> None:
    """Checks that a request to a shard does not come too late; one that is not about a transaction does not.

    Raises:
        InvalidProducerEpochError: A newer incarnation of the producer has written, or the end is of an earlier transaction.
        TransactionCoordinatorFencedError: A later coordinator has written a marker of the producer.
    """
    match request:
        case CompleteTransaction(producer_id, producer_epoch, coordinator_epoch, is_commit, bumps_epochs):
            producers.check_marker(
                TransactionMarker(producer_id, producer_epoch, coordinator_epoch, 0, 0, is_commit=is_commit),
                bumps_epochs=bumps_epochs,
            )
        case CommitTransactionalOffsets() | GetCommitPermit():
            _check_producer(producers, request.writer)
        case _:
            pass


def _check_producer(producers: ProducerStateManager, writer: TransactionWriter) -> None:
    entry = producers.producers.get(writer.producer_id)
    if entry is not None and writer.producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"producer {writer.producer_id} comes with epoch {writer.producer_epoch}, and epoch {entry.producer_epoch} has "
            "written since: this one is a zombie and must stop"
        )
