"""A slice of a topic in a file, to be loaded into a broker of a test: keys, values, headers and times, as they were.

A capture is a zip archive: `capture.json` says of which topic it is and what each partition has, `<partition>.batches` are record
batches in Kafka's format, one behind the other.  Offsets are counted anew when it is loaded.
"""

from __future__ import annotations

import asyncio
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from replog.client.admin.admin import Admin
from replog.client.consumer.consumer import Consumer
from replog.client.producer.config import MAX_REQUEST_BYTES_MAX
from replog.client.producer.producer import Producer
from replog.client.types import ConsumerRecord, TopicPartition
from replog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionError,
)
from replog.records import HEADER_BYTES, RecordInput, decode_batch, encode_batch, parse_header

if TYPE_CHECKING:
    from replog.client.security.security import Security

MANIFEST: Final = "capture.json"
FORMAT: Final = 1

MANIFEST_BYTES_MAX: Final = 16 << 20
"""Of 100,000 partitions and more."""

BATCH_BYTES: Final = 1 << 20
"""A batch is closed when it has so many bytes of keys and values."""

BATCH_BYTES_MAX: Final = 128 << 20
"""No batch of a capture is larger; more is damage."""

POLL_RECORDS: Final = 5_000
POLL_MS: Final = 300

PATIENCE_S: Final = 30.0
"""How long a partition may give nothing before the capture fails."""

_TOPIC_CONFIGS: Final = {
    "retention.ms": -1,
    "retention.bytes": -1,
    "max.message.bytes": 32 << 20,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": 2**63 - 1,
    "message.timestamp.after.max.ms": 2**63 - 1,
}
"""Of the topic that is loaded: old records stay, large ones fit, and all keep their times."""


_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    msgspec.MsgspecError,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
"""What reading raises where a file is no whole capture."""


class CapturedPartition(Struct, frozen=True):
    """What a capture has of one partition: records of the offsets [start, end) of the topic that it is of."""

    partition: int
    start_offset: int
    end_offset: int
    records_count: int


class Capture(Struct, frozen=True, forbid_unknown_fields=True):
    """What a capture says of itself."""

    format: int
    topic: str
    partitions_count: int
    partitions: tuple[CapturedPartition, ...]

    @property
    def records_count(self) -> int:
        return sum(partition.records_count for partition in self.partitions)


async def write_capture(
    bootstrap_servers: str,
    topic: str,
    path: str | os.PathLike[str],
    *,
    start: str | datetime = "earliest",
    partitions: Collection[int] = (),
    max_records: int | None = None,
    security: Security | None = None,
    told: Callable[[int], None] | None = None,
) -> Capture:
    """Writes what is committed in a topic, of our brokers or Apache Kafka's, from a place on up to its end of now into a file.

    The file is there when it is whole; what was at `path` before is replaced.

    Args:
        bootstrap_servers: The brokers to ask first.
        topic: The name of the topic.
        path: The file, by custom with the suffix `.replog`.
        start: The place to begin at in each partition, as `Consumer.seek_to` takes it: "earliest", "latest-100", "-10m", a datetime.
        partitions: The partitions to read; none: all.
        max_records: The most records of each partition; None: all.
        security: How this client and brokers are believed by each other; None: plain text.
        told: The function that is told how many records have been written.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic or partition.
        InvalidRequestError: `start` is no place.
        OSError: The file cannot be written.
    """
    async with (
        Admin(bootstrap_servers, security=security) as admin,
        Consumer(bootstrap_servers, security=security) as consumer,
    ):
        infos = (await admin.describe_topics([topic]))[topic].partitions
        numbers = sorted({info.partition_id for info in infos})
        if wrong := set(partitions) - set(numbers):
            raise UnknownTopicOrPartitionError(
                f"{topic} has {len(numbers)} partitions, numbered from 0; there is no partition {min(wrong)}"
            )
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
        try:
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
                found: list[CapturedPartition] = []
                for number in sorted(partitions) or numbers:
                    with archive.open(_member(number), "w", force_zip64=True) as file:
                        done = sum(partition.records_count for partition in found)
                        found.append(
                            await _write_partition(
                                consumer, TopicPartition(topic, number), start, max_records, file, done, told
                            )
                        )
                capture = Capture(FORMAT, topic, len(numbers), tuple(found))
                archive.writestr(MANIFEST, msgspec.json.encode(capture))
            unfinished.replace(path)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    return capture


