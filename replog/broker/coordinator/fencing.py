"""Who may still write to a transaction, by the producers that the log of a group coordinator knows.

The log is what decides: it knows producers that have nothing pending, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replog.coordinator.offsets.transactions import CommitInTransaction, CompleteTransaction, GetCommitPermit
from replog.coordinator.runtime.transactions import EndMarker
from replog.errors import InvalidProducerEpochError, ReplogError, TransactionCoordinatorFencedError
from replog.log.producers.state import ProducerEntry


def problem_of_request(producers: Mapping[int, ProducerEntry], request: Any) -> ReplogError | None:
    """Returns why a request to a shard comes too late; None: it does not, or is not about a transaction."""
    match request:
        case CompleteTransaction():
            who = request.producer_id, request.producer_epoch
            return problem_of_marker(producers, EndMarker(*who, request.coordinator_epoch, request.is_commit))
        case CommitInTransaction() | GetCommitPermit():
            return _problem_of_producer(producers, request.writer.producer_id, request.writer.producer_epoch)
        case _:
            return None


def problem_of_marker(producers: Mapping[int, ProducerEntry], marker: EndMarker) -> ReplogError | None:
    """Returns why a marker is not taken; None: it is."""
    entry = producers.get(marker.producer_id)
    if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        return TransactionCoordinatorFencedError(
            f"a marker of producer {marker.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, and one of "
            f"{entry.coordinator_epoch} has written: the later coordinator ends its transactions"
        )
    return _problem_of_producer(producers, marker.producer_id, marker.producer_epoch)


def _problem_of_producer(
    producers: Mapping[int, ProducerEntry], producer_id: int, producer_epoch: int
) -> ReplogError | None:
    entry = producers.get(producer_id)
    if entry is None or producer_epoch >= entry.producer_epoch:
        return None
    return InvalidProducerEpochError(
        f"producer {producer_id} comes with epoch {producer_epoch}, and epoch {entry.producer_epoch} has written since: this "
        "one is a zombie and must stop"
    )
