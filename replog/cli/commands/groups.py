"""`replog groups`: who reads in groups, how far they are, and putting their offsets somewhere else."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from msgspec.structs import asdict

from replog.cli import common
from replog.cli.errors import FAILED, UsageError, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from replog.cli.views.group_reset import OffsetChange, Target
    from replog.client import Admin, PartitionLag, TopicPartition
    from replog.errors import ReplogError

app = typer.Typer(help="List and describe consumer groups, see how far they are, and change it.", no_args_is_help=True)
offsets_app = typer.Typer(help="Committed offsets of a group.", no_args_is_help=True)
app.add_typer(offsets_app, name="offsets")

INTERVAL_S = 2.0

Lags: TypeAlias = "dict[str, tuple[PartitionLag, ...]]"
"""How far groups have come, by their names."""

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, such as Stable or Empty.")
    ] = None,
    group_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only of this protocol: consumer or classic.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """List the groups with their states, one a line."""
    from replog.cli.views import groups as view

    async def work() -> None:
        async with await common.admin_of(bootstrap_servers) as admin:
            with common.waiting("asking the brokers"):
                found = await admin.list_groups(states=state or (), types=group_type or ())
        lines = map(common.json_line, found) if as_json else view.listed(found)
        if found:
            typer.echo("\n".join(lines))
        elif not as_json:
            typer.echo("no such groups" if state or group_type else "no groups yet: one begins when somebody joins it")

    common.run(work())


@app.command("describe")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The names of groups.")],
    members: Annotated[bool, typer.Option("--members", help="Show the members, and what each reads.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the state, the coordinator and the epochs of groups.  With --json always the members, too."""
    from replog.cli.views import groups as view

    console = common.out_console()
    for group in common.ask(
        bootstrap_servers, lambda admin: admin.describe_groups(names), "asking the coordinators"
    ).values():
        if as_json:
            typer.echo(common.json_line(group))
            continue
        typer.echo(view.headline(group))
        if members and group.members:
            console.print(view.members_table(group.members))


@app.command("lag")
def lag(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The names of groups.")],
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3600, help="Pause of --watch.")
    ] = INTERVAL_S,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print metrics as Prometheus reads them, for a text file that it collects."),
    ] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show how far groups have come in each partition: committed offset, end of the log, what lies between, since when."""
    from replog.cli.views import groups as view

    if prometheus and (as_json or watch):
        raise UsageError(
            "--prometheus", "", "--prometheus is one look in a form of its own; leave out --json and --watch"
        )
    if watch:
        common.ask(bootstrap_servers, lambda admin: _watch_lag(admin, names, interval, as_json=as_json), "")
        return
    found = common.ask(bootstrap_servers, lambda admin: _lags_of(admin, names))
    if prometheus:
        typer.echo("\n".join(view.lag_metrics(found)))
    else:
        _show_lag(found, as_json=as_json)


@app.command("reset")
def reset(
    name: Name,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC[:0,2]", help="This topic, or these of its partitions.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed offsets of.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, max=common.OFFSET_MAX, help="To this offset.")
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record that is kept.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: what is there now is not read.")] = False,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="To a time, such as 2026-01-31T13:00:00Z.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="TIME", help="To a time ago, such as 90s, 1h30m or 7d.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            min=-common.OFFSET_MAX,
            max=common.OFFSET_MAX,
            help="On by so many offsets, or back by -N.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="CSV", help="To the offsets of lines TOPIC,PARTITION,OFFSET.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; otherwise only show what would be done.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Put the offsets of a group without members somewhere else; without --execute only show what that would change.

    A group that there is not begins with them.
    """
    from replog.cli.views import group_reset

    target = group_reset.target_of(
        to_offset=to_offset,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_time=to_time,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
        now_ms=time.time_ns() // 1_000_000,
    )
    group_reset.require_one_choice(target, topic or [], all_topics=all_topics)
    work = _reset(bootstrap_servers, name, target, topic or [], all_topics=all_topics, execute=execute)
    changes, members_count = common.run(work)
    _show_reset(name, changes, members_count, executed=execute, as_json=as_json)


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Their offsets are lost.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Delete groups without members, with their offsets."""
    outcomes = common.ask(bootstrap_servers, lambda admin: admin.delete_groups(names), "asking the coordinators")
    _show_outcomes([(name, {"group_id": name}, error) for name, error in outcomes.items()], as_json=as_json)


@offsets_app.command("delete")
def delete_offsets(
    name: Name,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,2]...", help="Topics, or some of their partitions.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Delete what a group has committed of topics that no member reads."""
    outcomes = common.ask(
        bootstrap_servers, lambda admin: _delete_offsets(admin, name, topics), "asking the coordinator"
    )
    rows = [
        (f"the offset of {each}", {"topic": each.topic, "partition": each.partition}, error)
        for each, error in outcomes.items()
    ]
    _show_outcomes(rows, as_json=as_json)


