"""What the tests of a Spark with several executors know of a topic without Spark."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any, NamedTuple

from replog.client import SyncConsumer
from replog.client.types import ConsumerRecord
from tests.deploy.driver import digest
from tests.spark.spark_kit import SparkCluster


class Filled(NamedTuple):
    """A topic, and what a read of it must bring."""

    topic: str
    rows: int
    digest: str


def filled_topic(cluster: SparkCluster, rows: int, *, value_bytes: int = 10, replicas: int = 1) -> Filled:
    """Fills two partitions with rows of distinct keys, values and times, and reads them back without Spark.

    Args:
        cluster: The brokers.
        rows: The number of rows, of both partitions together.
        value_bytes: The size of a value.
        replicas: The replication factor; a broker may die where it is 3.
    """
    topic = cluster.topic(partitions=2, replication_factor=replicas, min_insync_replicas=min(replicas, 2))
    with cluster.producer() as producer:
        for partition in (0, 1):
            records = [(b"k%d" % number, b"%0*d" % (value_bytes, number)) for number in range(partition, rows, 2)]
            producer.send_many(topic, records, partition=partition).result(60)
    cluster.admin.wait_until_in_sync(topic)
    found = [described(record) for record in records_of(cluster, topic)]
    assert len(found) == rows
    return Filled(topic, rows, digest(found))


def records_of(cluster: SparkCluster, topic: str) -> list[ConsumerRecord]:
    """All records of a topic."""
    wanted = cluster.end_offset(topic)
    found: list[ConsumerRecord] = []
    with SyncConsumer(cluster.bootstrap_servers) as consumer:
        consumer.assign_topic(topic)
        while len(found) < wanted:
            found += consumer.poll()
    return found


def described(record: ConsumerRecord) -> tuple[Any, ...]:
    """A record with the columns of `driver.COLUMNS`."""
    key, value = (None if each is None else sha256(each).hexdigest() for each in (record.key, record.value))
    timestamp_type = int(record.timestamp_type)
    return (record.partition, record.offset, key, value, record.topic, record.timestamp, timestamp_type)


def numbers_of(cluster: SparkCluster, topic: str) -> Counter[int]:
    """How often each numbered row is in a topic."""
    return Counter(int((record.value or b"")[:8]) for record in records_of(cluster, topic))
