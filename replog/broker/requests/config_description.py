"""The configuration in force for a topic, a broker, a node or the cluster, and where each value comes from.

The places in which a value is looked for stand in `replog.metadata.config_keys`; a node's own configuration file comes
after them, before the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, partial

from msgspec import Struct
from msgspec.structs import replace

from replog.access.secret import HIDDEN
from replog.config.keys import Key
from replog.config.kinds import INT_MAX, Flag, Fraction, Kind, ListOf, Number, SecretText
from replog.config.security_keys import LISTENER_PREFIX
from replog.config.server import ServerConfig
from replog.config.server_keys import KEYS
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    CONFIG_KEYS,
    CONTROLLER_KEYS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    AddressCountsType,
    BooleanType,
    ChoicesType,
    ChoiceType,
    ConfigKey,
    FractionType,
    IntegerType,
    config_key_or_raise,
    listener_key,
    shortened,
)
from replog.metadata.image import CLUSTER_DEFAULTS, MetadataImage
from replog.metadata.records import ResourceType
from replog.protocol.handlers.known_configs import ConfigType, KnownConfig
from replog.rpc.node_messages import ConfigDescription

DYNAMIC_KEYS: tuple[ConfigKey, ...] = (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS)
"""The keys that may be set while the cluster runs."""

DEFAULT = "default"
"""The source of a value that was not set."""


def describe_configs(
    image: MetadataImage, config: ServerConfig, resource_type: ResourceType, resource_name: str
) -> tuple[ConfigDescription, ...]:
    """Returns every configuration that the resource has, by name.

    Args:
        image: The metadata of the cluster.
        config: The configuration of the node that answers; its file counts for keys that were not set in the cluster.
        resource_type: The type of the resource: topic or broker.
        resource_name: The name of the topic, the id of the broker, or "" for the cluster's defaults.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        InvalidRequestError: There is no such broker, or it is not the one that answers.
    """
    cluster = _cluster_place(image)
    keys: tuple[ConfigKey, ...] = DYNAMIC_KEYS
    places = [cluster]
    if resource_type is ResourceType.TOPIC:
        if resource_name not in image.topics_by_name:
            raise UnknownTopicOrPartitionError(f'there is no topic "{resource_name}"')
        keys, places = CONFIG_KEYS, [_topic_place(image, resource_name), cluster]
    elif resource_name:
        _require_this_broker(image, config, resource_name)
        places = [_broker_place(image, config.node_id), cluster]
        keys = tuple(key for key in (*CONFIG_KEYS, *BROKER_KEYS) if key not in CLUSTER_WIDE)
        keys += _listener_keys(config, places)
    else:
        keys += _listener_keys(config, places)
    return _sorted(_in_force(config, key, places) for key in keys)


def known_configs(
    image: MetadataImage,
    config: ServerConfig,
    resource_type: ResourceType,
    resource_name: str,
    own: Mapping[str, str] | None = None,
) -> tuple[KnownConfig, ...]:
    """Returns the configurations of a resource as Kafka does, with all that is known of each; raises as `describe_configs`.

    A broker has every key of its file, too; the cluster has only the keys that are set for it.

    Args:
        image: The metadata of the cluster.
        config: The configuration of the node that answers.
        resource_type: The type of the resource.
        resource_name: The name of the resource.
        own: The own values of a topic that the image may not have yet; None: those in the image.
    """
    cluster = _cluster_place(image)
    if resource_type is ResourceType.TOPIC:
        if own is None and resource_name not in image.topics_by_name:
            raise UnknownTopicOrPartitionError(f'there is no topic "{resource_name}"')
        topic = _topic_place(image, resource_name) if own is None else _new_topic_place(own)
        found = [_known(config, key, [topic, cluster]) for key in CONFIG_KEYS]
    elif resource_name:
        _require_this_broker(image, config, resource_name)
        places = [_broker_place(image, config.node_id), cluster]
        found = [_known(config, key, places) for key in (*DYNAMIC_KEYS, *_listener_keys(config, places))]
        names = {one.name for one in found}
        found += [_known_of_file(config, key) for key in KEYS.values() if key.name not in names]
    else:
        keys = (*DYNAMIC_KEYS, *_listener_keys(config, [cluster]))
        found = [_known(config, key, [cluster]) for key in keys if key.cluster_name in cluster.values]
    return tuple(sorted(found, key=lambda one: one.name))


def _require_this_broker(image: MetadataImage, config: ServerConfig, resource_name: str) -> None:
    if resource_name not in map(str, image.brokers):  # "01" is another name, and an answer to each would be a long one
        raise InvalidRequestError(f'there is no broker "{shortened(resource_name)}"; "" is the cluster-wide default')
    if resource_name != str(config.node_id):
        raise InvalidRequestError(
            f"node {config.node_id} does not know what the file of broker {resource_name} says: ask that broker"
        )


def describe_node_configs(image: MetadataImage, config: ServerConfig) -> tuple[ConfigDescription, ...]:
    """Describes the whole configuration of one node: every key of its file, and every key that may be set while it runs.

    No key is left out.  A password, and a value that stands elsewhere than in the file, is shown as `[hidden]`.

    Args:
        image: The metadata that the node knows; an empty image where only a file is to be described.
        config: The configuration of the node.
    """
    places = [_broker_place(image, config.node_id), _cluster_place(image)]
    dynamic = [_in_force(config, key, places) for key in (*DYNAMIC_KEYS, *_listener_keys(config, places))]
    names = {one.name for one in dynamic}
    static = (_of_file(config, key, key.name) for key in KEYS.values() if key.name not in names)
    return _sorted((*dynamic, *static))


# ---- places ------------------------------------------------------------------------------------------------------------


class _Place(Struct, frozen=True):
    """Where a value is looked for; `names_topics`: under the names that topics' configurations have."""

    values: Mapping[str, str]
    source: str
    names_topics: bool

    def name_of(self, key: ConfigKey) -> str:
        """Returns the name that a key has there."""
        return key.name if self.names_topics else key.cluster_name


