"""Transactions of the clients of librdkafka and Java: commits, aborts, offsets, fencing, time-outs, purges.

Each test runs with Kafka itself, too, so that one that asks for the wrong thing is seen.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from brokers import Broker
from kafka_client_kit import TIMEOUT_S
from kafka_install import KafkaInstall

from tests.kafka.line_driver import driver
from tests.kafka.waiting import until

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the clients need confluent-kafka")

_numbers = itertools.count(1)

Place = tuple[str, int]


@pytest.fixture
def served(broker: Broker) -> Broker:
    return broker


def a_name(what: str) -> str:
    """Returns a name that nobody else has on the brokers of the session."""
    return f"{what}-{time.time_ns():x}-{next(_numbers)}"


def producer_of(broker: Broker, transactional_id: str, *, is_ready: bool = True, **settings: object) -> Any:
    """Returns a producer of librdkafka, which has taken over its transactional id unless that is not wanted."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    times = {"transaction.timeout.ms": 30_000, "linger.ms": 0}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.servers, "transactional.id": transactional_id, **times, **given}
    )
    if is_ready:
        producer.init_transactions(TIMEOUT_S)
    return producer


@contextmanager
def consumer_of(broker: Broker, group: str, **settings: object) -> Iterator[Any]:
    """Runs a consumer that begins at the beginning and commits nothing by itself."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    fixed = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, "group.id": group, **fixed, **given})
    try:
        yield consumer
    finally:
        consumer.close()


def read(broker: Broker, topic: str, *, is_committed: bool = True) -> list[bytes]:
    """Returns the values of partition 0 up to its end; of committed ones, up to the last stable offset."""
    level = "read_committed" if is_committed else "read_uncommitted"
    found: list[bytes] = []
    with consumer_of(broker, "nobody", isolation_level=level, enable_partition_eof=True) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        is_at_end = False
        while not is_at_end:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"the end of {topic} does not come"
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                is_at_end = True
    return found


def is_open(broker: Broker, topic: str) -> bool:
    """Whether committed records end before the others."""
    place = confluent_kafka.TopicPartition(topic, 0)
    with (
        consumer_of(broker, "nobody", isolation_level="read_committed") as committed,
        consumer_of(broker, "nobody", isolation_level="read_uncommitted") as everything,
    ):
        stable, end = (consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for consumer in (committed, everything))
    return bool(stable < end)


def offsets_of(broker: Broker, group: str, topic: str) -> int:
    """Returns the committed offset of partition 0, below 0: none."""
    with consumer_of(broker, group) as consumer:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
        return int(found.offset)


def refusal(call: Any, *arguments: object) -> Any:
    """Returns the error that a call ends with."""
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        call(*arguments)
    return raised.value.args[0]


# ---- librdkafka ------------------------------------------------------------------------------------------------------


def test_records_of_a_transaction_are_read_after_its_commit(served: Broker) -> None:
    topic = served.topic()
    producer = producer_of(served, a_name("commits"))
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush(TIMEOUT_S)
    assert read(served, topic) == []
    assert read(served, topic, is_committed=False) == [b"a"]
    producer.produce(topic, b"b", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    until(lambda: read(served, topic) == [b"a", b"b"])


def test_records_of_an_aborted_transaction_are_never_read(served: Broker) -> None:
    topic = served.topic()
    producer = producer_of(served, a_name("aborts"))
    for value, ends in ((b"a", producer.abort_transaction), (b"b", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(TIMEOUT_S)
        ends(TIMEOUT_S)
    until(lambda: read(served, topic) == [b"b"])
    assert read(served, topic, is_committed=False) == [b"a", b"b"]


def test_what_an_abort_purges_is_not_sent(served: Broker) -> None:
    topic = served.topic()
    told: list[Any] = []
    producer = producer_of(
        served, a_name("purges"), transaction_timeout_ms=120_000, linger_ms=60_000, message_timeout_ms=120_000
    )
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0, on_delivery=lambda error, _: told.append(error.name()))
    producer.abort_transaction(TIMEOUT_S)
    assert told == ["_PURGE_QUEUE"]
    assert read(served, topic, is_committed=False) == []


def test_offsets_are_committed_with_the_transaction(served: Broker) -> None:
    topic, group = served.topic(), a_name("group")
    producer = producer_of(served, a_name("offsets"))
    for offset, ends in ((3, producer.commit_transaction), (7, producer.abort_transaction)):
        with consumer_of(served, group) as consumer:
            producer.begin_transaction()
            place = confluent_kafka.TopicPartition(topic, 0, offset)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
            ends(TIMEOUT_S)
        assert offsets_of(served, group, topic) == 3


def test_a_second_producer_fences_the_first(served: Broker) -> None:
    topic, transactional_id = served.topic(), a_name("fenced")
    first = producer_of(served, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"a", partition=0)
    first.flush(TIMEOUT_S)
    second = producer_of(served, transactional_id)
    error = refusal(first.commit_transaction, TIMEOUT_S)
    assert (error.name(), error.fatal()) == ("_FENCED", True)
    second.begin_transaction()
    second.produce(topic, b"b", partition=0)
    second.commit_transaction(TIMEOUT_S)
    until(lambda: read(served, topic) == [b"b"])


def test_a_producer_that_takes_too_long_is_aborted(served: Broker) -> None:
    topic = served.topic()
    producer = producer_of(served, a_name("slow"), transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush(TIMEOUT_S)
    until(lambda: not is_open(served, topic))
    error = refusal(producer.commit_transaction, TIMEOUT_S)
    assert error.fatal() or error.txn_requires_abort()
    assert read(served, topic) == []


def test_a_time_out_that_is_too_long_is_refused(served: Broker) -> None:
    producer = producer_of(served, a_name("long"), is_ready=False, transaction_timeout_ms=2**31 - 1)
    error = refusal(producer.init_transactions, TIMEOUT_S)
    assert (error.name(), error.fatal()) == ("INVALID_TRANSACTION_TIMEOUT", True)


def test_an_empty_transaction_ends_either_way(served: Broker) -> None:
    producer = producer_of(served, a_name("empty"))
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        ends(TIMEOUT_S)


def test_a_transaction_over_many_partitions(served: Broker) -> None:
    topics = [served.topic() for _ in range(3)]
    producer = producer_of(served, a_name("wide"))
    producer.begin_transaction()
    for number, topic in enumerate(topics):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.commit_transaction(TIMEOUT_S)
    until(lambda: [read(served, topic) for topic in topics] == [[b"0"], [b"1"], [b"2"]])


def test_consumed_produced_and_committed_in_one_transaction(served: Broker) -> None:
    source, sink, group = served.topic(), served.topic(), a_name("chain")
    feeder = confluent_kafka.Producer({"bootstrap.servers": served.servers})
    for number in range(20):
        feeder.produce(source, b"%d" % number, partition=0)
    feeder.flush(TIMEOUT_S)
    producer, transactional_id = None, a_name("chain")
    for is_last in (False, True):  # the first round is aborted, and what it took is taken again
        with consumer_of(served, group, isolation_level="read_committed") as consumer:
            consumer.subscribe([source])
            taken = consumer.consume(20, TIMEOUT_S)
            producer = producer_of(served, transactional_id)
            producer.begin_transaction()
            for message in taken:
                producer.produce(sink, message.value(), partition=0)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
            (producer.commit_transaction if is_last else producer.abort_transaction)(TIMEOUT_S)
    until(lambda: read(served, sink) == [b"%d" % number for number in range(20)])
    assert offsets_of(served, group, source) == 20


# ---- Java, whose producer has KIP-890 ---------------------------------------------------------------------------------


@pytest.mark.kafka
def test_the_producer_of_java(served: Broker, kafka: KafkaInstall, tmp_path: Any) -> None:
    """What `java/TransactionSteps.java` says of each step, and what is read then."""
    topic, group = served.topic(), a_name("java")
    with driver(kafka.command("TransactionSteps", served.servers), tmp_path) as steps:

        def said(*words: object) -> list[str]:
            return list(steps.ask(*words))

        names: Mapping[str, str] = {each: a_name(each) for each in ("t", "u")}
        said("open", "a", names["t"], 30_000)
        for value, end in (("1", "commit"), ("2", "abort"), ("3", "commit")):
            said("begin", "a")
            said("send", "a", topic, value)
            said("offsets", "a", group, topic, int(value))
            said(end, "a")
        assert read(served, topic) == [b"1", b"3"]
        assert offsets_of(served, group, topic) == 3
        said("begin", "a")
        said("send", "a", topic, "4")
        said("open", "b", names["t"], 30_000)
        assert said("try", "commit", "a") == ["ProducerFencedException"]
        said("begin", "b")
        said("send", "b", topic, "5")
        said("commit", "b")
        until(lambda: read(served, topic) == [b"1", b"3", b"5"])
        said("open", "c", names["u"], 1_000)
        said("begin", "c")
        said("send", "c", topic, "6")
        until(lambda: not is_open(served, topic))
        assert said("try", "commit", "c") == ["InvalidTxnStateException"]
        assert read(served, topic) == [b"1", b"3", b"5"]
