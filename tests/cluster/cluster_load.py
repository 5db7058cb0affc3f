"""Clients that work while the cluster suffers: producers, a consumer that tails, a watch on the latest offsets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from cluster_kit import PATIENCE_S, Cluster, say, until

from replog.client import Consumer, Delivery, Producer
from replog.client.protocol.connection import KafkaTransport
from replog.client.protocol.seam import Connection
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.rpc.messages import LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from replog.testing.history import History, SentRecord

BURST_RECORDS = 16
BURST_PAUSE_S = 0.02
OUTSTANDING_MAX = 400
PADDING = b"." * 80


class Background:
    """Tasks that run while a block runs; what goes wrong in them fails the test at the end of the block."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def join(self, *, cancel: bool) -> None:
        if cancel:
            for task in self._tasks:
                task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome


class Load:
    """Idempotent `acks="all"` producers that send unique values to every partition, all the time.

    At the end of the block they stop, and every send has its outcome.

    Attributes:
        acknowledged_ends: by partition, the offset after the highest acknowledged one.
        longest_gap_s: the longest time between two acknowledgements.
    """

    def __init__(self, cluster: Cluster, topic: str, history: History, *, producers: int = 2) -> None:
        self.acknowledged_ends: dict[int, int] = {}
        self.acknowledged_count = 0
        self.longest_gap_s = 0.0
        self._cluster = cluster
        self._topic = topic
        self._history = history
        self._producers_count = producers
        self._is_stopping = False
        self._background = Background()
        self._last_ack_s = 0.0

    async def __aenter__(self) -> Self:
        for number in range(self._producers_count):
            self._background.run(self._produce(f"p{number}"))
        self._last_ack_s = time.monotonic()
        await self.more_acknowledged(20)
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping = True
        await self._background.join(cancel=error is not None)
        say(f"{self.acknowledged_count} acknowledged, longest gap {self.longest_gap_s:.2f} s")

    async def more_acknowledged(self, count: int = 200) -> None:
        """Waits until `count` more records are acknowledged in each partition that is written."""
        before = dict(self.acknowledged_ends)
        partitions = len(await self._cluster.partitions(self._topic))

        async def reached() -> bool:
            self._background.raise_failures()
            ends = self.acknowledged_ends
            return all(ends.get(number, 0) >= before.get(number, 0) + count for number in range(partitions))

        await until(reached, f"{count} more acknowledged in each partition of {self._topic}")

    async def _produce(self, name: str) -> None:
        open_sends: asyncio.Queue[tuple[SentRecord, Delivery] | None] = asyncio.Queue(OUTSTANDING_MAX)
        producer = Producer(
            self._cluster.bootstrap_servers,
            client_id=name,
            delivery_timeout_ms=int(PATIENCE_S * 1000),
            request_timeout_ms=5_000,
            batch_size_bytes=1024,
        )
        async with producer:
            collector = asyncio.create_task(self._collect(open_sends))
            try:
                await self._send_until_stopped(name, producer, open_sends)
                await open_sends.put(None)
                await collector
            finally:
                collector.cancel()

    async def _send_until_stopped(
        self, name: str, producer: Producer, open_sends: asyncio.Queue[tuple[SentRecord, Delivery] | None]
    ) -> None:
        partitions = await producer.partitions_for(self._topic)
        count = 0
        while not self._is_stopping:
            for _ in range(BURST_RECORDS):
                value = b"%s-%d%s" % (name.encode(), count, PADDING)
                send = self._history.send(name, value)
                delivery = await producer.send(self._topic, value, partition=partitions[count % len(partitions)])
                await open_sends.put((send, delivery))
                count += 1
            await asyncio.sleep(BURST_PAUSE_S)  # the rate, not a wait for something

    async def _collect(self, open_sends: asyncio.Queue[tuple[SentRecord, Delivery] | None]) -> None:
        while (entry := await open_sends.get()) is not None:
            send, delivery = entry
            try:
                place = await delivery
            except InvalidRequestError:
                send.failed()
                raise
            except ReplogError as error:
                say(f"{send.value[:20]!r} has no certain outcome: {error}")
                continue
            send.acknowledged((place.topic, place.partition), place.offset)
            self._note(place.partition, place.offset)

    def _note(self, partition: int, offset: int) -> None:
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_ack_s)
        self._last_ack_s = now_s
        self.acknowledged_count += 1
        self.acknowledged_ends[partition] = max(self.acknowledged_ends.get(partition, 0), offset + 1)


