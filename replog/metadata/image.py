"""The cluster as one node knows it: what the metadata log says up to one offset, immutable.

A broker holds one image and swaps it for the next, so a reader never sees half a change.  The next image is made by
`replog.metadata.delta` and shares everything that did not change, of each table and of the partitions of each topic
(`replog.metadata.persistent_map`): what a change costs does not depend on how many topics and partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct, field

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclEntry
from replog.errors import InvariantViolationError
from replog.metadata.config_keys import ConfigKey, ConfigValue
from replog.metadata.quotas import QuotaEntity, described
from replog.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    DrainBrokerRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ResourceType,
    TopicRecord,
    UserScramCredentialRecord,
)
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration
from replog.waiting.sorting import sorted_in_pieces

ConfigResource: TypeAlias = tuple[ResourceType, str]
"""(type, name); the name "" is the cluster-wide default."""

ScramUser: TypeAlias = tuple[str, ScramMechanism]
"""The name of a user, and one of the mechanisms for which something is kept of its password."""

CLUSTER_DEFAULTS: ConfigResource = (ResourceType.BROKER, "")


class TopicImage(Struct, frozen=True):
    """One topic. `partitions` is complete and never changed in place."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionRegistration]


def _no_brokers() -> Mapping[int, BrokerRegistration]:
    return {}


def _no_controllers() -> Mapping[int, RegisterControllerRecord]:
    return {}


def _no_topics_by_id() -> Mapping[UUID, TopicImage]:
    return {}


def _no_topics_by_name() -> Mapping[str, TopicImage]:
    return {}


def _no_partitions() -> Mapping[tuple[UUID, int], PartitionRegistration]:
    return {}


def _no_configs() -> Mapping[ConfigResource, Mapping[str, str]]:
    return {}


def _no_quotas() -> Mapping[QuotaEntity, Mapping[str, float]]:
    return {}


def _no_users() -> Mapping[ScramUser, ScramCredential]:
    return {}


def _no_tokens() -> Mapping[str, DelegationToken]:
    return {}


def _no_features() -> Mapping[str, int]:
    return {}


def _no_acls() -> Mapping[UUID, AclEntry]:
    return {}


