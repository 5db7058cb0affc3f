"""For a project that uses confluent-kafka: a broker for its tests, and tests as they would be with any other Kafka.

pip install replog confluent-kafka pytest
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import replog

PARTITIONS = 2
WAIT_S = 20


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """The bootstrap.servers of a broker in this process; its data are in a temporary folder."""
    with replog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic that no other test has."""
    name = f"orders-{uuid.uuid4()}"
    orders = NewTopic(name, PARTITIONS, config={"max.message.bytes": "10000"})
    admin.create_topics([orders])[name].result(WAIT_S)
    return name


@pytest.fixture
def producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})


@pytest.fixture
def consumer(servers: str) -> Iterator[Consumer]:
    # a group id must be given, and without automatic commits nobody looks for a coordinator when it is closed
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    yield consumer
    consumer.close()


def place(producer: Producer, topic: str, *orders: tuple[str, str]) -> list[Message]:
    """Writes orders, (customer, what), and waits until they are safe."""
    placed: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        placed.append(message)

    for customer, what in orders:
        producer.produce(topic, what, key=customer, headers={"from": "till 1"}, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return placed


def read(consumer: Consumer, starts: list[TopicPartition], count: int) -> list[Message]:
    """Reads `count` orders from places on."""
    consumer.assign(starts)
    found: list[Message] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S)
        assert messages, f"{len(found)} of {count} came"
        assert not any(message.error() for message in messages)
        found += messages
    return found


def everywhere(topic: str) -> list[TopicPartition]:
    """The beginnings of all partitions."""
    return [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]


def test_an_order_is_read_as_it_was_placed(producer: Producer, consumer: Consumer, topic: str) -> None:
    (placed,) = place(producer, topic, ("ann", "two coffees"))
    (order,) = read(consumer, everywhere(topic), 1)
    assert (order.key(), order.value(), order.headers()) == (b"ann", b"two coffees", [("from", b"till 1")])
    assert (order.partition(), order.offset()) == (placed.partition(), placed.offset())


def test_the_orders_of_a_customer_stay_in_order(producer: Producer, consumer: Consumer, topic: str) -> None:
    place(producer, topic, *((f"customer {number % 7}", str(number)) for number in range(100)))
    orders = read(consumer, everywhere(topic), 100)
    for customer in range(7):
        mine = [int(order.value()) for order in orders if order.key() == b"customer %d" % customer]
        assert mine == list(range(customer, 100, 7))


def test_reading_goes_on_where_it_stopped(producer: Producer, consumer: Consumer, topic: str) -> None:
    last = place(producer, topic, *(("ann", str(number)) for number in range(10)))[3]  # kept by the program
    rest = read(consumer, [TopicPartition(topic, last.partition(), last.offset() + 1)], 6)
    assert [order.value() for order in rest] == [b"4", b"5", b"6", b"7", b"8", b"9"]


def read_as_the_kitchen(servers: str, topic: str, count: int) -> list[bytes]:
    """Reads `count` orders that are new to the group, and commits behind them."""
    group = {"group.id": f"kitchen-of-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), WAIT_S)
            assert messages, f"{len(found)} of {count} came"
            assert not any(message.error() for message in messages)
            found += [message.value() for message in messages]
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_a_group_goes_on_where_it_stopped(servers: str, producer: Producer, topic: str) -> None:
    place(producer, topic, *(("ann", str(number)) for number in range(10)))
    assert read_as_the_kitchen(servers, topic, 4) == [b"0", b"1", b"2", b"3"]
    assert read_as_the_kitchen(servers, topic, 6) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_orders_since_a_time(producer: Producer, consumer: Consumer, topic: str) -> None:
    for minute in range(3):
        producer.produce(topic, f"minute {minute}", partition=0, timestamp=1_700_000_000_000 + minute * 60_000)
    producer.flush(WAIT_S)
    since = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_060_000)], WAIT_S)
    assert [order.value() for order in read(consumer, since, 2)] == [b"minute 1", b"minute 2"]


def test_an_order_that_is_too_large_is_refused(producer: Producer, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        place(producer, topic, ("ann", "x" * 20_000))
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(place(producer, topic, ("ann", "one coffee"))) == 1


def test_old_orders_are_deleted(admin: AdminClient, producer: Producer, consumer: Consumer, topic: str) -> None:
    last = place(producer, topic, *(("ann", str(number)) for number in range(10)))[-1]
    below = TopicPartition(topic, last.partition(), 8)
    admin.delete_records([below])[below].result(WAIT_S)
    assert consumer.get_watermark_offsets(below, WAIT_S) == (8, 10)
