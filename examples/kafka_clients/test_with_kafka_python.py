"""For a project that uses kafka-python: a broker for its tests, and tests as they would be with any other Kafka.

pip install replog kafka-python pytest
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import MessageSizeTooLargeError

import replog

PARTITIONS = 2
WAIT_S = 20


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """The bootstrap_servers of a broker in this process; its data are in a temporary folder."""
    with replog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(servers: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    yield admin
    admin.close()


@pytest.fixture
def topic(admin: KafkaAdminClient) -> str:
    """A topic that no other test has."""
    name = f"orders-{uuid.uuid4()}"
    admin.create_topics({name: {"num_partitions": PARTITIONS, "configs": {"max.message.bytes": "10000"}}})
    return name


@pytest.fixture
def producer(servers: str) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=servers)  # idempotent by default
    yield producer
    producer.close()


@pytest.fixture
def consumer(servers: str) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    yield consumer
    consumer.close()


def place(producer: KafkaProducer, topic: str, *orders: tuple[str, str]) -> list[Any]:
    """Writes orders, (customer, what), and waits until they are safe."""
    headers = [("from", b"till 1")]
    sent = [producer.send(topic, what.encode(), customer.encode(), headers=headers) for customer, what in orders]
    return [each.get(WAIT_S) for each in sent]


def read(consumer: KafkaConsumer, starts: dict[TopicPartition, int], count: int) -> list[Any]:
    """Reads `count` orders from places on."""
    consumer.assign(list(starts))
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    found: list[Any] = []
    while len(found) < count:
        got = consumer.poll(timeout_ms=WAIT_S * 1000, max_records=count - len(found))
        assert got, f"{len(found)} of {count} came"
        found += [order for orders in got.values() for order in orders]
    return found


def everywhere(topic: str) -> dict[TopicPartition, int]:
    """The beginnings of all partitions."""
    return {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}


def test_an_order_is_read_as_it_was_placed(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    (placed,) = place(producer, topic, ("ann", "two coffees"))
    (order,) = read(consumer, everywhere(topic), 1)
    assert (order.key, order.value, list(order.headers)) == (b"ann", b"two coffees", [("from", b"till 1")])
    assert (order.partition, order.offset) == (placed.partition, placed.offset)


def test_the_orders_of_a_customer_stay_in_order(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    place(producer, topic, *((f"customer {number % 7}", str(number)) for number in range(100)))
    orders = read(consumer, everywhere(topic), 100)
    for customer in range(7):
        mine = [int(order.value) for order in orders if order.key == b"customer %d" % customer]
        assert mine == list(range(customer, 100, 7))


def test_reading_goes_on_where_it_stopped(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    last = place(producer, topic, *(("ann", str(number)) for number in range(10)))[3]  # kept by the program
    rest = read(consumer, {TopicPartition(topic, last.partition): last.offset + 1}, 6)
    assert [order.value for order in rest] == [b"4", b"5", b"6", b"7", b"8", b"9"]


def read_as_the_kitchen(servers: str, topic: str, count: int) -> list[bytes]:
    """Reads `count` orders that are new to the group, and commits behind them."""
    group = {"group_id": f"kitchen-of-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, **group)
    try:
        found: list[bytes] = []
        while len(found) < count:
            got = consumer.poll(timeout_ms=WAIT_S * 1000, max_records=count - len(found))
            assert got, f"{len(found)} of {count} came"
            found += [order.value for orders in got.values() for order in orders]
        consumer.commit()
        return found
    finally:
        consumer.close()


def test_a_group_goes_on_where_it_stopped(servers: str, producer: KafkaProducer, topic: str) -> None:
    place(producer, topic, *(("ann", str(number)) for number in range(10)))
    assert read_as_the_kitchen(servers, topic, 4) == [b"0", b"1", b"2", b"3"]
    assert read_as_the_kitchen(servers, topic, 6) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_orders_since_a_time(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    for minute in range(3):
        value = f"minute {minute}".encode()
        producer.send(topic, value, partition=0, timestamp_ms=1_700_000_000_000 + minute * 60_000).get(WAIT_S)
    partition = TopicPartition(topic, 0)
    since = consumer.offsets_for_times({partition: 1_700_000_060_000})[partition]
    orders = read(consumer, {partition: since.offset}, 2)
    assert [order.value for order in orders] == [b"minute 1", b"minute 2"]


def test_an_order_that_is_too_large_is_refused(producer: KafkaProducer, topic: str) -> None:
    assert len(place(producer, topic, ("ann", "one coffee"))) == 1
    with pytest.raises(MessageSizeTooLargeError):  # after which an idempotent producer of kafka-python sends no more
        place(producer, topic, ("ann", "x" * 20_000))


def test_old_orders_are_deleted(
    admin: KafkaAdminClient, producer: KafkaProducer, consumer: KafkaConsumer, topic: str
) -> None:
    last = place(producer, topic, *(("ann", str(number)) for number in range(10)))[-1]
    partition = TopicPartition(topic, last.partition)
    admin.delete_records({partition: 8})
    assert consumer.beginning_offsets([partition]) == {partition: 8}
