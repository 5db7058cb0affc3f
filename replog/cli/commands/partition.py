"""`replog partition`: one partition in full, asked of its leader and of every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.client import PartitionDescription, ReplicaDescription

app = typer.Typer(help="Look at one partition.", no_args_is_help=True)

VISIBLE_WITHIN_MS = 500
"""A topic that another command has just made is found; a wrong name is told soon."""


@app.callback()
def _group() -> None:
    """Keeps `describe` a command of its own although it is the only one."""


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(metavar="TOPIC-P", help="Topic and partition, as in flights-0.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show epochs, offsets, in-sync replicas, and how far behind each replica is."""
    topic, number = partition_name(name)
    found = common.ask(
        bootstrap_servers,
        lambda admin: admin.describe_partition(topic, number, visible_within_ms=VISIBLE_WITHIN_MS),
        "asking the replicas",
    )
    if as_json:
        typer.echo(common.json_line(found))
        return
    for line in summary(found):
        typer.echo(line)
    common.out_console().print(_table(found))


def partition_name(text: str) -> tuple[str, int]:
    """Parses `flights-0` into ("flights", 0); a topic's name may have dashes of its own.

    Raises:
        UsageError: There is no number after the last dash, or no topic before it.
    """
    from replog.cli.errors import UsageError

    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdecimal() and int(number) <= common.INT_MAX):
        raise UsageError("TOPIC-P", text, f'"{text}" is not TOPIC-P, such as flights-0')
    return topic, int(number)


def summary(found: PartitionDescription) -> list[str]:
    """Says what holds for the partition as a whole, one thing a line."""
    from replog.client.admin.partition_description import NOT_TOLD

    is_kafkas = any(replica.state == NOT_TOLD for replica in found.replicas)
    name = f"{found.topic}-{found.partition_id}"
    leader = f"leader {found.leader}" if found.leader >= 0 else "no leader"
    epoch = f", partition epoch {found.partition_epoch}" if found.partition_epoch >= 0 else ""
    lines = [f"{name}: {leader}, leader epoch {found.leader_epoch}{epoch}"]
    if found.log_end_offset >= 0:
        waiting = common.counted(found.waiting_produces, "append") if found.waiting_produces > 0 else ""
        lines.append(
            f"log {found.log_start_offset:,} to {found.log_end_offset:,}, high watermark {found.high_watermark:,}"
            + (f", {waiting} not acknowledged yet" if waiting else "")
        )
    elif is_kafkas:
        lines.append(
            "brokers of Apache Kafka do not tell offsets and lags of replicas: `replog log-dirs describe` has their sizes"
        )
    elif found.leader >= 0:
        lines.append(f"broker {found.leader} does not answer as the leader: offsets and lags are not known")
    maximal = "" if found.maximal_isr == found.isr else f" (being changed: up to {_ids(found.maximal_isr)} count)"
    needed = f"; {found.min_insync_replicas} needed for acks=all" if found.min_insync_replicas >= 0 else ""
    elr = "" if is_kafkas else f"; eligible leaders outside the isr: {_ids(found.elr)}"
    lines.append(f"isr {_ids(found.isr)}{maximal}{needed}{elr}")
    if found.adding_replicas or found.removing_replicas:
        lines.append(f"moving: adding {_ids(found.adding_replicas)}, removing {_ids(found.removing_replicas)}")
    if found.is_recovering:
        lines.append("recovering: its leader was elected uncleanly")
    return lines


def _table(found: PartitionDescription) -> RenderableType:
    from replog.cli.terminal.grid import Grid

    numbers = (
        ">replica",
        ">log start",
        ">log end",
        ">flushed",
        ">high watermark",
        ">lag",
        ">caught up",
        ">broker epoch",
    )
    return Grid((*numbers, "isr", "state"), [_row(replica) for replica in found.replicas])


def _row(replica: ReplicaDescription) -> list[str]:
    numbers = (
        replica.log_start_offset,
        replica.log_end_offset,
        replica.flushed_offset,
        replica.high_watermark,
        replica.lag_records,
    )
    return [
        str(replica.broker_id),
        *(f"{number:,}" if number >= 0 else "-" for number in numbers),
        caught_up(replica),
        str(replica.broker_epoch) if replica.broker_epoch >= 0 else "-",
        "in" if replica.is_in_isr else "out, in the elr" if replica.is_in_elr else "out",
        f"{replica.state}: {replica.reason}" if replica.reason else replica.state,
    ]


def caught_up(replica: ReplicaDescription) -> str:
    """Says when a replica had everything the last time."""
    if replica.lag_records < 0 or replica.is_away:
        return "-"
    if replica.lag_ms < 0:
        return "not yet"
    return f"{replica.lag_ms:,} ms ago" if replica.lag_ms else "now"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "none"
