"""From one image to the next: collects records, then applies them at once.

A broker replays a committed batch into a delta, asks it what changed (`changed_partitions`, `local_changes`, ...),
swaps in the image of `apply`, and reconciles its replicas by the changes: **deletes first, then leaders, then
followers** (kafka-reference 6.7), because a topic may have been deleted and created again in one delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, assert_never
from uuid import UUID

from replog.errors import InvariantViolationError
from replog.metadata.image import ConfigResource, MetadataImage, TopicImage
from replog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True)
class TopicDelta:
    """What changed in one topic; `base` is None when the delta created it."""

    name: str
    topic_id: UUID
    base: TopicImage | None
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict[int, PartitionRegistration])

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """The newest state of a partition, None when there is none."""
        if partition_id in self.partitions:
            return self.partitions[partition_id]
        return None if self.base is None else self.base.partitions.get(partition_id)

    def apply(self) -> TopicImage:
        """The topic after the changes."""
        partitions = dict(self.partitions) if self.base is None else {**self.base.partitions, **self.partitions}
        return TopicImage(self.name, self.topic_id, partitions)


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A partition as one broker has to deal with it."""

    topic_name: str
    topic_id: UUID
    partition_id: int
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """What one broker has to do, in this order.

    Attributes:
        deletes: replicas it no longer has (the registration is the old one).
        leaders: changed partitions that it leads.
        followers: changed partitions that it follows, also those without a leader.
    """

    deletes: tuple[LocalPartition, ...]
    leaders: tuple[LocalPartition, ...]
    followers: tuple[LocalPartition, ...]


