"""Partitions move: an operator says where to, or a drained broker shall be emptied (docs/KAFKA.md 4.11).

A reassignment is a record; the steps follow from it, whoever is the active controller:

1. `replicas` becomes the target plus what goes (`removing_replicas`); `adding_replicas` is what is new.  Brokers copy.
2. The leader proposes each new one for the ISR (AlterPartition) when it has caught up.
3. The change that brings the last one in takes the removed ones out of replicas and ISR (`partitions.change`), and, where
   one of them led, elects another.

Cancelling takes the added ones out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Placement, partition_change
from replog.controller.requests import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    PartitionResult,
    Reassignment,
    Result,
)
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.features import FeatureControl
from replog.controller.state.partition_map import PartitionKey
from replog.controller.state.replication import ReplicationState
from replog.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    ReplogError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.features import METADATA_VERSION_TRANSACTIONS
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.registrations import PartitionRegistration


class ReassignmentControl:
    """Makes the records that begin, alter and cancel reassignments."""

    def __init__(
        self,
        state: ReplicationState,
        replication: ReplicationControl,
        brokers: BrokerRegistry,
        features: FeatureControl,
    ) -> None:
        self._state = state
        self._replication = replication
        self._brokers = brokers
        self._features = features

    def alter(self, request: AlterPartitionReassignments) -> Result:
        """Begins, alters or cancels reassignments: one result per item, in order; what succeeds is one atomic change.

        Raises:
            UnsupportedVersionError: The cluster is not at the feature level that knows reassignments.
        """
        self._features.require_metadata_version(METADATA_VERSION_TRANSACTIONS, "reassignments")
        times = Counter((item.topic, item.partition_id) for item in request.items)
        records: list[PartitionChangeRecord] = []
        results: list[PartitionResult] = []
        for item in request.items:
            code, message = ErrorCode.NONE, ""
            try:
                if times[item.topic, item.partition_id] > 1:
                    raise InvalidRequestError(f"partition {item.topic}-{item.partition_id} is given more than once")
                change = self._alter_one(item, may_change_factor=request.allow_replication_factor_change)
                records += [] if change is None else [change]
            except ReplogError as error:
                code, message = error.code, str(error)
            results.append(PartitionResult(item.topic, item.partition_id, code, message))
        return Result(tuple(records), AlterPartitionReassignmentsResponse(tuple(results)))

    def _alter_one(self, item: Reassignment, *, may_change_factor: bool) -> PartitionChangeRecord | None:
        topic_id = self._state.topic_ids.get(item.topic)
        partition = None if topic_id is None else self._state.partitions.get((topic_id, item.partition_id))
        if topic_id is None or partition is None:
            raise UnknownTopicOrPartitionError(f"there is no partition {item.topic}-{item.partition_id}")
        key = (topic_id, item.partition_id)
        if item.replicas is None:
            return self._cancel(key, partition)
        self._check_target(item.replicas)
        stays_count = len(set(partition.replicas) - set(partition.removing_replicas))
        if not may_change_factor and len(item.replicas) != stays_count:
            raise InvalidReplicationFactorError(
                f"{len(item.replicas)} replicas instead of {stays_count}: changing their number was not allowed"
            )
        return self.move(key, partition, item.replicas)

    def _check_target(self, replicas: tuple[int, ...]) -> None:
        if not replicas or len(set(replicas)) < len(replicas):
            raise InvalidReplicaAssignmentError(f"replicas {list(replicas)} are empty or repeated")
        if unknown := [replica for replica in replicas if self._brokers.get(replica) is None]:
            raise InvalidReplicaAssignmentError(f"brokers {unknown} are not registered")

    def move(
        self, key: PartitionKey, partition: PartitionRegistration, target: tuple[int, ...]
    ) -> PartitionChangeRecord | None:
        """Makes the record that moves a partition to `target`; None if it is on its way there already.

        What an earlier reassignment was adding, and is in the new target, goes on being added; what is not in it is added
        and removed at once, so that it goes whether this one completes or is cancelled.
        """
        original = set(partition.replicas) - set(partition.adding_replicas)
        adding = tuple(sorted({*target, *partition.adding_replicas} - original))
        removing = tuple(sorted(set(partition.replicas) - set(target)))
        return partition_change(
            *key,
            partition,
            self._replication.rules(key),
            placement=Placement(target + removing, adding, removing),
        )

    def _cancel(self, key: PartitionKey, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        if not partition.is_reassigning:
            raise NoReassignmentInProgressError("no reassignment of this partition is in progress")
        replicas = _without(partition.replicas, partition.adding_replicas)
        isr = _without(partition.isr, partition.adding_replicas)
        rules = self._replication.rules(key)
        if not rules.unclean_allowed and (needed := _needed(partition, replicas)):
            raise InvalidReplicaAssignmentError(
                f"the added replicas {list(needed)} may hold acknowledged records that no other has; without them these would be "
                "lost. Wait until another one has caught up"
            )
        if not replicas:
            raise InvalidReplicaAssignmentError("nothing of the partition would be left")
        return partition_change(*key, partition, rules, target_isr=isr, placement=Placement(replicas))


def _needed(partition: PartitionRegistration, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Returns those besides `replicas` that may alone hold something acknowledged; empty where there are none.

    One of the ISR has everything, and so has one of the ELR if nobody is in sync.  Where both are empty, those that have
    restarted uncleanly hold everything together, and any of them may hold the most.
    """
    for members in (partition.isr, partition.elr):
        if members:
            return () if set(members) & set(replicas) else members
    return _without(partition.last_known_elr, replicas)


def _without(members: tuple[int, ...], gone: Iterable[int]) -> tuple[int, ...]:
    gone = set(gone)
    return tuple(member for member in members if member not in gone)
