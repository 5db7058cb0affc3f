"""For a project that uses aiokafka: a broker for its tests, and tests as they would be with any other Kafka.

pip install replog aiokafka pytest pytest-asyncio
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

import replog

pytestmark = pytest.mark.asyncio

PARTITIONS = 2
WAIT_MS = 20_000


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """The bootstrap_servers of a broker in this process, in a thread of its own; its data are in a temporary folder."""
    with replog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest_asyncio.fixture
async def admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    yield admin
    await admin.close()


@pytest_asyncio.fixture
async def topic(admin: AIOKafkaAdminClient) -> str:
    """A topic that no other test has."""
    name = f"orders-{uuid.uuid4()}"
    orders = NewTopic(name, PARTITIONS, replication_factor=1, topic_configs={"max.message.bytes": "10000"})
    await admin.create_topics([orders])
    return name


@pytest_asyncio.fixture
async def producer(servers: str) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        yield producer


@pytest_asyncio.fixture
async def consumer(servers: str) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
        yield consumer


async def place(producer: AIOKafkaProducer, topic: str, *orders: tuple[str, str]) -> list[RecordMetadata]:
    """Writes orders, (customer, what), and waits until they are safe."""
    headers = [("from", b"till 1")]
    sent = [await producer.send(topic, what.encode(), customer.encode(), headers=headers) for customer, what in orders]
    return [await each for each in sent]


async def read(consumer: AIOKafkaConsumer, starts: dict[TopicPartition, int], count: int) -> list[ConsumerRecord]:
    """Reads `count` orders from places on."""
    consumer.assign(list(starts))
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    found: list[ConsumerRecord] = []
    while len(found) < count:
        got = await consumer.getmany(timeout_ms=WAIT_MS, max_records=count - len(found))
        assert got, f"{len(found)} of {count} came"
        found += [order for orders in got.values() for order in orders]
    return found


def everywhere(topic: str) -> dict[TopicPartition, int]:
    """The beginnings of all partitions."""
    return {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}


async def test_an_order_is_read_as_it_was_placed(
    producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str
) -> None:
    (placed,) = await place(producer, topic, ("ann", "two coffees"))
    (order,) = await read(consumer, everywhere(topic), 1)
    assert (order.key, order.value, order.headers) == (b"ann", b"two coffees", (("from", b"till 1"),))
    assert (order.partition, order.offset) == (placed.partition, placed.offset)


async def test_the_orders_of_a_customer_stay_in_order(
    producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str
) -> None:
    await place(producer, topic, *((f"customer {number % 7}", str(number)) for number in range(100)))
    orders = await read(consumer, everywhere(topic), 100)
    for customer in range(7):
        mine = [int(order.value or b"") for order in orders if order.key == b"customer %d" % customer]
        assert mine == list(range(customer, 100, 7))


async def test_reading_goes_on_where_it_stopped(
    producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str
) -> None:
    last = (await place(producer, topic, *(("ann", str(number)) for number in range(10))))[3]  # kept by the program
    rest = await read(consumer, {TopicPartition(topic, last.partition): last.offset + 1}, 6)
    assert [order.value for order in rest] == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def read_as_the_kitchen(servers: str, topic: str, count: int) -> list[bytes | None]:
    """Reads `count` orders that are new to the group, and commits behind them."""
    group = {"group_id": f"kitchen-of-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, **group) as consumer:
        found: list[bytes | None] = []
        while len(found) < count:
            got = await consumer.getmany(timeout_ms=WAIT_MS, max_records=count - len(found))
            assert got, f"{len(found)} of {count} came"
            found += [order.value for orders in got.values() for order in orders]
        await consumer.commit()
        return found


async def test_a_group_goes_on_where_it_stopped(servers: str, producer: AIOKafkaProducer, topic: str) -> None:
    await place(producer, topic, *(("ann", str(number)) for number in range(10)))
    assert await read_as_the_kitchen(servers, topic, 4) == [b"0", b"1", b"2", b"3"]
    assert await read_as_the_kitchen(servers, topic, 6) == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def test_orders_since_a_time(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str) -> None:
    for minute in range(3):
        value = f"minute {minute}".encode()
        await producer.send_and_wait(topic, value, partition=0, timestamp_ms=1_700_000_000_000 + minute * 60_000)
    partition = TopicPartition(topic, 0)
    since = await consumer.offsets_for_times({partition: 1_700_000_060_000})
    orders = await read(consumer, {partition: since[partition].offset}, 2)
    assert [order.value for order in orders] == [b"minute 1", b"minute 2"]


async def test_an_order_that_is_too_large_is_refused(producer: AIOKafkaProducer, topic: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await place(producer, topic, ("ann", "x" * 20_000))
    assert len(await place(producer, topic, ("ann", "one coffee"))) == 1


async def test_old_orders_are_deleted(
    admin: AIOKafkaAdminClient, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str
) -> None:
    last = (await place(producer, topic, *(("ann", str(number)) for number in range(10))))[-1]
    partition = TopicPartition(topic, last.partition)
    await admin.delete_records({partition: RecordsToDelete(before_offset=8)})
    assert await consumer.beginning_offsets([partition]) == {partition: 8}