async def _write_partition(
    consumer: Consumer,
    partition: TopicPartition,
    start: str | datetime,
    max_records: int | None,
    file: IO[bytes],
    done_count: int,
    told: Callable[[int], None] | None,
) -> CapturedPartition:
    await consumer.assign([partition])
    end = (await consumer.end_offsets([partition]))[partition]
    await consumer.seek_to(start, partition)
    first = consumer.position(partition)
    count, next_offset = 0, min(first, end)
    now_s = asyncio.get_running_loop().time
    progress_s = now_s()
    while consumer.position(partition) < end and (max_records is None or count < max_records):
        wanted = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - count)
        polled = await consumer.poll(max_records=wanted, timeout_ms=POLL_MS)
        records = [record for record in polled if record.offset < end]
        await asyncio.to_thread(_append, records, file)
        if polled:
            progress_s = now_s()
        elif now_s() - progress_s > PATIENCE_S:
            raise RequestTimedOutError(
                f"no record of {partition} came for {PATIENCE_S:g} s, at offset {consumer.position(partition)} of {end}. Has it "
                "a leader? `replog status` says so"
            )
        count += len(records)
        next_offset = records[-1].offset + 1 if records else next_offset
        if told is not None:
            told(done_count + count)
    return CapturedPartition(partition.partition, min(first, end), next_offset, count)


def _append(records: Sequence[ConsumerRecord], file: IO[bytes]) -> None:
    """Encodes records into batches and appends these to a member of the archive."""
    rows: list[RecordInput] = []
    size_bytes = 0
    for record in records:
        rows.append((record.timestamp, record.key, record.value, record.headers))
        size_bytes += len(record.key or b"") + len(record.value or b"")
        if size_bytes >= BATCH_BYTES:
            file.write(encode_batch(rows))
            rows, size_bytes = [], 0
    if rows:
        file.write(encode_batch(rows))


def _member(partition: int) -> str:
    return f"{partition}.batches"


# ---- loading ------------------------------------------------------------------------------------------------------------


async def load_capture(
    bootstrap_servers: str, path: str | os.PathLike[str], *, security: Security | None = None
) -> Capture:
    """Creates the topic of a capture on brokers, with one replica and without retention, and writes its records.

    Args:
        bootstrap_servers: The brokers to ask first.
        path: The file that `write_capture` wrote.
        security: What the brokers believe; None: plain text.

    Returns:
        What the capture says of itself.

    Raises:
        InvalidRequestError: The file is no capture, or it is damaged; the text says where.
        TopicExistsError: The brokers have a topic of this name.
        OSError: The file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            capture = _manifest(archive)
            async with Admin(bootstrap_servers, security=security) as admin:
                await admin.create_topic(capture.topic, capture.partitions_count, 1, _TOPIC_CONFIGS)
            async with Producer(
                bootstrap_servers,
                max_request_bytes=MAX_REQUEST_BYTES_MAX,
                buffer_memory_bytes=2 * MAX_REQUEST_BYTES_MAX,
                security=security,
            ) as producer:
                for partition in capture.partitions:
                    with archive.open(_member(partition.partition)) as file:
                        await _send_partition(producer, capture.topic, partition, file)
                await producer.flush()
    except _DAMAGE as error:
        raise InvalidRequestError(
            f"{os.fspath(path)} is no whole capture: {error}. Make it again with `replog capture --topic TOPIC -o FILE`"
        ) from error
    return capture


def _manifest(archive: zipfile.ZipFile) -> Capture:
    size_bytes = archive.getinfo(MANIFEST).file_size
    if size_bytes > MANIFEST_BYTES_MAX:
        raise EOFError(f"{MANIFEST} has {size_bytes} bytes unpacked, more than {MANIFEST_BYTES_MAX}")
    capture = msgspec.json.decode(archive.read(MANIFEST), type=Capture)
    if capture.format != FORMAT:
        raise InvalidRequestError(f"the capture has format {capture.format}, and this version of replog knows {FORMAT}")
    return capture


async def _send_partition(producer: Producer, topic: str, partition: CapturedPartition, file: IO[bytes]) -> None:
    sent_count = 0
    for batch in _batches(file):
        for record in decode_batch(batch):
            timestamp_ms = record.timestamp if record.timestamp >= 0 else None
            await producer.send(topic, record.value, record.key, partition.partition, timestamp_ms, record.headers)
            sent_count += 1
    if sent_count != partition.records_count:
        raise EOFError(f"partition {partition.partition} has {sent_count} records, not {partition.records_count}")


def _batches(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the batches of a member, whole."""
    while head := file.read(HEADER_BYTES):
        if len(head) < HEADER_BYTES:
            raise EOFError("it ends within the header of a batch")
        size_bytes = parse_header(head).end_position
        if size_bytes > BATCH_BYTES_MAX:
            raise EOFError(f"a batch says that it has {size_bytes} bytes")
        batch = head + file.read(size_bytes - HEADER_BYTES)
        if len(batch) < size_bytes:
            raise EOFError("it ends within a batch")
        yield batch
