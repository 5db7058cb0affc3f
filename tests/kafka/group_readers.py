"""Each of Kafka's clients as one member of a group: it subscribes, reads what is new to the group, commits, and leaves."""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its way to read its own schemas
    from kafka import KafkaConsumer

TIMEOUT_S = 60

Reader = Callable[[str, str, str, int], list[str]]
"""Returns so many values of a topic, as a member of a group: servers, group, topic, number of records."""


def confluent(servers: str, group: str, topic: str, count: int, **others: Any) -> list[str]:
    """Reads by confluent-kafka."""
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **others}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, TIMEOUT_S)
        consumer.commit(asynchronous=False)
        return [message.value().decode() for message in messages]
    finally:
        consumer.close()


def confluent_assigned(servers: str, group: str, topic: str, count: int) -> list[str]:
    """Reads by confluent-kafka whose coordinator assigns (KIP-848)."""
    return confluent(servers, group, topic, count, **{"group.protocol": "consumer"})


def aiokafka(servers: str, group: str, topic: str, count: int) -> list[str]:
    """Reads by aiokafka."""

    async def read() -> list[str]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with asyncio.timeout(TIMEOUT_S), consumer:
            found = [(await consumer.getone()).value.decode() for _ in range(count)]
            await consumer.commit()
            return found

    return asyncio.run(read())


def kafka_python(servers: str, group: str, topic: str, count: int) -> list[str]:
    """Reads by kafka-python."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_S * 1_000,
    )
    try:
        found = [next(consumer).value.decode() for _ in range(count)]
        consumer.commit()
        return found
    finally:
        consumer.close()


def kcat(servers: str, group: str, topic: str, count: int) -> list[str]:
    """Reads by kcat, which commits at its end."""
    command = ["kcat", "-b", servers, "-F", "/dev/null", "-G", group, "-q", "-c", str(count)]
    done = subprocess.run(
        [*command, "-X", "auto.offset.reset=earliest", topic],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
        encoding="utf-8",
    )
    return done.stdout.splitlines()


READERS: Mapping[str, Reader] = {
    each.__name__: each for each in (confluent, confluent_assigned, aiokafka, kafka_python, kcat)
}
