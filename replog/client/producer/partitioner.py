"""Which partition a record without one goes to: Kafka's rule, so that both systems place a key alike.

A key's partition is ``murmur2(key) & 0x7fffffff % partitions``.  Records without a key stick to one partition until
about a batch's worth of bytes went there and the batch ends, then move on at random: full batches, even spread (KIP-480,
KIP-794).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from replog.errors import ConfigError
from replog.records import StickyPartition, murmur2


class Partitioner(Protocol):
    """Chooses a partition for a record that names none.  Called once per record: keep it fast."""

    def partition(
        self, topic: str, key: bytes | None, size_bytes: int, partitions_count: int, available: Sequence[int]
    ) -> int:
        """Chooses a partition from 0 to `partitions_count - 1`.

        Args:
            topic: The name of the topic.
            key: The record's key; None: it has none.
            size_bytes: The approximate size of the record in a batch.
            partitions_count: The number of the topic's partitions, at least 1.
            available: The partitions that have a leader now, possibly none of them.
        """
        ...


def check_partitioner(partitioner: object) -> None:
    """Refuses what is given as a partitioner and is none: a name (even str has a method `partition`), or a class.

    Raises:
        ConfigError: It is neither None nor an object with a method `partition`.
    """
    is_one = not isinstance(partitioner, (str, bytes, bytearray, type)) and callable(
        getattr(partitioner, "partition", None)
    )
    if partitioner is not None and not is_one:
        reason = (
            f"partitioner is {partitioner!r}; it must be None or an object with a method partition, see Partitioner."
        )
        raise ConfigError("partitioner", partitioner, reason)


class DefaultPartitioner:
    """Keys by murmur2, no key: sticky.

    Args:
        sticky_bytes: About how many bytes of records without a key go to one partition before they move to another.
        rng: The source of chance that chooses the next sticky partition.
    """

    def __init__(self, *, sticky_bytes: int, rng: random.Random) -> None:
        self._sticky_bytes = sticky_bytes
        self._rng = rng
        self._sticky: dict[str, StickyPartition] = {}

    def partition(
        self, topic: str, key: bytes | None, size_bytes: int, partitions_count: int, available: Sequence[int]
    ) -> int:
        if key is not None:
            return partition_of_key(key, partitions_count)
        sticky = self.sticky(topic)
        choices = available or range(partitions_count)
        if sticky.left_bytes <= 0 or sticky.partition not in choices:
            sticky.begin(self._next(sticky.partition, choices))
        sticky.left_bytes -= size_bytes
        return sticky.partition

    def sticky(self, topic: str) -> StickyPartition:
        """Returns where a topic's records without a key go for now, to be told of the ends of batches."""
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartition(self._sticky_bytes)
        return sticky

    def _next(self, last: int, choices: Sequence[int]) -> int:
        others = [partition for partition in choices if partition != last]
        return self._rng.choice(others or choices)


def partition_of_key(key: bytes, partitions_count: int) -> int:
    """Returns the partition to which Kafka's clients send a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count
