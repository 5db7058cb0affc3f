"""`replog cluster`: several node processes on this machine, found again through the directory they were started in."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replog.cli import client_config, common
from replog.cli.terminal.interrupts import GRACE_S

if TYPE_CHECKING:
    from replog.cli.views.cluster_status import ClusterStatus
    from replog.cluster import LocalCluster

RUNNING_TIMEOUT_S = 30.0
REPLICAS_MAX = 3
"""Replicas of a topic where nobody says how many: two nodes may be lost."""

POLL_S = 0.05

app = typer.Typer(help="Run several nodes on this machine.", no_args_is_help=True)

Directory = Annotated[Path, typer.Option("--dir", help="Directory of the cluster.")]
NodeId = Annotated[int | None, typer.Argument(metavar="[NODE]", help="Node id; all nodes when left out.")]


@app.command("start")
def start(
    directory: Directory,
    nodes: Annotated[int, typer.Option("--nodes", help="How many, 1 to 9.")] = 3,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and stop all nodes at Ctrl-C or when this process ends.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key for every node.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="Of the first node; 0: any. Default: 9092, where commands look, or any when it is taken.",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Nodes and clients prove who they are, by certificates in DIR/certs that are made now."
        ),
    ] = False,
) -> None:
    """Create a cluster of combined broker and controller nodes, and start it.

    Without --foreground the nodes go on running in the background. Topics have up to three replicas by default
    (--set default.replication.factor=N).
    """
    config = {"default.replication.factor": min(nodes, REPLICAS_MAX), **node_settings(settings or [])}
    work = _start(directory, nodes, config, foreground=foreground, port=first_port(port), secure=secure)
    common.run(work, grace_s=None if foreground else GRACE_S)


@app.command("status")
def status(directory: Directory, as_json: common.AsJson = False) -> None:
    """Show nodes, controller and replication on one screen."""
    from replog.cli.views.cluster_status import as_json_line, cluster_status

    cluster = _load(directory)
    with common.waiting("asking the nodes"):
        found = common.run(cluster_status(cluster))
    if as_json:
        typer.echo(as_json_line(found))
    else:
        _show(cluster, found)


@app.command("stop")
def stop(directory: Directory, node: NodeId = None) -> None:
    """Stop nodes in order; their next start needs no recovery."""
    cluster = _load(directory)
    targets = _targets(cluster, node, "running")
    with common.waiting(f"stopping {_named(targets)}"):
        common.run(_each(cluster.stop(node_id) for node_id in targets))
    typer.echo(f"stopped {_named(targets)}")


@app.command("kill")
def kill(directory: Directory, node: NodeId = None) -> None:
    """End nodes at once (kill -9), as a crash would."""
    cluster = _load(directory)
    targets = _targets(cluster, node, "running")
    common.run(_each(cluster.kill(node_id) for node_id in targets))
    typer.echo(f"killed {_named(targets)}")


@app.command("restart")
def restart(
    directory: Directory,
    node: NodeId = None,
    accept_empty: Annotated[
        bool, typer.Option("--accept-empty", help="Start with empty log directories where the data is gone.")
    ] = False,
) -> None:
    """Stop nodes that run, start them again, and wait until they are back in the cluster."""
    cluster = _load(directory)
    targets = _targets(cluster, node, "any")
    if not accept_empty:
        cluster.require_data(targets)
    with common.waiting(f"restarting {_named(targets)}") as show:
        others = common.run(_restart(cluster, targets, show, accept_empty=accept_empty))
    if own := [node_id for node_id in targets if node_id not in others]:
        typer.echo(f"restarted {_named(own)}")
    if others:
        typer.echo(
            f"another command has started {_named(others)} at the same time. "
            f"`replog cluster status --dir {cluster.directory}` shows what runs"
        )


def node_settings(pairs: list[str]) -> dict[str, Any]:
    """Returns the `--set` options as values for a TOML file, checked as a node would check them.

    Raises:
        ConfigError: A key is unknown, a value is out of range, or keys contradict each other.
    """
    from replog.config.server import ServerConfig
    from replog.config.server_keys import KEYS

    given = common.key_values(pairs, "--set")
    ServerConfig.from_mapping({"node.id": 1, "log.dirs": ["data"]}, overrides=given)
    return {name: KEYS[name].kind.from_text(text) for name, text in given.items()}


def first_port(wanted: int | None) -> int:
    """Returns the port of the first node: by default where commands look, or 0 (any) where somebody else has that.

    Raises:
        UsageError: The port that is wanted is in use.
    """
    from replog.cli.errors import UsageError
    from replog.cluster import is_free

    if wanted is None:
        return common.DEFAULT_PORT if is_free(common.DEFAULT_PORT) else 0
    if wanted and not is_free(wanted):
        raise UsageError("--port", wanted, f"--port {wanted} is in use: choose another, or 0 for any that is free")
    return wanted


async def _start(
    directory: Path, nodes: int, config: dict[str, Any], *, foreground: bool, port: int, secure: bool
) -> None:
    from replog.cli.views.cluster_status import cluster_status
    from replog.cluster import LocalCluster

    with common.waiting(f"starting {common.counted(nodes, 'node')}"):
        cluster = await LocalCluster.start(
            directory, nodes=nodes, config=config, die_with_parent=foreground, first_port=port, secure=secure
        )
    try:
        _show(cluster, await cluster_status(cluster))
        if foreground:
            stop = stop_at_signals()
            typer.echo("Ctrl-C stops the cluster.")
            await stop.wait()
    finally:
        if foreground:
            with common.waiting("stopping"):
                await cluster.stop_all()


def _show(cluster: LocalCluster, found: ClusterStatus) -> None:
    """Prints the nodes, and last what to type to reach them."""
    from replog.cli.views.cluster_status import render

    common.out_console().print(render(found))
    typer.echo(f"For Kafka's clients: bootstrap.servers={found.bootstrap_servers}")
    if cluster.certificates.exist:
        typer.echo(f"They need the certificates: {cluster.certificates.client_config} has the settings.")
        typer.echo(f"export {client_config.CONFIG_VARIABLE}={cluster.certificates.client_config}")
    typer.echo(common.export_line(found.bootstrap_servers))


def stop_at_signals() -> asyncio.Event:
    """Returns an event that the first SIGINT or SIGTERM sets; later ones do nothing while the nodes stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _restart(
    cluster: LocalCluster, targets: list[int], show: Callable[[str], None], *, accept_empty: bool
) -> list[int]:
    """Restarts nodes; returns those of them that another command has started before this one could."""
    from replog.cluster import NodeRunsError
    from replog.cluster.node_processes import prepare_forks

    others: list[int] = []
    preparing = [prepare_forks()] if len(targets) > 1 else []
    await _each([*preparing, *(cluster.stop(node_id) for node_id in targets)])
    for node_id in targets:
        try:
            cluster.start_node(node_id, accept_empty=accept_empty)
        except NodeRunsError:  # and the rest of the nodes must not stay stopped
            others.append(node_id)
    await cluster.wait_until_ready(node_ids=targets, on_recovery=show)
    await _each(_until_running(cluster, node_id) for node_id in targets)
    return others


