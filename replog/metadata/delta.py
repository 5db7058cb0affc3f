"""From one image to the next: collects records, then applies them at once.

A broker replays a committed batch into a delta, asks it what changed (`changed_partitions`, `local_changes`, ...),
swaps in the image of `apply`, and reconciles its replicas by the changes: **deletes first, then leaders, then
followers** (docs/KAFKA.md 6.7), because a topic may have been deleted and created again in one delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never
from uuid import UUID

from msgspec import Struct, field

from replog.access.credentials import ScramCredential
from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclEntry
from replog.errors import InvariantViolationError
from replog.metadata.image import ConfigResource, MetadataImage, ScramUser, TopicImage
from replog.metadata.persistent_map import PersistentMap, difference, patched
from replog.metadata.quotas import QuotaEntity
from replog.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    DrainBrokerRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration

_AccessRecord: TypeAlias = (
    ClientQuotaRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)
_NodeRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | DrainBrokerRecord
    | RegisterControllerRecord
)


class TopicDelta(Struct):
    """What changed in one topic; `base` is None when the delta created it."""

    name: str
    topic_id: UUID
    base: TopicImage | None
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict[int, PartitionRegistration])

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """Returns the newest state of a partition, None when there is none."""
        if partition_id in self.partitions:
            return self.partitions[partition_id]
        return None if self.base is None else self.base.partitions.get(partition_id)

    def apply(self) -> TopicImage:
        """Returns the topic after the changes."""
        if self.base is None:
            return TopicImage(self.name, self.topic_id, PersistentMap(self.partitions))
        return TopicImage(self.name, self.topic_id, patched(self.base.partitions, self.partitions))


class LocalPartition(Struct, frozen=True):
    """A partition as one broker has to deal with it."""

    topic_name: str
    topic_id: UUID
    partition_id: int
    registration: PartitionRegistration


class LocalChanges(Struct, frozen=True):
    """What one broker has to do, in this order.

    Attributes:
        deletes: The replicas it no longer has (the registration is the old one).
        leaders: The changed partitions that it leads.
        followers: The changed partitions that it follows, also those without a leader.
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
        self.changed_quotas: dict[QuotaEntity, dict[str, float]] = {}
        """All quotas of every entity of which one changed."""
        self.changed_users: dict[ScramUser, ScramCredential | None] = {}
        """What is kept of the passwords that changed; None: nothing any more."""
        self.changed_tokens: dict[str, DelegationToken | None] = {}
        """The delegation tokens that changed, by id; None: it is gone."""
        self.changed_features: dict[str, int | None] = {}
        """Level of every feature that changed; None: no longer known, which only a snapshot can say."""
        self.changed_controllers: dict[int, RegisterControllerRecord | None] = {}
        """Newest registration of every controller that registered; None: no longer known, which only a snapshot can say."""
        self.changed_acls: dict[UUID, AclEntry | None] = {}
        """Every entry of an access control list that is new, by its id; None: it is gone."""
        self.drained_brokers: frozenset[int] = image.drained_brokers
        """The brokers that an operator wants empty, after the changes."""
        self.next_producer_id = image.next_producer_id
        self._transaction = None if image.open_transaction is None else list(image.open_transaction)
        self._new_names: dict[str, UUID] = {}
        self._topics_by_id, self._topics_by_name = image.topics_by_id, image.topics_by_name
        self._unprepared: dict[UUID, str] = {}  # topics that these do not show as they are now, and their names

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> MetadataDelta:
        """Returns the changes that lead from one image to another, whatever records did: as after loading a snapshot.

        `before` may be empty: then everything is new.  Costs what the images do not share.

        Raises:
            InvariantViolationError: A topic lost a partition or its name, which no record can do.
        """
        delta = cls(before)
        delta.changed_brokers = difference(before.brokers, after.brokers)
        delta.changed_controllers = difference(before.controllers, after.controllers)
        delta.changed_features = difference(before.features, after.features)
        delta.changed_acls = difference(before.acls, after.acls)
        delta.changed_users = difference(before.scram_credentials, after.scram_credentials)
        delta.changed_tokens = difference(before.delegation_tokens, after.delegation_tokens)
        delta.changed_configs = {
            resource: dict(values or {}) for resource, values in difference(before.configs, after.configs).items()
        }
        delta.changed_quotas = {
            entity: dict(values or {}) for entity, values in difference(before.quotas, after.quotas).items()
        }
        delta.drained_brokers = after.drained_brokers
        delta.next_producer_id = after.next_producer_id
        delta._transaction = None if after.open_transaction is None else list(after.open_transaction)
        for topic_id, topic in difference(before.topics_by_id, after.topics_by_id).items():
            delta._add_topic_difference(before.topics_by_id.get(topic_id), topic)
        return delta

    def _add_topic_difference(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if (named := after or before) is not None:
            self._unprepared[named.topic_id] = named.name
        if after is None:
            if before is not None:
                self.removed_topics[before.topic_id] = before
            return
        if before is None:
            self.changed_topics[after.topic_id] = TopicDelta(after.name, after.topic_id, None, dict(after.partitions))
            self._new_names[after.name] = after.topic_id
            return
        partitions: dict[int, PartitionRegistration] = {}
        for partition_id, partition in difference(before.partitions, after.partitions).items():
            if partition is None:
                raise InvariantViolationError(f"partition {before.name}-{partition_id} is gone without its topic")
            partitions[partition_id] = partition
        if before.name != after.name:
            raise InvariantViolationError(f'topic {before.topic_id} was "{before.name}" and is "{after.name}"')
        self.changed_topics[after.topic_id] = TopicDelta(after.name, after.topic_id, before, partitions)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay(self, record: MetadataRecord) -> None:
        """Takes in the next record of the log.

        Raises:
            InvariantViolationError: It names a topic, partition or broker incarnation that does not exist, or a
                transaction begins or ends where none can.
        """
        match record:
            case BeginTransactionRecord() | EndTransactionRecord() | AbortTransactionRecord():
                self._replay_transaction_mark(record)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case AccessControlEntryRecord():  # thousands may come in one step
                self.changed_acls[record.acl_id] = record.entry
            case RemoveAccessControlEntryRecord():
                self._replay_remove_acl(record)
            case TopicRecord() | RemoveTopicRecord() | PartitionRecord() | PartitionChangeRecord():
                self._replay_topics(record)
            case ConfigRecord():
                self._replay_config(record)
            case ProducerIdsRecord():
                self._replay_producer_ids(record)
            case FeatureLevelRecord():
                self.changed_features[record.name] = record.level or None  # 0 removes it
            case NoOpRecord():
                pass
            case _:
                self._replay_access(record)

    def _replay_transaction_mark(
        self, record: BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord
    ) -> None:
        if isinstance(record, BeginTransactionRecord):
            if self._transaction is not None:
                raise InvariantViolationError(f'transaction "{record.name}" begins inside another one')
            self._transaction = []
            return
        held, self._transaction = self._transaction, None
        if held is None:
            raise InvariantViolationError("a transaction ends that never began")
        if isinstance(record, EndTransactionRecord):
            for each in held:
                self.replay(each)

    def _replay_topics(self, record: TopicRecord | RemoveTopicRecord | PartitionRecord | PartitionChangeRecord) -> None:
        match record:
            case PartitionRecord():
                self._replay_partition(record)
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case TopicRecord():
                self._replay_topic(record)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case _ as unreachable:
                assert_never(unreachable)

    def _replay_access(self, record: _AccessRecord | _NodeRecord) -> None:
        match record:
            case ClientQuotaRecord():
                self._replay_quota(record)
            case UserScramCredentialRecord():
                self.changed_users[record.name, record.mechanism] = record.credential
            case RemoveUserScramCredentialRecord():
                self.changed_users[record.name, record.mechanism] = None
            case DelegationTokenRecord():
                self.changed_tokens[record.token.token_id] = record.token
            case RemoveDelegationTokenRecord():
                self.changed_tokens[record.token_id] = None
            case _:
                self._replay_nodes(record)

    def _replay_nodes(self, record: _NodeRecord) -> None:
        match record:
            case RegisterBrokerRecord():
                self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)
            case UnregisterBrokerRecord():
                self._replay_unregister_broker(record)
            case BrokerRegistrationChangeRecord():
                self.changed_brokers[record.broker_id] = self._broker_or_raise(record.broker_id).merge(record)
            case DrainBrokerRecord():
                drained = {*self.drained_brokers, record.broker_id}
                self.drained_brokers = frozenset(drained if record.drained else drained - {record.broker_id})
            case RegisterControllerRecord():
                self.changed_controllers[record.controller_id] = record
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
        self._unprepared[record.topic_id] = record.name
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

    def _replay_remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        acl_id = record.acl_id
        known = self.changed_acls if acl_id in self.changed_acls else self.image.acls
        if known.get(acl_id) is None:
            raise InvariantViolationError(f"there is no entry {record.acl_id} of an access control list to remove")
        self.changed_acls[acl_id] = None

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        values = dict(self.changed_quotas.get(record.entity, self.image.quotas.get(record.entity, {})))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        self.changed_quotas[record.entity] = values

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
        changed = self.changed_topics.get(topic_id)
        if changed is None:
            base = self.image.topics_by_id.get(topic_id)
            if base is None or topic_id in self.removed_topics:
                raise InvariantViolationError(f"topic {topic_id} does not exist")
            changed = self.changed_topics[topic_id] = TopicDelta(base.name, topic_id, base)
        self._unprepared[topic_id] = changed.name
        return changed

    def _config(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.changed_configs.get(resource, self.image.configs.get(resource, {}))

    # ---- the changes a broker reconciles by -------------------------------------------------------------------------

    def changed_partitions(self) -> dict[tuple[UUID, int], PartitionRegistration]:
        """Returns the newest state of every partition that is new or changed, without those of removed topics."""
        return {
            (topic_id, partition_id): partition
            for topic_id, topic in self.changed_topics.items()
            for partition_id, partition in topic.partitions.items()
        }

    def local_changes(self, broker_id: int) -> LocalChanges:
        """Returns what this broker has to delete, lead and follow."""
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

    def prepare(self) -> None:
        """Makes the tables of `apply` ahead, for the topics that have changed since the last call."""
        topics = {topic_id: self.changed_topics.get(topic_id) for topic_id in self._unprepared}
        images = {topic_id: None if topic is None else topic.apply() for topic_id, topic in topics.items()}
        removed_names = {name: None for topic_id, name in self._unprepared.items() if images[topic_id] is None}
        named = {image.name: image for image in images.values() if image is not None}
        self._topics_by_id = patched(self._topics_by_id, images)
        self._topics_by_name = patched(self._topics_by_name, {**removed_names, **named})
        self._unprepared.clear()

    def apply(self, end_offset: int, epoch: int) -> MetadataImage:
        """Returns the image that holds everything below `end_offset`; tables that did not change are shared.

        Args:
            end_offset: The end (exclusive) of the records replayed.
            epoch: The leader epoch of the last batch.
        """
        self.prepare()
        return MetadataImage(
            brokers=patched(self.image.brokers, self.changed_brokers),
            topics_by_id=self._topics_by_id,
            topics_by_name=self._topics_by_name,
            configs=patched(
                self.image.configs, {resource: values or None for resource, values in self.changed_configs.items()}
            ),
            quotas=patched(
                self.image.quotas, {entity: values or None for entity, values in self.changed_quotas.items()}
            ),
            scram_credentials=patched(self.image.scram_credentials, self.changed_users),
            delegation_tokens=patched(self.image.delegation_tokens, self.changed_tokens),
            features=patched(self.image.features, self.changed_features),
            controllers=patched(self.image.controllers, self.changed_controllers),
            drained_brokers=self.drained_brokers,
            acls=patched(self.image.acls, self.changed_acls),
            open_transaction=None if self._transaction is None else tuple(self._transaction),
            next_producer_id=self.next_producer_id,
            awaiting_reports=patched(self.image.awaiting_reports, self._awaiting_changes()),
            end_offset=end_offset,
            epoch=epoch,
        )

    def _awaiting_changes(self) -> dict[tuple[UUID, int], PartitionRegistration | None]:
        awaiting = self.image.awaiting_reports
        changes: dict[tuple[UUID, int], PartitionRegistration | None] = {
            (topic_id, partition_id): None
            for topic_id, topic in self.removed_topics.items()
            for partition_id in topic.partitions
            if (topic_id, partition_id) in awaiting
        }
        for key, partition in self.changed_partitions().items():
            if partition.awaits_reports:
                changes[key] = partition
            elif key in awaiting:
                changes[key] = None
        return changes
