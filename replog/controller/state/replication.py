"""Topics and partitions as the metadata log says them, and the indexes that make questions about brokers cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from uuid import UUID

from replog.controller.state.partition_map import PartitionKey, PartitionMap, topics_in_order
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
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineLong, TimelineNestedMap


def in_order(keys: Iterable[PartitionKey]) -> list[PartitionKey]:
    """Sorts keys, so that every controller goes through them in the same order; by topics first, which is a third of the work."""
    by_topic: dict[UUID, list[PartitionKey]] = {}
    for key in keys:
        by_topic.setdefault(key[0], []).append(key)
    return [key for topic_id in topics_in_order(by_topic) for key in sorted(by_topic[topic_id], key=itemgetter(1))]


class ReplicationState:
    """All topics and partitions, changed by `replay_*` only.

    Invariants:
        - `_hosted` says of each broker in how many partitions of each topic it is a replica; ISR and ELR are parts of those, a
          leader is in its ISR;
        - `leaderless` is exactly the partitions with leader -1, `imbalanced` those led by another than the first of their
          replicas, `reassigning` those that are being moved.

    Attributes:
        topics: The names of the topics, by id; partitions of a topic are numbered from 0 without gaps.
        elections: The leader elections that this node has replayed, by how the leader was chosen; not part of the
            state.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.topics: TimelineHashMap[UUID, str] = TimelineHashMap(registry)
        self.topic_ids: TimelineHashMap[str, UUID] = TimelineHashMap(registry)
        self.partitions = PartitionMap[PartitionRegistration](registry)
        self.elections = {election_type: TimelineLong(registry) for election_type in ElectionType}
        self.leaderless = PartitionMap[None](registry)
        self.imbalanced = PartitionMap[None](registry)
        self.reassigning = PartitionMap[None](registry)
        self._hosted = TimelineNestedMap[int, UUID, int](registry)
        self._metric_names: TimelineHashMap[str, str] = TimelineHashMap(registry)
        self._on_change: list[Callable[[PartitionKey, PartitionRegistration], None]] = []
        self._on_removal: list[Callable[[UUID], object]] = []

    # ---- questions --------------------------------------------------------------------------------------------------

    def hosted(self, *broker_ids: int) -> Iterator[PartitionKey]:
        """Yields the partitions that have a replica on one of some brokers, in order.

        Partitions may change meanwhile, topics may not go.
        """
        wanted = frozenset(broker_ids)
        for key in self.beside_hosted(*broker_ids):
            if not wanted.isdisjoint(self.partitions[key].replicas):
                yield key

    def beside_hosted(self, *broker_ids: int) -> Iterator[PartitionKey]:
        """Yields all partitions of the topics that have a replica on one of some brokers, in order.

        What is yielded later may have gone: who lets time pass in between checks that it is there.
        """
        for topic_id in topics_in_order(*(self._hosted.current.get(each, {}) for each in broker_ids)):
            for number in range(self.partitions.count(topic_id)):
                yield topic_id, number

    def partitions_on(self, broker_id: int) -> Iterator[PartitionRegistration]:
        """Yields all partitions of the topics of which a broker has a replica, in no order."""
        partitions = self.partitions.current
        return chain.from_iterable(partitions[each].values() for each in self._hosted.current.get(broker_id, ()))

    def hosted_count(self, broker_id: int) -> int:
        """Returns how many replicas a broker has; a sum over topics."""
        return sum(self._hosted.current.get(broker_id, {}).values())

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(partition.leader == broker_id for partition in self.partitions_on(broker_id))

    def partitions_of(self, topic_id: UUID) -> Iterator[PartitionKey]:
        """Yields the partitions of a topic, in order."""
        return ((topic_id, number) for number in range(self.partitions.count(topic_id)))

    def colliding_name(self, name: str) -> str | None:
        """Finds a topic whose name is the same once "." and "_" are one, as they are in the names of metrics."""
        return self._metric_names.get(name.replace(".", "_"))

    def notify(
        self, on_change: Callable[[PartitionKey, PartitionRegistration], None], on_removal: Callable[[UUID], object]
    ) -> None:
        """Lets functions be called with every partition that changes, and with the id of each topic that is removed."""
        self._on_change.append(on_change)
        self._on_removal.append(on_removal)

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
        """Removes a topic and its partitions, in a time that their number does not matter to; returns its name.

        Raises:
            InvariantViolationError: There is no such topic.
        """
        topic_id = record.topic_id
        name = self._name_or_raise(topic_id)
        for partitions in (self.partitions, self.leaderless, self.imbalanced, self.reassigning):
            partitions.remove(topic_id)
        for broker_id in tuple(self._hosted.current):
            self._hosted.discard(broker_id, topic_id)
        for on_removal in self._on_removal:
            on_removal(topic_id)
        del self.topics[topic_id]
        del self.topic_ids[name]
        self._metric_names.pop(name.replace(".", "_"), None)
        return name

    def replay_partition(self, record: PartitionRecord) -> None:
        """Adds the next partition of a topic.

        Raises:
            InvariantViolationError: There is no such topic, or it is not its next partition.
        """
        topic_id, partition_id = record.topic_id, record.partition_id
        if partition_id != self.partitions.count(topic_id):
            raise InvariantViolationError(
                f"partition {self._name_or_raise(topic_id)}-{partition_id} is not the next one"
            )
        if not partition_id:
            self._name_or_raise(topic_id)
        partition = PartitionRegistration.from_record(record)
        self.partitions.put(topic_id, partition_id, partition)
        self._count_replicas(topic_id, partition.replicas, 1)
        if partition.leader != partition.replicas[0] or partition.is_reassigning:  # what is rare when a topic is made
            self._mark_all((topic_id, partition_id), None, partition)

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
        new = old.merge(record)
        self.partitions.put(*key, new)
        self._index(key, old, new)
        if record.election_type is not None:
            self.elections[record.election_type].increment()

    def _name_or_raise(self, topic_id: UUID) -> str:
        name = self.topics.get(topic_id)
        if name is None:
            raise InvariantViolationError(f"topic {topic_id} does not exist")
        return name

    # ---- indexes ----------------------------------------------------------------------------------------------------

    def _index(self, key: PartitionKey, old: PartitionRegistration, new: PartitionRegistration) -> None:
        if old.replicas != new.replicas:
            self._count_replicas(key[0], old.replicas, -1)
            self._count_replicas(key[0], new.replicas, 1)
            self._mark_all(key, old, new)
        elif old.leader != new.leader or old.is_reassigning or new.is_reassigning:
            self._mark_all(key, old, new)
        for on_change in self._on_change:
            on_change(key, new)

    def _mark_all(self, key: PartitionKey, old: PartitionRegistration | None, new: PartitionRegistration) -> None:
        _mark(self.leaderless, key, _is_leaderless(old), _is_leaderless(new))
        _mark(self.imbalanced, key, _is_imbalanced(old), _is_imbalanced(new))
        _mark(self.reassigning, key, _is_reassigning(old), _is_reassigning(new))

    def _count_replicas(self, topic_id: UUID, replicas: tuple[int, ...], change: int) -> None:
        hosted = self._hosted.current
        for broker_id in replicas:
            topics = hosted.get(broker_id)
            count = change if topics is None else topics.get(topic_id, 0) + change
            if count:
                self._hosted.put(broker_id, topic_id, count)
            else:
                self._hosted.discard(broker_id, topic_id)


def _is_leaderless(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.leader == NO_LEADER


def _is_imbalanced(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.leader != NO_LEADER and partition.leader != partition.replicas[0]


def _is_reassigning(partition: PartitionRegistration | None) -> bool:
    return partition is not None and partition.is_reassigning


def _mark(keys: PartitionMap[None], key: PartitionKey, was: bool, holds: bool) -> None:
    if holds and not was:
        keys.put(*key, None)
    elif was and not holds:
        keys.discard(*key)
