"""Records go with whoever has read them: nothing that nodes and clients do leaves them to the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker_kit import KEY, batch, registered, rig, topic, wait_until
from garbage_kit import VALUE, Garbage, garbage

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.broker.requests.sessions import FetchSession
from replog.client import Admin, Consumer, Producer
from replog.config.server import ServerConfig
from replog.errors import CorruptRecordError
from replog.rpc.messages import FetchPartition, FetchRequest
from replog.rpc.transport import ConnectionLostError
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OpenMode

RECORDS = 100
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
OF_A_REPLICA = ("Replica", "Log", "LogState", "Leader", "Follower")


class Pair:
    """Two nodes, each with a replica of the one partition of topic "t"; the first is the controller."""

    def __init__(self) -> None:
        self.ports = [free_port(), free_port()]
        self.voter = f"1@127.0.0.1:{free_port()}"
        self.disks = [SimulatedFileSystem(), SimulatedFileSystem()]
        self.nodes: dict[int, Node] = {}
        self.servers = [f"127.0.0.1:{port}" for port in self.ports]

    async def start(self, number: int) -> None:
        config = ServerConfig.from_mapping(
            {
                "node.id": number,
                "log.dirs": ["/data"],
                "cluster.id": "c",
                "process.roles": ["controller", "broker"] if number == 1 else ["broker"],
                "controller.quorum.voters": [self.voter],
                "listeners": [self.servers[number - 1]],
                "inter.broker.listener": self.voter.removeprefix("1@") if number == 1 else "127.0.0.1:0",
                "log.dir.reserve.bytes": 0,
            }
        )
        node = await Node.start(config, environment=NodeEnvironment(fs=self.disks[number - 1]))
        self.nodes[number] = node
        await node.wait_until_ready()

    def end_offsets(self) -> list[int]:
        return [
            sum(r.log.log_end_offset for r in node.parts.replicas.stepper.replicas.values())
            for node in self.nodes.values()
        ]

    def make_cold(self) -> None:
        """No record is in memory or in the page cache."""
        for number, node in self.nodes.items():
            for replica in node.parts.replicas.stepper.replicas.values():
                replica.log.keep_tail(None)
                replica.log.flush()
                file = self.disks[number - 1].open(f"{replica.log.directory}/{0:020}.log", OpenMode.READ)
                file.drop_cache(0, 1 << 30)
                file.close()

    async def produce(self, count: int = RECORDS) -> None:
        async with Producer(self.servers, batch_size_bytes=2_000) as producer:
            await producer.send_many("t", [(None, VALUE)] * count)
            await producer.flush()

    async def read(self, count: int = RECORDS) -> None:
        async with Consumer(self.servers) as consumer:
            await consumer.assign([("t", 0)])
            while count > 0:
                count -= len(await consumer.poll(timeout_ms=5_000))


def live() -> Counter[str]:
    """How many objects there are of the classes of replicas, those in cycles among them."""
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in OF_A_REPLICA)


def closed_connections(it: Pair) -> int:
    """How many connections of clients have ended and are in memory, on the side of the nodes."""
    transports = [each for each in gc.get_objects() if isinstance(each, asyncio.Transport) and each.is_closing()]
    return sum(each.get_extra_info("sockname", (None, 0))[1] in it.ports for each in transports)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[Pair, Garbage]]:
    it = Pair()
    try:
        async with asyncio.timeout(30):
            await it.start(1)
            await it.start(2)
            async with Admin(it.servers) as admin:
                await admin.wait_until_ready(brokers=2)
                await admin.create_topic("t", 1, 2)
            with garbage() as found:
                yield it, found
    finally:
        for node in reversed(it.nodes.values()):
            await node.stop()


async def test_the_kit_finds_a_cycle_with_records() -> None:
    with garbage() as found:
        ring: list[object] = [VALUE + b"!"]
        ring.append(ring)
        del ring
        assert found.with_records() == ["list"]
        assert found.with_records() == []


async def test_replicas_and_connections_are_freed_without_a_look_for_cycles() -> None:
    """A process of our own looks at what has lived long no more (`replog.broker.process`)."""

    def connect() -> None:
        for server in it.servers:
            host, _, port = server.partition(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(API_VERSIONS)
                assert client.recv(4)

    async with pair() as (it, _), Admin(it.servers) as admin:
        await wait_until(lambda: live()["Replica"] == 2)
        before = live()
        await admin.create_topic("gone", 5, 2)
        await wait_until(lambda: live()["Replica"] == 12)
        await asyncio.to_thread(connect)
        await admin.delete_topic("gone")
        await wait_until(lambda: live() == before)
        await wait_until(lambda: closed_connections(it) == 0)


async def test_producing_following_and_reading_leave_no_records() -> None:
    async with pair() as (it, found):
        await it.produce()
        assert found.with_records() == []
        await it.read()
        assert found.with_records() == [], "warm"
        await wait_until(lambda: it.end_offsets() == [RECORDS, RECORDS])
        it.make_cold()
        await it.read()
        assert found.with_records() == [], "cold"


async def test_a_parked_fetch_leaves_no_records() -> None:
    async with pair() as (it, found), Consumer(it.servers) as consumer:
        await consumer.assign([("t", 0)])
        assert await consumer.poll(timeout_ms=100) == []
        for end_offset in (2, 4, 6):
            await it.produce(2)
            while consumer.position(("t", 0)) < end_offset:  # the two may come one after the other
                assert await consumer.poll(timeout_ms=5_000)
        assert await consumer.poll(timeout_ms=100) == []
        assert found.with_records() == []


async def test_a_consumer_that_leaves_off_leaves_no_records() -> None:
    async with pair() as (it, found):
        await it.produce()
        for _ in range(2):
            async with Consumer(it.servers, fetch_max_bytes=10_000) as consumer:
                await consumer.assign([("t", 0)])
                assert len(await consumer.poll(max_records=3, timeout_ms=5_000)) == 3
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await consumer.poll(max_records=RECORDS)
            del consumer
            it.make_cold()
        assert found.with_records() == []


async def test_catching_up_after_a_crash_leaves_no_records() -> None:
    async with pair() as (it, found):
        await it.produce()
        await it.nodes.pop(2).abort()
        assert found.with_records() == [], "a node was lost"
        await it.produce()
        it.make_cold()
        await it.start(2)
        await wait_until(lambda: it.end_offsets() == [2 * RECORDS, 2 * RECORDS])
        assert found.with_records() == [], "it has recovered, and caught up"


async def test_closing_under_load_leaves_no_records() -> None:
    async with pair() as (it, found):
        await it.produce()
        async with Consumer(it.servers) as consumer, Producer(it.servers, delivery_timeout_ms=1_000) as producer:
            await consumer.assign([("t", 0)])
            assert await consumer.poll(max_records=1, timeout_ms=5_000)
            await producer.send_many("t", [(None, VALUE)] * RECORDS)
            for node in reversed(list(it.nodes.values())):
                await node.stop()
            it.nodes.clear()
            del node
        del consumer, producer
        assert found.with_records() == []


async def test_damage_met_by_a_cold_read_leaves_no_records() -> None:
    async with rig() as it:
        await it.apply(registered(1), registered(2), *topic((1,)))
        for _ in range(5):
            await it.produce(batch(VALUE))
        log = it.replica.log
        log.keep_tail(None)
        log.flush()
        with contextlib.closing(it.fs.open(f"{log.directory}/{0:020}.log", OpenMode.WRITE)) as file:
            file.pwrite((bytes(5),), len(batch(VALUE)) - 5)
            file.sync()
            file.drop_cache(0, 1 << 30)
        with garbage() as found:
            job = log.prepare_read(0, max_bytes=1 << 20, end_offset=5, min_one_batch=True)
            job.run()
            with pytest.raises(CorruptRecordError):
                log.complete_read(job)
            del job
            assert found.with_records() == []


async def test_answers_that_a_lost_stream_does_not_take_leave_no_records() -> None:
    async with rig() as it:
        await it.apply(registered(1), registered(2), *topic((1,)))
        await it.produce(batch(VALUE))
        partition = FetchPartition(*KEY, 0)
        with garbage() as found:
            stream = LostStream(FetchRequest(1, 1000, -1, -1, 0, 1, 1 << 20, (partition,)))
            with pytest.raises(ConnectionLostError):
                await FetchSession(stream, it.fetch_path, lambda _: None).run()
            del stream
            assert found.with_records() == []


class LostStream:
    """Gives one request, and is lost when the answer is sent."""

    def __init__(self, request: Any) -> None:
        self._requests = [request]

    async def receive(self) -> Any:
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop()

    async def send(self, message: Any) -> None:
        raise ConnectionLostError("the other side is gone")

    async def close(self) -> None:
        pass
