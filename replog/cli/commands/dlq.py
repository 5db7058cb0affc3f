"""`replog dlq`: dead letters of workers, looked at and sent back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.errors import CommandFailedError, tell

if TYPE_CHECKING:
    from replog.client import ConsumerRecord, TopicPartition
    from replog.worker import DeadLetter

app = typer.Typer(help="Look at records that workers have given up, and send them back.", no_args_is_help=True)

REPLAY_GROUP = "replog-dlq-replay"
"""Keeps, for each topic of dead letters, up to where they have been sent back."""

NO_LETTER = "no dead letter of a worker"

TIMEOUT_S = 10.0
"""How long a partition may give nothing."""

GROUP_TIMEOUT_S = 60.0
"""How long another member of the group may have all partitions: a little more than the session of one that was killed."""

POLL_RECORDS = 1_000
POLL_MS = 300

Topic = Annotated[str, typer.Argument(help="The topic of dead letters.")]
Max = Annotated[int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N dead letters.")]


@app.command("list")
def list_reasons(
    topic: Topic,
    as_json: common.AsJson = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Count the dead letters by the topic and group that they came from, and their error."""
    common.run(_list(common.servers(bootstrap_servers, directory), topic, as_json))


@app.command()
def show(
    topic: Topic,
    max_records: Max = None,
    as_json: common.AsJson = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Print each dead letter: where it came from, why, its key and value."""
    common.run(_show(common.servers(bootstrap_servers, directory), topic, max_records, as_json))


@app.command()
def replay(
    topic: Topic,
    max_records: Max = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Write dead letters back to the topics that they came from, each once.

    The keys decide the partitions anew. What was acknowledged is committed in the group replog-dlq-replay.
    """
    common.run(_replay(common.servers(bootstrap_servers, directory), topic, max_records, dry_run))


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
    from replog.client import Consumer, Producer
    from replog.worker.dead_letters import own_headers

    sent: Counter[str] = Counter()
    strange_count, silence = 0, ""
    await common.require_listener(bootstrap_servers)
    settings = {"group_id": REPLAY_GROUP, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with Consumer(bootstrap_servers, **settings) as consumer, Producer(bootstrap_servers) as producer:  # type: ignore[arg-type]
        await consumer.subscribe([topic])
        ends: dict[TopicPartition, int] = {}
        progress_s = time.monotonic()
        with common.waiting(f"reading {topic}") as say:
            while max_records is None or sent.total() < max_records:
                left = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - sent.total())
                records = await consumer.poll(left, POLL_MS)
                done: dict[tuple[str, int], int] = {}
                for record in records:
                    letter = _letter_of(record)
                    if letter is None:
                        strange_count += 1
                    else:
                        if not dry_run:
                            await producer.send(
                                letter.topic, record.value, record.key, headers=own_headers(record.headers)
                            )
                        sent[letter.topic] += 1
                    done[record.topic, record.partition] = record.offset + 1
                if done and not dry_run:
                    await producer.flush()
                    await consumer.commit(done)
                say(f"{common.counted(sent.total(), 'record')} of {topic} read")
                if records:
                    progress_s = time.monotonic()
                    continue
                assigned = consumer.assignment()
                ends = ends or (await consumer.end_offsets(assigned) if assigned else {})
                unread = [each for each in assigned if consumer.position(each) < ends.get(each, 0)]
                silence = _silence(topic, assigned, unread, time.monotonic() - progress_s)
                if silence or (assigned and not unread):
                    break
    verb = "would be written" if dry_run else "written"
    for origin, count in sorted(sent.items()):
        typer.echo(f"{common.counted(count, 'record')} {verb} to {origin}")
    if not sent and not silence:
        typer.echo(f"{topic} has no dead letters that were not replayed before")
    if strange_count:
        typer.echo(f"{common.counted(strange_count, 'record')} passed over: no worker wrote them", err=True)
    if silence:
        raise CommandFailedError(silence)


def _silence(
    topic: str, assigned: Collection[TopicPartition], unread: Collection[TopicPartition], silent_s: float
) -> str:
    """Returns why dead letters are waited for no longer; "" where they are.

    Args:
        topic: The topic of dead letters.
        assigned: The partitions that this member of the group reads.
        unread: Those of them that are not read up to their end.
        silent_s: The seconds since the last record.
    """
    if not assigned and silent_s > GROUP_TIMEOUT_S:
        return (
            f"another member of group {REPLAY_GROUP} has had all partitions of {topic} for {silent_s:.0f} s: "
            "another 'replog dlq replay' may be running; end it, or wait for it"
        )
    if unread and silent_s > TIMEOUT_S:
        names = ", ".join(sorted(map(str, unread))[:3]) + (" and others" if len(unread) > 3 else "")
        return (
            f"no dead letter of {names} came for {silent_s:.0f} s, and there are some: "
            f"see 'replog topics describe {topic}' for a partition without a leader, then replay again"
        )
    return ""


async def _letters(bootstrap_servers: str, topic: str) -> AsyncGenerator[tuple[ConsumerRecord, DeadLetter | None]]:
    """Yields the records of a topic, up to what is committed now, each with what its headers say.

    Raises:
        CommandFailedError: A partition gives nothing for `TIMEOUT_S`; the text says what is waited for.
    """
    from replog.cli.records.topic_reader import TopicReader
    from replog.client import Consumer

    async with await common.admin_of(bootstrap_servers) as admin, Consumer(bootstrap_servers) as consumer:
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