def _topic_place(image: MetadataImage, topic_name: str) -> _Place:
    return _Place(image.configs.get((ResourceType.TOPIC, topic_name), {}), "topic", names_topics=True)


def _new_topic_place(own: Mapping[str, str]) -> _Place:
    values = {name: config_key_or_raise(ResourceType.TOPIC, name).canonical(value) for name, value in own.items()}
    return _Place(values, "topic", names_topics=True)


def _broker_place(image: MetadataImage, broker_id: int) -> _Place:
    return _Place(image.configs.get((ResourceType.BROKER, str(broker_id)), {}), "broker", names_topics=False)


def _cluster_place(image: MetadataImage) -> _Place:
    return _Place(image.configs.get(CLUSTER_DEFAULTS, {}), "cluster", names_topics=False)


def _listener_keys(config: ServerConfig, places: Iterable[_Place]) -> tuple[ConfigKey, ...]:
    """Returns the limits of single listeners that are set in the places or in the file."""
    names = {*_of_listeners(config), *(name for place in places for name in place.values)}
    return tuple(key for key in map(listener_key, sorted(names)) if key is not None)


def _of_listeners(config: ServerConfig) -> Mapping[str, object]:
    return {f"{LISTENER_PREFIX}{each.name}": each.value for each in config.listener_name}


# ---- values ------------------------------------------------------------------------------------------------------------


def _in_force(config: ServerConfig, key: ConfigKey, places: Sequence[_Place]) -> ConfigDescription:
    return replace(next(_values(config, key, places)), name=places[0].name_of(key))


