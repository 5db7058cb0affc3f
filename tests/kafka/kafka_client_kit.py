"""What the tests want of every Kafka client, so that one suite can run with each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

T0_MS = 1_700_000_000_000
TIMEOUT_S = 30.0

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = T0_MS


class Got(NamedTuple):
    """A record that was read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int

    @property
    def sent(self) -> Sent:
        """What was written to have this read."""
        return Sent(self.key, self.value, self.headers, self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class How:
    """How records are written.

    Attributes:
        acks: "all", "1" or "0".
        codec: One of `CODECS`.
        is_idempotent: Whether the producer is.
        bytes_max: The client's own limit for a request.
    """

    acks: str = "all"
    codec: str = "none"
    is_idempotent: bool = False
    bytes_max: int = 2_000_000


class RefusedError(Exception):
    """The client told its user that something failed; the text is what the user gets."""


class KafkaClient(Protocol):
    """A client library, asked for one thing at a time.  Whatever fails is a `RefusedError`."""

    name: str

    def produce(self, servers: str, topic: str, records: Sequence[Sent], how: How) -> list[int]:
        """Writes records to partition 0, waits for all of them, and returns their offsets (-1 without acks)."""
        ...

    def consume(self, servers: str, topic: str, start: int, count: int) -> list[Got]:
        """Returns `count` records of partition 0 from an offset on."""
        ...

    def ends(self, servers: str, topic: str) -> tuple[int, int]:
        """Returns where partition 0 begins and ends."""
        ...

    def offset_for_time(self, servers: str, topic: str, timestamp_ms: int) -> int | None:
        """Returns the first offset of partition 0 at or after a time."""
        ...

    def create_topic(self, servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Creates a topic."""
        ...

    def partitions_of(self, servers: str, topic: str) -> int:
        """Returns how many partitions a topic has; 0: there is no such topic."""
        ...

    def delete_topic(self, servers: str, topic: str) -> None:
        """Deletes a topic."""
        ...

    def begin_transaction(self, servers: str, transactional_id: str) -> None:
        """Makes a transactional producer ready, as far as brokers have to do with it."""
        ...
