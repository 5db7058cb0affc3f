"""Groups of our consumers with a broker in the process of the test: a topic with records, members that read beside the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from replog import embedded
from replog.client import Admin, AssignmentListener, Consumer, ConsumerRecord, Producer, TopicPartition
from replog.coordinator.assignors import partitions_of
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.offsets.requests import CommitOffsets
from replog.errors import ReplogError

QUICK = {
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.session.timeout.ms": 30_000,
    "offsets.topic.num.partitions": 2,
}
PATIENCE_S = 60


class Rig:
    """A broker with topic "t" of four partitions, ten records in each."""

    def __init__(self, servers: str, admin: Admin, producer: Producer) -> None:
        self.servers = servers
        self.admin = admin
        self.producer = producer

    def consumer(self, **config: Any) -> Consumer:
        return Consumer(self.servers, **({"group_id": "g", "auto_offset_reset": "earliest"} | config))

    async def fill(self, topic: str = "t", count: int = 40, partitions: int = 4) -> None:
        for number in range(count):
            await self.producer.send(topic, b"%d" % number, partition=number % partitions)
        await self.producer.flush()


@contextlib.asynccontextmanager
async def group_rig() -> AsyncIterator[Rig]:
    """Runs a broker that has the topic, in a folder that goes with it."""
    async with embedded(config=QUICK) as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topic("t", 4)
            found = Rig(servers, admin, producer)
            await found.fill()
            yield found


class Background:
    """A member that reads in a task of its own until it is stopped, and remembers what it got."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.records: list[ConsumerRecord] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.consumer:
            self.records.append(record)

    async def stop(self) -> None:
        """The task is cancelled where it waits, and the consumer closed."""
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.consumer.close()


async def member(rig: Rig, listener: AssignmentListener | None = None, **config: Any) -> Background:
    consumer = rig.consumer(**config)
    await consumer.start()
    await consumer.subscribe(["t"], listener=listener)
    return Background(consumer)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Reads so many records; the last one stays in hand."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


def places(records: Collection[ConsumerRecord]) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in records}


async def error_of_poll(consumer: Consumer) -> ReplogError | None:
    try:
        await consumer.poll(1, 100)
    except ReplogError as error:
        return error
    return None


EVERYTHING = {(partition, offset) for partition in range(4) for offset in range(10)}


class Heard(AssignmentListener):
    """Writes down what it hears; `gate` holds up revocations."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("assigned", len(partitions)))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("revoked", len(partitions)))
        await self.gate.wait()

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", len(partitions)))


class Line:
    """The way of a subscribed consumer to its coordinator; `gate` holds up its commits.

    Attributes:
        said: What has gone through, in order: "commits" when one was answered or has failed, "owns 2" before a heartbeat says so,
            "leaves" before the last one.
        commits_count: The commits that have begun.
        refusal: What commits fail with behind the gate; None: they are sent.
    """

    def __init__(self, consumer: Consumer, patch: pytest.MonkeyPatch) -> None:
        assert consumer._group is not None
        self.said: list[str] = []
        self.commits_count = 0
        self.refusal: ReplogError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        coordinator = consumer._group.member._coordinator
        self._call = coordinator.call
        patch.setattr(coordinator, "call", self._carry)
        unheld = SimpleNamespace(call=self._call)  # where it begins it commits what the policy has chosen
        patch.setattr(consumer._group.member.openings, "_coordinator", unheld)

    async def _carry(self, request: Any, *rest: Any) -> Any:
        if isinstance(request, CommitOffsets):
            return await self._commit(request, *rest)
        if isinstance(request, ConsumerHeartbeat) and request.member_epoch < 0:
            self.said.append("leaves")
        elif isinstance(request, ConsumerHeartbeat) and request.owned is not None:
            self.said.append(f"owns {len(partitions_of(request.owned))}")
        return await self._call(request, *rest)

    async def _commit(self, request: CommitOffsets, *rest: Any) -> Any:
        self.commits_count += 1
        await self.gate.wait()
        try:
            if self.refusal is not None:
                raise self.refusal
            return await self._call(request, *rest)
        finally:
            self.said.append("commits")
