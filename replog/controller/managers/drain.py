"""Brokers that an operator wants empty: leaderships leave first, then replicas, a bounded number at a time.

The wish is a record.  Every round looks at what is still there and makes the next few steps from the newest state, so it
does not matter which controller made the ones before, or whether a broker restarted in between.  A partition stays where it
is while there is no broker that could take its replica, or no leader to copy from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from itertools import islice

from replog.controller.config import ControllerConfig
from replog.controller.managers.partition_walk import LookedAt, PartitionWalk
from replog.controller.managers.reassignments import ReassignmentControl
from replog.controller.managers.replication import ReplicationControl, only_changes
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


class _Phase(Enum):
    """What a walk over the partitions of drained brokers looks for."""

    LEADERS = auto()
    MOVES = auto()


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
        self._walk = PartitionWalk(lambda: state.beside_hosted(*brokers.drained), state.partitions.__contains__)
        self._phase = _Phase.LEADERS
        self._has_led = False  # whether this walk has found leaderships that can leave

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

    def start_term(self) -> None:
        """Begins with the first partitions, and with leaderships."""
        self._walk.begin_again()
        self._phase = _Phase.LEADERS
        self._has_led = False

    def next_changes(self, count_max: int) -> LookedAt:
        """Makes the next few steps, of at most so many partitions; none when nothing is to be done, or nothing can be done now.

        Where nobody who is drained could be relieved of a leadership, replicas move: of all partitions from the first one on.
        """
        if not self._brokers.drained:
            self.start_term()
            return LookedAt((), is_all=True)
        if self._phase is _Phase.LEADERS:
            keys, is_last = self._walk.next(count_max)
            leaders = only_changes(map(self._leader_change, keys))
            has_led = self._has_led or bool(leaders)
            self._has_led = has_led and not is_last
            if has_led or not is_last:
                return LookedAt(leaders, is_all=is_last)
            self._phase = _Phase.MOVES
        return self._next_moves(count_max)

    def _leader_change(self, key: PartitionKey) -> PartitionChangeRecord | None:
        partition = self._state.partitions[key]
        if not self._brokers.is_drained(partition.leader):
            return None
        change = partition_change(*key, partition, self._replication.rules(key), election=Election.LEAVE_DRAINED)
        return change if change is not None and change.leader is not None else None

    def _next_moves(self, count_max: int) -> LookedAt:
        room = max(0, self._config.max_drain_reassignments - len(self._state.reassigning))
        keys, is_last = self._walk.next(count_max) if room else ([], True)
        changes = tuple(islice(self._moves(keys), room))
        is_all = is_last or len(changes) == room
        if is_all:
            self.start_term()
        return LookedAt(changes, is_all=is_all)

    def _moves(self, keys: Sequence[PartitionKey]) -> Iterator[PartitionChangeRecord]:
        loads = Counter({each.broker_id: self._state.hosted_count(each.broker_id) for each in self._brokers.usable()})
        for key in keys:
            partition = self._state.partitions[key]
            target = self._target(partition, loads) if partition.leader != NO_LEADER else None
            change = None if target is None else self._reassignments.move(key, partition, target)
            if change is not None:
                loads.update(change.adding_replicas or ())
                yield change

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
