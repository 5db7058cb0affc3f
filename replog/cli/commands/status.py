"""`replog status`: the health of a cluster on one screen, with one plain sentence on top."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from msgspec.structs import replace

from replog.cli import common
from replog.cli.errors import FAILED
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.client.admin.health import ClusterHealth

INTERVAL_S = 2.0

Look: TypeAlias = "ClusterHealth | ReplogError"
"""What one look at the cluster gave."""


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3600, help="Pause of --watch.")
    ] = INTERVAL_S,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show whether the cluster is healthy, and what is missing; exit status 1 while it is not."""
    if watch:
        common.run(_watch(bootstrap_servers, interval, as_json=as_json))
        return
    health = common.run(_look(bootstrap_servers))
    if as_json:
        typer.echo(_as_json(health))
    else:
        from replog.cli.views.health import render

        common.out_console().print(render(health))
    if not health.is_healthy:
        raise typer.Exit(FAILED)


async def _look(bootstrap_servers: str) -> ClusterHealth:
    """Looks once; and a second time at the groups where one rebalances: that it does says nothing, that it goes on does."""
    from replog.client.admin.group_health import REBALANCE_MS, GroupWatch
    from replog.client.admin.health import cluster_health

    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the brokers"):
            health = await cluster_health(admin)
            watch = GroupWatch(admin)
            groups = await watch.look()
        if groups.rebalancing_count:
            with common.waiting("waiting for groups that rebalance"):
                await asyncio.sleep(REBALANCE_MS / 1000)
                groups = await watch.look()
    return replace(health, groups=groups)


async def _watch(bootstrap_servers: str, interval_s: float, *, as_json: bool) -> None:
    """Looks again and again until Ctrl-C; a cluster that does not answer for a while is shown so."""
    from replog.client.admin.group_health import GroupWatch
    from replog.client.admin.health import cluster_health

    async with await common.admin_of(bootstrap_servers) as admin:
        groups = GroupWatch(admin)
        with _json_lines() if as_json else _screen() as show:
            while True:
                try:
                    health = await cluster_health(admin)
                    show(replace(health, groups=await groups.look()))
                except ReplogError as error:
                    show(error)
                await asyncio.sleep(interval_s)


@contextmanager
def _json_lines() -> Iterator[Callable[[Look], None]]:
    """Yields a function that prints a line of JSON for every look."""
    yield lambda look: typer.echo(_as_json(look))


@contextmanager
def _screen() -> Iterator[Callable[[Look], None]]:
    """Yields a function that changes one screen; where stdout is no terminal, it prints each sentence that is new."""
    from rich.live import Live

    from replog.cli.views.health import render, said

    console = common.out_console()
    if not console.is_terminal:
        yield _Changes()
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda look: live.update(said(look) if isinstance(look, ReplogError) else render(look), refresh=True)


class _Changes:
    """Prints a sentence that is not the one before."""

    def __init__(self) -> None:
        self._before = ""

    def __call__(self, look: Look) -> None:
        from replog.cli.views.health import said

        if (text := said(look)) != self._before:
            typer.echo(text)
        self._before = text


def _as_json(look: Look) -> str:
    from replog.cli.views.health import said

    if isinstance(look, ReplogError):
        return common.json_object({"sentence": said(look), "is_healthy": False})
    return common.json_line(look, sentence=said(look), is_healthy=look.is_healthy)
