"""The rows of a task against scripted brokers: what is acknowledged, what is told of the first error, what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

pa = pytest.importorskip("pyarrow", reason="the extra replog[spark] is not installed")
pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from replog.client import ClusterView, Producer  # noqa: E402 -- after the checks for libraries
from replog.errors import BrokerClosedError, ErrorCode, RecordTooLargeError, UnknownTopicOrPartitionError  # noqa: E402
from replog.spark import worker_client  # noqa: E402
from replog.spark.options.brokers import Brokers  # noqa: E402
from replog.spark.options.writing import parse_write_options  # noqa: E402
from replog.spark.sink import task  # noqa: E402
from replog.spark.sink.columns import TopicRows, pieces  # noqa: E402
from replog.spark.sink.once.task import PreparingSending  # noqa: E402
from replog.spark.sink.task import Sending  # noqa: E402
from tests.unit.client.client_kit import until  # noqa: E402
from tests.unit.client.fake_cluster import FakeCluster  # noqa: E402


def piece_of(values: list[bytes], topic: str = "t") -> TopicRows:
    (made,) = pieces(pa.RecordBatch.from_pydict({"value": values}), 0, topic=topic, include_headers=True)
    return made


async def sending_to(cluster: FakeCluster, **settings: Any) -> Sending:
    producer = Producer(cluster.bootstrap, transport=cluster.transport(), **settings)
    await producer.start()

    async def keep(given: Producer) -> None:
        await given.close()

    return Sending(producer, keep)


async def test_all_rows_are_acknowledged_at_the_end() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    sending = await sending_to(cluster, batch_size_bytes=1000)
    values = [b"%0100d" % number for number in range(500)]
    for start in range(0, 500, 100):
        await sending.send(piece_of(values[start : start + 100]), start)
    await sending.finish()
    assert cluster.logs["t", 0].values() == values
    assert sending.sent_count == sending.acknowledged_count == 500


async def test_the_first_error_ends_the_task_and_what_is_acknowledged_is_counted() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].script.extend([lambda *_: "append", lambda *_: ErrorCode.MESSAGE_TOO_LARGE])
    sending = await sending_to(cluster, batch_size_bytes=1000)
    await sending.send(piece_of([b"%0400d" % number for number in range(6)]), 0)
    with pytest.raises(RecordTooLargeError):
        await sending.finish()
    assert (sending.sent_count, sending.acknowledged_count) == (6, 4)
    await sending.close()


async def test_rows_that_cannot_be_sent_are_told_by_their_place() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    sending = await sending_to(cluster)
    await sending.send(piece_of([b"x"]), 0)
    assert sending.where == ""
    with pytest.raises(UnknownTopicOrPartitionError):
        await sending.send(piece_of([b"x"], "nowhere"), 41)
    assert sending.where == " (among the rows for nowhere from row 41 of the task on)"
    await sending.close()


def test_a_missing_topic_is_told_by_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(ask: Callable[[ClusterView], Awaitable[Any]]) -> Any:
        cluster = FakeCluster()
        cluster.create_topic("t")
        view = ClusterView(cluster.bootstrap, transport=cluster.transport())
        try:
            return await ask(view)
        finally:
            await view.close()

    monkeypatch.setattr(worker_client, "ask_cluster", lambda _servers, ask: asyncio.run(run(ask)))
    defaults = {"partitions_count": 0, "within_ms": 50}
    monkeypatch.setattr(ClusterView.topic_or_raise, "__kwdefaults__", defaults)
    assert worker_client.find_cluster(Brokers("h:1"), "t") == worker_client.find_cluster(Brokers("h:1"), None) != ""
    with pytest.raises(UnknownTopicOrPartitionError, match=r'^topic: topic "nowhere" does not exist'):
        worker_client.find_cluster(Brokers("h:1"), "nowhere")


async def test_rows_wait_for_room() -> None:
    """Goal: a task holds one Arrow batch and the producer's memory, whatever the brokers do."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].hold_replies = True
    sending = await sending_to(cluster, buffer_memory_bytes=10_000)
    waiting = asyncio.create_task(sending.send(piece_of([b"x" * 500] * 100), 0))
    memory = sending._producer._accumulator.memory
    await until(lambda: bool(memory._waiters))
    assert memory.held_bytes <= 10_000
    await cluster.nodes[1].release_held()
    await waiting
    await sending.finish()
    assert len(cluster.logs["t", 0].values()) == 100


