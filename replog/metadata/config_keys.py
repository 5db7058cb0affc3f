"""The dynamic configuration: names, types, ranges and defaults, Kafka's (docs/KAFKA.md 2), in one table.

A value of a topic is looked up in four places, the first that has it wins: the topic; the broker that asks (resource type
BROKER with its id as name); the cluster-wide default (resource type BROKER with the empty name; on both some keys have
another name); the default here.  Values travel as text, as in Kafka.

=====================  ========================================================================================
set on                 keys
=====================  ========================================================================================
a topic                `CONFIG_KEYS` by `name`
the cluster            `CONFIG_KEYS` by `cluster_name`, `BROKER_KEYS`, limits of listeners (`listener_key`), `CONTROLLER_KEYS`
one broker             the first three, but not `CLUSTER_WIDE`: controller and leaders must agree on them
=====================  ========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import TypeAlias

from msgspec import Struct

from replog.errors import ConfigError
from replog.metadata.records import ResourceType

ConfigValue: TypeAlias = int | float | bool | str

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_DIGITS_MAX = 20  # a sign and 19 digits; Python refuses to convert thousands of them
_ADDRESSES_MAX = 1_000
_WEEK_MS = 7 * 24 * 3600 * 1000


class FlushPolicy(StrEnum):
    """When a record counts as stored (`flush.policy`, docs/KAFKA.md 4.3)."""

    AUTO = "auto"
    ALWAYS = "always"
    OS = "os"


class CleanupPolicy(StrEnum):
    """What happens to old records (`cleanup.policy`); both may be named."""

    DELETE = "delete"
    COMPACT = "compact"


class MessageTimestampType(StrEnum):
    """Whose clock the timestamps of records come from (`message.timestamp.type`)."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


_SHOWN_CHARACTERS = 80


def shortened(text: str) -> str:
    """Returns what a message shows of a text that somebody has sent."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class IntegerType(Struct, frozen=True):
    """A whole number in [minimum, maximum]."""

    minimum: int
    maximum: int

    def parse(self, text: str) -> int:
        """Raises ValueError with the reason."""
        digits = text.strip()
        if not digits.removeprefix("-").isdecimal() or not digits.isascii():
            raise ValueError(f"not a whole number; {self}")
        if len(digits) > _DIGITS_MAX or not self.minimum <= (value := int(digits)) <= self.maximum:
            raise ValueError(f"out of range; {self}")
        return value

    def __str__(self) -> str:
        return f"expected a whole number from {self.minimum:,} to {self.maximum:,}"


class ChoiceType(Struct, frozen=True):
    """One of a few words."""

    choices: tuple[str, ...]

    def parse(self, text: str) -> str:
        """Raises ValueError with the reason."""
        if text.strip() not in self.choices:
            raise ValueError(str(self))
        return text.strip()

    def __str__(self) -> str:
        return f"expected one of: {', '.join(self.choices)}"


class ChoicesType(Struct, frozen=True):
    """One or more of a few words, with commas between, as in `compact,delete`."""

    choices: tuple[str, ...]

    def parse(self, text: str) -> str:
        """Returns the words in the order of `choices`.  Raises ValueError with the reason."""
        words = [word.strip() for word in text.split(",")]
        if len(set(words)) != len(words) or not set(words) <= set(self.choices):
            raise ValueError(str(self))
        return ",".join(word for word in self.choices if word in words)

    def __str__(self) -> str:
        return f"expected one or more, with commas, of: {', '.join(self.choices)}"


class FractionType(Struct, frozen=True):
    """A number in [0, 1]."""

    def parse(self, text: str) -> float:
        """Raises ValueError with the reason."""
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"not a number; {self}") from None
        if not 0 <= value <= 1:
            raise ValueError(f"out of range; {self}")
        return value

    def __str__(self) -> str:
        return "expected a number from 0 to 1"


class AddressCount(Struct, frozen=True):
    """How many connections there may be from an address."""

    address: str
    count: int

    @classmethod
    def parse(cls, text: str) -> AddressCount:
        """Returns what `ADDRESS:COUNT` states, Kafka's form.  Raises ValueError with the reason."""
        address, _, count = text.strip().rpartition(":")
        if not re.fullmatch("[0-9]{1,7}", count):
            raise ValueError(f"has no count in {shortened(text)!r}; write ADDRESS:COUNT")
        try:
            return cls(str(ip_address(address.strip("[]"))), int(count))
        except ValueError:
            raise ValueError(
                f"has no address in {shortened(text)!r}; write it in numbers, as 10.0.0.7 or [2001:db8::7]"
            ) from None

    def __str__(self) -> str:
        return f"[{self.address}]:{self.count}" if ":" in self.address else f"{self.address}:{self.count}"


