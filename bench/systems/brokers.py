"""What broker scenarios ask of a system: several processes on this machine that keep every record three times.

The operations are whole and blocking, so that a peer may do each with its own client in its own way: an event loop,
threads, or another program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import crc32c

from bench.model import System

ReadAs = Literal["records", "batches"]
"""What a consumer makes of the bytes: an object of every record, or nothing."""

Sending = Literal["bulk", "single"]
"""What a producer is tuned for: as many records as it can, or each of them as soon as it can."""

Killed = Literal["leader", "leader and controller"]
"""Who dies: the partition's leader alone, or the one node that is that and the active controller too."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What a topic holds, whatever the order and the partitions: equal digests, equal multisets (but for a collision)."""

    count: int
    checksum: int

    @classmethod
    def of(cls, values: Iterable[bytes], rounds: int = 1) -> Digest:
        count = checksum = 0
        for value in values:
            count += 1
            checksum += crc32c.crc32c(value)
        return cls(count * rounds, checksum * rounds)


class BenchProducer(ABC):
    """A producer for one topic that waits for all in-sync replicas and makes no duplicates, connected and warm."""

    @abstractmethod
    def send_all(self, values: Sequence[bytes], rounds: int) -> None:
        """Sends `values` in order, `rounds` times over, as fast as it can; returns when all are acknowledged."""

    @abstractmethod
    def send_at_rate(self, value: bytes, rate_per_s: float, count: int) -> list[float]:
        """Sends record number i at second i / `rate_per_s`, whether earlier ones are acknowledged or not.

        Returns:
            Seconds from when each record was due to its acknowledgement: a sender that is held up counts too.
        """


class BenchConsumer(ABC):
    """A consumer of all partitions of one topic, connected.  Each call reads from the beginning."""

    @abstractmethod
    def read(self, count: int, read_as: ReadAs) -> int:
        """Reads `count` records, or more where a whole batch comes; returns how many."""

    @abstractmethod
    def digest(self, count: int) -> Digest:
        """Reads `count` records and whatever is there beyond them."""


class BrokerSystem(System):
    """Three nodes with topics; `start` starts them, `stop` ends them.

    Attributes:
        warm_up_records: how many small records it must have taken to be as fast as it gets.
    """

    warm_up_records: int = 500_000

    @abstractmethod
    def create_topic(self, partitions: int) -> str:
        """A new topic: three replicas, two of which must have a record before it counts as written."""

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def producer(self, topic: str, sending: Sending = "bulk") -> AbstractContextManager[BenchProducer]:
        """One producer, once for each topic.  Records that it writes to warm up are left out by consumers."""

    @abstractmethod
    def consumer(self, topic: str) -> AbstractContextManager[BenchConsumer]: ...


@dataclass(frozen=True, slots=True)
class FailoverReport:
    """What a producer saw.

    Attributes:
        acks_s: when each acknowledgement came, in the order of sending; any one clock.
        killed_s: when the node was killed, of the same clock.
        sent: the values, in the order of sending.
        found: the values that the log holds at the offsets that were acknowledged, in the order of sending.
        found_count: how many records the log holds in all.
        may_double: whether the producer is one that may write a record twice when it tries again.
    """

    acks_s: Sequence[float]
    killed_s: float
    sent: Sequence[bytes]
    found: Sequence[bytes | None]
    found_count: int
    may_double: bool = False


class FailoverSystem(System):
    """Three nodes of which one is killed."""

    @abstractmethod
    def fail_over(self, killed: Killed, *, rate_per_s: float, before_s: float, after_s: float) -> FailoverReport:
        """Sends steadily to a new topic of one partition, ends a node with SIGKILL, sends on; then heals everything.

        Args:
            killed: which node.
            rate_per_s: how many records; due times as in `send_at_rate`.
            before_s: how long before the kill.
            after_s: how long after acknowledgements come again.
        """


class StartupSystem(System):
    """Something that can be started from nothing, again and again."""

    @abstractmethod
    def start_one(self) -> float:
        """Seconds from an empty directory to the first record that a single node has acknowledged."""

    @abstractmethod
    def start_cluster(self, settle_s: float) -> tuple[float, Sequence[int]]:
        """Seconds from three empty directories to three nodes that serve; and their resident bytes `settle_s` later."""


@dataclass(frozen=True, slots=True)
class HostedPartitions:
    """What very many partitions took.

    Attributes:
        answering_s: from the request to create them until every leader has answered for its partitions.
        in_sync_s: until every replica is in sync.
        idle_cpu_share: of one core, by one node on average, afterwards.
        bytes_per_replica: of resident memory.
    """

    answering_s: float
    in_sync_s: float
    idle_cpu_share: float
    bytes_per_replica: float


class PartitionsSystem(System):
    """Three nodes that are started from nothing for each measurement."""

    @abstractmethod
    def host(self, partitions: int, idle_s: float) -> HostedPartitions:
        """Creates one topic with three replicas of each partition, and leaves it alone for `idle_s`."""


@dataclass(frozen=True, slots=True)
class CatchUpReport:
    """How a broker that was away came back.

    Attributes:
        behind_bytes: of records that it had to fetch.
        in_sync_s: from its start to being in sync in every partition.
        latencies_s: of records that were sent at a fixed rate meanwhile, to their acknowledgement.
    """

    behind_bytes: int
    in_sync_s: float
    latencies_s: Sequence[float]


class CatchUpSystem(System):
    """Three nodes of which one is stopped while the others take records."""

    @abstractmethod
    def catch_up(self, behind_bytes: int, record_bytes: int, rate_per_s: float) -> CatchUpReport:
        """Stops a broker in order, writes `behind_bytes`, starts it again and sends `rate_per_s` records meanwhile.

        Every partition holds at the end what was sent; the topic is gone then.
        """
