"""Configurations of topics and the cluster-wide defaults: validated here, in force once replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replog.controller.messages import ConfigEntry
from replog.errors import ConfigError
from replog.metadata.config_keys import (
    FLUSH_POLICY,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    ConfigKey,
    ConfigValue,
    FlushPolicy,
    config_key_or_raise,
)
from replog.metadata.image import CLUSTER_DEFAULTS, ConfigResource
from replog.metadata.records import ConfigRecord, ResourceType
from replog_timeline import SnapshotRegistry, TimelineHashMap


class ConfigurationControl:
    """Text values by resource, one immutable mapping each.

    `pending` of the reading methods are records that the batch being made puts before the reader's own: they win.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.values: TimelineHashMap[ConfigResource, Mapping[str, str]] = TimelineHashMap(registry)

    def change(
        self, resource_type: ResourceType, resource_name: str, entries: Sequence[ConfigEntry]
    ) -> tuple[ConfigRecord, ...]:
        """The records that set or remove `entries`; nothing for what has the value already.

        Raises:
            ConfigError: a name is unknown or given twice, a value is not of its type or out of range, or the resource is a
                single broker.
        """
        if resource_type is ResourceType.BROKER and resource_name:
            raise ConfigError(
                resource_name,
                None,
                "configurations are set per topic or for the whole cluster (resource name empty), not per broker",
            )
        records: dict[str, ConfigRecord] = {}
        for entry in entries:
            if entry.name in records:
                raise ConfigError(entry.name, entry.value, f'configuration "{entry.name}" is given twice')
            key = config_key_or_raise(resource_type, entry.name)
            if entry.value is not None:
                key.parse(entry.value)
            records[entry.name] = ConfigRecord(resource_type, resource_name, entry.name, entry.value)
        return tuple(record for record in records.values() if self._changes(record))

    def min_isr(self, topic_name: str, replicas_count: int, pending: Sequence[ConfigRecord] = ()) -> int:
        """Effective min.insync.replicas: never more than there are replicas."""
        value = self._effective(topic_name, MIN_INSYNC_REPLICAS, pending)
        return min(int(value), replicas_count)

    def unclean_election_allowed(self, topic_name: str, pending: Sequence[ConfigRecord] = ()) -> bool:
        """Whether availability goes before acknowledged records for this topic."""
        return self._effective(topic_name, UNCLEAN_LEADER_ELECTION_ENABLE, pending) is True

    def always_flushes(self, topic_name: str) -> bool:
        """Whether every acknowledged record of this topic was on the disk of every in-sync replica first."""
        return self._effective(topic_name, FLUSH_POLICY) == FlushPolicy.ALWAYS

    def replay(self, record: ConfigRecord) -> None:
        """The value is in force."""
        resource = (record.resource_type, record.resource_name)
        values = dict(self.values.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.values[resource] = values
        else:
            self.values.pop(resource, None)

    def replay_remove_topic(self, topic_name: str) -> None:
        """The topic's configuration goes with it."""
        self.values.pop((ResourceType.TOPIC, topic_name), None)

    def _changes(self, record: ConfigRecord) -> bool:
        return self._stored((record.resource_type, record.resource_name), record.name) != record.value

    def _effective(self, topic_name: str, key: ConfigKey, pending: Sequence[ConfigRecord] = ()) -> ConfigValue:
        text = self._text((ResourceType.TOPIC, topic_name), key.name, pending)
        if text is None:
            text = self._text(CLUSTER_DEFAULTS, key.cluster_name, pending)
        return key.default if text is None else key.parse(text)

    def _text(self, resource: ConfigResource, name: str, pending: Sequence[ConfigRecord]) -> str | None:
        for record in pending:
            if (record.resource_type, record.resource_name) == resource and record.name == name:
                return record.value
        return self._stored(resource, name)

    def _stored(self, resource: ConfigResource, name: str) -> str | None:
        return self.values.get(resource, {}).get(name)
