"""`replog produce`: lines of text in, acknowledgements out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from replog.cli import client_config, common
from replog.cli.errors import CommandFailedError, UsageError, tell
from replog.cli.records.pace import Pace
from replog.cli.records.record_lines import LINE_BYTES_MAX, LineFormat, LineRecord, Lines, WrongLineError, lines_of
from replog.cli.terminal.standard_streams import ReaderGoneError
from replog.errors import (
    ConfigError,
    InvalidRecordError,
    RecordTooLargeError,
    ReplogError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from replog.client import Admin, Producer
    from replog.client.producer.batch import BulkDelivery

T = TypeVar("T")

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
    form: Annotated[
        LineFormat,
        typer.Option(
            "--format",
            help="What a line is: a value (text), key and value with a tab between them, a record as consume --format json "
            "prints it, or CSV whose first line names the cells: value, key, timestamp, partition, header.NAME.",
        ),
    ] = LineFormat.TEXT,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", min=0, max=common.INT_MAX, help="Of all. Default: as the line says; else by key, or spread."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, max=1e9, help="Records a second, at most. Default: no limit."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="URL", help="Values are JSON, and are written by the last schema of --subject there."
        ),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="A subject of the registry. Default: the topic's name, and -value.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have the records.")] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", help="How batches are compressed.")
    ] = Compression.NONE,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Write each line as a record, and print how many were acknowledged."""
    lines = _typed(lines_of(form, key_separator), registry, subject, topic)
    with contextlib.nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as source:
        common.run(_produce(bootstrap_servers, topic, source, lines, partition, rate, acks, compression))


def _typed(lines: Lines, registry: str | None, subject: str | None, topic: str) -> Lines:
    if registry is None:
        if subject is not None:
            raise UsageError("--subject", subject, "--subject is of a registry: give --registry, too")
        return lines
    from replog.cli.records.typed_values import TypedLines

    return TypedLines(lines, registry, subject or f"{topic}-value")


async def _produce(
    bootstrap_servers: str,
    topic: str,
    source: BinaryIO,
    lines: Lines,
    partition: int | None,
    rate: float | None,
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
        bootstrap_servers,
        security=client_config.security(),
        acks=setting,
        max_request_bytes=request_bytes_max,
        compression=compression.value,
    )
    async with making as producer:
        known = await producer.partitions_for(topic)
        if partition is not None and partition not in known:
            raise UnknownTopicOrPartitionError(f"{topic} has {common.counted(len(known), 'partition')}, from 0 on")
        pace = None if rate is None else Pace(rate, time.monotonic())
        sending = LineProducer(producer, topic, partition, lines, batch_bytes_max, known, pace)
        try:
            with common.waiting("producing") as say:
                from_source = LineSource(source)
                while chunk := await _in_thread(from_source.next_lines):
                    await sending.send(chunk)
                    say(f"{common.counted(sending.finished_count, 'record')} acknowledged")
                sending.finish()
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
        partition: The partition that all go to; None: as the line says, else by key, or spread.
        lines: What makes records of lines.
        batch_bytes_max: The bytes of a batch that the topic takes, `max.message.bytes`.
        known: The partitions of the topic.
        pace: What holds records up; None: nothing.

    Attributes:
        finished_count: Records that were acknowledged when the last ones were sent.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        lines: Lines,
        batch_bytes_max: int,
        known: Sequence[int],
        pace: Pace | None = None,
    ) -> None:
        from replog.client.arguments import headers_bytes_bound
        from replog.client.producer.producer import RECORD_BYTES_BOUND

        self._bare_bytes = RECORD_BYTES_BOUND
        self._headers_bytes = headers_bytes_bound
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._lines = lines
        self._batch_bytes_max = batch_bytes_max
        self._known = frozenset(known)
        self._pace = pace
        self._lines_count = 0
        self._begun_at = 1  # the first line of the record that is read
        self.finished_count = 0
        self._open: deque[BulkDelivery] = deque()

    @property
    def acknowledged_count(self) -> int:
        """Records that are acknowledged by now."""
        return self.finished_count + sum(delivery.acknowledged_count for delivery in self._open)

    async def send(self, lines: list[bytes]) -> None:
        """Sends lines in order.

        Raises:
            LineError: One of the lines cannot be sent; those before it are.
            ReplogError: Records cannot be sent at all.
        """
        while self._open and self._open[0].done():
            self.finished_count += self._open.popleft().acknowledged_count
        together: list[tuple[int, LineRecord]] = []  # with the numbers of their lines
        try:
            for line in lines:
                self._lines_count += 1
                record = self._record(line)
                if record is not None:
                    together.append((self._begun_at, record))
                if not self._lines.is_open:
                    self._begun_at = self._lines_count + 1
        except LineError:
            await self._send_all(together)
            raise
        await self._send_all(together)

    def finish(self) -> None:
        """Looks whether the last record is whole.

        Raises:
            LineError: It is not.
        """
        if self._lines.is_open:
            raise LineError(self._begun_at, "begins a quoted cell that does not end", is_usage=True)

    async def _send_all(self, records: Sequence[tuple[int, LineRecord]]) -> None:
        if self._pace is None:
            await self._send(records)
            return
        for start in range(0, len(records), self._pace.together_max):
            part = records[start : start + self._pace.together_max]
            await asyncio.sleep(self._pace.pause_s(len(part), time.monotonic()))
            await self._send(part)

    async def _send(self, records: Sequence[tuple[int, LineRecord]]) -> None:
        from replog.client.producer.bulk import Runs

        runs, send, topic, partition = Runs(), self._producer.send, self._topic, self._partition
        number = 0
        try:
            for number, record in records:  # noqa: B007 -- of which line it is
                wanted = record.partition if partition is None else partition
                runs.add_one(await send(topic, record.value, record.key, wanted, record.timestamp_ms, record.headers))
        except (InvalidRecordError, RecordTooLargeError, UnknownTopicOrPartitionError) as error:
            raise LineError(number, f"cannot be sent: {str(error).rstrip('.')}", is_usage=False) from error
        finally:
            self._open.append(runs.finish())  # also of a Ctrl-C: what was sent before it may be acknowledged

    def _record(self, line: bytes) -> LineRecord | None:
        try:
            record = self._lines.record(line)
        except WrongLineError as error:
            raise LineError(self._begun_at, str(error), is_usage=True) from None
        if record is None:
            return None
        overhead_bytes = self._bare_bytes + (self._headers_bytes(record.headers) if record.headers else 0)
        size_bytes = len(record.value or b"") + len(record.key or b"")
        if size_bytes + overhead_bytes > self._batch_bytes_max:
            raise LineError(self._begun_at, self._too_long(size_bytes, overhead_bytes), is_usage=False)
        if self._partition is None and record.partition is not None and record.partition not in self._known:
            many = common.counted(len(self._known), "partition")
            reason = (
                f"names partition {record.partition}, and {self._topic} has {many}, from 0 on. Give --partition, "
                f"take the field out, or add partitions with `replog topics alter {self._topic} --partitions N`"
            )
            raise LineError(self._begun_at, reason, is_usage=True)
        return record

    def _too_long(self, record_bytes: int, overhead_bytes: int) -> str:
        from replog.metadata.config_keys import MAX_MESSAGE_BYTES

        limit_bytes, needed_bytes = self._batch_bytes_max, record_bytes + overhead_bytes
        text = (
            f"is too long: {record_bytes:,} bytes, and {self._topic} takes {limit_bytes - overhead_bytes:,} "
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
