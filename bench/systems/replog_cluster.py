"""replog as a system under test: three processes of `LocalCluster`, and the clients of `replog.client`."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.systems.brokers import BenchConsumer, BenchProducer, BrokerSystem, Digest, ReadAs
from replog.client import Admin, Consumer, Delivery, Producer
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue
from replog.records import decode_records, scan

NODES = 3
TOPIC_CONFIGS = {"min.insync.replicas": 2}
READ_TIMEOUT_S = 60.0
POLL_RECORDS = 10_000
FIRST_OFFSET = 1
"""Offset 0 of every partition is the record that warmed it up."""

T = TypeVar("T")


def precise_runner() -> asyncio.Runner:
    """An event loop whose timers are exact to microseconds.

    The default on Linux waits with epoll, in whole milliseconds: a sender at a fixed rate would be late by half of
    one on average, and a latency would have that in it.
    """
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))


async def warm_up(producer: Producer, topic: str) -> None:
    """Sends an empty record to each partition and waits: connections, producer id and all followers are at work then.

    A follower that hears of a new topic before its leader does pauses before it asks again.
    """
    await producer.start()
    deliveries = [await producer.send(topic, b"", partition=number) for number in await producer.partitions_for(topic)]
    for delivery in deliveries:
        await delivery


async def send_at_rate(
    producer: Producer, topic: str, value: bytes, rate_per_s: float, numbers: Iterable[int]
) -> list[float]:
    """See `BenchProducer.send_at_rate`; one record for each of `numbers`, which count from 0 for as long as is wanted."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []

    async def wait_for(delivery: Delivery, due_s: float) -> None:
        await delivery
        latencies.append(loop.time() - due_s)

    start_s = loop.time() + 0.01
    async with asyncio.TaskGroup() as tasks:
        for number in numbers:
            due_s = start_s + number / rate_per_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            tasks.create_task(wait_for(await producer.send(topic, value), due_s))
    return latencies


class ReplogProducer(BenchProducer):
    def __init__(self, runner: asyncio.Runner, producer: Producer, topic: str) -> None:
        self._runner = runner
        self._producer = producer
        self._topic = topic

    def send_all(self, values: Sequence[bytes], rounds: int) -> None:
        self._runner.run(self._send_all(values, rounds))

    async def _send_all(self, records: Sequence[bytes], rounds: int) -> None:
        for _ in range(rounds):
            await self._producer.send_many(self._topic, records)
        await self._producer.flush()

    def send_at_rate(self, value: bytes, rate_per_s: float, count: int) -> list[float]:
        return self._runner.run(send_at_rate(self._producer, self._topic, value, rate_per_s, range(count)))


class ReplogConsumer(BenchConsumer):
    def __init__(self, runner: asyncio.Runner, consumer: Consumer, topic: str) -> None:
        self._runner = runner
        self._consumer = consumer
        self._topic = topic

    def read(self, count: int, read_as: ReadAs) -> int:
        return self._runner.run(self._read(count, read_as))

    def digest(self, count: int) -> Digest:
        return self._runner.run(self._digest(count))

    async def _read(self, count: int, read_as: ReadAs) -> int:
        await self._rewind()
        found = 0
        async with asyncio.timeout(READ_TIMEOUT_S):
            while found < count:
                found += await (self._poll() if read_as == "records" else self._fetch())
        return found

    async def _rewind(self) -> None:
        await self._consumer.assign([])
        for partition in await self._consumer.assign_topic(self._topic):
            self._consumer.seek(partition, FIRST_OFFSET)

    async def _poll(self) -> int:
        return len(await self._consumer.poll(POLL_RECORDS))

    async def _fetch(self) -> int:
        pieces = await self._consumer.fetch_batches()
        return sum(header.records_count for piece in pieces for header in scan(piece.data))

    async def _digest(self, count: int) -> Digest:
        """Reads up to the high watermarks of now: a record too many is seen as well as one too few."""
        await self._rewind()
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        held = sum(end - FIRST_OFFSET for end in ends.values())
        if held != count:
            return Digest(held, -1)
        checksum = found = 0
        async with asyncio.timeout(READ_TIMEOUT_S):
            while any(self._consumer.position(partition) < end for partition, end in ends.items()):
                for piece in await self._consumer.fetch_batches():
                    records = decode_records(piece.data, start_offset=piece.start_offset)
                    part = Digest.of(record.value or b"" for record in records)
                    found, checksum = found + part.count, checksum + part.checksum
        return Digest(found, checksum)


class ReplogCluster(BrokerSystem):
    """Three broker processes.

    Args:
        cluster_class: another one may start the processes in another way, under a profiler for instance.
        config: keys of the brokers, over the defaults.
    """

    name = "replog"

    def __init__(
        self, cluster_class: type[LocalCluster] = LocalCluster, *, config: Mapping[str, ConfigValue] | None = None
    ) -> None:
        self._cluster_class = cluster_class
        self._config = config
        self._runner: asyncio.Runner | None = None
        self._cluster: LocalCluster | None = None
        self._topics_count = 0

    def start(self, directory: Path) -> None:
        self._runner = precise_runner()
        self._cluster = self.run(self._start_cluster(directory / "cluster"))

    async def _start_cluster(self, directory: Path) -> LocalCluster:
        return await self._cluster_class.start(directory, nodes=NODES, config=self._config)

    def stop(self) -> None:
        if self._cluster is not None:
            self.run(self._cluster.kill_all())
            self._cluster = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def process_ids(self) -> Sequence[int]:
        return [spec.process.pid for spec in self.cluster.nodes.values() if spec.process is not None]

    @property
    def cluster(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._cluster

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a piece of client code; clients live on from one to the next, for the loop is the same."""
        if self._runner is None:
            coroutine.close()
            raise RuntimeError(f"{self.name} was not started")
        return self._runner.run(coroutine)

    def new_topic_name(self) -> str:
        self._topics_count += 1
        return f"bench-{self._topics_count}"

    def create_topic(self, partitions: int) -> str:
        topic = self.new_topic_name()

        async def create() -> None:
            async with Admin(self.cluster.bootstrap_servers) as admin:
                await admin.create_topic(topic, partitions, NODES, TOPIC_CONFIGS)
                await admin.wait_until_in_sync(topic)

        self.run(create())
        return topic

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            async with Admin(self.cluster.bootstrap_servers) as admin:
                await admin.delete_topic(topic)

        self.run(delete())

    @contextmanager
    def producer(self, topic: str) -> Iterator[BenchProducer]:
        runner = self._running()
        producer = Producer(self.cluster.bootstrap_servers)
        try:
            runner.run(warm_up(producer, topic))
            yield ReplogProducer(runner, producer, topic)
        finally:
            runner.run(producer.close())

    @contextmanager
    def consumer(self, topic: str) -> Iterator[BenchConsumer]:
        runner = self._running()
        consumer = Consumer(self.cluster.bootstrap_servers)

        try:
            runner.run(consumer.start())
            yield ReplogConsumer(runner, consumer, topic)
        finally:
            runner.run(consumer.close())

    def _running(self) -> asyncio.Runner:
        if self._runner is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._runner