# ---- asking ------------------------------------------------------------------------------------------------------------


async def _lags_of(admin: Admin, names: Sequence[str]) -> Lags:
    return {name: await admin.group_lag(name) for name in dict.fromkeys(names)}


async def _watch_lag(admin: Admin, names: Sequence[str], interval_s: float, *, as_json: bool) -> None:
    """Looks again and again until Ctrl-C; brokers that do not answer for a while are told of."""
    from replog.errors import RetriableError

    with _looks(as_json=as_json) as show:
        while True:
            try:
                show(await _lags_of(admin, names))
            except RetriableError as error:
                tell(f"error: {error}")
            await asyncio.sleep(interval_s)


async def _delete_offsets(admin: Admin, name: str, topics: Sequence[str]) -> dict[TopicPartition, ReplogError | None]:
    from replog.cli.views import group_reset

    committed = await admin.group_offsets(name)
    partitions = group_reset.committed_partitions(topics, committed)
    return await admin.delete_group_offsets(name, partitions)


async def _reset(
    bootstrap_servers: str, name: str, target: Target, topics: Sequence[str], *, all_topics: bool, execute: bool
) -> tuple[list[OffsetChange], int]:
    """Works out what is to change, and changes it if that is wanted; returns it, and how many members there are."""
    from replog.cli.views import group_reset

    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the brokers"):
            members_count, committed = await group_reset.standing(admin, name, may_be_new=not all_topics)
            if execute and members_count:
                raise group_reset.members_error(name, members_count)
            changes = await group_reset.planned(admin, name, target, topics, committed or {}, all_topics=all_topics)
        if committed is None:
            begins = "begins" if execute else "would begin"
            typer.echo(f'there is no group "{name}" yet; it {begins} with these offsets', err=True)
        if execute:
            with common.waiting("committing offsets"):
                await admin.alter_group_offsets(name, {(each.topic, each.partition): each.new for each in changes})
        return changes, members_count


# ---- telling -----------------------------------------------------------------------------------------------------------


@contextmanager
def _looks(*, as_json: bool) -> Iterator[Callable[[Lags], None]]:
    """Yields a function that shows a look: on one screen that changes, or, where stdout is no terminal, one after the other."""
    from rich.live import Live

    from replog.cli.views import groups as view

    console = common.out_console()
    if as_json or not console.is_terminal:
        yield lambda lags: _show_lag(lags, as_json=as_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda lags: live.update(view.lag_screen(lags), refresh=True)


def _show_lag(found: Lags, *, as_json: bool) -> None:
    from replog.cli.views import groups as view

    for name, lags in found.items():
        if as_json:
            typer.echo(view.lag_json(name, lags))
            continue
        if lags:
            common.out_console().print(view.lag_table(lags))
        typer.echo(view.lag_words(name, lags))


def _show_reset(
    name: str, changes: Sequence[OffsetChange], members_count: int, *, executed: bool, as_json: bool
) -> None:
    from replog.cli.views import group_reset
    from replog.cli.views import groups as view

    if as_json:
        rows = [asdict(each) | {"difference": each.difference} for each in changes]
        typer.echo(common.json_object({"group_id": name, "executed": executed, "partitions": rows}))
        return
    common.out_console().print(group_reset.changes_table(changes))
    count = common.counted(len(changes), "partition")
    if executed:
        typer.echo(f"{view.shown(name)} goes on from there in {count}")
        return
    typer.echo(f"nothing was changed; --execute commits the new offsets in {count}")
    if members_count:
        typer.echo(f"{common.counted(members_count, 'member')} of the group must be stopped before", err=True)


def _show_outcomes(rows: Iterable[tuple[str, dict[str, object], ReplogError | None]], *, as_json: bool) -> None:
    """Tells what has been deleted, and, on stderr and with status 1, what has not."""
    has_failed = False
    for words, fields, error in rows:
        has_failed = has_failed or error is not None
        if as_json:
            typer.echo(common.json_object(fields | {"deleted": error is None, "error": error and str(error)}))
        elif error is None:
            typer.echo(f"deleted {words}")
        if error is not None:
            tell(f"error: {error}")
    if has_failed:
        raise typer.Exit(FAILED)