def _values(config: ServerConfig, key: ConfigKey, places: Sequence[_Place]) -> Iterator[ConfigDescription]:
    """Yields the value in force, then those that it hides, each under its own name; the default last."""
    for place in places:
        text = place.values.get(place.name_of(key))
        if text is not None:
            yield ConfigDescription(place.name_of(key), text, place.source)
    if (own := _of_listeners(config).get(key.cluster_name)) is not None:
        is_hidden = key.cluster_name in dict(config.references)
        yield ConfigDescription(key.cluster_name, HIDDEN if is_hidden else _text(own), "node")
    # a controller does not elect by what a broker's file says
    known = None if key is UNCLEAN_LEADER_ELECTION_ENABLE else KEYS.get(key.cluster_name)
    if known is None or getattr(config, known.field_name) is None:
        yield ConfigDescription(key.cluster_name, _text(key.default), DEFAULT)
    else:
        yield from _values_of_file(config, known)


def _values_of_file(config: ServerConfig, key: Key) -> Iterator[ConfigDescription]:
    in_force = _of_file(config, key, key.name)
    yield in_force
    if in_force.source != DEFAULT and not key.is_required:
        yield ConfigDescription(key.name, _text(key.default), DEFAULT)


def _of_file(config: ServerConfig, key: Key, name: str) -> ConfigDescription:
    value: object = getattr(config, key.field_name)
    if config.is_hidden(key) and value is not None:
        return ConfigDescription(name, HIDDEN, "node")
    return ConfigDescription(name, _text(value), DEFAULT if value == key.default else "node")


def _sorted(described: Iterable[ConfigDescription]) -> tuple[ConfigDescription, ...]:
    return tuple(sorted(described, key=lambda one: one.name))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(filter(None, map(_text, value)))
    if isinstance(value, Enum):
        return str(value.value)
    return None if value is None else str(value)


# ---- what Kafka's clients may ask of them --------------------------------------------------------------------------------


def _known(config: ServerConfig, key: ConfigKey, places: Sequence[_Place]) -> KnownConfig:
    document = partial(_meaning, key.cluster_name.replace(".", "_"), lambda: str(key.type))
    values = tuple(_values(config, key, places))
    hides = any(each.value == HIDDEN for each in values)
    name = places[0].name_of(key)
    return KnownConfig(name, _type_of(key), is_read_only=False, is_sensitive=hides, values=values, document=document)


def _known_of_file(config: ServerConfig, key: Key) -> KnownConfig:
    values = tuple(_values_of_file(config, key))
    document = partial(_meaning, key.field_name, key.describe)
    kind, hides = _type_of_file(key.kind), config.is_hidden(key)
    return KnownConfig(key.name, kind, is_read_only=True, is_sensitive=hides, values=values, document=document)


def _meaning(field_name: str, describe: Callable[[], str]) -> str:
    """Returns the meaning of a key; where its source is not there, what `describe` says of its range."""
    return _meanings().get(field_name) or describe()


@cache
def _meanings() -> Mapping[str, str]:
    from replog.config.docs import field_meanings

    try:
        return field_meanings()
    except (OSError, SyntaxError):  # a package without its source: the answer has ranges only
        return {}


def _type_of(key: ConfigKey) -> ConfigType:
    match key.type:
        case IntegerType(maximum=maximum):
            return ConfigType.INT if maximum <= INT_MAX else ConfigType.LONG
        case FractionType():
            return ConfigType.DOUBLE
        case BooleanType():
            return ConfigType.BOOLEAN
        case ChoicesType():
            return ConfigType.LIST
        case ChoiceType() | AddressCountsType():
            return ConfigType.STRING


def _type_of_file(kind: Kind) -> ConfigType:
    match kind:
        case Number(high=high):
            return ConfigType.INT if high <= INT_MAX else ConfigType.LONG
        case Fraction():
            return ConfigType.DOUBLE
        case Flag():
            return ConfigType.BOOLEAN
        case ListOf():
            return ConfigType.LIST
        case SecretText():
            return ConfigType.PASSWORD
        case _:
            return ConfigType.STRING
