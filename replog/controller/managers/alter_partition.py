"""ISR changes that partition leaders propose (AlterPartition; the order of checks is docs/KAFKA.md 4.4)."""

from __future__ import annotations

from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import partition_change
from replog.controller.requests import (
    AlterPartition,
    AlterPartitionResponse,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
    Result,
)
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.partition_map import PartitionKey
from replog.controller.state.replication import ReplicationState
from replog.errors import ErrorCode
from replog.metadata.records import LeaderRecoveryState, PartitionChangeRecord
from replog.metadata.registrations import PartitionRegistration


class IsrControl:
    """Checks each proposal against the newest state, and makes the record of those that hold."""

    def __init__(self, state: ReplicationState, brokers: BrokerRegistry, replication: ReplicationControl) -> None:
        self._state = state
        self._brokers = brokers
        self._replication = replication

    def alter_partitions(self, request: AlterPartition) -> Result:
        """Accepts or refuses proposals: one result for each, in order.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: The sender is not a registered incarnation.
        """
        self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        records: list[PartitionChangeRecord] = []
        results: list[PartitionIsrResult] = []
        seen: set[PartitionKey] = set()
        for change in request.partitions:
            key = (change.topic_id, change.partition_id)
            error = self._error(request.broker_id, change)
            if error is ErrorCode.NONE and key in seen:
                error = ErrorCode.INVALID_REQUEST  # the second proposal cannot know what the first one leads to
            seen.add(key)
            if error is not ErrorCode.NONE:
                results.append(PartitionIsrResult(change.topic_id, change.partition_id, error))
                continue
            record, partition = self._accept(change)
            records += [] if record is None else [record]
            if partition.leader == request.broker_id:
                results.append(_accepted(key, partition))
            else:  # the change completed a reassignment that takes the sender away; it is made all the same
                results.append(PartitionIsrResult(*key, ErrorCode.NEW_LEADER_ELECTED))
        return Result(tuple(records), AlterPartitionResponse(tuple(results)))

    def _accept(self, change: PartitionIsrChange) -> tuple[PartitionChangeRecord | None, PartitionRegistration]:
        """Returns the record, None when it is so already, and the partition as it will be."""
        key = (change.topic_id, change.partition_id)
        partition = self._state.partitions[key]
        record = partition_change(
            *key,
            partition,
            self._replication.rules(key),
            target_isr=tuple(member.broker_id for member in change.new_isr),
            isr_is_proven=True,
            leader_recovery_state=change.leader_recovery_state,
        )
        return record, partition if record is None else partition.merge(record)

    def _error(self, sender: int, change: PartitionIsrChange) -> ErrorCode:
        if change.topic_id not in self._state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = self._state.partitions.get((change.topic_id, change.partition_id))
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = _epoch_error(sender, change, partition)
        if error is not ErrorCode.NONE:
            return error
        if not _is_valid_isr(change, partition) or not _is_valid_recovery(change, partition):
            return ErrorCode.INVALID_REQUEST
        key = (change.topic_id, change.partition_id)
        if not all(self._is_eligible(member, key, partition) for member in change.new_isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_eligible(self, member: IsrMember, key: PartitionKey, partition: PartitionRegistration) -> bool:
        """Whether a member may be in the ISR.

        A new one must be the incarnation whose fetches proved that it has caught up (KIP-903).
        """
        registration = self._brokers.get(member.broker_id)
        if registration is None or not registration.is_active or self._replication.is_offline(member.broker_id, key):
            return False
        if member.broker_id not in partition.isr and not self._replication.has_told(member.broker_id):
            return False
        if member.broker_epoch == -1:
            return member.broker_id in partition.isr
        return member.broker_epoch == registration.broker_epoch


def _epoch_error(sender: int, change: PartitionIsrChange, partition: PartitionRegistration) -> ErrorCode:
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender has heard of a newer controller's work
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _is_valid_isr(change: PartitionIsrChange, partition: PartitionRegistration) -> bool:
    isr = [member.broker_id for member in change.new_isr]
    return partition.leader in isr and len(set(isr)) == len(isr) and set(isr) <= set(partition.replicas)


def _is_valid_recovery(change: PartitionIsrChange, partition: PartitionRegistration) -> bool:
    if change.leader_recovery_state is LeaderRecoveryState.RECOVERED:
        return True
    return partition.leader_recovery_state is LeaderRecoveryState.RECOVERING and len(change.new_isr) == 1


def _accepted(key: PartitionKey, partition: PartitionRegistration) -> PartitionIsrResult:
    return PartitionIsrResult(
        *key,
        ErrorCode.NONE,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=partition.isr,
    )
