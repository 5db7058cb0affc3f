"""Transactions of our producers with brokers that run: what readers of committed records get, and who is fenced.

With Kafka at level 1 of `transaction.version`, and with the oldest, in campaigns (`mark.campaign`).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from brokers import Broker, of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from served_cluster import served_cluster

from replog.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    GroupMetadata,
    Producer,
    SyncConsumer,
    SyncProducer,
    Transaction,
)
from replog.errors import (
    CommitStaleError,
    ProducerFencedError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
)

PATIENCE_S = 60
PAGE = Path(__file__).parents[2] / "docs" / "TRANSACTIONS.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LARGE = 16 << 20
VALUE = random.Random(9).randbytes(9_000_000)
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}

_names = itertools.count(1)


@dataclass(slots=True)
class Lone:
    """A node that tests kill and start anew.

    Attributes:
        broker: The node, for clients.
        level: The level of `transaction.version`.
        restart: The function that kills it and starts it anew; from the thread that has started it, with which it would end.
    """

    broker: Broker
    level: int
    restart: Callable[[], Coroutine[Any, Any, None]]


@contextmanager
def lone_kafka(kafka: KafkaInstall, folder: Path, level: int) -> Iterator[Lone]:
    """Runs a node of Kafka for as long as the block."""
    node = KafkaNode(kafka, folder / "node", SETTINGS)

    async def restart() -> None:
        node.kill()
        node.begin()
        await asyncio.to_thread(node.wait_until_listening)

    try:
        node.start()
        broker = of_kafka(node)
        asyncio.run(set_level(broker.servers, level))
        yield Lone(broker, level, restart)
    finally:
        node.give_up()


async def set_level(servers: str, level: int) -> None:
    async with Admin(servers) as admin:
        await admin.update_features({"transaction.version": level}, allow_downgrade=True)


@contextmanager
def lone_replog(folder: Path, level: int) -> Iterator[Lone]:
    """Runs a node of ours for as long as the block."""
    keys = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with served_cluster(folder / "cluster", **keys) as cluster:

        async def restart() -> None:
            await cluster.local.kill(1)
            cluster.local.start_node(1)
            await cluster.local.wait_until_ready()

        broker = of_replog(cluster)
        asyncio.run(set_level(broker.servers, level))
        yield Lone(broker, level, restart)


@pytest.fixture(
    scope="module",
    params=[
        ("replog", 2),
        ("replog", 1),
        pytest.param(("kafka", 2), marks=pytest.mark.kafka),
        pytest.param(("kafka", 1), marks=[pytest.mark.kafka, pytest.mark.campaign]),
    ],
    ids="{0[0]}-{0[1]}".format,
)
def lone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lone]:
    """A node of one kind, with one level of `transaction.version`."""
    kind, level = request.param
    folder = tmp_path_factory.mktemp("transactions")
    if kind == "replog":
        with lone_replog(folder, level) as found:
            yield found
    else:
        with lone_kafka(request.getfixturevalue("kafka"), folder, level) as found:
            yield found


@pytest.fixture
def broker(lone: Lone) -> Broker:
    return lone.broker


def name() -> str:
    return f"txn-{next(_names)}"


def fail(is_wanted: object) -> None:
    if is_wanted:
        raise KeyError


def producer_of(broker: Broker, transactional_id: str, **settings: Any) -> Producer:
    return Producer(broker.servers, transactional_id=transactional_id, **settings)


async def committed(broker: Broker, topic: str, count: int, partitions: int = 1) -> list[bytes | None]:
    """Returns the values of so many committed records, of all partitions in order; there are no more, or the test fails."""
    async with Consumer(broker.servers, max_partition_fetch_bytes=LARGE) as consumer, asyncio.timeout(PATIENCE_S):
        await consumer.assign_topic(topic)
        found: list[ConsumerRecord] = []
        while len(found) < count:
            found += await consumer.poll()
        await until_read(consumer, topic, partitions)
        found += await consumer.poll(timeout_ms=0)
    return [record.value for record in sorted(found, key=lambda one: (one.partition, one.offset))]


async def until_read(consumer: Consumer, topic: str, partitions: int) -> None:
    """Waits until nothing that is decided is unread."""
    places = [(topic, number) for number in range(partitions)]
    ends = await consumer.end_offsets(places)
    while any(consumer.position(place) < end for place, end in ends.items()):
        assert not await consumer.poll(timeout_ms=100)


# ---- what is read ----------------------------------------------------------------------------------------------------


async def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: Broker) -> None:
    topic = await asyncio.to_thread(broker.topic, 2)
    async with producer_of(broker, name()) as producer:
        for number in range(5):
            try:
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number, partition=0)
                    await producer.send_many(topic, [b"%d" % number] * 2, partition=1)
                    fail(number % 2)
            except KeyError:
                pass
    assert await committed(broker, topic, 9, 2) == [b"0", b"2", b"4", b"0", b"0", b"2", b"2", b"4", b"4"]


@pytest.mark.campaign
async def test_with_the_oldest_brokers(oldest_broker: KafkaNode) -> None:
    broker = of_kafka(oldest_broker)
    topic = await asyncio.to_thread(broker.topic)
    async with producer_of(broker, name()) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"gone")
                fail(is_wanted=True)
        async with producer.transaction() as txn:
            await producer.send(topic, b"kept")
            await txn.commit_offsets(GroupMetadata(name()), {(topic, 0): 1})
    assert await committed(broker, topic, 1) == [b"kept"]


async def test_nothing_behind_an_open_transaction_is_read(broker: Broker) -> None:
    """Goal: a reader waits at the first record whose transaction is open, also for those of others behind it."""
    topic = await asyncio.to_thread(broker.topic)
    async with producer_of(broker, name()) as producer, Producer(broker.servers) as plain:
        await plain.send_and_wait(topic, b"before")
        async with Consumer(broker.servers) as consumer, asyncio.timeout(PATIENCE_S):
            await consumer.assign_topic(topic)
            async with producer.transaction():
                await producer.send_and_wait(topic, b"in it")
                await plain.send_and_wait(topic, b"behind")
                assert [record.value for record in await consumer.poll()] == [b"before"]
                assert await consumer.end_offsets([(topic, 0)]) == {(topic, 0): 1}
                assert await consumer.poll(timeout_ms=300) == []
            found: list[ConsumerRecord] = []
            while len(found) < 2:
                found += await consumer.poll()
    assert [record.value for record in found] == [b"in it", b"behind"]


async def test_a_cancelled_transaction_is_aborted(broker: Broker) -> None:
    topic = await asyncio.to_thread(broker.topic)
    begun = asyncio.Event()
    async with producer_of(broker, name()) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"gone")
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"kept")
    assert await committed(broker, topic, 1) == [b"kept"]


async def test_a_record_that_the_broker_refuses_aborts_all_of_it(broker: Broker) -> None:
    topic = await asyncio.to_thread(broker.topic, 2, max_message_bytes=1000)
    async with producer_of(broker, name(), batch_size_bytes=100) as producer:
        with pytest.raises(TransactionAbortableError) as told:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"gone", partition=0)
                await producer.send(topic, random.Random(1).randbytes(5000), partition=1)
        assert isinstance(told.value.__cause__, RecordTooLargeError)
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
            await producer.send(topic, b"kept", partition=1)
    assert await committed(broker, topic, 2, 2) == [b"kept", b"kept"]


async def test_a_transaction_of_a_hundred_partitions(broker: Broker) -> None:
    topic = await asyncio.to_thread(broker.topic, 100)
    async with producer_of(broker, name()) as producer:
        for is_commit in (True, False, True):
            try:
                async with producer.transaction():
                    for partition in range(100):
                        await producer.send(topic, b"%d" % is_commit, partition=partition)
                    fail(not is_commit)
            except KeyError:
                pass
    assert await committed(broker, topic, 200, 100) == [b"1"] * 200


async def test_large_values_in_a_transaction(broker: Broker) -> None:
    topic = await asyncio.to_thread(broker.topic, 1, max_message_bytes=LARGE)
    async with producer_of(broker, name(), max_request_bytes=LARGE) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send(topic, VALUE)
                await producer.flush()
                raise KeyError
        async with producer.transaction():
            await producer.send(topic, VALUE)
            await producer.send(topic, VALUE[::-1])
    assert await committed(broker, topic, 2) == [VALUE, VALUE[::-1]]


# ---- who may go on ---------------------------------------------------------------------------------------------------


async def test_a_zombie_is_fenced(broker: Broker) -> None:
    topic, transactional_id = await asyncio.to_thread(broker.topic), name()
    async with producer_of(broker, transactional_id) as zombie:
        with pytest.raises(ProducerFencedError, match="cannot go on"):
            async with zombie.transaction():
                await zombie.send_and_wait(topic, b"zombie")
                async with producer_of(broker, transactional_id) as successor:
                    async with successor.transaction():
                        await successor.send(topic, b"kept")
                    async with successor.transaction():
                        await successor.send(topic, b"kept too")
        with pytest.raises(ProducerFencedError):
            async with zombie.transaction():
                pass
    assert await committed(broker, topic, 2) == [b"kept", b"kept too"]


async def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker, lone: Lone) -> None:
    """With `transaction.version` 2 the producer goes on; before that its coordinator takes it for a zombie."""
    topic, transactional_id = await asyncio.to_thread(broker.topic), name()
    async with producer_of(broker, transactional_id, transaction_timeout_ms=300) as producer:
        with pytest.raises(TransactionAbortableError if lone.level == 2 else ProducerFencedError):
            async with producer.transaction(), Consumer(broker.servers) as consumer:
                await producer.send_and_wait(topic, b"late")
                async with asyncio.timeout(PATIENCE_S):
                    while (await consumer.end_offsets([(topic, 0)]))[topic, 0] < 2:  # its marker
                        await asyncio.sleep(0.05)
        if lone.level == 2:
            async with producer.transaction():
                await producer.send(topic, b"kept")
    if lone.level != 2:
        async with producer_of(broker, transactional_id) as successor, successor.transaction():
            await successor.send(topic, b"kept")
    assert await committed(broker, topic, 1) == [b"kept"]


DIES = """
import asyncio, sys
from replog import Producer