class MetadataImage(Struct, frozen=True):
    """Everything the metadata log says below `end_offset`.

    The mappings are never changed in place, by nobody; the empty image is `MetadataImage()`.

    Attributes:
        configs: The text values that were set, by resource; `config_value` applies the defaults.
        acls: The entries of access control lists, by their ids.
        quotas: The quotas of clients by entity and key (`replog.metadata.quotas`).
        next_producer_id: The first producer id that has not been handed out as part of a block.
        drained_brokers: The brokers that an operator wants empty.
        scram_credentials: What is kept of the passwords of users.
        delegation_tokens: The delegation tokens, by their ids.
        open_transaction: The records since a BeginTransactionRecord that has no end yet, None outside of a transaction.
            They count for nothing until the end; an image with some is not one to make a snapshot of.
        awaiting_reports: The partitions with `PartitionRegistration.awaits_reports`, by (topic id, partition): follows
            from the topics, and is here so that a heartbeat does not look through all of them.
        end_offset: The end (exclusive) of what has been replayed.
        epoch: The leader epoch of the last batch replayed, -1 for none.
    """

    brokers: Mapping[int, BrokerRegistration] = field(default_factory=_no_brokers)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=_no_topics_by_id)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=_no_topics_by_name)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_no_configs)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_no_quotas)
    features: Mapping[str, int] = field(default_factory=_no_features)
    scram_credentials: Mapping[ScramUser, ScramCredential] = field(default_factory=_no_users)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=_no_tokens)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=_no_controllers)
    drained_brokers: frozenset[int] = frozenset()
    acls: Mapping[UUID, AclEntry] = field(default_factory=_no_acls)
    open_transaction: tuple[MetadataRecord, ...] | None = None
    next_producer_id: int = 0
    awaiting_reports: Mapping[tuple[UUID, int], PartitionRegistration] = field(default_factory=_no_partitions)
    end_offset: int = 0
    epoch: int = -1

    def partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        """Returns the partition, or None when the topic or the partition is unknown."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def config_value(self, topic_name: str, key: ConfigKey, broker_id: int | None = None) -> ConfigValue:
        """Returns the value in force for a topic: its own, the broker's, the cluster's default, or that of `key`."""
        text = self.configs.get((ResourceType.TOPIC, topic_name), {}).get(key.name)
        if text is None and broker_id is not None:
            text = self.configs.get((ResourceType.BROKER, str(broker_id)), {}).get(key.cluster_name)
        if text is None:
            text = self.configs.get(CLUSTER_DEFAULTS, {}).get(key.cluster_name)
        return key.default if text is None else key.parse(text)


class AwaitedReport(Struct, frozen=True):
    """A partition that gets no leader before this broker has told how far its replica reaches."""

    topic_name: str
    topic_id: UUID
    partition_id: int


def awaiting_report(image: MetadataImage, broker_id: int) -> list[AwaitedReport]:
    """Returns the partitions whose `recovered` election waits for a `ReportReplicas` of this broker.

    Reports live in the memory of the active controller only, so the broker repeats them (with its heartbeats, say)
    for as long as a partition is listed here, under its current broker epoch.

    Returns:
        The partitions in order of topic name and number; empty when nothing waits.
    """
    awaited = [
        AwaitedReport(image.topics_by_id[topic_id].name, topic_id, partition_id)
        for (topic_id, partition_id), partition in image.awaiting_reports.items()
        if broker_id in partition.last_known_elr
    ]
    return sorted(awaited, key=lambda report: (report.topic_name, report.partition_id))


NO_BROKER: Final = -1
"""Stands where a producer ids record names who asked: an image does not know any more."""

_broker_values = attrgetter(*RegisterBrokerRecord.__struct_fields__)
_partition_values = attrgetter(*PartitionRecord.__struct_fields__[2:])  # all but its place


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Returns the records that make `image` of an empty one, in order, lazily: the image never changes.

    Order, Kafka's: features first, so that a reader knows how to take what follows; then brokers, controllers and what
    operators want of them; each topic with its partitions behind it; configurations; access control lists; quotas; users;
    delegation tokens; producer ids.  Within a kind by name or
    number, so that equal images give equal records on every node.

    Raises:
        InvariantViolationError: A transaction is open; its records are no state yet, and a snapshot would lose them.
    """
    if image.open_transaction is not None:
        raise InvariantViolationError(f"the image at offset {image.end_offset} ends inside a transaction")
    return _records(image)


def _records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for name, level in sorted(image.features.items()):
        yield FeatureLevelRecord(name, level)
    for broker_id in sorted(image.brokers):
        yield RegisterBrokerRecord(*_broker_values(image.brokers[broker_id]))
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id]
    for broker_id in sorted(image.drained_brokers):
        yield DrainBrokerRecord(broker_id, drained=True)
    for name in sorted_in_pieces(image.topics_by_name):
        yield from _topic_records(image.topics_by_name[name])
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield ConfigRecord(resource_type, resource_name, name, value)
    yield from _access_records(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(NO_BROKER, NO_BROKER, image.next_producer_id)


def _access_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for acl_id, entry in sorted(image.acls.items()):
        yield AccessControlEntryRecord(acl_id, entry)
    for entity, limits in sorted(image.quotas.items(), key=lambda each: described(each[0])):
        for key, limit in sorted(limits.items()):
            yield ClientQuotaRecord(entity, key, limit)
    for (name, mechanism), kept in sorted(image.scram_credentials.items(), key=itemgetter(0)):
        yield UserScramCredentialRecord(name, mechanism, kept.salt, kept.stored_key, kept.server_key, kept.iterations)
    for _, token in sorted(image.delegation_tokens.items(), key=itemgetter(0)):
        yield DelegationTokenRecord(token)


def _topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.topic_id)
    for partition_id, partition in sorted(topic.partitions.items()):
        yield PartitionRecord(partition_id, topic.topic_id, *_partition_values(partition))
