"""`replog consume`: records of a topic to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.client import ConsumerRecord

POLL_RECORDS_MAX = 5_000
TIMEOUT_S = 10.0


def consume(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=common.INT_MAX, help="Default: all.")
    ] = None,
    max_records: Annotated[int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N records.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="Print keys too, with this behind them.")
    ] = None,
    as_json: common.AsJson = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more; Ctrl-C ends it.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="End with status 1 when nothing comes for so long. Default: 10; with --follow never.",
        ),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Print records in order within each partition, up to what is committed now (or on and on with --follow).

    A partition without a leader is told on stderr, and read as soon as it has one; the others are read meanwhile.
    """
    bootstrap_servers = common.servers(bootstrap_servers, directory)
    _check_start(start)
    show = _as_json if as_json else _as_text(key_separator)
    patience_s = timeout if timeout is not None or follow else TIMEOUT_S
    work = _consume(bootstrap_servers, topic, start, partition, max_records, show, follow=follow, timeout_s=patience_s)
    common.run(work)


async def _consume(
    bootstrap_servers: str,
    topic: str,
    start: str,
    partition: int | None,
    max_records: int | None,
    show: Callable[[ConsumerRecord], bytes],
    *,
    follow: bool,
    timeout_s: float | None,
) -> None:
    from replog.cli.commands.topic_reader import TopicReader
    from replog.client import Consumer

    async with await common.admin_of(bootstrap_servers) as admin, Consumer(bootstrap_servers) as consumer:
        reader = TopicReader(consumer, admin, topic, partition, start, _say)
        await reader.begin()
        left = max_records if max_records is not None else sys.maxsize
        while left > 0 and (follow or reader.is_behind):
            records = await reader.poll(min(left, POLL_RECORDS_MAX), timeout_s)
            shown = [r for r in records if follow or r.offset < reader.end((r.topic, r.partition))]
            sys.stdout.buffer.write(b"".join(map(show, shown)))
            sys.stdout.buffer.flush()
            left -= len(shown)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _check_start(start: str) -> None:
    if start not in {"earliest", "latest"} and not (
        start.isascii() and start.isdigit() and int(start) <= common.OFFSET_MAX
    ):
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