async def main(servers, transactional_id, topic):
    async with Producer(servers, transactional_id=transactional_id) as producer, producer.transaction():
        await producer.send_and_wait(topic, b"gone")
        print("sent", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_process_that_dies_leaves_nothing_that_is_read(broker: Broker) -> None:
    topic, transactional_id = await asyncio.to_thread(broker.topic), name()
    program = [sys.executable, "-c", DIES, broker.servers, transactional_id, topic]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"sent\n"
    process.kill()
    await process.wait()
    async with producer_of(broker, transactional_id) as successor, successor.transaction():
        await successor.send(topic, b"kept")
    assert await committed(broker, topic, 1) == [b"kept"]


@pytest.mark.parametrize("moment", ["before the commit", "between two"])
async def test_a_coordinator_that_is_killed_and_comes_back(broker: Broker, lone: Lone, moment: str) -> None:
    topic = await asyncio.to_thread(broker.topic)
    async with producer_of(broker, name()) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"one")
            if moment == "before the commit":
                await lone.restart()
        if moment == "between two":
            await lone.restart()
        async with producer.transaction():
            await producer.send(topic, b"two")
    assert await committed(broker, topic, 2) == [b"one", b"two"]


# ---- consume, transform, produce ------------------------------------------------------------------------------------


def member_of(broker: Broker, group: str) -> Consumer:
    return Consumer(broker.servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)


