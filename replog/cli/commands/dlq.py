"""`replog dlq`: dead letters of workers, looked at and sent back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import client_config, common
from replog.cli.errors import CommandFailedError, tell

if TYPE_CHECKING:
    from replog.client import ConsumerRecord
    from replog.worker import DeadLetter

app = typer.Typer(help="Look at records that workers have given up, and send them back.", no_args_is_help=True)

NO_LETTER = "no dead letter of a worker"

TIMEOUT_S = 10.0
"""How long a partition may give nothing."""

POLL_RECORDS = 1_000

Topic = Annotated[str, typer.Argument(help="The topic of dead letters.")]
Max = Annotated[int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N dead letters.")]


@app.command("list")
def list_reasons(
    topic: Topic,
    as_json: common.AsJson = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Count the dead letters by the topic and group that they came from, and their error."""
    common.run(_list(bootstrap_servers, topic, as_json))


@app.command()
def show(
    topic: Topic,
    max_records: Max = None,
    as_json: common.AsJson = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Print each dead letter: where it came from, why, its key and value."""
    common.run(_show(bootstrap_servers, topic, max_records, as_json))


@app.command()
def replay(
    topic: Topic,
    max_records: Max = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Write dead letters back to the topics that they came from, each once.

    The keys decide the partitions anew. What was acknowledged is committed in the group replog-dlq-replay.
    """
    common.run(_replay(bootstrap_servers, topic, max_records, dry_run))


async def _list(bootstrap_servers: str, topic: str, as_json: bool) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    read_count = 0
    with common.waiting(f"reading {topic}") as say:
        async with aclosing(_letters(bootstrap_servers, topic)) as letters:
            async for _, letter in letters:
                counts[(letter.topic, letter.group, letter.error) if letter is not None else ("", "", NO_LETTER)] += 1
                read_count += 1
                if read_count % POLL_RECORDS == 0:
                    say(f"{common.counted(read_count, 'record')} of {topic} read")
    for (origin, group, error), count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if as_json:
            typer.echo(common.json_object({"topic": origin, "group": group, "error": error, "count": count}))
        else:
            where = f"{origin} (group {group})  " if origin else ""
            typer.echo(f"{count:>8,}  {where}{error}")
    if not counts and not as_json:
        typer.echo(f"{topic} has no dead letters")


async def _show(bootstrap_servers: str, topic: str, max_records: int | None, as_json: bool) -> None:
    from msgspec.structs import asdict

    count = 0
    async with aclosing(_letters(bootstrap_servers, topic)) as letters:
        async for record, letter in letters:
            if as_json:
                shown = {"partition": record.partition, "offset": record.offset}
                content = {"key": common.shown_bytes(record.key), "value": common.shown_bytes(record.value)}
                typer.echo(common.json_object(shown | {"origin": letter and asdict(letter)} | content))
            else:
                typer.echo(f"{record.partition}/{record.offset}  {_described(letter)}")
                typer.echo(f"    key {_text(record.key)}  value {_text(record.value)}")
            count += 1
            if count == max_records:
                return


async def _replay(bootstrap_servers: str, topic: str, max_records: int | None, dry_run: bool) -> None:
    from replog.worker.replaying import replay as send_back

    await common.require_listener(bootstrap_servers)
    with common.waiting(f"reading {topic}") as say:
        done = await send_back(
            bootstrap_servers,
            topic,
            security=client_config.security(),
            max_records=max_records,
            dry_run=dry_run,
            say=lambda count: say(f"{common.counted(count, 'record')} of {topic} read"),
        )
    verb = "would be written" if dry_run else "written"
    for origin, count in sorted(done.sent.items()):
        typer.echo(f"{common.counted(count, 'record')} {verb} to {origin}")
    if not done.sent and not done.silence:
        typer.echo(f"{topic} has no dead letters that were not replayed before")
    if done.strange_count:
        typer.echo(f"{common.counted(done.strange_count, 'record')} passed over: no worker wrote them", err=True)
    if done.silence:
        raise CommandFailedError(done.silence)


async def _letters(bootstrap_servers: str, topic: str) -> AsyncGenerator[tuple[ConsumerRecord, DeadLetter | None]]:
    """Yields the records of a topic, up to what is committed now, each with what its headers say.

    Raises:
        CommandFailedError: A partition gives nothing for `TIMEOUT_S`; the text says what is waited for.
    """
    from replog.cli.records.topic_reader import TopicReader
    from replog.client import Consumer

    async with (
        await common.admin_of(bootstrap_servers) as admin,
        Consumer(bootstrap_servers, security=client_config.security()) as consumer,
    ):
        reader = TopicReader(consumer, admin, topic, None, common.place("earliest", "--from"), tell)
        await reader.begin()
        while reader.is_behind:
            for record in await reader.poll(POLL_RECORDS, TIMEOUT_S):
                if record.offset < reader.end((record.topic, record.partition)):
                    yield record, _letter_of(record)


def _letter_of(record: ConsumerRecord) -> DeadLetter | None:
    from replog.worker import DeadLetter

    return DeadLetter.from_headers(record.headers)


def _described(letter: DeadLetter | None) -> str:
    if letter is None:
        return NO_LETTER
    time = datetime.fromtimestamp(letter.timestamp / 1_000, UTC).isoformat(timespec="seconds")
    attempts = common.counted(letter.attempts, "attempt")
    return f"{letter.topic}-{letter.partition} offset {letter.offset} of {time}, group {letter.group}, {attempts}: {letter.error}"


def _text(data: bytes | None) -> str:
    return json.dumps(common.shown_bytes(data), ensure_ascii=False)
