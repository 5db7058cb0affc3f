"""confluent-kafka, and so librdkafka, behind `KafkaClient`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_client_kit import TIMEOUT_S, Got, How, RefusedError, Sent


class Confluent:
    """See `KafkaClient`."""

    name = "confluent-kafka"

    def produce(self, servers: str, topic: str, records: Sequence[Sent], how: How) -> list[int]:
        settings = {
            "bootstrap.servers": servers,
            "acks": how.acks,
            "compression.type": how.codec,
            "enable.idempotence": how.is_idempotent,
            "message.max.bytes": how.bytes_max,
            "message.timeout.ms": int(TIMEOUT_S * 1000),
            "linger.ms": 20,
            "topic.metadata.propagation.max.ms": 2_000,  # for how long a topic may be unknown: it may be a new one
        }
        told: dict[int, int] = {}
        failures: list[str] = []
        producer = Producer(settings)
        with _refusals():
            for number, record in enumerate(records):

                def delivered(error: KafkaError | None, message: Any, number: int = number) -> None:
                    if error is not None:
                        failures.append(str(error))
                    else:
                        told[number] = -1 if how.acks == "0" else message.offset()

                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=0,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms,
                    on_delivery=delivered,
                )
        left = producer.flush(TIMEOUT_S)
        if failures:
            raise RefusedError(failures[0])
        assert left == 0, f"{left} records are still waiting"
        return [told[number] for number in range(len(records))]

    def consume(self, servers: str, topic: str, start: int, count: int) -> list[Got]:
        found: list[Got] = []
        with _consumer(servers) as consumer:
            consumer.assign([TopicPartition(topic, 0, start)])
            while len(found) < count:
                messages = consumer.consume(count - len(found), TIMEOUT_S)
                assert messages, f"{len(found)} of {count} records came"
                for message in messages:
                    if (error := message.error()) is not None:
                        raise RefusedError(str(error))
                    headers = tuple((name, value) for name, value in message.headers() or ())
                    timestamp_ms = message.timestamp()[1]
                    found.append(Got(message.offset(), message.key(), message.value(), headers, timestamp_ms))
        return found

    def ends(self, servers: str, topic: str) -> tuple[int, int]:
        with _consumer(servers) as consumer, _refusals():
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
            return begin, end

    def offset_for_time(self, servers: str, topic: str, timestamp_ms: int) -> int | None:
        with _consumer(servers) as consumer, _refusals():
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], TIMEOUT_S)
            return found.offset if found.offset >= 0 else None

    def create_topic(self, servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        with _refusals():
            admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(TIMEOUT_S)

    def partitions_of(self, servers: str, topic: str) -> int:
        found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return len(found.partitions) if found is not None else 0

    def delete_topic(self, servers: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})  # it ends what it asked when nobody holds it
        with _refusals():
            admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def begin_transaction(self, servers: str, transactional_id: str) -> None:
        settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
        with _refusals():
            Producer(settings).init_transactions(TIMEOUT_S)


@contextlib.contextmanager
def _consumer(servers: str) -> Iterator[Consumer]:
    # a group id is asked for also where no group is used; nothing is committed
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise RefusedError(str(error)) from error