async def _until_running(cluster: LocalCluster, node_id: int) -> None:
    """Returns when this very process serves: after a kill the metadata may show its earlier life for a moment."""
    from replog.client import Admin
    from replog.errors import BrokerNotAvailableError, ReplogError

    deadline = time.monotonic() + RUNNING_TIMEOUT_S
    address = cluster.nodes[node_id].address
    async with Admin(address, security=cluster.security) as admin:
        while time.monotonic() < deadline:
            try:
                if (await admin.describe_node(address)).state == "running":
                    return
            except ReplogError:
                pass  # not up yet
            await asyncio.sleep(POLL_S)
    raise BrokerNotAvailableError(
        f"the node at {address} was not back within {RUNNING_TIMEOUT_S:g} s; see its server.log"
    )


async def _each(works: Iterable[Any]) -> None:
    await asyncio.gather(*works)


def _load(directory: Path) -> LocalCluster:
    from replog.cluster import LocalCluster

    return LocalCluster.load(directory)


def _targets(cluster: LocalCluster, node: int | None, wanted: str) -> list[int]:
    """Returns the ids of the nodes that a command is about.

    Raises:
        UsageError: There is no such node.
        CommandFailedError: None of them runs, and the command is about those that run.
    """
    from replog.cli.errors import CommandFailedError

    chosen = list(cluster.nodes) if node is None else [common.node_of(cluster, node).node_id]
    if wanted == "any":
        return chosen
    running = [node_id for node_id in chosen if cluster.nodes[node_id].is_alive]
    if not running:
        what = "no node" if node is None else f"node {node}"
        verb = "runs" if node is None else "does not run"
        raise CommandFailedError(f"{what} {verb} in {cluster.directory}. `replog cluster restart` starts nodes again")
    return running


def _named(node_ids: list[int]) -> str:
    return f"node{'' if len(node_ids) == 1 else 's'} {', '.join(map(str, node_ids))}"