async def test_one_producer_serves_task_after_task_each_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of few rows cost mostly connections."""
    cluster, kept = FakeCluster(), list[Producer]()
    cluster.create_topic("t")
    transport, dialled, counts = cluster.transport(), list[str](), list[int]()
    connect = transport.connect
    monkeypatch.setattr(transport, "connect", lambda address, **how: dialled.append(address) or connect(address, **how))
    producer = Producer(cluster.bootstrap, transport=transport, transactional_id="none yet")

    async def is_wanted() -> bool:
        return True

    async def keep(given: Producer) -> None:
        kept.append(given)

    for number in range(4):
        sending = PreparingSending(producer, keep, f"task-{number}", is_wanted)
        if number != 1:  # one without rows, which asks nobody
            await sending.send(piece_of([b"%d" % number]), 0)
        await sending.finish()
        counts.append(len(dialled))
    assert kept == [producer] * 4
    assert counts == counts[:1] * 4
    assert set(cluster.transactions.producers) == {"task-0", "task-2", "task-3"}
    assert cluster.logs["t", 0].values() == [b"0", b"2", b"3"]
    await producer.close()


async def test_a_process_keeps_a_producer_from_task_to_task_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: each task made a producer, 3.5 ms of CPU.  What a task that failed has left is sent by no other one."""
    cluster, made = FakeCluster(), list[Producer]()
    cluster.create_topic("t")

    def make(_options: object) -> Producer:
        made.append(Producer(cluster.bootstrap, transport=cluster.transport(), batch_size_bytes=1000))
        return made[-1]

    monkeypatch.setattr(task, "new_producer", make)
    options = parse_write_options({"bootstrap.servers": "h:1", "topic": "t"})

    async def wrote(cluster_id: str, *values: bytes) -> None:
        sending = await Sending.start(replace(options, cluster_id=cluster_id))
        try:
            await sending.send(piece_of(list(values)), 0)
            await sending.finish()
        except BaseException:
            await sending.close()
            raise

    await wrote("one", b"a")
    await wrote("one", b"b", b"c")
    assert len(made) == 1
    cluster.nodes[1].script.append(lambda *_: ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(RecordTooLargeError):
        await wrote("one", *(b"%0400d" % number for number in range(20)))
    behind = len(cluster.logs["t", 0].values())
    await wrote("one", b"d")
    await wrote("another", b"e")
    assert len(made) == 3
    assert cluster.logs["t", 0].values()[behind:] == [b"d", b"e"]
    for closed in made[:2]:
        with pytest.raises(BrokerClosedError):
            await closed.send("t", b"x")
    await made[2].close()


async def test_a_kept_producer_is_for_the_terms_that_it_was_made_for() -> None:
    cluster = FakeCluster()
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer(cluster.bootstrap, transport=cluster.transport(), transactional_id="x"))
        return made[-1]

    first = await worker_client.lent_producer("terms", make)
    second = await worker_client.lent_producer("terms", make)  # of another thread at the same time
    await worker_client.keep_producer("terms", first)
    await worker_client.keep_producer("terms", second)
    assert await worker_client.lent_producer("terms", make) is second
    await worker_client.keep_producer("terms", second)
    other = await worker_client.lent_producer("other terms", make)
    assert made == [first, second, other]
    for closed in (first, second):
        with pytest.raises(BrokerClosedError):
            await closed.take_over("y")
    await other.close()
