"""Everything the metadata log determines, and the one way to change it: `replay`.

Active controller and standbys hold the same state at the same offset, whoever made the records; `state_hash` is how
that is checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import assert_never

from replog.controller.broker_registry import BrokerRegistry
from replog.controller.config import ControllerConfig
from replog.controller.configuration import ConfigurationControl
from replog.controller.features import FeatureControl
from replog.controller.producer_ids import ProducerIdControl
from replog.controller.replication_control import ReplicationControl
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
    TopicRecord,
    UnregisterBrokerRecord,
)
from replog_timeline import SnapshotRegistry


class ControllerState:
    """The managers that hold state, over one timeline."""

    def __init__(self, registry: SnapshotRegistry, config: ControllerConfig) -> None:
        self.brokers = BrokerRegistry(registry)
        self.configs = ConfigurationControl(registry)
        self.features = FeatureControl(registry)
        self.producer_ids = ProducerIdControl(registry, self.brokers, config.producer_id_block_size)
        self.replication = ReplicationControl(registry, self.brokers, self.configs)

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Take in the record that stands at `offset` of the metadata log.

        Raises:
            InvariantViolationError: it contradicts the state; the log is not what it must be.
        """
        match record:
            case RegisterBrokerRecord():
                self.brokers.replay_register(record, offset)
            case UnregisterBrokerRecord():
                self.brokers.replay_unregister(record)
            case BrokerRegistrationChangeRecord():
                self.brokers.replay_change(record)
            case TopicRecord():
                self.replication.replay_topic(record)
            case RemoveTopicRecord():
                self.configs.replay_remove_topic(self.replication.replay_remove_topic(record))
            case PartitionRecord():
                self.replication.replay_partition(record)
            case PartitionChangeRecord():
                self.replication.replay_partition_change(record)
            case ConfigRecord():
                self.configs.replay(record)
            case ProducerIdsRecord():
                self.producer_ids.replay(record)
            case FeatureLevelRecord():
                self.features.replay(record)
            case NoOpRecord():
                pass
            case _ as unreachable:
                assert_never(unreachable)

    def state_hash(self, end_offset: int) -> str:
        """SHA-256 of the state after everything below `end_offset`, where a batch must end.

        Costs a walk over the whole state: for checks, not for every step.

        Raises:
            replog_timeline.TimelineError: there is no timeline snapshot at `end_offset`.
        """
        replication = self.replication
        configs = {key: sorted(values.items()) for key, values in self.configs.values.items(epoch=end_offset)}
        counters = (self.producer_ids.next_producer_id, *replication.elections.values())
        tables: tuple[Iterable[tuple[object, object]], ...] = (
            replication.topics.items(epoch=end_offset),
            replication.topic_ids.items(epoch=end_offset),
            replication.partitions.items(epoch=end_offset),
            self.brokers.registrations.items(epoch=end_offset),
            self.brokers.register_offsets.items(epoch=end_offset),
            self.features.levels.items(epoch=end_offset),
            configs.items(),
            enumerate(counter.get(epoch=end_offset) for counter in counters),
        )
        digest = hashlib.sha256()
        for table in tables:
            digest.update(repr(sorted(f"{key!r}={value!r}" for key, value in table)).encode())
        return digest.hexdigest()
