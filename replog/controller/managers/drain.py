"""Brokers that an operator wants empty: leaderships leave first, then replicas, a bounded number at a time.

The wish is a record.  Every round looks at what is still there and makes the next few steps from the newest state, so it
does not matter which controller made the ones before, or whether a broker restarted in between.  A partition stays where it
is while there is no broker that could take its replica, or no leader to copy from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from replog.controller.config import ControllerConfig
from replog.controller.managers.reassignments import ReassignmentControl
from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Election, partition_change
from replog.controller.partitions.placement import UsableBroker
from replog.controller.requests import DrainBroker, DrainBrokerResponse, Result
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.features import FeatureControl
from replog.controller.state.partition_map import PartitionKey
from replog.controller.state.replication import ReplicationState
from replog.metadata.features import METADATA_VERSION_TRANSACTIONS
from replog.metadata.records import NO_LEADER, DrainBrokerRecord, PartitionChangeRecord
from replog.metadata.registrations import PartitionRegistration


class DrainControl:
    """Notes the wish, and makes the records that come closer to it."""

    def __init__(
        self,
        config: ControllerConfig,
        state: ReplicationState,
        replication: ReplicationControl,
        reassignments: ReassignmentControl,
        brokers: BrokerRegistry,
        features: FeatureControl,
    ) -> None:
        self._config = config
        self._state = state
        self._replication = replication
        self._reassignments = reassignments
        self._brokers = brokers
        self._features = features

    def drain(self, request: DrainBroker) -> Result:
        """Notes the wish; what follows from it comes in rounds.

        Raises:
            BrokerIdNotRegisteredError: There is no such broker to be emptied.
            UnsupportedVersionError: The cluster is not at the feature level that knows the wish.
        """
        self._features.require_metadata_version(METADATA_VERSION_TRANSACTIONS, "drained brokers")
        if request.drained:
            self._brokers.known_or_raise(request.broker_id)
        is_new = self._brokers.is_drained(request.broker_id) is not request.drained
        records = (DrainBrokerRecord(request.broker_id, request.drained),) if is_new else ()
        response = DrainBrokerResponse(self._state.hosted_count(request.broker_id))
        return Result(records, response, wakes=("drain",))

    def remaining(self) -> dict[int, int]:
        """Returns how many replicas each drained broker still has."""
        return {broker_id: self._state.hosted_count(broker_id) for broker_id in sorted(self._brokers.drained)}

    # ---- rounds -----------------------------------------------------------------------------------------------------

    def next_changes(self) -> tuple[PartitionChangeRecord, ...]:
        """Makes the next few steps; none when nothing is to be done, or nothing can be done now."""
        if not self._brokers.drained:
            return ()
        leaders = tuple(islice(self._leader_changes(), self._config.max_elections_per_round))
        if leaders:
            return leaders
        room = self._config.max_drain_reassignments - len(self._state.reassigning)
        return tuple(islice(self._moves(), max(0, room)))

    def _leader_changes(self) -> Iterator[PartitionChangeRecord]:
        for key, partition in self._partitions():
            if not self._brokers.is_drained(partition.leader):
                continue
            change = partition_change(*key, partition, self._replication.rules(key), election=Election.LEAVE_DRAINED)
            if change is not None and change.leader is not None:
                yield change

    def _moves(self) -> Iterator[PartitionChangeRecord]:
        loads = Counter({each.broker_id: self._state.hosted_count(each.broker_id) for each in self._brokers.usable()})
        for key, partition in self._partitions():
            target = self._target(partition, loads) if partition.leader != NO_LEADER else None
            change = None if target is None else self._reassignments.move(key, partition, target)
            if change is not None:
                loads.update(change.adding_replicas or ())
                yield change

    def _partitions(self) -> Iterator[tuple[PartitionKey, PartitionRegistration]]:
        for key in self._state.hosted(*self._brokers.drained):
            yield key, self._state.partitions[key]

    def _target(self, partition: PartitionRegistration, loads: Counter[int]) -> tuple[int, ...] | None:
        """Returns the replicas, drained brokers replaced where that is possible; None if nowhere, or if none stays."""
        staying = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
        target = list(staying)
        for index, replica in enumerate(staying):
            if self._brokers.is_drained(replica):
                target[index] = self._replacement(replica, partition, target, loads)
        return None if target == staying else tuple(target)

    def _replacement(
        self, drained: int, partition: PartitionRegistration, target: list[int], loads: Counter[int]
    ) -> int:
        """Chooses a live broker without this partition; returns `drained` where there is none.

        One from a rack without the partition goes first, then one with few replicas.
        """
        others = [other for other in target if other != drained]
        racks = {broker.rack for broker in map(self._brokers.get, others) if broker is not None}

        def badness(broker: UsableBroker) -> tuple[bool, int, int]:
            return broker.rack is not None and broker.rack in racks, loads[broker.broker_id], broker.broker_id

        free = [
            broker
            for broker in self._brokers.usable()
            if not broker.fenced and broker.broker_id not in target and broker.broker_id not in partition.replicas
        ]
        return min(free, key=badness).broker_id if free else drained
