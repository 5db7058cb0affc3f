"""A member of a group that notes when it is handed each record: `python -m bench.systems.group_reader CLIENT SERVERS GROUP TOPIC FILE`.

It is a process of its own, which may be killed: each note is written at once, without a buffer of this process, before the next
record is asked for.  SIGTERM lets it commit, leave the group and end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

MemberKind = Literal["replog", "librdkafka"]

MODULES: Mapping[MemberKind, str] = {"replog": "replog.client", "librdkafka": "confluent_kafka"}
"""What a member of a kind imports before it can join."""

NOTE = struct.Struct("<iqd")
"""Partition, offset, and the time when the application was handed the record: seconds of the monotonic clock of all processes."""

POLL_S = 0.1

Note = Callable[[int, int], None]


async def _read(servers: str, group: str, topic: str, note: Note) -> None:
    """Reads with our consumer until SIGTERM."""
    from replog.client import Consumer

    reading = asyncio.current_task()
    if reading is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    async with Consumer(servers, group_id=group, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        with contextlib.suppress(asyncio.CancelledError):
            async for record in consumer:
                note(record.partition, record.offset)
        await consumer.commit()  # the last record is done with, too


def _read_with_librdkafka(servers: str, group: str, topic: str, note: Note) -> None:
    """Reads with confluent-kafka until SIGTERM."""
    from confluent_kafka import Consumer

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    settings = {"group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([topic])
    while not stopping:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            note(message.partition() or 0, message.offset() or 0)
    consumer.close()


def main(client: str, servers: str, group: str, topic: str, file: str) -> None:
    """Reads as a member until the process is ended."""
    with Path(file).open("wb", buffering=0) as notes:
        number = notes.fileno()

        def note(partition: int, offset: int) -> None:
            os.write(number, NOTE.pack(partition, offset, time.monotonic()))

        if client == "replog":
            asyncio.run(_read(servers, group, topic, note))
        else:
            _read_with_librdkafka(servers, group, topic, note)


if __name__ == "__main__":
    main(*sys.argv[1:])
