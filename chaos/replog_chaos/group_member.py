"""A member of a group under chaos, a process of its own: `python -m replog_chaos.group_member CLIENT SERVERS GROUP TOPIC`.

It writes `has 0 3` whenever its partitions are other ones, and `handled 3 17` for each record when it is done with it.  SIGTERM
lets it commit and leave; a kill finds both lines of all that it has done in the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Collection, Iterable
from typing import Any

from replog.client import AssignmentListener, Consumer, TopicPartition

COMMIT_MS = 200
POLL_S = 0.1
REPLOG = "replog"
CLIENTS = (REPLOG, "confluent", "confluent-classic")
"""Our own consumer; librdkafka's, with the protocol of KIP-848 or with the classic one."""


def write(*words: object) -> None:
    """Writes a line, which a kill does not take back."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class _Told(AssignmentListener):
    """Writes down what the member has."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._held |= {each.partition for each in partitions}
        write("has", *sorted(self._held))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._held -= {each.partition for each in partitions}
        write("has", *sorted(self._held))


async def _read(servers: str, group: str, topic: str) -> None:
    """Reads with our consumer until SIGTERM."""
    reading = asyncio.current_task()
    if reading is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    async with Consumer(
        servers, group_id=group, auto_offset_reset="earliest", auto_commit_interval_ms=COMMIT_MS
    ) as consumer:
        await consumer.subscribe([topic], listener=_Told())
        with contextlib.suppress(asyncio.CancelledError):
            async for record in consumer:
                write("handled", record.partition, record.offset)
        await consumer.commit()  # the last record is done with, too


def _read_with_librdkafka(servers: str, group: str, topic: str, protocol: str) -> None:
    """Reads with confluent-kafka until SIGTERM."""
    from confluent_kafka import Consumer as LibrdkafkaConsumer

    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": COMMIT_MS,
        "enable.auto.offset.store": False,
        "reconnect.backoff.max.ms": 500,
    }
    if protocol == "classic":
        settings |= {
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    consumer = LibrdkafkaConsumer(settings)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumer.subscribe([topic])
    held: list[int] = []
    while not stopping:
        message = consumer.poll(POLL_S)
        if (now := _numbers(consumer.assignment())) != held:
            held = now
            write("has", *held)
        if message is None or message.error() is not None:
            continue
        write("handled", message.partition(), message.offset())
        with contextlib.suppress(Exception):  # the partition has been lost meanwhile
            consumer.store_offsets(message)
    consumer.close()


def _numbers(assignment: Iterable[Any]) -> list[int]:
    return sorted(each.partition for each in assignment)


def main(client: str, servers: str, group: str, topic: str) -> None:
    """Reads as a member until the process is ended."""
    if client == REPLOG:
        asyncio.run(_read(servers, group, topic))
    else:
        _read_with_librdkafka(servers, group, topic, "classic" if client.endswith("classic") else "consumer")


if __name__ == "__main__":
    main(*sys.argv[1:])
