"""replog as a system under test: its brokers, and the clients of `replog.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.systems.brokers import BenchConsumer, BenchProducer, BrokerSystem, Digest, ReadAs, Sending
from bench.systems.replog_brokers import ReplogBrokers
from replog.client import Consumer, Delivery, Producer, Security
from replog.cluster import LocalCluster
from replog.records import decode_records, scan

READ_TIMEOUT_S = 60.0
POLL_RECORDS = 10_000
FIRST_OFFSET = 1
"""Offset 0 of every partition is the record that warmed it up."""

T = TypeVar("T")


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
    def __init__(self, runner: asyncio.Runner, producer: Producer, topic: str, *, one_by_one: bool) -> None:
        self._runner = runner
        self._producer = producer
        self._topic = topic
        self._one_by_one = one_by_one

    def send_all(self, values: Sequence[bytes], rounds: int) -> None:
        self._runner.run(self._send_all(values, rounds))

    async def _send_all(self, records: Sequence[bytes], rounds: int) -> None:
        for _ in range(rounds):
            if self._one_by_one:
                for value in records:
                    await self._producer.send(self._topic, value)
            else:
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
    """Three broker processes and our own client.

    Args:
        brokers: The brokers, which others may use too; by default its own.
        one_by_one: Whether the producer sends each record by a call of its own, `send`, instead of many by `send_many`.
        name: The name of the system; by default it says how records are sent.
        over_tls: Whether the client comes over TLS.
    """

    def __init__(
        self, brokers: ReplogBrokers | None = None, *, one_by_one: bool = False, name: str = "", over_tls: bool = False
    ) -> None:
        self.name = name or ("replog-send" if one_by_one else "replog")
        self._brokers = brokers or ReplogBrokers()
        self._one_by_one = one_by_one
        self._over_tls = over_tls

    def start(self, directory: Path) -> None:
        self._brokers.start(directory)

    def stop(self) -> None:
        self._brokers.stop()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    def durability(self) -> str:
        return f"{self._brokers.durability()}, idempotent"

    @property
    def cluster(self) -> LocalCluster:
        return self._brokers.cluster

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a piece of client code on the loop of all clients."""
        return self._brokers.run(coroutine)

    def new_topic_name(self) -> str:
        return self._brokers.new_topic_name()

    def create_topic(self, partitions: int) -> str:
        return self._brokers.create_topic(partitions)

    def delete_topic(self, topic: str) -> None:
        self._brokers.delete_topic(topic)

    @property
    def _servers(self) -> str:
        return self._brokers.tls_door.servers if self._over_tls else self.cluster.bootstrap_servers

    def _security(self) -> Security | None:
        return Security.tls(ca=str(self._brokers.tls_door.authority)) if self._over_tls else None

    @contextmanager
    def producer(self, topic: str, sending: Sending = "bulk") -> Iterator[BenchProducer]:  # noqa: ARG002 -- one set of settings for both
        runner = self._brokers.runner
        producer = Producer(self._servers, security=self._security())
        try:
            runner.run(warm_up(producer, topic))
            yield ReplogProducer(runner, producer, topic, one_by_one=self._one_by_one)
        finally:
            runner.run(producer.close())

    @contextmanager
    def consumer(self, topic: str) -> Iterator[BenchConsumer]:
        runner = self._brokers.runner
        consumer = Consumer(self._servers, security=self._security())

        try:
            runner.run(consumer.start())
            yield ReplogConsumer(runner, consumer, topic)
        finally:
            runner.run(consumer.close())
