"""`replog produce`: lines of text in, acknowledgements out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias, TypeVar

import typer

from replog.cli import common
from replog.cli.errors import CommandFailedError, UsageError, tell
from replog.cli.terminal.standard_streams import ReaderGoneError
from replog.errors import ConfigError, ReplogError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from replog.client import Admin, Producer
    from replog.client.producer.batch import BulkDelivery

T = TypeVar("T")
_Record: TypeAlias = bytes | tuple[bytes, bytes]  # a value, or value and key

LINE_BYTES_MAX = 64 << 20
"""A longer line counts as several; no record can be that large."""

INTERRUPTED_FLUSH_S = 0.5
"""How long Ctrl-C waits for acknowledgements."""

READ_BYTES = 64 * 1024
"""What is read, and sent together, at once."""


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Whose word counts as an acknowledgement."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


def produce(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    file: Annotated[Path | None, typer.Option("--file", help="Read lines from here; default: stdin.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="What stands between key and value, such as ':'."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=common.INT_MAX, help="Default: by key, or spread.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have the records.")] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", help="How batches are compressed.")
    ] = Compression.NONE,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Write each line as a record, and print how many were acknowledged."""
    bootstrap_servers = common.servers(bootstrap_servers, directory)
    if key_separator == "":
        raise UsageError(
            "--key-separator", key_separator, "--key-separator is empty; leave it out for records without keys"
        )
    separator = None if key_separator is None else key_separator.encode()
    if file is None:
        common.run(_produce(bootstrap_servers, topic, sys.stdin.buffer, separator, partition, acks, compression))
        return
    with file.open("rb") as lines:
        common.run(_produce(bootstrap_servers, topic, lines, separator, partition, acks, compression))


async def _produce(
    bootstrap_servers: str,
    topic: str,
    lines: BinaryIO,
    separator: bytes | None,
    partition: int | None,
    acks: Acks,
    compression: Compression,
) -> None:
    from replog.client import Producer
    from replog.client.producer.producer import DEFAULTS

    async with await common.admin_of(bootstrap_servers) as admin:
        batch_bytes_max = await _batch_bytes_max(admin, topic)  # a missing topic is told before the first line is typed
    setting: Any = "all" if acks is Acks.ALL else int(acks.value)  # 0 or 1
    request_bytes_max = max(batch_bytes_max, DEFAULTS.max_request_bytes)
    making = Producer(
        bootstrap_servers, acks=setting, max_request_bytes=request_bytes_max, compression=compression.value
    )
    async with making as producer:
        known = await producer.partitions_for(topic)
        if partition is not None and partition not in known:
            raise UnknownTopicOrPartitionError(f"{topic} has {common.counted(len(known), 'partition')}, from 0 on")
        sending = LineProducer(producer, topic, partition, separator, batch_bytes_max)
        try:
            with common.waiting("producing"):
                source = LineSource(lines)
                while chunk := await _in_thread(source.next_lines):
                    await sending.send(chunk)
                await producer.flush()
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError, ReplogError):
                async with asyncio.timeout(INTERRUPTED_FLUSH_S):
                    await producer.flush()
            raise
        except LineError as error:
            with contextlib.suppress(ReplogError):
                await producer.flush()
            raise error.told(sending.acknowledged_count) from error.__cause__
        finally:
            what = "acknowledged" if acks is not Acks.NONE else "sent, nobody asked for acknowledgements"
            _tell(f"{common.counted(sending.acknowledged_count, 'record')} {what}")


async def _batch_bytes_max(admin: Admin, topic: str) -> int:
    """Asks for the topic's max.message.bytes, which is in no metadata of Apache Kafka: its own, else the cluster's.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
    """
    from replog.errors import UnknownTopicOrPartitionError
    from replog.metadata.config_keys import MAX_MESSAGE_BYTES
    from replog.metadata.records import ResourceType

    await admin.describe_topics([topic])
    values: dict[str, str | None] = {}
    with contextlib.suppress(UnknownTopicOrPartitionError):  # of a broker that has not heard of it yet
        of_topic = await admin.describe_configs((ResourceType.TOPIC, topic))
        values = {config.name: config.value for config in of_topic}
    return int(values.get(MAX_MESSAGE_BYTES.name) or MAX_MESSAGE_BYTES.default)


def _tell(count: str) -> None:
    """Prints how many records are acknowledged, on stderr where stdout does not take it; the command's end says why."""
    try:
        typer.echo(count)
    except (OSError, ReaderGoneError):
        tell(count)


class LineError(Exception):
    """A line that cannot be a record of the topic; the lines before it are sent."""

    def __init__(self, number: int, reason: str, *, is_usage: bool) -> None:
        super().__init__(f"line {number} {reason}")
        self._is_usage = is_usage

    def told(self, acknowledged_count: int) -> ReplogError:
        """Makes the error for the user, who must know what is written and what is not."""
        text = f"{self}. {common.counted(acknowledged_count, 'record')} before it acknowledged, nothing from it on sent"
        return UsageError("FILE", "", text) if self._is_usage else CommandFailedError(text)


