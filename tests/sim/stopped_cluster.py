"""A cluster that has worked and was stopped: its disks, and everything that was acknowledged to its clients.

Three nodes, controllers and brokers at once, `flush.policy=always`, segments of a kilobyte.

====================== =========================================================================================
`flights`, 2           three replicas, min.insync.replicas 2; the first records were deleted
`latest`, 1            the same, compacted
`again`, 1             three replicas of a topic that was deleted, with records in it, and created anew
`single`, 3            one replica, on each node one; the first records were deleted
`single-latest`, 3     the same, compacted
`__consumer_offsets`   three replicas: what the group `readers` has committed
====================== =========================================================================================

An idempotent producer has sent everything, in several leader epochs, for brokers were stopped in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from replog.client import Admin, Consumer, Producer
from replog.controller.requests import ConfigEntry, CreateTopics, DeleteTopics, NewTopic
from replog.log.segments.index_cache import INDEX_CACHE
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.simulated_node import ClusterObserver
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.orderly_stops_simulation import SETTINGS as QUICK

NODES = (1, 2, 3)
GROUP = "readers"
AGAIN = "again"
REPLICATED = {"flights": 2, "latest": 1, AGAIN: 1}
SINGLE = {"single": 3, "single-latest": 3}
COMPACTED = ("latest", "single-latest")
KEYS = 5
ROUNDS = 3
RECORDS_A_ROUND = 12
DELETED_END = 9

SETTINGS = {
    **QUICK,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 200,
    "request.timeout.ms": 2_000,
    "flush.policy": "always",
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "log.flush.offset.checkpoint.interval.ms": 300,
    "log.flush.start.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.min.cleanable.ratio": 0.1,
}
SMALL = {
    "log_segment_bytes": 1_024,
    "metadata_log_segment_bytes": 2_048,
    "metadata_log_max_record_bytes_between_snapshots": 3_000,
    "metadata_max_retention_bytes": 0,
}
WITHOUT_SNAPSHOTS = {"metadata_log_max_record_bytes_between_snapshots": 1 << 20}

Partition: TypeAlias = tuple[str, int]
Records: TypeAlias = dict[int, tuple[bytes | None, bytes | None]]
"""Offset -> key and value."""


@dataclass(slots=True)
class Served:
    """What clients have, or should have.

    Attributes:
        records: of each partition.
        starts: where each partition begins.
        committed: what the group has committed.
    """

    records: dict[Partition, Records] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoppedCluster:
    """What is left when all nodes have stopped.

    Attributes:
        seed: what it was made from.
        how: in words, how its nodes stopped.
        order: the nodes in the order in which they stopped.
        disks: of each node.
        earlier: each node's files at earlier moments, the first one first.
        acknowledged: what must be served.
        ended_ms: how long it ran.
    """

    seed: int
    how: str
    order: tuple[int, ...]
    disks: dict[int, SimulatedFileSystem]
    earlier: list[dict[int, dict[str, bytes]]]
    acknowledged: Served
    ended_ms: int


def new_cluster(loop: VirtualLoop, seed: int, observer: ClusterObserver | None = None) -> SimulatedCluster:
    """Returns a cluster whose nodes have empty disks; where the seed is even, they replay all of the metadata log."""
    return SimulatedCluster(
        loop,
        random.Random(seed),
        controllers=NODES,
        brokers=NODES,
        settings=SETTINGS,
        small=SMALL if seed % 2 else SMALL | WITHOUT_SNAPSHOTS,
        observer=observer,
    )


@contextlib.contextmanager
def clean_caches() -> Iterator[None]:
    """Takes out of the process what killed nodes leave in it."""
    try:
        yield
    finally:
        INDEX_CACHE._copies.clear()
        INDEX_CACHE._maps.clear()


def stopped_cluster(seed: int) -> StoppedCluster:
    """Lets a cluster work and stops it."""
    with clean_caches():
        return _Work(seed).run()


class Clients:
    """Who uses a cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._addresses = cluster.bootstrap_servers

    def producer(self) -> Producer:
        producer = Producer(self._addresses, transport=self._cluster.transport("producer"))
        producer._view.rng.seed(1)  # the same run every time
        return producer

    def consumer(self) -> Consumer:
        consumer = Consumer(self._addresses, transport=self._cluster.transport("consumer"))
        consumer._view.rng.seed(2)
        return consumer

    def admin(self) -> Admin:
        admin = Admin(self._addresses, transport=self._cluster.transport("admin"))
        admin._view.rng.seed(3)
        return admin


async def send(producer: Producer, served: Served, partition: Partition, numbers: range) -> None:
    """Sends records to one partition, and notes those that are acknowledged.

    Raises:
        ReplogError: One is not acknowledged.
    """
    topic, number = partition
    for each in numbers:
        key = b"k%d" % (each % KEYS) if topic in COMPACTED else None
        value = f"{topic}-{number} {each} ".encode() + b"x" * (each % 40)
        acknowledged = await (await producer.send(topic, value, key=key, partition=number))
        served.records.setdefault(partition, {})[acknowledged.offset] = (key, value)


