"""`replog transactions`: which there are, where they are, and ending those that nobody else ends."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import client_config, common
from replog.cli.errors import UsageError, tell

if TYPE_CHECKING:
    from replog.client import HangingTransaction
    from replog.spark.sink.once.settling import Ended

app = typer.Typer(
    help="List and describe transactions, find those that nobody ends, and abort them.", no_args_is_help=True
)

SHOWN = 1_000
"""Transactional ids that a list shows unless it is told otherwise."""


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, such as Ongoing or Empty.")
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", min=0, max=common.OFFSET_MAX, help="Only of this producer."),
    ] = None,
    open_for: Annotated[
        str | None, typer.Option("--open-for", metavar="TIME", help="Only open for longer, such as 90s or 1h30m.")
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="REGEX", help="Only where the whole transactional id matches.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=common.INT_MAX, help="Show so many at most.")
    ] = SHOWN,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """List the transactional ids with their states, one a line."""
    from replog.cli.views import transactions as view
    from replog.cli.views.group_reset import duration_ms

    open_ms = -1 if open_for is None else duration_ms(open_for, "--open-for")

    found = common.ask(
        bootstrap_servers,
        lambda admin: admin.list_transactions(
            states=state or (), producer_ids=producer_id or (), open_longer_than_ms=open_ms, pattern=pattern
        ),
    )
    lines = map(common.json_line, found[:limit]) if as_json else view.listed(found[:limit])
    if found:
        typer.echo("\n".join(lines))
    elif not as_json:
        is_part = state or producer_id or open_for or pattern
        typer.echo("no such transactions" if is_part else "no transactional ids: no producer has come with one")
    if len(found) > limit:
        tell(f"and {len(found) - limit:,} more: --max shows more, --state or --pattern fewer")


@app.command("describe")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show state, producer, coordinator, age and partitions of transactional ids."""
    from replog.cli.views import transactions as view

    for found in common.ask(
        bootstrap_servers, lambda admin: admin.describe_transactions(names), "asking the coordinators"
    ).values():
        now_ms = time.time_ns() // 1_000_000
        for line in [view.as_json(found)] if as_json else view.described(found, now_ms):
            typer.echo(line)


@app.command("find-hanging")
def find_hanging(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="Only in these topics; none for all.")
    ] = None,
    silent_for: Annotated[
        str,
        typer.Option("--silent-for", metavar="TIME", help="Longer than transaction.max.timeout.ms of the brokers."),
    ] = "15m",
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Find transactions that partitions have open and no coordinator knows of: readers wait before them for good."""
    from replog.cli.views import transactions as view
    from replog.cli.views.group_reset import duration_ms

    work = _find_hanging(bootstrap_servers, topics, duration_ms(silent_for, "--silent-for"))
    found = common.run(work)
    if as_json:
        for each in found:
            typer.echo(common.json_line(each))
        return
    if not found:
        typer.echo("no hanging transactions")
        return
    common.out_console().print(view.hanging_table(found))
    one = found[0]
    typer.echo(f"`{view.abort_command(one)}` ends the first")


async def _find_hanging(
    bootstrap_servers: str, topics: list[str] | None, silent_for_ms: int
) -> tuple[HangingTransaction, ...]:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the leaders of partitions"):
            partitions = None
            if topics:
                described = await admin.describe_topics(topics, visible_within_ms=0)
                partitions = [
                    (name, each.partition_id) for name, topic in described.items() for each in topic.partitions
                ]
            return await admin.find_hanging_transactions(partitions, silent_for_ms=silent_for_ms)


@app.command("abort")
def abort(
    name: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A transactional id, which is taken over: its producer cannot go on."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC-P", help="Instead: end a hanging transaction in this partition."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="N",
            min=0,
            max=common.OFFSET_MAX,
            help="With --partition: where the transaction begins, as find-hanging tells it.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="NAME",
            help="Instead: end what a Spark query that is gone has left open; its id, or app:, write: or save: and the name.",
        ),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Abort the transaction of a transactional id, end a hanging one in a partition, or what a Spark query has left open."""
    if [name, partition, query].count(None) != 2 or (partition is None) != (start_offset is None):
        raise UsageError(
            "ID",
            name,
            "name a transactional id, --query, or --partition and --start-offset of a transaction that hangs there",
        )
    if query is not None:
        _end_query(bootstrap_servers, query, as_json=as_json)
    elif name is not None:
        _abort_id(bootstrap_servers, name, as_json=as_json)
    elif partition is not None and start_offset is not None:
        _abort_hanging(bootstrap_servers, partition, start_offset, as_json=as_json)


def _end_query(bootstrap_servers: str, query: str, *, as_json: bool) -> None:
    from replog.cli.views import transactions as view
    from replog.spark.options.brokers import Brokers
    from replog.spark.sink.once.ledger import end_at_brokers
    from replog.spark.sink.once.names import attempts_pattern, driver_id, writer_named

    writer = writer_named(query)

    async def work() -> Ended:
        async with await common.admin_of(bootstrap_servers) as admin:
            with common.waiting("asking the brokers"):
                known = f"({attempts_pattern(writer)})|({re.escape(driver_id(writer))})"
                if not await admin.list_transactions(pattern=known):  # each broker has answered
                    raise UsageError(
                        "--query",
                        query,
                        f"no Spark job that is called {writer} has written here with exactlyOnce, or its names have expired. "
                        "`replog transactions list --state Ongoing` shows what is open: spark/NAME/...",
                    )
            with common.waiting("ending its transactions"):
                return await end_at_brokers(Brokers(bootstrap_servers, client_config.security()), writer)

    ended = common.run(work())
    for line in [view.ended_json(writer, ended)] if as_json else view.ended(writer, ended):
        typer.echo(line)


def _abort_id(bootstrap_servers: str, name: str, *, as_json: bool) -> None:
    from replog.cli.views import transactions as view
    from replog.spark.sink.once.names import writer_of

    writer = writer_of(name)
    if writer is not None:
        raise UsageError(
            "ID",
            name,
            "this one is a part of a write of Spark's that is there once, and may have been decided to be committed. "
            f"`replog transactions abort --query {writer}` commits what is decided, and aborts the rest",
        )

    found = common.ask(bootstrap_servers, lambda admin: admin.abort_transaction(name), "asking the coordinator")
    typer.echo(view.as_json(found) if as_json else view.aborted(found))


def _abort_hanging(bootstrap_servers: str, partition: str, start_offset: int, *, as_json: bool) -> None:
    from replog.cli.commands.partition import partition_name

    place = partition_name(partition)

    found = common.ask(
        bootstrap_servers,
        lambda admin: admin.abort_hanging_transaction(place, start_offset),
        "asking the leader of the partition",
    )
    if as_json:
        typer.echo(common.json_line(found))
        return
    typer.echo(
        f"the transaction of producer {found.producer_id} at offset {found.first_offset:,} of {partition} is aborted: readers go on"
    )