class LineProducer:
    """Sends lines as records and counts what is acknowledged.

    Args:
        producer: The producer that sends.
        topic: The topic that the records go to.
        partition: The partition that they go to; None: by key, or spread.
        separator: The bytes between key and value; None: there are no keys.
        batch_bytes_max: The bytes of a batch that the topic takes, `max.message.bytes`.
    """

    def __init__(
        self, producer: Producer, topic: str, partition: int | None, separator: bytes | None, batch_bytes_max: int
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._separator = separator
        self._batch_bytes_max = batch_bytes_max
        self._lines_count = 0
        self._finished_count = 0
        self._open: deque[BulkDelivery] = deque()

    @property
    def acknowledged_count(self) -> int:
        """Records that are acknowledged by now."""
        return self._finished_count + sum(delivery.acknowledged_count for delivery in self._open)

    async def send(self, lines: list[bytes]) -> None:
        """Sends lines in order.

        Raises:
            LineError: One of the lines cannot be sent; those before it are.
            ReplogError: Records cannot be sent at all.
        """
        while self._open and self._open[0].done():
            self._finished_count += self._open.popleft().acknowledged_count
        together: list[_Record] = []
        for line in lines:
            self._lines_count += 1
            try:
                together.append(self._record(line))
            except LineError:
                await self._send(together)
                raise
        await self._send(together)

    async def _send(self, records: list[_Record]) -> None:
        if records:
            self._open.append(await self._producer.send_many(self._topic, records, partition=self._partition))

    def _record(self, line: bytes) -> _Record:
        from replog.client.producer.producer import RECORD_BYTES_BOUND

        if len(line) + RECORD_BYTES_BOUND > self._batch_bytes_max:
            raise LineError(self._lines_count, self._too_long(len(line), RECORD_BYTES_BOUND), is_usage=False)
        text = line.removesuffix(b"\r")
        if self._separator is None:
            return text
        key, found, value = text.partition(self._separator)
        if not found:
            shown = self._separator.decode()
            raise LineError(self._lines_count, f'has no "{shown}" between key and value', is_usage=True)
        return value, key

    def _too_long(self, line_bytes: int, overhead_bytes: int) -> str:
        from replog.metadata.config_keys import MAX_MESSAGE_BYTES

        limit_bytes, needed_bytes = self._batch_bytes_max, line_bytes + overhead_bytes
        text = (
            f"is too long: {line_bytes:,} bytes, and {self._topic} takes {limit_bytes - overhead_bytes:,} "
            f"(its max.message.bytes is {limit_bytes:,}, {overhead_bytes} of them for what is around a record)"
        )
        try:
            MAX_MESSAGE_BYTES.parse(str(needed_bytes))
        except ConfigError:
            return f"{text}. No topic can be set to take it"
        command = f"replog configs set --topic {self._topic} max.message.bytes={needed_bytes}"
        return f"{text}. `{command}` lets it take this line"


class LineSource:
    """Whole lines as they come: a line that is there never waits for the next one.

    Args:
        source: The stream of the lines; its `read1` blocks while there is nothing, and gives what there is.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def next_lines(self) -> list[bytes]:
        """Reads the lines that are there, one at least; none at the end.  What is too long for a line counts as one."""
        while data := self._source.read1(READ_BYTES):  # type: ignore[attr-defined]  # io.BufferedReader and BytesIO have it
            end = data.rfind(b"\n") + 1
            if end:
                lines = b"".join([*self._rest, data[: end - 1]]).split(b"\n")
                self._keep(data[end:])
                return lines
            self._rest.append(data)
            self._rest_bytes += len(data)
            if self._rest_bytes > LINE_BYTES_MAX:
                break
        last = b"".join(self._rest)
        self._keep(b"")
        return [last] if last else []

    def _keep(self, rest: bytes) -> None:
        self._rest, self._rest_bytes = [rest] if rest else [], len(rest)


async def _in_thread(read: Callable[[], T]) -> T:
    """Runs a call that may block in a thread; unlike `asyncio.to_thread` nobody waits for it once it is not wanted."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(found: Callable[[], T]) -> None:
        if answer.done():
            return
        try:
            answer.set_result(found())
        except Exception as error:  # noqa: BLE001 -- whoever waits gets it
            answer.set_exception(error)

    def work() -> None:
        thread = Future[T]()
        try:
            thread.set_result(read())
        except Exception as error:  # noqa: BLE001 -- as above
            thread.set_exception(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, thread.result)

    threading.Thread(target=work, name="replog-lines", daemon=True).start()
    return await answer
