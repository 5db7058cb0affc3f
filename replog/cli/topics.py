"""`replog topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from replog.client import TopicPartition
    from replog.rpc.messages import PartitionInfo, TopicInfo

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)

VISIBLE_WITHIN_MS = 500
"""A topic that another command has just made is found; a wrong name is told soon."""

MIN_ISR_KEY = "min.insync.replicas"


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits, '.', '_' and '-'.")],
    partitions: Annotated[int, typer.Option("--partitions", help="Default: num.partitions of the brokers.")] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Default: default.replication.factor of the brokers.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Such as min.insync.replicas=2.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Create a topic and wait until all its partitions have leaders."""
    configs = common.key_values(config or [], "--config")
    topic = common.run(_create(bootstrap_servers, name, partitions, replication_factor, configs))
    replicas = len(topic.partitions[0].replicas)
    typer.echo(
        f"created {name}: {common.counted(len(topic.partitions), 'partition')}, {common.counted(replicas, 'replica')} each"
    )


@app.command("list")
def list_topics(bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS) -> None:
    """List the topics, one a line."""
    for topic in common.run(_describe(bootstrap_servers, None)):
        typer.echo(topic.name)


@app.command("describe")
def describe(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: all topics.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with a replica outside the ISR.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions with fewer in-sync replicas than writes need.")
    ] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Show partitions with leaders, leader epochs, replicas and in-sync replicas."""
    topics = common.run(_describe(bootstrap_servers, name))
    console = common.out_console()
    filtered = under_replicated or under_min_isr
    shown = 0
    for topic in topics:
        partitions = [
            p for p in topic.partitions if not filtered or _matches(topic, p, under_replicated, under_min_isr)
        ]
        if partitions or not filtered:
            console.print(_heading(topic))
            console.print(_table(partitions))
            shown += 1
    if not shown:
        typer.echo(_nothing(filtered=filtered, under_replicated=under_replicated))


@app.command("delete")
def delete(
    name: Annotated[str, typer.Argument(help="All its records are lost.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Delete a topic with all its records."""
    common.run(_delete(bootstrap_servers, name))
    typer.echo(f"deleted {name}")


@app.command("delete-records")
def delete_records(
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC-PARTITION=OFFSET...", help="The first offset to keep, as in flights-0=1000; end: keep none."
        ),
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Delete the records below an offset, on all replicas that are up."""
    offsets = dict(_partition_offset(text) for text in partitions)
    for partition, low_watermark in common.run(_delete_records(bootstrap_servers, offsets)).items():
        typer.echo(f"{partition} starts at {low_watermark}")


def _partition_offset(text: str) -> tuple[tuple[str, int], int]:
    name, equals, offset = text.partition("=")
    topic, dash, partition = name.rpartition("-")
    if not (equals and dash and partition.isdecimal() and (offset == "end" or offset.isdecimal())):
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION=OFFSET, such as flights-0=1000 or flights-0=end")
    return (topic, int(partition)), -1 if offset == "end" else int(offset)


async def _delete_records(bootstrap_servers: str, offsets: dict[tuple[str, int], int]) -> dict[TopicPartition, int]:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("deleting records"):
            return await admin.delete_records(offsets)


async def _create(
    bootstrap_servers: str, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
) -> TopicInfo:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting(f"creating {name}"):
            return await admin.create_topic(name, partitions, replication_factor, configs)


async def _describe(bootstrap_servers: str, name: str | None) -> list[TopicInfo]:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the brokers"):
            if name is not None:
                return list((await admin.describe_topics([name], visible_within_ms=VISIBLE_WITHIN_MS)).values())
            metadata = await admin.describe_cluster()
            return sorted(metadata.topics, key=lambda topic: topic.name)


async def _delete(bootstrap_servers: str, name: str) -> None:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting(f"deleting {name}"):
            await admin.delete_topic(name)


def min_insync_replicas(topic: TopicInfo) -> int:
    """The topic's own setting; 1 where it has none, which is also the brokers' default."""
    values = {entry.name: entry.value for entry in topic.configs}
    return int(values.get(MIN_ISR_KEY) or 1)


def is_under_replicated(partition: PartitionInfo) -> bool:
    return len(partition.isr) < len(partition.replicas)


def is_under_min_isr(topic: TopicInfo, partition: PartitionInfo) -> bool:
    """Whether acks=all writes are refused."""
    return len(partition.isr) < min(min_insync_replicas(topic), len(partition.replicas))


def _matches(topic: TopicInfo, partition: PartitionInfo, under_replicated: bool, under_min_isr: bool) -> bool:
    return (under_replicated and is_under_replicated(partition)) or (
        under_min_isr and is_under_min_isr(topic, partition)
    )


def _heading(topic: TopicInfo) -> str:
    from rich.markup import escape

    configs = "".join(f", {entry.name}={entry.value}" for entry in topic.configs)
    counts = common.counted(len(topic.partitions), "partition")
    return escape(f"{topic.name}: {counts}, id {topic.topic_id}{configs}")


def _table(partitions: list[PartitionInfo]) -> object:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("partition", "leader", "leader epoch"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("replicas", "isr", "eligible leaders outside the isr"):
        table.add_column(column, no_wrap=True)
    for p in partitions:
        leader = str(p.leader) if p.leader >= 0 else "none"
        ids = (",".join(map(str, ids)) for ids in (p.replicas, p.isr, p.elr))
        table.add_row(str(p.partition_id), leader, str(p.leader_epoch), *ids)
    return table


def _nothing(*, filtered: bool, under_replicated: bool) -> str:
    if not filtered:
        return "no topics yet. `replog topics create NAME` makes one"
    return "every replica is in sync" if under_replicated else "every partition has the in-sync replicas it needs"