class MetadataDelta:
    """The changes since `image`.

    Invariants:
        - `image` is never changed;
        - a record that contradicts what is known raises InvariantViolationError: the log is not what it must be.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        """Newest registration of every broker that changed; None: unregistered."""
        self.changed_topics: dict[UUID, TopicDelta] = {}
        """Every topic that is new or has changed partitions."""
        self.removed_topics: dict[UUID, TopicImage] = {}
        """Topics of the image that were deleted."""
        self.changed_configs: dict[ConfigResource, dict[str, str]] = {}
        """All values of every resource whose configuration changed."""
        self.changed_features: dict[str, int] = {}
        self.next_producer_id = image.next_producer_id
        self._new_names: dict[str, UUID] = {}

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay(self, record: MetadataRecord) -> None:
        """Take in the next record of the log.

        Raises:
            InvariantViolationError: it names a topic, partition or broker incarnation that does not exist.
        """
        match record:
            case RegisterBrokerRecord():
                self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)
            case UnregisterBrokerRecord():
                self._replay_unregister_broker(record)
            case BrokerRegistrationChangeRecord():
                self.changed_brokers[record.broker_id] = self._broker_or_raise(record.broker_id).merge(record)
            case TopicRecord():
                self._replay_topic(record)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case PartitionRecord():
                self._replay_partition(record)
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case ConfigRecord():
                self._replay_config(record)
            case ProducerIdsRecord():
                self._replay_producer_ids(record)
            case FeatureLevelRecord():
                self.changed_features[record.name] = record.level
            case NoOpRecord():
                pass
            case _ as unreachable:
                assert_never(unreachable)

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        if self._broker_or_raise(record.broker_id).broker_epoch != record.broker_epoch:
            raise InvariantViolationError(f"broker {record.broker_id} has no epoch {record.broker_epoch} to unregister")
        self.changed_brokers[record.broker_id] = None

    def _replay_topic(self, record: TopicRecord) -> None:
        if self._topic_id(record.name) is not None:
            raise InvariantViolationError(f'topic "{record.name}" is created twice')
        self.changed_topics[record.topic_id] = TopicDelta(record.name, record.topic_id, base=None)
        self._new_names[record.name] = record.topic_id

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic_or_raise(record.topic_id)
        self.changed_topics.pop(record.topic_id)
        self._new_names.pop(topic.name, None)
        if topic.base is not None:
            self.removed_topics[record.topic_id] = topic.base
        if self._config((ResourceType.TOPIC, topic.name)):
            self.changed_configs[ResourceType.TOPIC, topic.name] = {}

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic = self._topic_or_raise(record.topic_id)
        if topic.partition(record.partition_id) is not None:
            raise InvariantViolationError(f"partition {topic.name}-{record.partition_id} is created twice")
        topic.partitions[record.partition_id] = PartitionRegistration.from_record(record)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic_or_raise(record.topic_id)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise InvariantViolationError(f"change of the unknown partition {topic.name}-{record.partition_id}")
        topic.partitions[record.partition_id] = partition.merge(record)

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = dict(self._config(resource))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self.changed_configs[resource] = values

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            raise InvariantViolationError(
                f"producer ids go back from {self.next_producer_id} to {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    # ---- what is known now ------------------------------------------------------------------------------------------

    def _broker_or_raise(self, broker_id: int) -> BrokerRegistration:
        registration = self.changed_brokers.get(broker_id, self.image.brokers.get(broker_id))
        if registration is None:
            raise InvariantViolationError(f"broker {broker_id} is not registered")
        return registration

    def _topic_id(self, name: str) -> UUID | None:
        if name in self._new_names:
            return self._new_names[name]
        topic = self.image.topics_by_name.get(name)
        return None if topic is None or topic.topic_id in self.removed_topics else topic.topic_id

    def _topic_or_raise(self, topic_id: UUID) -> TopicDelta:
        if (changed := self.changed_topics.get(topic_id)) is not None:
            return changed
        base = self.image.topics_by_id.get(topic_id)
        if base is None or topic_id in self.removed_topics:
            raise InvariantViolationError(f"topic {topic_id} does not exist")
        return self.changed_topics.setdefault(topic_id, TopicDelta(base.name, topic_id, base))

    def _config(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.changed_configs.get(resource, self.image.configs.get(resource, {}))

    # ---- the changes a broker reconciles by -------------------------------------------------------------------------

    def changed_partitions(self) -> dict[tuple[UUID, int], PartitionRegistration]:
        """Newest state of every partition that is new or changed, without those of removed topics."""
        return {
            (topic_id, partition_id): partition
            for topic_id, topic in self.changed_topics.items()
            for partition_id, partition in topic.partitions.items()
        }

    def removed_partitions(self) -> dict[tuple[UUID, int], PartitionRegistration]:
        """Last state of every partition of the image that went with its topic."""
        return {
            (topic_id, partition_id): partition
            for topic_id, topic in self.removed_topics.items()
            for partition_id, partition in topic.partitions.items()
        }

    def local_changes(self, broker_id: int) -> LocalChanges:
        """What this broker has to delete, lead and follow."""
        deletes = [
            LocalPartition(topic.name, topic.topic_id, partition_id, partition)
            for topic in self.removed_topics.values()
            for partition_id, partition in topic.partitions.items()
            if broker_id in partition.replicas
        ]
        leaders: list[LocalPartition] = []
        followers: list[LocalPartition] = []
        for topic in self.changed_topics.values():
            for partition_id, partition in topic.partitions.items():
                local = LocalPartition(topic.name, topic.topic_id, partition_id, partition)
                if partition.leader == broker_id:
                    leaders.append(local)
                elif broker_id in partition.replicas:
                    followers.append(local)
                elif (old := self.image.partition(topic.topic_id, partition_id)) and broker_id in old.replicas:
                    deletes.append(LocalPartition(topic.name, topic.topic_id, partition_id, old))
        return LocalChanges(tuple(deletes), tuple(leaders), tuple(followers))

    # ---- the next image ---------------------------------------------------------------------------------------------

    def apply(self, end_offset: int, epoch: int) -> MetadataImage:
        """The image that holds everything below `end_offset`; tables that did not change are shared.

        Args:
            end_offset: end (exclusive) of the records replayed.
            epoch: leader epoch of the last batch.
        """
        topics = {topic_id: topic.apply() for topic_id, topic in self.changed_topics.items()}
        removed_names = {topic.name: None for topic in self.removed_topics.values()}
        named = {topic.name: topic for topic in topics.values()}
        return MetadataImage(
            brokers=_patched(self.image.brokers, self.changed_brokers),
            topics_by_id=_patched(self.image.topics_by_id, {**dict.fromkeys(self.removed_topics), **topics}),
            topics_by_name=_patched(self.image.topics_by_name, {**removed_names, **named}),
            configs=_patched(
                self.image.configs, {resource: values or None for resource, values in self.changed_configs.items()}
            ),
            features=_patched(self.image.features, self.changed_features),
            next_producer_id=self.next_producer_id,
            end_offset=end_offset,
            epoch=epoch,
        )


def _patched(base: Mapping[_K, _V], changes: Mapping[_K, _V | None]) -> Mapping[_K, _V]:
    """`base` with the changes (None: removed), or `base` itself when there are none."""
    if not changes:
        return base
    patched = dict(base)
    for key, value in changes.items():
        if value is None:
            patched.pop(key, None)
        else:
            patched[key] = value
    return patched
