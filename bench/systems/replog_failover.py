"""replog with a node killed under a steady producer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from bench.systems.brokers import FailoverReport, FailoverSystem, Killed
from bench.systems.replog_cluster import (
    FIRST_OFFSET,
    READ_TIMEOUT_S,
    ReplogCluster,
    warm_up,
)
from replog.client import Consumer, Delivery, Producer, RecordMetadata

FAILOVER_TIMEOUT_S = 60.0
POLL_S = 0.005


@dataclass(slots=True)
class _Steady:
    """Numbered values, sent one by one at a fixed rate until somebody says stop."""

    producer: Producer
    topic: str
    rate_per_s: float
    stopped: bool = False
    sent: list[bytes] = field(default_factory=list)
    acks_s: list[float] = field(default_factory=list)
    placed: dict[int, RecordMetadata] = field(default_factory=dict)

    async def run(self) -> None:
        """Returns when everything sent is acknowledged."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            while not self.stopped:
                number = len(self.sent)
                await asyncio.sleep(max(0.0, start_s + number / self.rate_per_s - loop.time()))
                self.sent.append(b"value %d" % number)
                tasks.create_task(self._wait(number, await self.producer.send(self.topic, self.sent[-1])))

    async def _wait(self, number: int, delivery: Delivery) -> None:
        self.placed[number] = await delivery
        self.acks_s.append(asyncio.get_running_loop().time())


class ReplogFailover(ReplogCluster, FailoverSystem):
    """The same three processes; whoever was killed is started again after each measurement."""

    def fail_over(self, killed: Killed, *, rate_per_s: float, before_s: float, after_s: float) -> FailoverReport:
        topic, victim = self._brokers.create_led_topic(killed)
        report = self.run(self._fail_over(topic, victim, rate_per_s, before_s, after_s))
        self._brokers.bring_back(victim, topic)
        self.delete_topic(topic)
        return report

    async def _fail_over(
        self, topic: str, victim: int, rate_per_s: float, before_s: float, after_s: float
    ) -> FailoverReport:
        async with asyncio.timeout(FAILOVER_TIMEOUT_S):
            async with Producer(self.cluster.bootstrap_servers) as producer, asyncio.TaskGroup() as tasks:
                await warm_up(producer, topic)
                steady = _Steady(producer, topic, rate_per_s)
                tasks.create_task(steady.run())
                killed_s = await self._kill_under(steady, victim, before_s, after_s)
            values = await self._read_back(topic)
        found = [values.get(steady.placed[number].offset) for number in range(len(steady.sent))]
        return FailoverReport(steady.acks_s, killed_s, steady.sent, found, len(values))

    async def _kill_under(self, steady: _Steady, victim: int, before_s: float, after_s: float) -> float:
        """Kills `victim`; returns when, once a record sent after it was acknowledged, and `after_s` more have gone."""
        await asyncio.sleep(before_s)
        killed_s = asyncio.get_running_loop().time()
        first_after = len(steady.sent) + 1
        await self.cluster.kill(victim)
        while first_after not in steady.placed:
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(after_s)
        steady.stopped = True
        return killed_s

    async def _read_back(self, topic: str) -> dict[int, bytes]:
        """Values by offset, up to the high watermark of now."""
        found: dict[int, bytes] = {}
        async with asyncio.timeout(READ_TIMEOUT_S), Consumer(self.cluster.bootstrap_servers) as consumer:
            (partition,) = await consumer.assign_topic(topic)
            consumer.seek(partition, FIRST_OFFSET)
            end = (await consumer.end_offsets([partition]))[partition]
            while consumer.position(partition) < end:
                for record in await consumer.poll():
                    found[record.offset] = record.value or b""
        return found
