"""kafka-python behind `KafkaClient`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_client_kit import TIMEOUT_S, Got, How, RefusedError, Sent

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its way to read its own schemas
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError


class KafkaPython:
    """See `KafkaClient`."""

    name = "kafka-python"

    def produce(self, servers: str, topic: str, records: Sequence[Sent], how: How) -> list[int]:
        with _refusals():
            producer = KafkaProducer(
                bootstrap_servers=servers.split(","),
                acks="all" if how.acks == "all" else int(how.acks),
                compression_type=None if how.codec == "none" else how.codec,
                enable_idempotence=how.is_idempotent,
                max_request_size=how.bytes_max,
                batch_size=how.bytes_max,
                delivery_timeout_ms=int(TIMEOUT_S * 1000),
                request_timeout_ms=int(TIMEOUT_S * 1000) - 1000,
                linger_ms=20,
            )
            with contextlib.closing(producer):
                sent = [
                    producer.send(
                        topic,
                        record.value,
                        record.key,
                        headers=list(record.headers),
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                producer.flush(TIMEOUT_S)
                told = [each.get(TIMEOUT_S) for each in sent]
        return [-1 if how.acks == "0" else each.offset for each in told]

    def consume(self, servers: str, topic: str, start: int, count: int) -> list[Got]:
        place = TopicPartition(topic, 0)
        found: list[Got] = []
        with _consumer(servers) as consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            while len(found) < count:
                got = consumer.poll(timeout_ms=int(TIMEOUT_S * 1000), max_records=count - len(found))
                assert got, f"{len(found)} of {count} records came"
                found += [Got(m.offset, m.key, m.value, tuple(map(tuple, m.headers)), m.timestamp) for m in got[place]]
        return found

    def ends(self, servers: str, topic: str) -> tuple[int, int]:
        place = TopicPartition(topic, 0)
        with _consumer(servers) as consumer:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_for_time(self, servers: str, topic: str, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, 0)
        with _consumer(servers) as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else found.offset

    def create_topic(self, servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        with _admin(servers) as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "configs": config}})

    def partitions_of(self, servers: str, topic: str) -> int:
        with _admin(servers) as admin:
            (found,) = admin.describe_topics([topic])
            return len(found["partitions"])

    def delete_topic(self, servers: str, topic: str) -> None:
        with _admin(servers) as admin:
            admin.delete_topics([topic])

    def begin_transaction(self, servers: str, transactional_id: str) -> None:
        producer = KafkaProducer(bootstrap_servers=servers.split(","), transactional_id=transactional_id)
        with _refusals(), contextlib.closing(producer):
            producer.init_transactions()


@contextlib.contextmanager
def _consumer(servers: str) -> Iterator[Any]:
    with (
        _refusals(),
        contextlib.closing(KafkaConsumer(bootstrap_servers=servers.split(","), enable_auto_commit=False)) as consumer,
    ):
        yield consumer


@contextlib.contextmanager
def _admin(servers: str) -> Iterator[Any]:
    with _refusals(), contextlib.closing(KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        yield admin


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise RefusedError(repr(error)) from error
