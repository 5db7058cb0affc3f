"""The clients over the real transport, async and sync, with a real node in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.client import Admin, Consumer, LoopThread, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.client.protocol.link import Link
from replog.config.server import ServerConfig
from replog.errors import BrokerClosedError, ConfigError, RequestTimedOutError
from replog.metadata.records import ResourceType
from replog.tcp.connection import ServerConnection
from replog.testing import SimulatedFileSystem


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def running(disk: SimulatedFileSystem | None = None, port: int = 0, **keys: object) -> AsyncIterator[Node]:
    """A node that is ready."""
    config = {
        "node.id": 1,
        "log.dirs": ["/data"],
        "cluster.id": "c",
        "listeners": [f"127.0.0.1:{port}"],
        "inter.broker.listener": "127.0.0.1:0",
        "log.dir.reserve.bytes": 0,
        **{name.replace("_", "."): value for name, value in keys.items()},
    }
    environment = NodeEnvironment(fs=disk or SimulatedFileSystem())
    node = await Node.start(ServerConfig.from_mapping(config), environment=environment)
    try:
        async with asyncio.timeout(60):
            await node.wait_until_ready()
        yield node
    finally:
        await node.stop()


@contextlib.asynccontextmanager
async def served(disk: SimulatedFileSystem | None = None, port: int = 0) -> AsyncIterator[str]:
    """A node, and where it is."""
    async with running(disk, port) as node:
        yield node.address


async def test_a_wrong_port_is_told_with_what_to_do() -> None:
    with pytest.raises(
        RequestTimedOutError, match=r"Connection refused\. Nobody listens there: start the broker, or give"
    ):
        async with Producer(f"127.0.0.1:{free_port()}", connect_timeout_ms=200):
            pass


async def test_the_whole_way() -> None:
    async with served() as address:
        async with Admin(address) as admin:
            await admin.wait_until_ready(brokers=1)
            await admin.create_topic("t", 4, 1)
        async with Producer(address) as producer:
            bulk = await producer.send_many("t", ((b"%d" % i, b"%d" % (i % 50)) for i in range(5_000)))
            await bulk
            assert bulk.acknowledged_count == 5_000
        async with Consumer(address) as consumer:
            await consumer.assign_topic("t")
            values = []
            async with asyncio.timeout(60):
                async for record in consumer:
                    values.append(record.value or b"")
                    if len(values) == 5_000:
                        break
        assert sorted(values) == sorted(b"%d" % i for i in range(5_000))


async def test_clients_go_on_over_connections_that_ended_idle(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a producer that sends once an hour, a consumer at the end, an admin: nobody sees that connections ended meanwhile."""
    async with running(connections_max_idle_ms=100) as node, contextlib.AsyncExitStack() as clients:
        assert node._clients is not None
        listener = node._clients._listener
        assert listener is not None
        admin = await clients.enter_async_context(Admin(node.address))
        await admin.create_topic("t", 2, 1)
        producer = await clients.enter_async_context(Producer(node.address))
        consumer = await clients.enter_async_context(Consumer(node.address))
        await consumer.assign_topic("t")
        member = await clients.enter_async_context(Consumer(node.address, group_id="g", auto_offset_reset="earliest"))
        await member.subscribe(["t"])
        for turn in range(2):
            value, ended = b"%d" % turn, listener.ended_count
            await (await producer.send("t", value, partition=turn % 2))
            for each in (consumer, member):
                async with asyncio.timeout(60):
                    while not (records := await each.poll()):
                        pass
                assert [record.value for record in records] == [value]
            await member.commit()
            assert "t" in await admin.list_topics()
            async with asyncio.timeout(60):
                while len(listener._idle) or listener.ended_count < ended + 2:  # of the producer's, and the calls'
                    await asyncio.sleep(0.05)
        told = [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert told == []


async def test_nobody_hears_of_a_connection_that_ends_as_a_question_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a question that was asked once, in the moment in which the broker ended idle connections, failed."""
    async with running() as node, Admin(node.address) as admin, Producer(node.address) as producer:
        assert node._clients is not None
        listener = node._clients._listener
        assert listener is not None
        await admin.create_topic("t", 1, 1)
        send, ended = Link.send, set[ServerConnection]()

        def sent_late(link: Link, *request: Any, **how: Any) -> Any:
            for each in list(listener._connections):
                if each._has_asked and not len(each._answers) and not each._arrived:
                    ended.add(each)
                    each.end_idle(0.1)
            return send(link, *request, **how)

        for question in (
            lambda: admin.describe_node(1),
            lambda: admin.describe_node_configs(1),
            lambda: admin.describe_log_dirs(1),
            lambda: admin.describe_configs((ResourceType.BROKER, "1")),
            admin.list_topics,
            lambda: producer.send_and_wait("t", b"x"),
        ):
            await question()
            with monkeypatch.context() as patch:
                patch.setattr(Link, "send", sent_late)
                asking = asyncio.ensure_future(question())
                async with asyncio.timeout(60):
                    while not ended and not asking.done():
                        await asyncio.sleep(0)
            assert ended
            await asking
            ended.clear()


async def test_limits_of_connections_are_set_while_the_broker_runs() -> None:
    async with running(max_connections_per_ip=100) as node, Admin(node.address) as admin:
        assert node._clients is not None
        listener = node._clients._listener
        assert listener is not None
        await admin.wait_until_ready(brokers=1)
        for resource, set_value, in_force in (
            ((ResourceType.BROKER, ""), "60", 60),
            ((ResourceType.BROKER, "1"), "50", 50),
            ((ResourceType.BROKER, "1"), None, 60),
            ((ResourceType.BROKER, ""), None, 100),
        ):
            await admin.alter_configs(resource, {"max.connections.per.ip": set_value})
            async with asyncio.timeout(60):
                while listener._limits_now().connections_per_address_max != in_force:
                    await asyncio.sleep(0.01)
        with pytest.raises(ConfigError, match="a whole number from 1 to"):
            await admin.alter_configs((ResourceType.BROKER, ""), {"max.connections.per.ip": "0"})


async def test_a_stopped_server_is_lost_and_found_again() -> None:
    disk, port = SimulatedFileSystem(), free_port()
    async with contextlib.AsyncExitStack() as clients:
        async with served(disk, port) as address:
            async with Admin(address) as admin:
                await admin.create_topic("t", 1, 1)
            patient = await clients.enter_async_context(Producer(address))
            hasty = await clients.enter_async_context(Producer(address, delivery_timeout_ms=500))
            await (await patient.send("t", b"a"))
        waiting = await patient.send("t", b"b")
        with pytest.raises(RequestTimedOutError, match=r"500 ms"):
            await (await hasty.send("t", b"lost"))
        async with served(disk, port):
            assert (await waiting).offset == 1


@pytest.fixture
def node_in_a_thread() -> Iterator[str]:
    """The server in the shared loop thread, where the sync clients' loop is."""
    user = object()
    thread = LoopThread.acquire(user)
    stack = contextlib.AsyncExitStack()

    async def start() -> str:
        return await stack.enter_async_context(served())

    yield thread.run(start)
    thread.run(stack.aclose)
    thread.release(user)


def test_without_async(node_in_a_thread: str) -> None:
    servers = node_in_a_thread
    with SyncAdmin(servers) as admin:
        admin.create_topic("t", 1, 1)
        assert admin.list_topics() == ["t"]
    with SyncProducer(servers) as producer:
        delivery = producer.send("t", b"0", key=b"k")
        assert delivery.result(5).offset == 0
        bulk = producer.send_many("t", [b"%d" % i for i in range(1, 100)])
    assert sum(r.records_count for r in bulk.result()) == 99, "a closed producer still tells"
    with pytest.raises(BrokerClosedError):
        producer.send("t", b"late")
    with SyncConsumer(servers) as consumer:
        consumer.assign_topic("t")
        values = [record.value for _, record in zip(range(100), consumer, strict=False)]
        assert values == [b"%d" % i for i in range(100)]
        assert consumer.end_offsets([("t", 0)]) == {("t", 0): 100}
        assert consumer.poll(timeout_ms=10) == []


def threads_of_loops() -> set[threading.Thread]:
    """Those of ours: what other tests have used may start and end some of its own."""
    return {thread for thread in threading.enumerate() if thread.name == "replog-loop"}


def test_the_last_client_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopThread, "_shared", None)  # another test may hold the process's own
    before = threads_of_loops()
    first, second = LoopThread.acquire("one"), LoopThread.acquire("other")
    assert first is second
    first.run(nothing)
    first.release("one")
    first.release("one")
    (thread,) = threads_of_loops() - before
    assert thread.is_alive()
    second.release("other")
    thread.join(60)
    assert not thread.is_alive()


async def nothing() -> None:
    pass


def test_importing_the_package_does_not_load_grpc() -> None:
    code = "import sys, replog, replog.client; assert 'grpc' not in sys.modules; replog.Producer"
    path = ":".join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})
