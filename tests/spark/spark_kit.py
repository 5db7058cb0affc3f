"""Short ways to fill real brokers, for the Spark tests."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from replog.client import LoopThread, SyncAdmin, SyncConsumer, SyncProducer
from replog.cluster import LocalCluster
from replog.spark.source import ReplogDataSource
from replog.spark.worker_client import close_clients

T = TypeVar("T")

END = b"the end"


class Sent(NamedTuple):
    """One record to send."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class SparkCluster:
    """Real broker processes, and short ways to fill them."""

    def __init__(self, local: LocalCluster, thread: LoopThread) -> None:
        self.local = local
        self._thread = thread
        self._names = (f"topic-{number}" for number in itertools.count(1))
        self.admin = SyncAdmin(local.bootstrap_servers).__enter__()

    @property
    def bootstrap_servers(self) -> str:
        return self.local.bootstrap_servers

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def wait() -> T:
            return await coroutine

        return self._thread.run(wait, 60)

    def topic(self, partitions: int = 1, replication_factor: int = 1, **configs: object) -> str:
        """Creates a topic under a name of its own."""
        name = next(self._names)
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topic(name, partitions, replication_factor, dotted)
        return name

    def send(self, topic: str, records: Iterable[Sent], **settings: Any) -> None:
        """Sends the records and waits until all are acknowledged."""
        with SyncProducer(self.bootstrap_servers, **settings) as producer:
            deliveries = [
                producer.send(topic, each.value, each.key, each.partition, each.timestamp_ms, each.headers)
                for each in records
            ]
            for delivery in deliveries:
                delivery.result(30)

    def send_values(self, topic: str, values: Sequence[bytes], partition: int = 0, **settings: Any) -> None:
        """Sends many values without keys, acknowledged."""
        with SyncProducer(self.bootstrap_servers, **settings) as producer:
            producer.send_many(topic, values, partition=partition).result(30)

    def producer(self) -> SyncProducer:
        return SyncProducer(self.bootstrap_servers)

    def end_offset(self, topic: str) -> int:
        """Of all partitions together."""
        (described,) = self.admin.describe_topics([topic]).values()
        partitions = [(topic, each.partition_id) for each in described.partitions]
        with SyncConsumer(self.bootstrap_servers) as consumer:
            return sum(consumer.end_offsets(partitions).values())

    def committed_values(self, topic: str) -> list[bytes]:
        """Returns the values that readers of committed records see, to the end of each partition: nothing may be in their way."""
        (described,) = self.admin.describe_topics([topic]).values()
        with self.producer() as producer:
            for each in described.partitions:
                producer.send(topic, END, partition=each.partition_id).result(30)
        found: list[bytes] = []
        ends = 0
        with SyncConsumer(self.bootstrap_servers) as consumer:
            consumer.assign_topic(topic)
            deadline = time.monotonic() + 60
            while ends < len(described.partitions):
                assert time.monotonic() < deadline, "an open transaction is in the way"
                values = [record.value or b"" for record in consumer.poll()]
                ends += values.count(END)
                found += [value for value in values if value != END]
        return found

    @contextmanager
    def killed(self, broker_id: int) -> Iterator[None]:
        """A broker is dead in the block."""
        self.run(self.local.kill(broker_id))
        try:
            yield
        finally:
            self.local.start_node(broker_id)
            self.run(self.local.wait_until_ready())

    def segment_files(self, topic: str, partition: int = 0) -> Iterator[Path]:
        """The segment files of a partition, of all brokers."""
        return self.local.directory.glob(f"**/{topic}-{partition}/*.log")

    def close(self) -> None:
        self.admin.close()


def read_directly(cluster: SparkCluster, topic: str, **more: str) -> Generator[list[int], None, None]:
    """Offsets of partition 0, batch by batch, as a task reads them but in this process."""
    options = {"bootstrap.servers": cluster.bootstrap_servers, "assign": json.dumps({topic: [0]}), **more}
    reader = ReplogDataSource(options).reader(schema=StructType([StructField("offset", LongType())]))
    try:
        (partition,) = reader.partitions()
        for batch in reader.read(partition):
            yield batch.column("offset").to_pylist()
    finally:
        close_clients()


def wait_until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Polls until `condition` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s")
        time.sleep(0.05)
