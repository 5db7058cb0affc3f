"""The parts of a consumer's answer that a follower's lacks: its end of committed records, aborted transactions, nearer replicas."""

from __future__ import annotations

from collections import deque

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.config.server_keys import ReplicaSelector
from replog.records import scan
from replog.replication.leader import Leader
from replog.rpc.messages import CONSUMER_REPLICA_ID, AbortedTransaction, FetchPartition, FetchRequest

NO_REPLICA = -1
"""The id of no replica."""


def ceiling(request: FetchRequest, replica: Replica) -> int:
    """Returns the exclusive end of the records that a fetch may be given."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return replica.log.log_end_offset
    return last_stable_offset(replica) if request.read_committed else replica.high_watermark


def last_stable_offset(replica: Replica) -> int:
    """Returns the exclusive end of the records for readers of committed transactions, as far as this replica knows."""
    return replica.log.last_stable_offset(replica.high_watermark)


def aborted_in(replica: Replica, fetch_offset: int, data: bytes) -> tuple[AbortedTransaction, ...]:
    """Returns the aborted transactions that have records in the batches that are sent.

    Args:
        replica: The replica that was read.
        fetch_offset: The offset from which on it was read.
        data: The batches that are sent.

    Raises:
        DiskFullError: A transaction index cannot be opened now.
        StorageError: A transaction index cannot be read.
    """
    if not replica.log.may_have_aborted_from(fetch_offset):
        return ()
    (last,) = deque(scan(data), maxlen=1)
    found = replica.log.aborted_transactions(fetch_offset, last.next_offset)
    return tuple(AbortedTransaction(each.producer_id, each.first_offset) for each in found)


def decided_end(replica: Replica, start_offset: int, end_offset: int) -> int:
    """Returns up to where all records of a range are committed: it ends where an open or aborted transaction has records.

    Args:
        replica: The replica that is read.
        start_offset: The first offset of the range.
        end_offset: The exclusive end of the range.

    Raises:
        DiskFullError: A transaction index cannot be opened now.
        StorageError: A transaction index cannot be read.
    """
    end_offset = min(end_offset, last_stable_offset(replica))
    if not replica.log.may_have_aborted_from(start_offset):
        return end_offset
    aborted = replica.log.aborted_transactions(start_offset, end_offset)
    return min([end_offset, *(each.first_offset for each in aborted)])


def preferred_replica(
    request: FetchRequest, partition: FetchPartition, replica: Replica, stepper: ReplicaStepper
) -> int:
    """Returns the replica that a consumer is to read from instead of the leader (KIP-392); NO_REPLICA: from the leader.

    It is in sync, its broker is active, and it is known to have the offset that the consumer asks for.  Otherwise the consumer
    would come back at once.
    """
    role, known = replica.role, replica.registration
    if not request.near or not isinstance(role, Leader) or known.leader in request.near:
        return NO_REPLICA
    if stepper.config.replica_selector is not ReplicaSelector.RACK_AWARE:
        return NO_REPLICA
    image = stepper.image
    fit = [
        broker_id
        for broker_id in request.near
        if broker_id in known.isr
        and (broker := image.brokers.get(broker_id)) is not None
        and broker.is_active
        and role.is_held(broker_id, partition.fetch_offset)
    ]
    return fit[partition.partition_id % len(fit)] if fit else NO_REPLICA  # spread over the rack
