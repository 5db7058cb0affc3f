"""One configuration with all that Kafka's clients may ask of it, and Kafka's numbers for its type and source."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from msgspec import Struct

from replog.rpc.node_messages import ConfigDescription


class ConfigType(IntEnum):
    """The type of a value (KIP-569); Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_SOURCES = {"topic": 1, "broker": 2, "cluster": 3, "node": 4, "default": 5}
"""`ConfigDescription.source` in Kafka's numbers (KIP-226): the topic's own, one broker's, the cluster-wide one, that of the
node's file, the default."""


class KnownConfig(Struct, frozen=True):
    """One configuration of a topic, a broker or the cluster.

    Attributes:
        name: The name that it has there.
        is_read_only: Whether only the node's file sets it.
        is_sensitive: Whether no value of it is told (KIP-226).
        values: The value in force first, then the one that would be in force without it, and so on; the default last.
        document: The function that returns what it means; the first call reads the source of all keys.
    """

    name: str
    type: ConfigType
    is_read_only: bool
    is_sensitive: bool
    values: tuple[ConfigDescription, ...]
    document: Callable[[], str]

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.values[0].value

    @property
    def source(self) -> str:
        """The source of the value in force."""
        return self.values[0].source


def source_number(source: str) -> int:
    """Returns Kafka's number for where a value comes from."""
    return _SOURCES[source]
