"""What do codecs cost a consumer that reads a topic from the beginning?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError, throughput
from bench.scenarios.produce import PARTITIONS, check_topic
from bench.systems.brokers import Digest
from bench.systems.replog_cluster import POLL_RECORDS, READ_TIMEOUT_S, ReplogCluster
from replog.client import Consumer, ConsumerRecord
from replog.codecs import ValueCodec

TOPIC_BYTES = 64 * 1024 * 1024
RECORD_BYTES = 100
POOL_RECORDS = 10_000


class Fare(msgspec.Struct):
    """A small record: about `RECORD_BYTES` of JSON."""

    number: int
    taxi: str
    zone: str
    cents: int


class Unchanged:
    """A codec of bytes: what remains is what codecs cost that do nothing."""

    def encode(self, value: bytes, /) -> bytes:
        return value

    def decode(self, data: bytes, /) -> bytes:
        return data


CODECS: Mapping[str, type[Any] | ValueCodec[Any]] = {
    "plain": bytes,
    "bytes": Unchanged(),
    "str": str,
    "json": Fare,
}


class ConsumeTypedScenario(Scenario[ReplogCluster]):
    """One consumer reads all partitions as objects, from the page cache of their leaders, with values of several types.

    Args:
        topic_bytes: how much is read, about.
        system: the brokers; by default its own.
    """

    name = "consume-typed"
    question = "What do codecs cost a consumer of small records?"

    def __init__(self, topic_bytes: int = TOPIC_BYTES, system: ReplogCluster | None = None) -> None:
        self._rounds = max(1, topic_bytes // (RECORD_BYTES * POOL_RECORDS))
        self._system = system or ReplogCluster()
        pool = [Fare(number, f"taxi-{number % 97:08d}", "x" * 30, number % 10_000) for number in range(POOL_RECORDS)]
        self._pool = [msgspec.json.encode(fare) for fare in pool]
        self._topic = ""

    def systems(self) -> Sequence[ReplogCluster]:
        return [self._system]

    def cases(self) -> Sequence[Params]:
        return [{"value": name, "record_bytes": RECORD_BYTES, "partitions": PARTITIONS} for name in CODECS]

    def measure(self, system: ReplogCluster, params: Params, meter: Meter) -> Measured:
        topic = self._filled(system)
        value = CODECS[str(params["value"])]
        return system.run(self._read(Consumer(system.cluster.bootstrap_servers, value=value), topic, meter))

    async def _read(self, consumer: Consumer[bytes, Any], topic: str, meter: Meter) -> Measured:
        count, found = len(self._pool) * self._rounds, 0
        last: Sequence[ConsumerRecord[bytes, Any]] = ()
        async with consumer, asyncio.timeout(READ_TIMEOUT_S):
            partitions = await consumer.assign_topic(topic)
            for partition in partitions:  # offset 0 is the record that warmed it up
                consumer.seek(partition, 1)
            with meter.timed() as timing:
                while found < count:
                    last = await consumer.poll(POLL_RECORDS)
                    found += len(last)
        if found != count or last[-1].value is None:
            raise WrongResultError(f"{found} records of {count}, the last one {last[-1]}")
        return throughput(timing, records=count, data_bytes=sum(map(len, self._pool)) * self._rounds)

    def _filled(self, system: ReplogCluster) -> str:
        """A topic with the records, made the first time."""
        if not self._topic:
            topic = system.create_topic(PARTITIONS)
            with system.producer(topic) as producer:
                producer.send_all(self._pool, self._rounds)
            check_topic(system, topic, Digest.of(self._pool, self._rounds))
            self._topic = topic
        return self._topic


SCENARIO = ConsumeTypedScenario()
