"""Readers that are disturbed, and the account of what they got: what was handed out is what lies below the position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fake_cluster import FakeCluster

from replog.client import Consumer, ConsumerRecord, FetchedBatches, SyncConsumer, TopicPartition
from replog.records import encode_batch, scan

HEALTHY = [TopicPartition("t", 0), TopicPartition("t", 1)]
SICK = TopicPartition("t", 2)
FIRST_OFFSET = 3
"""Of every partition: reading begins inside a batch."""


def filled_cluster(records_count: int = 400) -> FakeCluster:
    """Three partitions on two brokers; batches of 1 to 9 records of about 1 KB, so that readers yield in between."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 3)
    for partition in range(3):
        log = cluster.logs["t", partition]
        while log.end_offset < records_count:
            count = min(1 + log.end_offset % 9, records_count - log.end_offset)
            log.append(encode_batch([(1000, None, b"x" * 1000, ())] * count))
    return cluster


def damage(cluster: FakeCluster, partition: TopicPartition, index: int) -> None:
    """Flips a bit of a batch."""
    batches = cluster.logs[partition].batches
    broken = bytearray(batches[index])
    broken[-1] ^= 0xFF
    batches[index] = bytes(broken)


class Account:
    """Checks every record against the one before it, and the positions against both."""

    def __init__(self, partitions: Sequence[TopicPartition], end_offset: int) -> None:
        self.end_offset = end_offset
        self.next_offsets = dict.fromkeys(partitions, FIRST_OFFSET)

    def seek(
        self, consumer: Consumer[Any, Any] | SyncConsumer[Any, Any], partition: TopicPartition, offset: int
    ) -> None:
        """Goes there, the consumer and the account."""
        consumer.seek(partition, offset)
        self.next_offsets[partition] = offset

    def take(self, found: Sequence[ConsumerRecord[Any, Any] | FetchedBatches]) -> None:
        """What a reader handed out."""
        for one in found:
            if isinstance(one, FetchedBatches):
                last = [header.last_offset for header in scan(one.data)][-1]
                self._expect(TopicPartition(one.topic, one.partition), one.start_offset, last)
            else:
                self._expect(TopicPartition(one.topic, one.partition), one.offset, one.offset)

    def _expect(self, partition: TopicPartition, first: int, last: int) -> None:
        assert first == self.next_offsets[partition], f"{partition}: {first} follows {self.next_offsets[partition]}"
        self.next_offsets[partition] = last + 1
