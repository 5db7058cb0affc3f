"""`replog log-dirs`: what is on which disk of a broker, and moving replicas between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replog.client import Admin
    from replog.rpc.node_messages import LogDir

app = typer.Typer(help="Look at the log directories of brokers, and move replicas between them.", no_args_is_help=True)


@app.command("describe")
def describe(
    broker: Annotated[
        int,
        typer.Option(
            "--broker", metavar="ID", max=common.INT_MAX, show_default=False, help="Only this one; default: all."
        ),
    ] = -1,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the log directories of brokers, their replicas, and how far moves are."""
    for broker_id, directories in common.ask(bootstrap_servers, lambda admin: _describe(admin, broker)).items():
        for log_dir in directories:
            if as_json:
                typer.echo(common.json_line(log_dir, broker_id=broker_id))
            else:
                typer.echo("\n".join(lines(broker_id, log_dir)))


@app.command("move")
def move(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partition: Annotated[int, typer.Argument(min=0, max=common.INT_MAX, help="Its partition.")],
    broker: Annotated[int, typer.Option("--broker", metavar="ID", max=common.INT_MAX, help="Whose replica.")],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="One of the log.dirs of the broker.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Move a replica to another log directory of its broker, while it is used."""
    common.ask(
        bootstrap_servers,
        lambda admin: admin.move_replica(topic, partition, broker=broker, path=to),
        "asking the broker",
    )
    typer.echo(f"{topic}-{partition} moves to {to} on broker {broker}; `replog log-dirs describe` says how far it is")


def lines(broker_id: int, directory: LogDir) -> Iterator[str]:
    """Describes one log directory of a broker in words, a line at a time."""
    from replog.cli.views.reassignments import share_words, size_text

    if directory.error:
        yield f"broker {broker_id}: {directory.path} is offline: {directory.error}"
    else:
        size_bytes = sum(max(0, replica.size_bytes) for replica in directory.replicas)
        count = common.counted(len(directory.replicas), "replica")
        yield f"broker {broker_id}: {directory.path}: {count}, {size_text(size_bytes)}, {size_text(directory.free_bytes)} free"
    for replica in directory.replicas:
        size = "offline" if replica.size_bytes < 0 else size_text(replica.size_bytes)
        yield f"  {replica.topic}-{replica.partition_id}: {size}"
    for one in directory.moves:
        whole = one.copied_bytes + one.missing_bytes
        how_far = "waits" if one.missing_bytes < 0 else f"{share_words(one.copied_bytes, whole)} copied"
        yield f"  {one.topic}-{one.partition_id} moves here: {how_far}"


async def _describe(admin: Admin, broker: int) -> Mapping[int, tuple[LogDir, ...]]:
    metadata = await admin.describe_cluster()
    wanted = [one.broker_id for one in metadata.brokers if not one.fenced] if broker < 0 else [broker]
    return {broker_id: await admin.describe_log_dirs(broker_id) for broker_id in wanted}
