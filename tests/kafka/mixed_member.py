"""A member of a group by any client, in a process of its own that a test may kill.

    python mixed_member.py SERVERS GROUP CLIENT TOPIC

CLIENT is "aiokafka" or "kafka-python", which speak the classic protocol, or "replog", which speaks the new one where brokers have it.  It prints a line
for each assignment, and for each record that it has read and committed, as `group_member.py` does.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Collection, Iterable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from replog.client import AssignmentListener, Consumer
from replog.client import TopicPartition as OurPartition
from replog.client.consumer import group_member
from replog.errors import CommitStaleError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its way to read its own schemas
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError as KafkaPythonError

SESSION_MS, BEAT_MS = 3_000, 300


def tell(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell_assigned(partitions: Iterable[int]) -> None:
    """Prints what the member has."""
    tell(f"assigned {sorted(partitions)}")


class Told(ConsumerRebalanceListener):
    """Tells what a member of aiokafka has."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        tell_assigned(())

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        tell_assigned(each.partition for each in assigned)


async def aiokafka(servers: str, group: str, topic: str) -> None:
    """Reads by aiokafka."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=BEAT_MS,
        rebalance_timeout_ms=10_000,
    )
    consumer.subscribe([topic], listener=Told())
    async with consumer:
        async for record in consumer:
            place = TopicPartition(record.topic, record.partition)
            try:
                await consumer.commit({place: OffsetAndMetadata(record.offset + 1, "")})
            except KafkaError as error:
                sys.stderr.write(f"{error!r}\n")
                with suppress(KafkaError):  # it is read again: here, or by whoever has the partition now
                    consumer.seek(place, record.offset)
                continue
            tell(f"read {record.value.decode()}")


def kafka_python(servers: str, group: str, topic: str) -> None:
    """Reads by kafka-python."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=BEAT_MS,
        max_poll_interval_ms=10_000,
    )
    assigned: object = None
    while True:
        batches = consumer.poll(timeout_ms=100, max_records=1)
        if (now := consumer.assignment()) != assigned:
            assigned = set(now)
            tell_assigned(each.partition for each in now)
        for place, records in batches.items():
            try:
                consumer.commit()
            except KafkaPythonError as error:
                sys.stderr.write(f"{error!r}\n")
                with suppress(AssertionError):  # as above; so it says that the partition is not assigned
                    consumer.seek(place, records[0].offset)
                continue
            for record in records:
                tell(f"read {record.value.decode()}")


class OurListener(AssignmentListener):
    """Tells what a member of replog has."""

    def __init__(self) -> None:
        self.has: set[OurPartition] = set()

    async def on_assigned(self, partitions: Collection[OurPartition]) -> None:
        self.has |= set(partitions)
        tell_assigned(each.partition for each in self.has)

    async def on_revoked(self, partitions: Collection[OurPartition]) -> None:
        self.has -= set(partitions)
        tell_assigned(each.partition for each in self.has)

    async def on_lost(self, partitions: Collection[OurPartition]) -> None:
        await self.on_revoked(partitions)


async def replog(servers: str, group: str, topic: str) -> None:
    """Reads by replog's own consumer."""
    async with Consumer(servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        await consumer.subscribe([topic], listener=OurListener())
        async for record in consumer:
            try:
                await consumer.commit()
            except CommitStaleError as error:
                sys.stderr.write(f"{error!r}\n")
                continue
            tell(f"read {record.value.decode()}")


def main(servers: str, group: str, client: str, topic: str) -> None:
    """Reads until the process is ended."""
    match client:
        case "aiokafka":
            asyncio.run(aiokafka(servers, group, topic))
        case "kafka-python":
            kafka_python(servers, group, topic)
        case "replog":
            group_member.SESSION_TIMEOUT_MS, group_member.HEARTBEAT_INTERVAL_MS = SESSION_MS, BEAT_MS
            asyncio.run(replog(servers, group, topic))
        case _:
            raise SystemExit(f"there is no client {client!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
