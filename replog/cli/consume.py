"""`replog consume`: records of a topic to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError
from replog.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from replog.client import Consumer, ConsumerRecord, TopicPartition

POLL_RECORDS_MAX = 5_000


def consume(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option("--partition", help="Default: all.")] = None,
    max_records: Annotated[int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N records.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="Print keys too, with this behind them.")
    ] = None,
    as_json: common.AsJson = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more; Ctrl-C ends it.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Print records in order within each partition, up to what is committed now (or on and on with --follow)."""
    _check_start(start)
    show = _as_json if as_json else _as_text(key_separator)
    common.run(_consume(bootstrap_servers, topic, start, partition, max_records, show, follow=follow))


async def _consume(
    bootstrap_servers: str,
    topic: str,
    start: str,
    partition: int | None,
    max_records: int | None,
    show: Callable[[ConsumerRecord], bytes],
    *,
    follow: bool,
) -> None:
    from replog.client import Consumer

    await common.require_listener(bootstrap_servers)
    async with Consumer(bootstrap_servers) as consumer:
        ends = await _assign(consumer, topic, start, partition)
        left = max_records if max_records is not None else sys.maxsize
        while left > 0 and (follow or _is_behind(consumer, ends)):
            records = await consumer.poll(max_records=min(left, POLL_RECORDS_MAX))
            shown = [r for r in records if follow or r.offset < ends[r.topic, r.partition]]  # type: ignore[index]
            sys.stdout.buffer.write(b"".join(map(show, shown)))
            sys.stdout.buffer.flush()
            left -= len(shown)


async def _assign(consumer: Consumer, topic: str, start: str, partition: int | None) -> dict[TopicPartition, int]:
    """Assigns the partitions; returns their end offsets of now."""
    from replog.client import TopicPartition

    if partition is not None:
        await consumer.assign([(topic, partition)])
    else:
        await consumer.assign_topic(topic)
    partitions = [TopicPartition(*each) for each in consumer.assignment()]
    ends = await consumer.end_offsets(partitions)
    for each in partitions:
        if start == "latest":
            consumer.seek(each, ends[each])
        elif start != "earliest":
            _seek(consumer, each, int(start), ends[each], is_only=len(partitions) == 1)
    return ends


def _seek(consumer: Consumer, partition: TopicPartition, offset: int, end: int, *, is_only: bool) -> None:
    """Of several partitions, those that end before the offset have nothing to show; of one, that is a mistake."""
    if is_only and offset > end:
        raise OffsetOutOfRangeError(f"{partition} ends at offset {end}; there is no offset {offset} yet", -1, end)
    consumer.seek(partition, offset if is_only else min(offset, end))


def _is_behind(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return any(consumer.position(partition) < end for partition, end in ends.items())


def _check_start(start: str) -> None:
    if start not in {"earliest", "latest"} and not (start.isascii() and start.isdigit()):
        raise UsageError("--from", start, f'--from "{start}" is not earliest, latest or an offset')


def _as_text(key_separator: str | None) -> Callable[[ConsumerRecord], bytes]:
    separator = (key_separator or "").encode()

    def show(record: ConsumerRecord) -> bytes:
        key = b"" if key_separator is None else (record.key or b"") + separator
        return key + (record.value or b"") + b"\n"

    return show


def _as_json(record: ConsumerRecord) -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": common.shown_bytes(record.key),
        "value": common.shown_bytes(record.value),
        "headers": [[name, common.shown_bytes(data)] for name, data in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