async def transform(
    consumer: Consumer,
    producer: Producer,
    target: str,
    work: Callable[[ConsumerRecord, Transaction], Any] = lambda _record, _transaction: None,
) -> int:
    """Reads what there is, and writes each record to another topic, in one transaction.  Returns how many there were."""
    records = await consumer.poll(timeout_ms=500)
    try:
        async with producer.transaction() as txn:
            for record in records:
                work(record, txn)
                await producer.send(target, record.value, key=record.key)
            await txn.commit_offsets(consumer)
    except (ProducerFencedError, TransactionOutcomeUnknownError):
        raise
    except ReplogError:
        for record in reversed(records):
            consumer.seek((record.topic, record.partition), record.offset)
        return 0
    return len(records)


async def test_each_record_is_transformed_once_whatever_fails(broker: Broker) -> None:
    source = await asyncio.to_thread(broker.topic, 2)
    target = await asyncio.to_thread(broker.topic)
    async with Producer(broker.servers) as writer:
        for number in range(100):
            await writer.send(source, b"%d" % number, partition=number % 2)
    failing = {b"17", b"60"}

    def work(record: ConsumerRecord, _transaction: Transaction) -> None:
        if record.value in failing:
            failing.remove(record.value)
            raise ReplogError("the work has failed")

    done, group = 0, name()
    while done < 100:  # a consumer and a producer that begin anew after each batch
        async with (
            member_of(broker, group) as consumer,
            producer_of(broker, group) as producer,
            asyncio.timeout(PATIENCE_S),
        ):
            await consumer.subscribe([source])
            while not (count := await transform(consumer, producer, target, work)):
                pass
            done += count
    found = await committed(broker, target, 100)
    assert sorted(found, key=lambda value: int(value or b"")) == [b"%d" % number for number in range(100)]