class _Work:
    """One run of a cluster, until it stands still."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._how = self._rng.choice(("one after another", "with pauses", "together", "killed"))
        self._loop = VirtualLoop(random.Random(seed + 1))
        self._cluster = new_cluster(self._loop, seed + 2)
        self._clients = Clients(self._cluster)
        self._served = Served()
        self._earlier: list[dict[int, dict[str, bytes]]] = []
        self._again = tuple(self._rng.sample(NODES, 3))

    def run(self) -> StoppedCluster:
        order = self._loop.run(self._main())
        for node in self._cluster.nodes.values():
            node.fs.kill()
        disks = {node_id: node.fs for node_id, node in self._cluster.nodes.items()}
        ended_ms = int(self._loop.time() * 1000) + 1
        return StoppedCluster(self._seed, self._how, order, disks, self._earlier, self._served, ended_ms)

    async def _main(self) -> tuple[int, ...]:
        cluster = self._cluster
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await self._create_topics()
        async with self._clients.producer() as producer, self._clients.admin() as admin:
            for round_number in range(ROUNDS):
                await self._send_round(producer, round_number)
                await admin.alter_group_offsets(GROUP, self._commit(round_number))
                if round_number == 0:
                    await self._delete(admin)
                if round_number < ROUNDS - 1:
                    self._earlier.append({node_id: node.fs.image() for node_id, node in cluster.nodes.items()})
                    if round_number == 0:
                        await self._create_again()
                    await self._restart_one()
        await asyncio.sleep(self._rng.choice((0.0, 0.2, 1.0)))
        return await self._stop()

    async def _create_topics(self) -> None:
        def configs(topic: str, *more: tuple[str, str]) -> tuple[ConfigEntry, ...]:
            policy = (("cleanup.policy", "compact"),) if topic in COMPACTED else ()
            return tuple(ConfigEntry(*each) for each in (*policy, *more))

        replicated = [
            NewTopic(
                topic,
                assignments=tuple(tuple(self._rng.sample(NODES, 3)) for _ in range(count)),
                configs=configs(topic),
            )
            for topic, count in REPLICATED.items()
        ]
        single = [
            NewTopic(
                topic,
                assignments=tuple((node_id,) for node_id in NODES),
                configs=configs(topic, ("min.insync.replicas", "1")),
            )
            for topic in SINGLE
        ]
        await self._cluster.client("admin").ask(1, CreateTopics((*replicated, *single)))

    async def _create_again(self) -> None:
        """A former topic has left nothing: its records are not acknowledged ones of this one."""
        client = self._cluster.client("admin")
        await client.ask(1, DeleteTopics((AGAIN,)))
        await client.ask(1, CreateTopics((NewTopic(AGAIN, assignments=(self._again,)),)))
        await self._cluster.wait_until(self._is_whole)
        for known in (self._served.records, self._served.starts, self._served.committed):
            known.pop((AGAIN, 0), None)

    async def _send_round(self, producer: Producer, round_number: int) -> None:
        numbers = range(round_number * RECORDS_A_ROUND, (round_number + 1) * RECORDS_A_ROUND)
        partitions = [(topic, n) for topic, count in (REPLICATED | SINGLE).items() for n in range(count)]
        await asyncio.gather(*(send(producer, self._served, partition, numbers) for partition in partitions))

    def _commit(self, round_number: int) -> dict[Partition, int]:
        for partition in self._served.records:
            self._served.committed[partition] = round_number * RECORDS_A_ROUND + self._rng.randrange(RECORDS_A_ROUND)
        return dict(self._served.committed)

    async def _delete(self, admin: Admin) -> None:
        deleted = {partition: DELETED_END for partition in self._served.records if partition[0] not in COMPACTED}
        starts = await admin.delete_records(deleted)
        self._served.starts = {(topic, number): start for (topic, number), start in starts.items()}

    async def _restart_one(self) -> None:
        """Others lead meanwhile, in another epoch."""
        node_id = self._rng.choice(NODES)
        await self._cluster.stop(node_id)
        await asyncio.sleep(self._rng.choice((0.1, 1.0)))
        self._cluster.start(node_id)
        await self._cluster.wait_until(self._cluster.is_settled)
        await self._cluster.wait_until(self._is_whole)

    def _is_whole(self) -> bool:
        """Every partition has a leader and all its replicas in sync."""
        topics = self._cluster.running[0].image.topics_by_name.values()
        return all(
            partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
            for topic in topics
            for partition in topic.partitions.values()
        )

    async def _stop(self) -> tuple[int, ...]:
        order = tuple(self._rng.sample(NODES, len(NODES)))
        match self._how:
            case "killed":
                for node_id in order:
                    self._cluster.crash(node_id, power_cut=False)
            case "together":
                await asyncio.gather(*(self._cluster.stop(node_id) for node_id in order))
            case _:
                for node_id in order:
                    await self._cluster.stop(node_id)
                    await asyncio.sleep(2.0 if self._how == "with pauses" else 0.0)
        return order
