"""Topics and partitions as the metadata log says them, and the indexes that make questions about brokers cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TypeAlias
from uuid import UUID

from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import InvariantViolationError
from replog.metadata.records import (
    NO_LEADER,
    ElectionType,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replog.metadata.registrations import PartitionRegistration
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineHashSet, TimelineLong

PartitionKey: TypeAlias = tuple[UUID, int]


def in_order(keys: Iterable[PartitionKey]) -> list[PartitionKey]:
    """Sorts keys, so that every controller goes through them in the same order; by topics first, which is a third of the work."""
    by_topic: dict[int, list[PartitionKey]] = {}
    for key in keys:
        by_topic.setdefault(key[0].int, []).append(key)
    return [key for topic in sorted(by_topic) for key in sorted(by_topic[topic], key=itemgetter(1))]


class ReplicationState:
    """All topics and partitions, changed by `replay_*` only.

    Invariants:
        - `hosted(b)` is exactly the partitions with b in their replicas; ISR and ELR are parts of those, a leader is in its
          ISR;
        - `leaderless` is exactly the partitions with leader -1, `imbalanced` those led by another than the first of their
          replicas, `reassigning` those that are being moved.

    Attributes:
        topics: The names of the topics, by id; partitions of a topic are numbered from 0 without gaps.
        elections: The leader elections that this node has replayed, by how the leader was chosen; not part of the
            state.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self.topics: TimelineHashMap[UUID, str] = TimelineHashMap(registry)
        self.topic_ids: TimelineHashMap[str, UUID] = TimelineHashMap(registry)
        self.partitions: TimelineHashMap[PartitionKey, PartitionRegistration] = TimelineHashMap(registry)
        self.elections = {election_type: TimelineLong(registry) for election_type in ElectionType}
        self.leaderless: TimelineHashSet[PartitionKey] = TimelineHashSet(registry)
        self.imbalanced: TimelineHashSet[PartitionKey] = TimelineHashSet(registry)
        self.reassigning: TimelineHashSet[PartitionKey] = TimelineHashSet(registry)
        self._hosted: dict[int, TimelineHashSet[PartitionKey]] = {}
        self._metric_names: TimelineHashMap[str, str] = TimelineHashMap(registry)
        self._on_change: list[Callable[[PartitionKey, PartitionRegistration | None], None]] = []

    # ---- questions --------------------------------------------------------------------------------------------------

    def hosted(self, broker_id: int) -> Iterable[PartitionKey]:
        """Returns the partitions that have a replica on a broker, in no order."""
        return self._hosted.get(broker_id, ())

    def hosted_count(self, broker_id: int) -> int:
        """Returns how many replicas a broker has."""
        hosted = self._hosted.get(broker_id)
        return 0 if hosted is None else len(hosted)

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(self.partitions[key].leader == broker_id for key in self.hosted(broker_id))

    def partitions_of(self, topic_id: UUID) -> Iterator[PartitionKey]:
        """Yields the partitions of a topic, in order."""
        key = (topic_id, 0)
        while key in self.partitions:
            yield key
            key = (topic_id, key[1] + 1)

    def partitions_count(self, topic_id: UUID) -> int:
        """Counts the partitions of a topic; costs as many look-ups."""
        return sum(1 for _ in self.partitions_of(topic_id))

    def colliding_name(self, name: str) -> str | None:
        """Finds a topic whose name is the same once "." and "_" are one, as they are in the names of metrics."""
        return self._metric_names.get(name.replace(".", "_"))

    def notify(self, on_change: Callable[[PartitionKey, PartitionRegistration | None], None]) -> None:
        """Lets `on_change` be called with every partition that changes; None: it is gone."""
        self._on_change.append(on_change)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`).

        The removal of a topic concerns its configuration too and is `ControllerState`'s.
        """
        return dict(
            (
                on_record(TopicRecord, self.replay_topic),
                on_record(PartitionRecord, self.replay_partition),
                on_record(PartitionChangeRecord, self.replay_partition_change),
            )
        )

    def replay_topic(self, record: TopicRecord) -> None:
        """Adds a topic without partitions yet.

        Raises:
            InvariantViolationError: The name or the id exists.
        """
        name, topic_id = record.name, record.topic_id
        if name in self.topic_ids or topic_id in self.topics:
            raise InvariantViolationError(f'topic "{name}" is created twice')
        self.topics[topic_id] = name
        self.topic_ids[name] = topic_id
        if "." in name or "_" in name:
            self._metric_names[name.replace(".", "_")] = name

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Removes a topic and its partitions; returns its name.

        Raises:
            InvariantViolationError: There is no such topic.
        """
        name = self._name_or_raise(record.topic_id)
        keys = list(self.partitions_of(record.topic_id))
        removed = self.partitions.remove_keys(keys)
        hosts = {replica for partition in removed.values() for replica in partition.replicas}
        for marked in (self.leaderless, self.imbalanced, self.reassigning, *(self._hosted[host] for host in hosts)):
            marked.remove_keys(keys)
        for on_change in self._on_change:
            for key in keys:
                on_change(key, None)
        del self.topics[record.topic_id]
        del self.topic_ids[name]
        self._metric_names.pop(name.replace(".", "_"), None)
        return name

    def replay_partition(self, record: PartitionRecord) -> None:
        """Adds the next partition of a topic.

        Raises:
            InvariantViolationError: There is no such topic, or it is not its next partition.
        """
        topic_id, partition_id = record.topic_id, record.partition_id
        key = (topic_id, partition_id)
        partitions = self.partitions
        if key in partitions or (partition_id and (topic_id, partition_id - 1) not in partitions):
            raise InvariantViolationError(
                f"partition {self._name_or_raise(topic_id)}-{partition_id} is not the next one"
            )
        if topic_id not in self.topics:
            self._name_or_raise(topic_id)
        partition = partitions[key] = PartitionRegistration.from_record(record)
        self._index_replicas(key, (), partition.replicas)
        if partition.leader != partition.replicas[0] or partition.is_reassigning:  # what is rare when a topic is made
            self._mark_all(key, None, partition)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Merges a change into its partition.

        Raises:
            InvariantViolationError: There is no such partition.
        """
        key = (record.topic_id, record.partition_id)
        old = self.partitions.get(key)
        if old is None:
            name = self._name_or_raise(record.topic_id)
            raise InvariantViolationError(f"change of the unknown partition {name}-{record.partition_id}")
        new = self.partitions[key] = old.merge(record)
        self._index(key, old, new)
        if record.election_type is not None:
            self.elections[record.election_type].increment()

    def _name_or_raise(self, topic_id: UUID) -> str:
        name = self.topics.get(topic_id)
        if name is None:
            raise InvariantViolationError(f"topic {topic_id} does not exist")
        return name

    # ---- indexes ----------------------------------------------------------------------------------------------------

    def _index(self, key: PartitionKey, old: PartitionRegistration | None, new: PartitionRegistration | None) -> None:
        old_replicas = () if old is None else old.replicas
        new_replicas = () if new is None else new.replicas
        if old_replicas != new_replicas:
            self._index_replicas(key, old_replicas, new_replicas)
            self._mark_all(key, old, new)
        elif (
            old is not None
            and new is not None
            and (old.leader != new.leader or old.is_reassigning or new.is_reassigning)
        ):
            self._mark_all(key, old, new)
        for on_change in self._on_change:
            on_change(key, new)

    def _mark_all(
        self, key: PartitionKey, old: PartitionRegistration | None, new: PartitionRegistration | None
    ) -> None:
        _mark(self.leaderless, key, _is_leaderless(old), _is_leaderless(new))
        _mark(self.imbalanced, key, _is_imbalanced(old), _is_imbalanced(new))
        _mark(self.reassigning, key, _is_reassigning(old), _is_reassigning(new))

    def _index_replicas(self, key: PartitionKey, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        for broker_id in old:
            if broker_id not in new:
                self._hosted[broker_id].discard(key)
        for broker_id in new:
            if broker_id not in old:
                hosted = self._hosted.get(broker_id)
                if hosted is None:
                    hosted = self._hosted[broker_id] = TimelineHashSet(self._registry)
                hosted.add(key)


def _is_leaderless(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.leader == NO_LEADER


def _is_imbalanced(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.leader != NO_LEADER and partition.leader != partition.replicas[0]


def _is_reassigning(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.is_reassigning


def _mark(keys: TimelineHashSet[PartitionKey], key: PartitionKey, was: bool, holds: bool) -> None:
    if holds and not was:
        keys.add(key)
    elif was and not holds:
        keys.discard(key)
