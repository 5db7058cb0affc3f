"""A steady load: an idempotent producer sends unique values to every partition at a fixed rate; everything is remembered."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

from msgspec import Struct

from replog.client import Consumer, Delivery, Producer
from replog.errors import ReplogError
from replog.testing.history import History, SentRecord

DELIVERY_TIMEOUT_MS = 180_000
PADDING = b"." * 900
PRODUCER = "replog"


class Acknowledgement(Struct, frozen=True):
    """One acknowledged record.  Times are seconds of the event loop; `due_s` is when it was to be sent."""

    partition: int
    offset: int
    due_s: float
    acked_s: float


class Load:
    """Sends while its block runs; at the end every send has an outcome.

    Args:
        bootstrap_servers: The brokers of the cluster to ask first.
        topic: The topic that the records go to.
        partitions_count: The number of its partitions.
        rate_per_s: The records sent in a second, all partitions together.
        history: The history that it shares with another load; None: one of its own.

    Attributes:
        name: The name of the client.
        history: The history of what was sent, acknowledged and read.
        acknowledged: The acknowledgements in the order of their coming.
        unknown_because: The number of sends without a certain outcome, by what their client was told.
    """

    name = PRODUCER

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions_count: int,
        rate_per_s: float,
        history: History | None = None,
    ) -> None:
        self.history = History() if history is None else history
        self.acknowledged: list[Acknowledgement] = []
        self.unknown_because: Counter[str] = Counter()
        self._servers = bootstrap_servers
        self._topic = topic
        self._partitions_count = partitions_count
        self._rate_per_s = rate_per_s
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="chaos-load")
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping = True
        if self._task is not None:
            if error is not None:
                self._task.cancel()
            outcomes = await asyncio.gather(self._task, return_exceptions=True)
            if error is None and isinstance(outcomes[0], BaseException):
                raise outcomes[0]

    async def fill(self, count: int, size_bytes: int) -> None:
        """Sends large records to all partitions in turn, before the load, and waits until they are acknowledged.

        Args:
            count: The number of records.
            size_bytes: The bytes of each value, behind a short number.
        """
        async with Producer(self._servers, client_id="chaos-fill", delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
            for number in range(count):
                value = b"fill-%d-" % number + b"." * size_bytes
                send = self.history.send("fill", value)
                place = await (await producer.send(self._topic, value, partition=number % self._partitions_count))
                send.acknowledged((place.topic, place.partition), place.offset)

    async def wait_flowing(self, since_s: float, count: int = 3) -> None:
        """Returns when so many records that were due after `since_s` are acknowledged in every partition."""
        while not self._is_flowing(since_s, count):
            if self._task is not None and self._task.done():
                self._task.result()
            self._progress.clear()
            await self._progress.wait()

    def _is_flowing(self, since_s: float, count: int) -> bool:
        counts = [0] * self._partitions_count
        for one in reversed(self.acknowledged):
            if one.acked_s <= since_s:
                break
            counts[one.partition] += one.due_s > since_s
        return min(counts) >= count

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        async with (
            Producer(self._servers, client_id="chaos", delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            start_s, number = loop.time(), 0
            while not self._is_stopping:
                due_s = start_s + number / self._rate_per_s
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                value = b"%d%s" % (number, PADDING)
                send = self.history.send(PRODUCER, value)
                delivery = await producer.send(self._topic, value, partition=number % self._partitions_count)
                tasks.create_task(self._wait(send, delivery, due_s))
                number += 1

    async def _wait(self, send: SentRecord, delivery: Delivery, due_s: float) -> None:
        try:
            place = await delivery
        except ReplogError as error:
            self.unknown_because[f"{self.name}: {type(error).__name__}"] += 1
            return
        send.acknowledged((place.topic, place.partition), place.offset)
        self.acknowledged.append(
            Acknowledgement(place.partition, place.offset, due_s, asyncio.get_running_loop().time())
        )
        self._progress.set()

    def bury(self, topic: str) -> int:
        """Notes that what is acknowledged so far is gone, by intent; returns how many records that is.

        Where one of them is read again all the same, the history calls it a duplicate.

        Args:
            topic: The name under which the history keeps what is gone.
        """
        places = [send.place for send in self.history.sends if send.place is not None]
        for send in self.history.sends:
            if send.place is not None:
                (_, partition), offset = send.place
                send.acknowledged((topic, partition), offset)
        for partition in range(self._partitions_count):
            end_offset = 1 + max((offset for (_, number), offset in places if number == partition), default=-1)
            self.history.final_read((topic, partition), end_offset, end_offset, [])
        return len(places)

    async def read_back(self) -> dict[int, int]:
        """Reads every partition from its start to its high watermark into the history; returns where each ends."""
        async with Consumer(self._servers, auto_offset_reset="earliest") as consumer:
            partitions = await consumer.assign_topic(self._topic)
            ends = await consumer.end_offsets(partitions)
            found: dict[tuple[str, int], list[tuple[int, bytes]]] = {partition: [] for partition in partitions}
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for record in await consumer.poll():
                    found[record.topic, record.partition].append((record.offset, record.value or b""))
            for partition in partitions:
                records = [(offset, value) for offset, value in found[partition] if offset < ends[partition]]
                self.history.final_read(partition, 0, ends[partition], records)
            return {partition.partition: ends[partition] for partition in partitions}
