"""`replog consume`: records of a topic to stdout."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import client_config, common
from replog.cli.errors import UsageError, tell
from replog.cli.records.record_lines import Show, show_of
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.client import Consumer, ConsumerRecord
    from replog.client.consumer.partition_reader import OffsetReset
    from replog.client.consumer.positions import Place

POLL_RECORDS_MAX = 5_000
TIMEOUT_S = 10.0
LAST_PRINT_S = 0.3
"""How long Ctrl-C waits for output that is under way, which is committed then; a part of `interrupts.GRACE_S`."""


def consume(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where to begin: earliest, latest, an offset, latest-100, -10m (a time ago), 2026-01-31T13:00:00Z.",
        ),
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="PLACE", help="Print what is before that place. Default: what is there now."),
    ] = None,
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
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="value (the default), key-value, json, or a template: '%k %v', with %t %p %o %T for topic, partition, "
            "offset and timestamp.",
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="TEXT", help="Only records whose key or value has this text in it.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="URL", help="Print values as JSON, by their schemas in the registry there."),
    ] = None,
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
    _directory: common.OrDirectory = None,
) -> None:
    """Print records in order within each partition, up to what is committed now (or on and on with --follow).

    A partition without a leader is told on stderr, and read as soon as it has one; the others are read meanwhile.
    With --group, --from counts where the group has committed nothing.
    """
    chosen = Chosen(_typed(show_of(form, key_separator, as_json=as_json), registry), grep)
    begins = common.place(start, "--from")
    ends = None if until is None else common.place(until, "--until")
    if follow and until is not None:
        raise UsageError("--until", until, "--until and --follow: give one of them")
    patience_s = timeout if timeout is not None or follow else TIMEOUT_S
    if group is not None:
        _check_member(start, until, partition)
        work = _consume_as_member(bootstrap_servers, topic, group, start, max_records, chosen, follow, patience_s)
    else:
        work = _consume(bootstrap_servers, topic, (begins, ends), partition, max_records, chosen, follow, patience_s)
    common.run(work)


async def _consume(
    bootstrap_servers: str,
    topic: str,
    places: tuple[Place, Place | None],
    partition: int | None,
    max_records: int | None,
    chosen: Chosen,
    follow: bool,
    timeout_s: float | None,
) -> None:
    from replog.cli.records.topic_reader import TopicReader
    from replog.client import Consumer

    async with (
        await common.admin_of(bootstrap_servers) as admin,
        Consumer(bootstrap_servers, security=client_config.security()) as consumer,
    ):
        reader = TopicReader(consumer, admin, topic, partition, places[0], tell, places[1])
        await reader.begin()
        left = max_records if max_records is not None else sys.maxsize
        read_count = 0
        with _counting(topic) as say:
            while left > 0 and (follow or reader.is_behind):
                records = await reader.poll(min(left, POLL_RECORDS_MAX), timeout_s)
                shown = [r for r in records if follow or r.offset < reader.end((r.topic, r.partition))]
                left -= chosen.print(shown)
                read_count += len(shown)
                say(f"{common.counted(read_count, 'record')} of {topic} read")


async def _consume_as_member(
    bootstrap_servers: str,
    topic: str,
    group: str,
    start: str,
    max_records: int | None,
    chosen: Chosen,
    follow: bool,
    timeout_s: float | None,
) -> None:
    """Reads what the group gives to this member.  What is printed is committed, at the latest at the end."""
    from replog.cli.records.member_reader import MemberReader
    from replog.client import Consumer

    reset: OffsetReset = "latest" if start == "latest" else "earliest"
    client_id = f"replog-consume-{uuid.uuid4()}"
    async with (
        await common.admin_of(bootstrap_servers) as admin,
        Consumer(
            bootstrap_servers,
            security=client_config.security(),
            group_id=group,
            auto_offset_reset=reset,
            client_id=client_id,
        ) as consumer,
    ):
        reader = MemberReader(consumer, admin, topic, group, client_id, tell)
        await reader.begin()
        left = max_records if max_records is not None else sys.maxsize
        printing: asyncio.Future[int] | None = None
        try:
            while left > 0 and (follow or await reader.is_behind()):
                records = await reader.poll(min(left, POLL_RECORDS_MAX), timeout_s)
                printing = asyncio.ensure_future(asyncio.to_thread(chosen.print, records))
                left -= await asyncio.shield(printing)  # in a thread: a pager that waits must not hold up heartbeats
        except asyncio.CancelledError:  # Ctrl-C
            if printing is not None:
                await _commit_printed(consumer, printing)
            raise
        await consumer.commit()


async def _commit_printed(consumer: Consumer, printing: asyncio.Future[int]) -> None:
    """Commits what is printed when Ctrl-C comes, if all of it was taken; output under way is waited for a moment only."""
    await asyncio.wait([printing], timeout=LAST_PRINT_S)
    if not printing.done() or printing.exception() is not None:
        return
    try:
        await consumer.commit()
    except ReplogError as error:  # told, and the command ends as by any Ctrl-C
        tell(f"what was printed since the last commit will be printed again: {error}")


class Chosen:
    """Prints the records that are asked for.

    Args:
        show: What makes a line of a record.
        text: The text that is in the key or value of each that is printed; None: any.
    """

    def __init__(self, show: Show, text: str | None) -> None:
        self._show = show
        self._text = None if text is None else os.fsencode(text)  # an argument may be bytes of any kind

    def print(self, records: Sequence[ConsumerRecord]) -> int:
        """Prints those of the records that have the text, and returns how many these are."""
        lines: list[bytes] = []
        try:
            lines.extend(self._show(record) for record in records if self._has_text(record))
        finally:  # those before one that cannot be shown
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        return len(lines)

    def _has_text(self, record: ConsumerRecord) -> bool:
        return self._text is None or self._text in (record.key or b"") or self._text in (record.value or b"")


def _typed(show: Show, registry: str | None) -> Show:
    if registry is None:
        return show
    from replog.cli.records.typed_values import typed_show

    return typed_show(show, registry)


def _counting(topic: str) -> AbstractContextManager[Callable[[str], None]]:
    """Shows progress where records go into a file: beside records, or a pager that shows them, it would stand in them."""
    try:
        is_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # no descriptor: in this process something else stands for stdout
        is_file = False
    return common.waiting(f"reading {topic}") if is_file else nullcontext(lambda _: None)


def _check_member(start: str, until: str | None, partition: int | None) -> None:
    if partition is not None:
        raise UsageError("--partition", partition, "--partition: the group decides who reads which; leave it out")
    if until is not None:
        raise UsageError(
            "--until", until, "--until: a group reads on from where it is; leave it out, or leave out --group"
        )
    if start not in {"earliest", "latest"}:
        reason = f"--from {start}: a group has one offset in each partition; see `replog groups reset`"
        raise UsageError("--from", start, reason)
