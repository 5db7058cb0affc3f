"""`replog brokers`: who is in the cluster, and taking a broker out of it in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata

app = typer.Typer(help="List, drain and unregister brokers.", no_args_is_help=True)

POLL_INTERVAL_S = 0.5

BrokerId = Annotated[int, typer.Argument(min=0, max=common.INT_MAX, help="Node id of the broker.")]


@app.command("list")
def list_brokers(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the registered brokers with what they lead and hold."""
    metadata = common.ask(bootstrap_servers, lambda admin: admin.describe_cluster())
    if as_json:
        from replog.client.cluster.addresses import address_of

        for broker in metadata.brokers:
            typer.echo(common.json_line(broker, address=address_of(broker)))
        return
    common.out_console().print(_table(metadata))


@app.command("drain")
def drain(
    broker_id: BrokerId,
    undo: Annotated[bool, typer.Option("--undo", help="Let the broker be used again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it holds nothing any more.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Move all leaderships and replicas off a broker, and keep it empty."""
    left = common.run(_drain(bootstrap_servers, broker_id, undo=undo, wait=wait))
    if undo:
        typer.echo(f"broker {broker_id} is used again")
    else:
        typer.echo(f"broker {broker_id} is drained: {common.counted(left, 'replica')} left")


@app.command("unregister")
def unregister(
    broker_id: BrokerId,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Forget a stopped broker that holds no replicas."""
    common.ask(bootstrap_servers, lambda admin: admin.unregister_broker(broker_id), f"unregistering broker {broker_id}")
    typer.echo(f"broker {broker_id} is forgotten")


async def _drain(bootstrap_servers: str, broker_id: int, *, undo: bool, wait: bool) -> int:
    from replog.errors import InvalidRequestError

    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting(f"draining broker {broker_id}") as say:
            brokers = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
            if broker_id not in brokers:
                known = ", ".join(map(str, brokers))
                raise InvalidRequestError(f"no broker {broker_id} is registered; there are: {known}")
            left = await admin.drain_broker(broker_id, drained=not undo)
            if left and not undo:
                require_room(await admin.describe_cluster(), broker_id)
            while wait and not undo and left:
                await asyncio.sleep(POLL_INTERVAL_S)
                metadata = await admin.describe_cluster()
                left = sum(counts_of(metadata, broker_id))
                require_room(metadata, broker_id)
                say(f"draining broker {broker_id}: {common.counted(left, 'replica')} left")
            return left


def require_room(metadata: ClusterMetadata, broker_id: int) -> None:
    """Tells of replicas that no other broker can take: waiting for them would be for ever.

    Raises:
        CommandFailedError: There are such replicas.
    """
    from replog.cli.errors import CommandFailedError

    others = sum(not broker.drained for broker in metadata.brokers if broker.broker_id != broker_id)
    partitions = [partition for topic in metadata.topics for partition in topic.partitions]
    stuck = sum(broker_id in p.replicas and len(set(p.replicas) - set(p.adding_replicas)) > others for p in partitions)
    if stuck:
        raise CommandFailedError(
            f"broker {broker_id} stays marked as drained, but {common.counted(stuck, 'replica')} of it can go nowhere: "
            f"their partitions need more brokers than the {others} others in use. Start another broker, move them to fewer "
            f"with `replog topics reassign`, or end it with `replog brokers drain {broker_id} --undo`"
        )


def counts_of(metadata: ClusterMetadata, broker_id: int) -> tuple[int, int]:
    """Counts the partitions that a broker leads, and those that it holds and does not lead."""
    partitions = [partition for topic in metadata.topics for partition in topic.partitions]
    led = sum(partition.leader == broker_id for partition in partitions)
    return led, sum(broker_id in partition.replicas for partition in partitions) - led


def _table(metadata: ClusterMetadata) -> RenderableType:
    from replog.cli.terminal.grid import Grid
    from replog.client.cluster.addresses import address_of

    rows = []
    for broker in metadata.brokers:
        led, followed = counts_of(metadata, broker.broker_id)
        address, rack = address_of(broker), broker.rack or "-"
        rows.append([str(broker.broker_id), f"{led:,}", f"{followed:,}", address, rack, _state(broker)])
    return Grid((">broker", ">leads", ">follows", "address", "rack", "state"), rows)


def _state(broker: BrokerInfo) -> str:
    state = "shutting down" if broker.in_controlled_shutdown else "fenced" if broker.fenced else "in service"
    return f"{state}, drained" if broker.drained else state
