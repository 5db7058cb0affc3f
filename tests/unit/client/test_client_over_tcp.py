"""The clients over the real transport, async and sync, against a scripted node."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, LoopThread, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.errors import BrokerClosedError, RequestTimedOutError
from tests.unit.rpc.tcp_port import listening


@contextlib.asynccontextmanager
async def served(brokers: int = 1) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(brokers)
    async with contextlib.AsyncExitStack() as ports:
        for node_id, node in cluster.nodes.items():
            cluster.addresses[node_id] = (await ports.enter_async_context(listening(node))).address
        yield cluster


async def test_the_whole_way() -> None:
    async with served(2) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.wait_until_ready(brokers=2)
            await admin.create_topic("t", 4, 1)
        async with Producer(cluster.bootstrap) as producer:
            bulk = await producer.send_many("t", ((b"%d" % i, b"%d" % (i % 50)) for i in range(5_000)))
            cluster.move_leader("t", 0, 2)
            await bulk
            assert bulk.acknowledged_count == 5_000
        async with Consumer(cluster.bootstrap) as consumer:
            await consumer.assign_topic("t")
            values = []
            async with asyncio.timeout(60):
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == 5_000:
                        break
        assert sorted(values) == sorted(b"%d" % i for i in range(5_000))


async def test_a_stopped_server_is_lost_and_found_again() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with contextlib.AsyncExitStack() as clients:
        async with listening(cluster.nodes[1]) as port:
            cluster.addresses[1] = port.address
            patient = await clients.enter_async_context(Producer(cluster.bootstrap))
            hasty = await clients.enter_async_context(Producer(cluster.bootstrap, delivery_timeout_ms=500))
            await (await patient.send("t", b"a"))
        waiting = await patient.send("t", b"b")
        with pytest.raises(RequestTimedOutError, match=r"500 ms.*ConnectionLostError"):
            await (await hasty.send("t", b"lost"))
        async with listening(cluster.nodes[1], port=port.port):
            assert (await waiting).offset == 1


@pytest.fixture
def cluster_in_a_thread() -> Iterator[FakeCluster]:
    """The server in the shared loop thread, where the sync clients' loop is."""
    user = object()
    thread = LoopThread.acquire(user)
    stack = contextlib.AsyncExitStack()

    async def start() -> FakeCluster:
        return await stack.enter_async_context(served())

    yield thread.run(start)
    thread.run(stack.aclose)
    thread.release(user)


def test_without_async(cluster_in_a_thread: FakeCluster) -> None:
    servers = cluster_in_a_thread.bootstrap
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