class Tail:
    """A consumer that reads everything as it becomes visible, for the whole block."""

    def __init__(self, cluster: Cluster, topic: str, history: History, name: str = "tail") -> None:
        self.records_count = 0
        self._cluster = cluster
        self._topic = topic
        self._history = history
        self._name = name
        self._background = Background()

    async def __aenter__(self) -> Self:
        self._background.run(self._read())
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._background.join(cancel=True)
        say(f"{self._name} read {self.records_count}")

    async def _read(self) -> None:
        async with Consumer(self._cluster.bootstrap_servers, client_id=self._name) as consumer:
            await consumer.assign_topic(self._topic)
            while True:
                for record in await consumer.poll(timeout_ms=200):
                    self.records_count += 1
                    self._history.poll(
                        self._name, (record.topic, record.partition), [(record.offset, record.value or b"")]
                    )


class LatestWatch:
    """Asks every node for the latest offsets, again and again: none may lie below what was acknowledged before.

    It asks without a leader epoch and without looking at the metadata, as the most careless client would.
    """

    def __init__(self, cluster: Cluster, topic: str, load: Load) -> None:
        self.answers: Counter[str] = Counter()
        self._cluster = cluster
        self._topic = topic
        self._load = load
        self._background = Background()

    async def __aenter__(self) -> Self:
        topic_id = (await self._cluster.admin.describe_topics([self._topic]))[self._topic].topic_id
        for node_id in self._cluster.node_ids:
            self._background.run(self._ask_forever(node_id, topic_id))
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._background.join(cancel=True)
        say(f"latest offsets: {dict(self.answers)}")

    async def _ask_forever(self, node_id: int, topic_id: UUID) -> None:
        connection = KafkaTransport().connect(self._cluster.address(node_id), purpose="latest")
        numbers = range(len(await self._cluster.partitions(self._topic)))
        request = ListOffsetsRequest(tuple(ListOffsetsPartition(topic_id, n, LATEST_TIMESTAMP) for n in numbers))
        try:
            while True:
                await self._ask(node_id, connection, request)
                await asyncio.sleep(0.002)  # the rate; three nodes are asked some hundred times a second
        finally:
            await connection.close()

    async def _ask(self, node_id: int, connection: Connection, request: ListOffsetsRequest) -> None:
        acknowledged = dict(self._load.acknowledged_ends)
        try:
            response = await connection.call(request, timeout_ms=10_000)
        except ReplogError as error:
            self.answers[type(error).__name__] += 1
            return
        assert isinstance(response, ListOffsetsResponse)
        for result in response.results:
            self.answers[result.error.name] += 1
            if result.error is ErrorCode.NONE:
                end_offset = acknowledged.get(result.partition_id, 0)
                assert result.offset >= end_offset, (
                    f"node {node_id} (leader epoch {result.leader_epoch}) gave {result.offset} as the latest offset of "
                    f"partition {result.partition_id}, {end_offset} was acknowledged before it was asked"
                )


@contextlib.asynccontextmanager
async def paused(cluster: Cluster, *node_ids: int) -> Any:
    """The nodes' processes are stopped (SIGSTOP) for the length of the block."""
    for node_id in node_ids:
        cluster.local.pause(node_id)
    try:
        yield
    finally:
        for node_id in node_ids:
            if cluster.local.nodes[node_id].is_alive:
                cluster.local.resume(node_id)