async def test_offsets_of_an_aborted_transaction_are_not_committed(broker: Broker) -> None:
    source, group = await asyncio.to_thread(broker.topic), name()
    async with Producer(broker.servers) as writer:
        await writer.send_many(source, [b"x"] * 10)
    async with (
        member_of(broker, group) as consumer,
        producer_of(broker, group) as producer,
        asyncio.timeout(PATIENCE_S),
    ):
        await consumer.subscribe([source])
        while not await consumer.poll():
            pass
        with pytest.raises(KeyError):
            async with producer.transaction() as txn:
                await txn.commit_offsets(consumer)
                raise KeyError
        assert await consumer.committed((source, 0)) is None
        async with producer.transaction() as txn:
            await txn.commit_offsets(consumer, {(source, 0): 7})
            with pytest.raises(RequestTimedOutError, match="transaction"):  # it may be further on than what is kept
                await consumer.committed((source, 0), timeout_ms=300)
        assert await consumer.committed((source, 0)) == 7


async def test_a_member_that_was_put_out_commits_no_offsets(broker: Broker) -> None:
    """Goal: a zombie of another transactional id is fenced by the group (KIP-447)."""
    source, group = await asyncio.to_thread(broker.topic), name()
    async with Producer(broker.servers) as writer:
        await writer.send_many(source, [b"x"] * 10)
    async with producer_of(broker, name()) as zombie, asyncio.timeout(PATIENCE_S):
        async with member_of(broker, group) as former:
            await former.subscribe([source])
            while not await former.poll():
                pass
            metadata = former.group_metadata()
        async with member_of(broker, group) as member:
            await member.subscribe([source])
            while not await member.poll():
                pass
            with pytest.raises(CommitStaleError):
                async with zombie.transaction() as txn:
                    await txn.commit_offsets(metadata, {(source, 0): 10})
            assert await member.committed((source, 0)) is None


async def test_the_program_of_the_page_bills_each_order_once(broker: Broker) -> None:
    """docs/TRANSACTIONS.md."""
    (block,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    program: dict[str, Any] = {"__name__": "page"}
    exec(block.replace("127.0.0.1:9092", broker.servers), program)
    for topic in ("orders", "bills"):
        await asyncio.to_thread(broker.create, topic, 2, {})
    async with Producer(broker.servers) as writer, asyncio.timeout(PATIENCE_S):
        for number in range(3):  # begun anew, and once beside one that still runs
            running = [asyncio.create_task(program["convert"](each)) for each in ("1", "2")[: number + 1]]
            await (await writer.send_many("orders", [(b"%d" % number, b"%d" % key) for key in range(10)]))
            assert len(await committed(broker, "bills", 10 * (number + 1), 2)) == 10 * (number + 1)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
    bills = await committed(broker, "bills", 30, 2)
    assert sorted(map(str, bills)) == sorted(str(b"bill of %d" % number) for number in range(3) for _ in range(10))


# ---- without async ---------------------------------------------------------------------------------------------------


def test_transactions_without_async(broker: Broker) -> None:
    source, target, group = broker.topic(), broker.topic(), name()
    with SyncProducer(broker.servers) as writer:
        writer.send_many(source, [b"%d" % number for number in range(10)]).result()
    with (
        SyncProducer(broker.servers, transactional_id=group, value=str) as producer,
        SyncConsumer(
            broker.servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):
        consumer.subscribe([source])
        with pytest.raises(KeyError), producer.transaction():
            producer.send(target, "gone").result()
            raise KeyError
        for record in consumer:
            with producer.transaction() as txn:
                producer.send(target, (record.value or b"").decode())
                txn.commit_offsets(consumer)
            if record.value == b"4":
                break
        deadline = time.monotonic() + PATIENCE_S
        while consumer.committed((source, 0)) != 5:
            assert time.monotonic() < deadline
    assert asyncio.run(committed(broker, target, 5)) == [b"0", b"1", b"2", b"3", b"4"]
