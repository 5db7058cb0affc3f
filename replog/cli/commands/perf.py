"""`replog perf`: how many records a second a cluster takes and gives, and how long they take; ours, or Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replog.cli import client_config, common
from replog.cli.commands.produce import INTERRUPTED_FLUSH_S, Acks
from replog.cli.errors import FAILED, tell
from replog.cli.perf.load import STAMP_BYTES, Figures, LoadLimits, LoadSender, Stamps, read, receive
from replog.cli.terminal.grid import Grid
from replog.waiting.task_ends import end_tasks

if TYPE_CHECKING:
    from replog.client.consumer.positions import Place

SHOW_S = 1.0
"""Between two lines of live figures."""

SECONDS = 10.0
"""How long a load goes on where nothing says it."""

SILENT_S = 10.0
"""How long nothing may come to a reader."""

app = typer.Typer(no_args_is_help=True, help="Measure a cluster by a load: ours, or Kafka.", rich_markup_mode=None)

Records = Annotated[int | None, typer.Option("--records", min=1, max=10**15, help="End after so many.")]
Seconds = Annotated[float | None, typer.Option("--seconds", min=0.1, max=1e6, help="End after so long.")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", min=0.001, max=1e9, help="Records a second, at most.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]
Topic = Annotated[str, typer.Argument(help="Must exist; make one for it: records are written into it, and stay.")]


@app.command()
def produce(
    topic: Topic,
    records: Records = None,
    seconds: Seconds = None,
    rate: Rate = None,
    record_bytes: Annotated[
        int, typer.Option("--record-bytes", min=1, max=common.INT_MAX, help="Of each value: random bytes.")
    ] = 1_000,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have the records.")] = Acks.ALL,
    linger_ms: Annotated[
        float, typer.Option("--linger-ms", min=0, max=60_000, help="How long a batch waits for more.")
    ] = 0,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Write records, and say how many a second were acknowledged, and after how long; status 1 if any failed.

    Without --records and --seconds for ten seconds.  A latency counts from before a record is handed to the producer, which waits
    where its memory is full: give --rate to see it below the limit.
    """
    limits = _limits(records, seconds)
    figures = Figures("acknowledged after")
    work = _produce(bootstrap_servers, topic, limits, rate, record_bytes, acks, linger_ms, figures)
    _run(work, figures, as_json=as_json)


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="What is in it is read, and nothing is committed.")],
    records: Records = None,
    seconds: Seconds = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="earliest, latest, an offset, or a time: see `replog consume`."),
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Read records, decoded as a program gets them, up to what is committed now, and say how many a second came.

    A latency is that of one poll for up to 10,000 records that gave some.
    """
    figures = Figures("poll took")
    work = _consume(
        bootstrap_servers,
        topic,
        common.place(start, "--from"),
        LoadLimits(records, seconds),
        figures,
        follow,
    )
    _run(work, figures, as_json=as_json)


@app.command()
def e2e(
    topic: Topic,
    records: Records = None,
    seconds: Seconds = None,
    rate: Annotated[float, typer.Option("--rate", metavar="N", min=0.001, max=1e9, help="Records a second.")] = 100,
    record_bytes: Annotated[
        int, typer.Option("--record-bytes", min=STAMP_BYTES, max=common.INT_MAX, help="Of each value.")
    ] = 100,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Write records and read them back, and say how long each took from the producer to the consumer; status 1 if any is missing.

    Both are in this process, by one clock.  Without --records and --seconds for ten seconds.
    """
    figures = Figures("received after")
    work = _e2e(bootstrap_servers, topic, _limits(records, seconds), rate, record_bytes, figures)
    _run(work, figures, as_json=as_json)


def _limits(records: int | None, seconds: float | None) -> LoadLimits:
    return LoadLimits(records, SECONDS if records is None and seconds is None else seconds)


def _run(work: Any, figures: Figures, *, as_json: bool) -> None:
    """Runs a load, and prints what it has come to, also at Ctrl-C."""
    try:
        common.run(work)
    finally:
        if figures.is_begun:
            figures.end()
            if as_json:
                typer.echo(common.json_object(figures.values()))
            else:
                common.out_console().print(Grid(["figure", ">value"], figures.rows()))
    if figures.errors:
        tell(f"error: {common.counted(figures.errors.total(), 'record')} failed")
        raise typer.Exit(FAILED)


@contextlib.asynccontextmanager
async def _shown(figures: Figures, text: str) -> AsyncIterator[None]:
    """Begins the figures, and shows them each second while a block runs, where stderr is a terminal."""

    async def show() -> None:
        while True:
            await asyncio.sleep(SHOW_S)
            say(figures.live())

    figures.begin()
    with common.waiting(text) as say:
        showing = asyncio.create_task(show())
        try:
            yield
        finally:
            figures.end()
            await end_tasks(showing)


async def _produce(
    servers: str,
    topic: str,
    limits: LoadLimits,
    rate: float | None,
    record_bytes: int,
    acks: Acks,
    linger_ms: float,
    figures: Figures,
) -> None:
    from replog.client import Producer
    from replog.client.producer.producer import DEFAULTS

    async with await common.admin_of(servers) as admin:
        await admin.describe_topics([topic])
    setting: Any = "all" if acks is Acks.ALL else int(acks.value)  # 0 or 1
    request_bytes_max = max(DEFAULTS.max_request_bytes, 2 * record_bytes)
    async with Producer(
        servers,
        security=client_config.security(),
        acks=setting,
        linger_ms=linger_ms,
        max_request_bytes=request_bytes_max,
    ) as producer:
        value = os.urandom(record_bytes)
        await producer.partitions_for(topic)
        async with _shown(figures, f"writing to {topic}"):
            sender = LoadSender(producer, topic, lambda: value, record_bytes, figures, limits, rate)
            await _settled(sender)


async def _settled(sender: LoadSender) -> None:
    """Runs a sender; at Ctrl-C it waits a moment for acknowledgements."""
    try:
        await sender.run()
    except asyncio.CancelledError:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERRUPTED_FLUSH_S):
                await sender.settle()
        raise


async def _consume(servers: str, topic: str, start: Place, limits: LoadLimits, figures: Figures, follow: bool) -> None:
    from replog.cli.records.topic_reader import TopicReader
    from replog.client import Consumer

    async with (
        await common.admin_of(servers) as admin,
        Consumer(servers, security=client_config.security()) as consumer,
    ):
        reader = TopicReader(consumer, admin, topic, None, start, tell)
        await reader.begin()
        async with _shown(figures, f"reading {topic}"):
            await read(reader, figures, limits, follow=follow, timeout_s=None if follow else SILENT_S)


async def _e2e(servers: str, topic: str, limits: LoadLimits, rate: float, record_bytes: int, figures: Figures) -> None:
    from replog.client import Consumer, Producer

    async with await common.admin_of(servers) as admin:
        await admin.describe_topics([topic])
    stamps = Stamps(record_bytes)
    async with (
        Producer(servers, security=client_config.security()) as producer,
        Consumer(servers, security=client_config.security()) as consumer,
    ):
        await consumer.assign_topic(topic, start="latest")
        async with _shown(figures, f"writing to {topic}, and reading it"):
            sent = Figures("acknowledged after")
            sent.begin()
            sender = LoadSender(producer, topic, stamps.make, record_bytes, sent, limits, rate)
            sending = asyncio.create_task(sender.run())
            try:
                await receive(consumer, stamps, sending, sent, figures, SILENT_S)
            finally:
                await end_tasks(sending)
