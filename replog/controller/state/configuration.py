"""Configurations of topics, brokers and the cluster: validated here, in force once replayed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from replog.controller.requests import AlterableConfig, ConfigEntry, ConfigOperation
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import ConfigError
from replog.metadata.config_keys import (
    CLUSTER_WIDE,
    FLUSH_POLICY,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    ChoicesType,
    ConfigKey,
    ConfigValue,
    FlushPolicy,
    config_key_or_raise,
    shortened,
)
from replog.metadata.image import CLUSTER_DEFAULTS, ConfigResource
from replog.metadata.records import ConfigRecord, ResourceType
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineObject

_NO_VALUES: Mapping[str, str] = {}
_ID_DIGITS_MAX = 10
CONFIGS_MAX = 200
"""How many configurations a resource has at most: each listener may have its own limits, and any name of a listener is taken."""


class ElectionSettings(Struct, frozen=True):
    """What elections in one topic go by.

    Attributes:
        min_isr: The value of min.insync.replicas, which may be more than the topic has replicas.
        unclean_allowed: Whether availability goes before acknowledged records.
        always_flushes: Whether every acknowledged record was on the disk of every in-sync replica first.
    """

    min_isr: int
    unclean_allowed: bool
    always_flushes: bool


class ConfigurationControl:
    """Text values by resource, one immutable mapping each.

    `pending` of the reading methods are records that the batch being made puts before the reader's own: they win.

    Args:
        registry: The timeline of the controller.
        static_names: The names that only the configuration files of nodes may have.
    """

    def __init__(self, registry: SnapshotRegistry, static_names: frozenset[str] = frozenset()) -> None:
        self._static_names = static_names
        self.values: TimelineHashMap[ConfigResource, Mapping[str, str]] = TimelineHashMap(registry)
        self._version: TimelineObject[object] = TimelineObject(registry, object())  # another one after every change
        self._remembered_version: object = None
        self._remembered: dict[str, ElectionSettings] = {}

    # ---- changes ----------------------------------------------------------------------------------------------------

    def initial(self, topic_name: str, entries: Sequence[ConfigEntry]) -> tuple[ConfigRecord, ...]:
        """Makes the records of a new topic's configuration.

        Raises:
            ConfigError: An entry is refused as by `change`, or its value is missing.
        """
        if not entries:
            return ()
        for entry in entries:
            if entry.value is None:
                raise ConfigError(entry.name, None, f'configuration "{entry.name}" of a new topic needs a value')
        set_all = [AlterableConfig(entry.name, ConfigOperation.SET, entry.value) for entry in entries]
        return self.change(ResourceType.TOPIC, topic_name, set_all)

    def change(
        self,
        resource_type: ResourceType,
        resource_name: str,
        configs: Sequence[AlterableConfig],
        *,
        replaces: bool = False,
    ) -> tuple[ConfigRecord, ...]:
        """Makes the records that alter `configs`, and, where these replace all, remove the others; none for what is so already.

        Raises:
            ConfigError: A name is unknown there or given twice, a value is missing, not of its type or out of range, the
                name of the resource is none of a broker, or what elections of the whole cluster go by would go unnamed.
        """
        if resource_type is ResourceType.BROKER and resource_name and not _is_broker_id(resource_name):
            problem = f'"{shortened(resource_name)}" is no broker id; "" is the cluster-wide default'
            raise ConfigError(resource_name, None, problem)
        stored = self.values.get((resource_type, resource_name), _NO_VALUES)
        records: dict[str, ConfigRecord] = {}
        for config in configs:
            if config.name in records:
                raise ConfigError(config.name, config.value, f'configuration "{config.name}" is given twice')
            key = config_key_or_raise(resource_type, config.name, resource_name, self._static_names)
            value = self._new_value(key, config, stored.get(config.name))
            records[config.name] = ConfigRecord(resource_type, resource_name, config.name, value)
        for name in _unnamed(resource_type, resource_name, stored, records) if replaces else ():
            records[name] = ConfigRecord(resource_type, resource_name, name, None)
        count = len(stored) + sum(record.name not in stored for record in records.values())
        if count > CONFIGS_MAX:
            raise ConfigError(
                resource_name, None, f"the resource has {count} configurations; it may have {CONFIGS_MAX}"
            )
        return tuple(record for record in records.values() if stored.get(record.name) != record.value)

    def _new_value(self, key: ConfigKey, config: AlterableConfig, stored: str | None) -> str | None:
        if config.operation is ConfigOperation.DELETE:
            return None
        if config.value is None:
            raise ConfigError(config.name, None, f'configuration "{config.name}" is set to nothing; delete it instead')
        if config.operation is ConfigOperation.SET:
            return key.canonical(config.value)
        if not isinstance(key.type, ChoicesType):
            problem = f"{config.operation.name} changes a list, and {config.name} is none; set it"
            raise ConfigError(config.name, config.value, problem)
        words = str(self.cluster_value(key, key.default) if stored is None else stored).split(",")
        named = [word.strip() for word in config.value.split(",")]
        if config.operation is ConfigOperation.APPEND:
            return key.canonical(",".join((*words, *(word for word in named if word not in words))))
        return key.canonical(",".join(word for word in words if word not in named))

    # ---- what is in force -------------------------------------------------------------------------------------------

    def election_settings(self, topic_name: str, pending: Sequence[ConfigRecord] = ()) -> ElectionSettings:
        """Returns what elections in a topic go by; it is remembered until a configuration changes."""
        if pending:
            return self._election_settings(topic_name, pending)
        version = self._version.get()
        if version is not self._remembered_version:
            self._remembered_version, self._remembered = version, {}
        settings = self._remembered.get(topic_name)
        if settings is None:
            settings = self._remembered[topic_name] = self._election_settings(topic_name, ())
        return settings

    def _election_settings(self, topic_name: str, pending: Sequence[ConfigRecord]) -> ElectionSettings:
        return ElectionSettings(
            int(self._effective(topic_name, MIN_INSYNC_REPLICAS, pending)),
            self._effective(topic_name, UNCLEAN_LEADER_ELECTION_ENABLE, pending) is True,
            self._effective(topic_name, FLUSH_POLICY, pending) == FlushPolicy.ALWAYS,
        )

    def cluster_value(self, key: ConfigKey, otherwise: ConfigValue) -> ConfigValue:
        """Returns the cluster-wide value of a key, `otherwise` where none is set."""
        text = self.values.get(CLUSTER_DEFAULTS, _NO_VALUES).get(key.cluster_name)
        return otherwise if text is None else key.parse(text)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(ConfigRecord, self.replay)])

    def replay(self, record: ConfigRecord) -> None:
        """Puts a value in force, or removes it."""
        self._version.set(object())
        resource = (record.resource_type, record.resource_name)
        values = dict(self.values.get(resource, _NO_VALUES))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.values[resource] = values
        else:
            self.values.pop(resource, None)

    def replay_remove_topic(self, topic_name: str) -> None:
        """Removes the configuration of a topic that is deleted."""
        if self.values.pop((ResourceType.TOPIC, topic_name), None) is not None:
            self._version.set(object())

    def _effective(self, topic_name: str, key: ConfigKey, pending: Sequence[ConfigRecord] = ()) -> ConfigValue:
        text = self._text((ResourceType.TOPIC, topic_name), key.name, pending)
        if text is None:
            text = self._text(CLUSTER_DEFAULTS, key.cluster_name, pending)
        return key.default if text is None else key.parse(text)

    def _text(self, resource: ConfigResource, name: str, pending: Sequence[ConfigRecord]) -> str | None:
        for record in pending:
            if (record.resource_type, record.resource_name) == resource and record.name == name:
                return record.value
        return self.values.get(resource, _NO_VALUES).get(name)


def _is_broker_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _ID_DIGITS_MAX and str(int(text)) == text


def _unnamed(
    resource_type: ResourceType, resource_name: str, stored: Mapping[str, str], named: Collection[str]
) -> list[str]:
    """Returns what is stored and not named.

    Raises:
        ConfigError: Durability would fall back to a default unnoticed.
    """
    unnamed = [name for name in stored if name not in named]
    if (resource_type, resource_name) == CLUSTER_DEFAULTS:
        needed = [key.cluster_name for key in CLUSTER_WIDE if key.cluster_name in unnamed]
        if needed:
            problem = f"what replaces all configurations of the cluster names {', '.join(sorted(needed))}, too"
            raise ConfigError(min(needed), None, f"{problem}; or alter single ones (incrementally)")
    return unnamed
