"""`replog consume`: records of a topic to stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError, tell
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.client import Consumer, ConsumerRecord
    from replog.client.consumer.partition_reader import OffsetReset

POLL_RECORDS_MAX = 5_000
TIMEOUT_S = 10.0
LAST_PRINT_S = 0.3
"""How long Ctrl-C waits for output that is under way, which is committed then; a part of `interrupts.GRACE_S`."""


def consume(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=common.INT_MAX, help="Default: all.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Share the topic with the other members, go on where the group was, and commit what is printed.",
        ),
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
    With --group, --from counts where the group has committed nothing.
    """
    bootstrap_servers = common.servers(bootstrap_servers, directory)
    _check_start(start)
    show = _as_json if as_json else _as_text(key_separator)
    patience_s = timeout if timeout is not None or follow else TIMEOUT_S
    if group is not None:
        _check_member(start, partition)
        work = _consume_as_member(bootstrap_servers, topic, group, start, max_records, show, follow, patience_s)
    else:
        work = _consume(bootstrap_servers, topic, start, partition, max_records, show, follow, patience_s)
    common.run(work)


async def _consume(
    bootstrap_servers: str,
    topic: str,
    start: str,
    partition: int | None,
    max_records: int | None,
    show: Callable[[ConsumerRecord], bytes],
    follow: bool,
    timeout_s: float | None,
) -> None:
    from replog.cli.commands.topic_reader import TopicReader
    from replog.client import Consumer

    async with await common.admin_of(bootstrap_servers) as admin, Consumer(bootstrap_servers) as consumer:
        reader = TopicReader(consumer, admin, topic, partition, start, tell)
        await reader.begin()
        left = max_records if max_records is not None else sys.maxsize
        while left > 0 and (follow or reader.is_behind):
            records = await reader.poll(min(left, POLL_RECORDS_MAX), timeout_s)
            shown = [r for r in records if follow or r.offset < reader.end((r.topic, r.partition))]
            _print(shown, show)
            left -= len(shown)


async def _consume_as_member(
    bootstrap_servers: str,
    topic: str,
    group: str,
    start: str,
    max_records: int | None,
    show: Callable[[ConsumerRecord], bytes],
    follow: bool,
    timeout_s: float | None,
) -> None:
    """Reads what the group gives to this member.  What is printed is committed, at the latest at the end."""
    from replog.cli.commands.member_reader import MemberReader
    from replog.client import Consumer

    reset: OffsetReset = "latest" if start == "latest" else "earliest"
    client_id = f"replog-consume-{uuid.uuid4()}"
    async with (
        await common.admin_of(bootstrap_servers) as admin,
        Consumer(bootstrap_servers, group_id=group, auto_offset_reset=reset, client_id=client_id) as consumer,
    ):
        reader = MemberReader(consumer, admin, topic, group, client_id, tell)
        await reader.begin()
        left = max_records if max_records is not None else sys.maxsize
        printing: asyncio.Future[None] | None = None
        try:
            while left > 0 and (follow or await reader.is_behind()):
                records = await reader.poll(min(left, POLL_RECORDS_MAX), timeout_s)
                printing = asyncio.ensure_future(asyncio.to_thread(_print, records, show))
                await asyncio.shield(printing)  # in a thread: a pager that waits must not hold up heartbeats
                left -= len(records)
        except asyncio.CancelledError:  # Ctrl-C
            if printing is not None:
                await _commit_printed(consumer, printing)
            raise
        await consumer.commit()


async def _commit_printed(consumer: Consumer, printing: asyncio.Future[None]) -> None:
    """Commits what is printed when Ctrl-C comes, if all of it was taken; output under way is waited for a moment only."""
    await asyncio.wait([printing], timeout=LAST_PRINT_S)
    if not printing.done() or printing.exception() is not None:
        return
    try:
        await consumer.commit()
    except ReplogError as error:  # told, and the command ends as by any Ctrl-C
        tell(f"what was printed since the last commit will be printed again: {error}")


def _print(records: Sequence[ConsumerRecord], show: Callable[[ConsumerRecord], bytes]) -> None:
    sys.stdout.buffer.write(b"".join(map(show, records)))
    sys.stdout.buffer.flush()


def _check_start(start: str) -> None:
    if start not in {"earliest", "latest"} and not (
        start.isascii() and start.isdigit() and int(start) <= common.OFFSET_MAX
    ):
        raise UsageError("--from", start, f'--from "{start}" is not earliest, latest or an offset')


def _check_member(start: str, partition: int | None) -> None:
    if partition is not None:
        raise UsageError("--partition", partition, "--partition: the group decides who reads which; leave it out")
    if start not in {"earliest", "latest"}:
        reason = f"--from {start}: a group has one offset in each partition; see `replog groups reset`"
        raise UsageError("--from", start, reason)


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
