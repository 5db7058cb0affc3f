"""aiokafka behind `KafkaClient`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from kafka_client_kit import TIMEOUT_S, Got, How, RefusedError, Sent

T = TypeVar("T")


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await coroutine

    try:
        return asyncio.run(limited())
    except KafkaError as error:
        raise RefusedError(repr(error)) from error


class Aiokafka:
    """See `KafkaClient`."""

    name = "aiokafka"

    def produce(self, servers: str, topic: str, records: Sequence[Sent], how: How) -> list[int]:
        async def produce() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                acks="all" if how.acks == "all" else int(how.acks),
                compression_type=None if how.codec == "none" else how.codec,
                enable_idempotence=how.is_idempotent,
                max_request_size=how.bytes_max,
                max_batch_size=how.bytes_max,
                request_timeout_ms=int(TIMEOUT_S * 1000),
                linger_ms=20,
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        headers=list(record.headers),
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                told = await asyncio.gather(*sent)
            return [-1 if how.acks == "0" else each.offset for each in told]

        return _run(produce())

    def consume(self, servers: str, topic: str, start: int, count: int) -> list[Got]:
        place = TopicPartition(topic, 0)

        async def consume(consumer: AIOKafkaConsumer) -> list[Got]:
            consumer.assign([place])
            consumer.seek(place, start)
            found: list[Got] = []
            while len(found) < count:
                got = await consumer.getmany(timeout_ms=int(TIMEOUT_S * 1000), max_records=count - len(found))
                assert got, f"{len(found)} of {count} records came"
                found += [Got(m.offset, m.key, m.value, tuple(m.headers), m.timestamp) for m in got[place]]
            return found

        return self._consuming(servers, consume)

    def ends(self, servers: str, topic: str) -> tuple[int, int]:
        place = TopicPartition(topic, 0)

        async def ends(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            begin, end = await consumer.beginning_offsets([place]), await consumer.end_offsets([place])
            return begin[place], end[place]

        return self._consuming(servers, ends)

    def offset_for_time(self, servers: str, topic: str, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, 0)

        async def offset(consumer: AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
            return None if found is None else found.offset

        return self._consuming(servers, offset)

    def create_topic(self, servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        async def create(admin: AIOKafkaAdminClient) -> None:
            answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
            _raise(answer.topic_errors[0][1:])

        self._managing(servers, create)

    def partitions_of(self, servers: str, topic: str) -> int:
        async def partitions(admin: AIOKafkaAdminClient) -> int:
            (found,) = await admin.describe_topics([topic])
            return len(found["partitions"])

        return self._managing(servers, partitions)

    def delete_topic(self, servers: str, topic: str) -> None:
        async def delete(admin: AIOKafkaAdminClient) -> None:
            answer = await admin.delete_topics([topic])
            _raise(answer.topic_error_codes[0][1:])

        self._managing(servers, delete)

    def begin_transaction(self, servers: str, transactional_id: str) -> None:
        async def begin() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
            try:
                await producer.start()
            finally:
                await producer.stop()

        _run(begin())

    def _consuming(self, servers: str, use: Callable[[AIOKafkaConsumer], Coroutine[Any, Any, T]]) -> T:
        async def consuming() -> T:
            async with AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
                return await use(consumer)

        return _run(consuming())

    def _managing(self, servers: str, use: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
        async def managing() -> T:
            async with _admin(servers) as admin:
                return await use(admin)

        return _run(managing())


@contextlib.asynccontextmanager
async def _admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def _raise(error: Sequence[Any]) -> None:
    """Raises what an answer of the admin client says: a code and, in newer versions, a text."""
    if error[0]:
        raise RefusedError(f"{error[0]} {error[1] if len(error) > 1 else ''}")
