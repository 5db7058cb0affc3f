"""The configuration in force for a topic, a broker, a node or the cluster, and where each value comes from.

The places in which a value is looked for stand in `replog.metadata.config_keys`; a node's own configuration file comes
after them, before the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from replog.config.keys import Key
from replog.config.server import ServerConfig
from replog.config.server_keys import KEYS
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    CONFIG_KEYS,
    CONTROLLER_KEYS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    ConfigKey,
)
from replog.metadata.image import CLUSTER_DEFAULTS, ConfigResource, MetadataImage
from replog.metadata.records import ResourceType
from replog.rpc.config_messages import ConfigDescription


def describe_configs(
    image: MetadataImage, config: ServerConfig, resource_type: ResourceType, resource_name: str
) -> tuple[ConfigDescription, ...]:
    """Returns every configuration that the resource has, by name.

    Args:
        image: The metadata of the cluster.
        config: The configuration of the node that answers; its file counts for what nobody has set.
        resource_type: The type of the resource: topic or broker.
        resource_name: The name of the topic, the id of the broker, or "" for the cluster's defaults.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        InvalidRequestError: There is no such broker, or it is another one than answers.
    """
    places = [_Place(CLUSTER_DEFAULTS, "cluster", names_topics=False)]
    keys: tuple[ConfigKey, ...] = (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS)
    if resource_type is ResourceType.TOPIC:
        if resource_name not in image.topics_by_name:
            raise UnknownTopicOrPartitionError(f'there is no topic "{resource_name}"')
        places.insert(0, _Place((resource_type, resource_name), "topic", names_topics=True))
        keys = CONFIG_KEYS
    elif resource_name:
        if not resource_name.isdecimal() or int(resource_name) not in image.brokers:
            raise InvalidRequestError(f'there is no broker "{resource_name}"; "" is the cluster-wide default')
        if int(resource_name) != config.node_id:
            raise InvalidRequestError(
                f"node {config.node_id} does not know what the file of broker {resource_name} says: ask that broker"
            )
        places.insert(0, _Place((resource_type, resource_name), "broker", names_topics=False))
        keys = tuple(key for key in (*CONFIG_KEYS, *BROKER_KEYS) if key not in CLUSTER_WIDE)
    described = (_describe(image, config, key, places) for key in keys)
    return tuple(sorted(described, key=lambda one: one.name))


def describe_node_configs(image: MetadataImage, config: ServerConfig) -> tuple[ConfigDescription, ...]:
    """Describes all that one node goes by: every key of its file, and every configuration that is set while it runs.

    No key is left out or hidden: there is none that holds a secret.

    Args:
        image: The metadata that the node knows; an empty image where only a file is to be described.
        config: The configuration of the node.
    """
    places = [
        _Place((ResourceType.BROKER, str(config.node_id)), "broker", names_topics=False),
        _Place(CLUSTER_DEFAULTS, "cluster", names_topics=False),
    ]
    dynamic = [_describe(image, config, key, places) for key in (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS)]
    names = {one.name for one in dynamic}
    static = [_of_file(config, key, key.name) for key in KEYS.values() if key.name not in names]
    return tuple(sorted((*dynamic, *static), key=lambda one: one.name))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is looked for; `names_topics`: under the names that topics' configurations have."""

    resource: ConfigResource
    source: str
    names_topics: bool


def _describe(image: MetadataImage, config: ServerConfig, key: ConfigKey, places: list[_Place]) -> ConfigDescription:
    name = key.name if places[0].names_topics else key.cluster_name
    for place in places:
        text = image.configs.get(place.resource, {}).get(key.name if place.names_topics else key.cluster_name)
        if text is not None:
            return ConfigDescription(name, text, place.source)
    return _of_node(config, key, name)


def _of_node(config: ServerConfig, key: ConfigKey, name: str) -> ConfigDescription:
    known = KEYS.get(key.cluster_name)
    if known is None or key is UNCLEAN_LEADER_ELECTION_ENABLE:  # by what a file says no controller elects
        return ConfigDescription(name, _text(key.default), "default")
    return _of_file(config, known, name)


def _of_file(config: ServerConfig, key: Key, name: str) -> ConfigDescription:
    value: object = getattr(config, key.field_name)
    return ConfigDescription(name, _text(value), "default" if value == key.default else "node")


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(filter(None, map(_text, value)))
    if isinstance(value, Enum):
        return str(value.value)
    return None if value is None else str(value)