def address_counts(text: str) -> list[AddressCount]:
    """Returns what a text with any number of `ADDRESS:COUNT` states, with commas between.  Raises ValueError with the reason."""
    return [AddressCount.parse(each) for each in text.split(",") if each.strip()]


class AddressCountsType(Struct, frozen=True):
    """At most 1,000 of `ADDRESS:COUNT`, with commas between, each address once."""

    def parse(self, text: str) -> str:
        """Raises ValueError with the reason."""
        found = address_counts(text)
        if len(found) > _ADDRESSES_MAX:
            raise ValueError(f"names {len(found)} addresses; {self}")
        if len({each.address for each in found}) < len(found):
            raise ValueError(f"names an address twice; {self}")
        return ",".join(map(str, found))

    def __str__(self) -> str:
        return f"expected at most {_ADDRESSES_MAX:,} of ADDRESS:COUNT, each address once, with commas between"


class BooleanType(Struct, frozen=True):
    """`true` or `false`, in any case."""

    def parse(self, text: str) -> bool:
        """Raises ValueError with the reason."""
        word = text.strip().lower()
        if word not in {"true", "false"}:
            raise ValueError(str(self))
        return word == "true"

    def __str__(self) -> str:
        return "expected true or false"


class ConfigKey(Struct, frozen=True):
    """One configuration.

    Attributes:
        name: The name of the topic configuration; the same as `cluster_name` where topics have none.
        cluster_name: The name of it as cluster-wide default.
    """

    name: str
    cluster_name: str
    type: IntegerType | ChoiceType | ChoicesType | FractionType | BooleanType | AddressCountsType
    default: ConfigValue

    def parse(self, text: str) -> ConfigValue:
        """Returns the value that `text` states.

        Raises:
            ConfigError: The text is not of the type, or out of range.
        """
        try:
            return self.type.parse(text)
        except ValueError as error:
            raise ConfigError(self.name, text, f'{self.name} = "{shortened(text)}": {error}') from error

    def canonical(self, text: str) -> str:
        """Returns the one text that is stored for the value that `text` states, in however many ways it may be written.

        Raises:
            ConfigError: The text is not of the type, or out of range.
        """
        value = self.parse(text)
        if isinstance(value, bool):
            return "true" if value else "false"
        return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


MIN_INSYNC_REPLICAS = ConfigKey("min.insync.replicas", "min.insync.replicas", IntegerType(1, _INT32_MAX), 1)
RETENTION_MS = ConfigKey("retention.ms", "log.retention.ms", IntegerType(-1, _INT64_MAX), _WEEK_MS)
FILE_DELETE_DELAY_MS = ConfigKey(
    "file.delete.delay.ms", "log.segment.delete.delay.ms", IntegerType(0, _INT64_MAX), 60_000
)
RETENTION_BYTES = ConfigKey("retention.bytes", "log.retention.bytes", IntegerType(-1, _INT64_MAX), -1)
SEGMENT_BYTES = ConfigKey("segment.bytes", "log.segment.bytes", IntegerType(2**20, _INT32_MAX), 2**30)
SEGMENT_MS = ConfigKey("segment.ms", "log.roll.ms", IntegerType(1, _INT64_MAX), _WEEK_MS)
MAX_MESSAGE_BYTES = ConfigKey("max.message.bytes", "message.max.bytes", IntegerType(61, 32 * 2**20), 2**20 + 12)
CLEANUP_POLICY = ConfigKey(
    "cleanup.policy",
    "log.cleanup.policy",
    ChoicesType((CleanupPolicy.COMPACT.value, CleanupPolicy.DELETE.value)),
    CleanupPolicy.DELETE.value,
)
DELETE_RETENTION_MS = ConfigKey(
    "delete.retention.ms", "log.cleaner.delete.retention.ms", IntegerType(0, _INT64_MAX), _WEEK_MS // 7
)
MIN_CLEANABLE_DIRTY_RATIO = ConfigKey(
    "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", FractionType(), 0.5
)
MIN_COMPACTION_LAG_MS = ConfigKey(
    "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", IntegerType(0, _INT64_MAX), 0
)
MAX_COMPACTION_LAG_MS = ConfigKey(
    "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", IntegerType(1, _INT64_MAX), _INT64_MAX
)
FLUSH_POLICY = ConfigKey(
    "flush.policy", "flush.policy", ChoiceType(tuple(policy.value for policy in FlushPolicy)), FlushPolicy.AUTO.value
)
FLUSH_MESSAGES = ConfigKey("flush.messages", "log.flush.interval.messages", IntegerType(1, _INT64_MAX), _INT64_MAX)
FLUSH_MS = ConfigKey("flush.ms", "log.flush.interval.ms", IntegerType(0, _INT64_MAX), _INT64_MAX)
UNCLEAN_LEADER_ELECTION_ENABLE = ConfigKey(
    "unclean.leader.election.enable", "unclean.leader.election.enable", BooleanType(), default=False
)
MESSAGE_TIMESTAMP_TYPE = ConfigKey(
    "message.timestamp.type",
    "log.message.timestamp.type",
    ChoiceType(tuple(kind.value for kind in MessageTimestampType)),
    MessageTimestampType.CREATE_TIME.value,
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = ConfigKey(
    "message.timestamp.before.max.ms",
    "log.message.timestamp.before.max.ms",
    IntegerType(0, _INT64_MAX),
    _INT64_MAX,
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = ConfigKey(
    "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", IntegerType(0, _INT64_MAX), 3_600_000
)

CONFIG_KEYS: tuple[ConfigKey, ...] = (
    MIN_INSYNC_REPLICAS,
    RETENTION_MS,
    FILE_DELETE_DELAY_MS,
    RETENTION_BYTES,
    SEGMENT_BYTES,
    SEGMENT_MS,
    MAX_MESSAGE_BYTES,
    CLEANUP_POLICY,
    DELETE_RETENTION_MS,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    MAX_COMPACTION_LAG_MS,
    FLUSH_POLICY,
    FLUSH_MESSAGES,
    FLUSH_MS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    MESSAGE_TIMESTAMP_TYPE,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
)

CLUSTER_WIDE = frozenset({MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE, FLUSH_POLICY})
"""What elections depend on: a leader and the controller that had different values would lose acknowledged records."""

AUTO_LEADER_REBALANCE_ENABLE = ConfigKey(
    "auto.leader.rebalance.enable", "auto.leader.rebalance.enable", BooleanType(), default=True
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = ConfigKey(
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.check.interval.seconds",
    IntegerType(1, _INT32_MAX),
    300,
)
METADATA_MAX_IDLE_INTERVAL_MS = ConfigKey(
    "metadata.max.idle.interval.ms", "metadata.max.idle.interval.ms", IntegerType(0, _INT32_MAX), 0
)
LEADER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "leader.replication.throttled.rate", "leader.replication.throttled.rate", IntegerType(1, _INT64_MAX), _INT64_MAX
)
FOLLOWER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "follower.replication.throttled.rate", "follower.replication.throttled.rate", IntegerType(1, _INT64_MAX), _INT64_MAX
)
REPLICATION_THROTTLES: tuple[ConfigKey, ...] = (LEADER_REPLICATION_THROTTLED_RATE, FOLLOWER_REPLICATION_THROTTLED_RATE)
"""What bounds how fast a reassignment fills new replicas: what a broker gives, and what it takes."""

REPLICA_ALTER_LOG_DIRS_RATE = ConfigKey(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    IntegerType(1, _INT64_MAX),
    _INT64_MAX,
)
_CONNECTIONS, _RATE = IntegerType(1, 1_000_000), IntegerType(1, _INT32_MAX)
MAX_CONNECTIONS = ConfigKey("max.connections", "max.connections", _CONNECTIONS, 10_000)
MAX_CONNECTIONS_PER_IP = ConfigKey(
    "max.connections.per.ip",
    "max.connections.per.ip",
    IntegerType(1, 1_000_000),  # with 0 nobody could set another one
    2_000,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = ConfigKey(
    "max.connections.per.ip.overrides", "max.connections.per.ip.overrides", AddressCountsType(), ""
)
MAX_CONNECTION_CREATION_RATE = ConfigKey(
    "max.connection.creation.rate", "max.connection.creation.rate", _RATE, _INT32_MAX
)
CONNECTION_KEYS: tuple[ConfigKey, ...] = (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    MAX_CONNECTION_CREATION_RATE,
)
"""How many connections of clients a broker takes in: what its file says, unless they are set."""

BROKER_KEYS: tuple[ConfigKey, ...] = (*REPLICATION_THROTTLES, REPLICA_ALTER_LOG_DIRS_RATE, *CONNECTION_KEYS)
"""What brokers go by; not of topics."""

CONTROLLER_KEYS: tuple[ConfigKey, ...] = (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    METADATA_MAX_IDLE_INTERVAL_MS,
)
"""What the active controller goes by; not of topics."""

NEAR_ENOUGH = 0.5
"""Similarity (0 to 1, `difflib`) from which a known name is worth suggesting."""

_LISTENER_TYPES = {MAX_CONNECTIONS.name: _CONNECTIONS, MAX_CONNECTION_CREATION_RATE.name: _RATE}
_OF_LISTENER = re.compile(r"listener\.name\.[a-z0-9_.-]{1,64}\.(max\.connections|max\.connection\.creation\.rate)")
_OF_TOPICS = {key.name: key for key in CONFIG_KEYS}
_OF_THE_CLUSTER = {key.cluster_name: key for key in (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS)}
_OF_ONE_BROKER = {key.cluster_name: key for key in (*CONFIG_KEYS, *BROKER_KEYS) if key not in CLUSTER_WIDE}


def config_key_or_raise(
    resource_type: ResourceType, name: str, resource_name: str = "", static_names: Collection[str] = ()
) -> ConfigKey:
    """Returns the key called `name` on a resource.

    Args:
        resource_type: The kind of resource it is set on.
        name: The name of the configuration.
        resource_name: The name of the topic or broker; "" is the cluster-wide default, with the type BROKER.
        static_names: The names that only the configuration files of nodes may have.

    Raises:
        ConfigError: The name is unknown there; the message names a valid name that is near, if there is one.
    """
    keys = _OF_TOPICS
    if resource_type is ResourceType.BROKER:
        keys = _OF_ONE_BROKER if resource_name else _OF_THE_CLUSTER
    if (key := keys.get(name)) is not None:
        return key
    if resource_type is ResourceType.BROKER and (key := listener_key(name)) is not None:
        return key
    if resource_name and keys is _OF_ONE_BROKER and name in _OF_THE_CLUSTER:
        raise ConfigError(name, None, f'configuration "{name}" is set for the whole cluster, not for one broker')
    if name in static_names:
        raise ConfigError(
            name,
            None,
            f'configuration "{name}" is static: it is set in the configuration file of a node, and holds from the next start of '
            f"that node on. `replog configs describe --node ID {name}` shows it",
        )
    raise ConfigError(name, None, f'unknown configuration "{shortened(name)}"{_advice(name, keys)}')


def listener_key(name: str) -> ConfigKey | None:
    """Returns the key of a limit of one listener, as in `listener.name.outside.max.connections`; None: the name is none."""
    found = _OF_LISTENER.fullmatch(name)
    if found is None:
        return None
    kind = _LISTENER_TYPES[found[1]]
    return ConfigKey(name, name, kind, kind.maximum)


def _advice(name: str, keys: Mapping[str, ConfigKey]) -> str:
    """Returns what to try, with a name only where one is near: a guess at random sends people the wrong way."""
    import difflib

    near = difflib.get_close_matches(name, keys, n=1, cutoff=NEAR_ENOUGH) if len(name) <= _SHOWN_CHARACTERS else []
    return f'. Did you mean "{near[0]}"? ({keys[near[0]].type})' if near else "; `replog configs get` shows all"
