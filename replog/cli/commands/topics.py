"""`replog topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import asdict

from replog.cli import common
from replog.cli.commands import reassign
from replog.cli.errors import tell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.cli.checks.topic_figures import PartitionOffsets, TopicSize
    from replog.client import Admin
    from replog.controller.requests import NewTopic
    from replog.rpc.metadata_messages import PartitionInfo, TopicInfo

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)

RATES_S = 2.0
"""Between the two looks that give rates."""

VISIBLE_WITHIN_MS = 500
"""A topic that another command has just made is found; a wrong name is told soon."""


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits, '.', '_' and '-'.")],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            metavar="N",
            max=common.INT_MAX,
            show_default=False,
            help="Default: num.partitions of the brokers.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            metavar="N",
            max=common.INT_MAX,
            show_default=False,
            help="Default: default.replication.factor of the brokers.",
        ),
    ] = -1,
    assign: Annotated[
        str | None,
        typer.Option(
            "--assign",
            metavar="1:2,2:3",
            help="The brokers of each partition, instead of the two counts; the first of each is to lead.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Such as min.insync.replicas=2.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Create a topic and wait until all its partitions have leaders."""
    from replog.controller.requests import NewTopic

    configs = common.key_values(config or [], "--config")
    if assign is not None and (partitions, replication_factor) != (-1, -1):
        raise typer.BadParameter("--assign says how many partitions and replicas there are: leave out the two counts")
    wanted = NewTopic(name, partitions, replication_factor, assigned(assign))
    topic, brokers = common.ask(
        bootstrap_servers,
        lambda admin: _create(admin, wanted, configs),
        f"creating {name}",
    )
    replicas = len(topic.partitions[0].replicas)
    typer.echo(
        f"created {name}: {common.counted(len(topic.partitions), 'partition')}, {common.counted(replicas, 'replica')} each"
    )
    if replicas == 1 and brokers > 1:
        typer.echo(
            f"one replica each: who loses a broker loses what is on it; --replication-factor {min(3, brokers)} keeps more",
            err=True,
        )


@app.command("fork")
def fork(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The topic that has the records.")],
    copy: Annotated[str, typer.Argument(metavar="COPY", help="The topic to make.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Make a topic with all committed records of another one, which goes on by itself: its segments are hard links."""
    topic = common.ask(bootstrap_servers, lambda admin: admin.fork_topic(source, copy), f"forking {source}")
    typer.echo(f"{copy} has all records of {source}: {common.counted(len(topic.partitions), 'partition')}")


@app.command("list")
def list_topics(
    sizes: Annotated[
        bool,
        typer.Option("--sizes", help="With the bytes of the leaders' replicas, and of all on disk; largest first."),
    ] = False,
    rates: Annotated[
        bool, typer.Option("--rates", help="With the records that came in a second, over two seconds; fastest first.")
    ] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """List the topics, one a line."""
    if sizes or rates:
        _print_figures(*common.run(_figures(bootstrap_servers, sizes=sizes, rates=rates)), as_json=as_json)
        return
    topics, _ = common.ask(bootstrap_servers, lambda admin: _described(admin, None, wants_min_isr=False))
    for topic in topics:
        typer.echo(_summary_json(topic) if as_json else topic.name)


@app.command("describe")
def describe(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: all topics.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with a replica outside the ISR.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions with fewer in-sync replicas than writes need.")
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option("--unavailable", help="Only partitions without a leader: they can be neither written nor read."),
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="With where logs begin and end, and where the leader epoch before ended.")
    ] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show partitions with leaders, leader epochs, replicas and in-sync replicas; of several filters, what fits any."""
    filters = Filters(under_replicated=under_replicated, under_min_isr=under_min_isr, unavailable=unavailable)
    topics, default_min_isr = common.ask(
        bootstrap_servers, lambda admin: _described(admin, name, wants_min_isr=under_min_isr)
    )
    places = (
        common.ask(bootstrap_servers, lambda admin: _offsets(admin, topics), "asking the leaders") if offsets else None
    )
    console = common.out_console()
    shown = 0
    for topic in topics:
        partitions = filters.chosen(topic, default_min_isr)
        if not partitions and filters.any:
            continue
        if as_json:
            more = {} if places is None else {"offsets": [_place(places, topic, each) for each in partitions]}
            typer.echo(common.json_line(topic, partitions=partitions, **more))
        else:
            console.print(_heading(topic))
            console.print(_table(partitions, [_place(places, topic, each) for each in partitions] if places else None))
        shown += 1
    if not shown and not as_json:
        typer.echo(filters.nothing())


@app.command("delete")
def delete(
    name: Annotated[str, typer.Argument(help="All its records are lost.")],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Delete a topic with all its records."""
    common.ask(bootstrap_servers, lambda admin: admin.delete_topic(name), f"deleting {name}")
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
    _directory: common.OrDirectory = None,
) -> None:
    """Delete the records below an offset, on all replicas that are up."""
    offsets = dict(_partition_offset(text) for text in partitions)
    for partition, low_watermark in common.ask(
        bootstrap_servers, lambda admin: admin.delete_records(offsets), "deleting records"
    ).items():
        typer.echo(f"{partition} starts at {low_watermark}")


def _partition_offset(text: str) -> tuple[tuple[str, int], int]:
    name, equals, offset = text.partition("=")
    topic, dash, partition = name.rpartition("-")
    if not (equals and dash and common.is_number(partition, common.INT_MAX)) or not (
        offset == "end" or common.is_number(offset, common.OFFSET_MAX)
    ):
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION=OFFSET, such as flights-0=1000 or flights-0=end")
    return (topic, int(partition)), -1 if offset == "end" else int(offset)


def assigned(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Parses the brokers of each partition, `1:2,2:3`; none for None.

    Raises:
        typer.BadParameter: It is not that.
    """
    if text is None:
        return ()
    partitions = [part.strip().split(":") for part in text.split(",")]
    if not all(common.is_number(broker, common.INT_MAX) for part in partitions for broker in part):
        raise typer.BadParameter(
            f"--assign {text!r} is not the brokers of each partition: 1:2,2:3 puts partition 0 on brokers 1 and 2, and 1 on 2 and 3"
        )
    return tuple(tuple(map(int, part)) for part in partitions)


async def _create(admin: Admin, wanted: NewTopic, configs: dict[str, str]) -> tuple[TopicInfo, int]:
    """Creates a topic; returns it, and how many brokers there are."""
    topic = await admin.create_topic(
        wanted.name,
        wanted.num_partitions,
        wanted.replication_factor,
        configs,
        assignments=wanted.assignments,
    )
    return topic, len((await admin.describe_cluster()).brokers)


async def _described(admin: Admin, name: str | None, *, wants_min_isr: bool) -> tuple[list[TopicInfo], int]:
    """Asks for one topic, or all by name, and for the brokers' min.insync.replicas where it is wanted (else 1)."""
    from replog.client.admin.health import default_min_insync_replicas, with_min_insync_replicas
    from replog.client.cluster.image import are_kafkas

    default = await default_min_insync_replicas(admin) if wants_min_isr else 1
    if name is not None:
        topics = list((await admin.describe_topics([name], visible_within_ms=VISIBLE_WITHIN_MS)).values())
    else:
        topics = sorted((await admin.describe_cluster()).topics, key=lambda topic: topic.name)
    if wants_min_isr and are_kafkas((await admin.describe_cluster()).brokers):
        topics = list(await with_min_insync_replicas(admin, topics))
    return topics, default


class Filters(Struct, frozen=True, kw_only=True):
    """Which partitions are asked for: those that fit any filter, or all where there is none."""

    under_replicated: bool = False
    under_min_isr: bool = False
    unavailable: bool = False

    @property
    def any(self) -> bool:
        return self.under_replicated or self.under_min_isr or self.unavailable

    def chosen(self, topic: TopicInfo, default_min_isr: int) -> list[PartitionInfo]:
        """Chooses partitions of a topic; `default_min_isr` holds where it has no min.insync.replicas of its own."""
        from replog.client.admin import health

        min_isr = health.min_insync_replicas_of(topic, default_min_isr)
        return [
            partition
            for partition in topic.partitions
            if not self.any
            or (self.under_replicated and health.is_under_replicated(partition))
            or (self.under_min_isr and health.is_under_min_isr(partition, min_isr))
            or (self.unavailable and health.is_unavailable(partition))
        ]

    def nothing(self) -> str:
        """Says what it means that there is nothing to show."""
        if not self.any:
            return "no topics yet. `replog topics create NAME` makes one"
        good = {
            "every replica is in sync": self.under_replicated,
            "every partition has the in-sync replicas it needs": self.under_min_isr,
            "every partition has a leader": self.unavailable,
        }
        return ", and ".join(text for text, asked in good.items() if asked)


def _summary_json(topic: TopicInfo) -> str:
    replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
    fields = {"name": topic.name, "topic_id": topic.topic_id, "partitions": len(topic.partitions), "replicas": replicas}
    return common.json_object(fields)


def _heading(topic: TopicInfo) -> str:
    from rich.markup import escape

    configs = "".join(f", {entry.name}={entry.value}" for entry in topic.configs)
    counts = common.counted(len(topic.partitions), "partition")
    return escape(f"{topic.name}: {counts}, id {topic.topic_id}{configs}")


def _table(partitions: list[PartitionInfo], places: Sequence[PartitionOffsets] | None) -> RenderableType:
    from replog.cli.terminal.grid import Grid

    rows = []
    for number, p in enumerate(partitions):
        leader = str(p.leader) if p.leader >= 0 else "none"
        ids = [",".join(map(str, ids)) for ids in (p.replicas, p.isr, p.elr)]
        if p.partition_epoch < 0:  # nor do the metadata of Apache Kafka tell these
            ids[-1] = "not told"
        of_log = () if places is None else _place_texts(places[number])
        rows.append([str(p.partition_id), leader, str(p.leader_epoch), *of_log, *ids])
    of_log = () if places is None else (">log start", ">high watermark", ">epoch before")
    headers = (">partition", ">leader", ">leader epoch", *of_log, "replicas", "isr", "eligible leaders outside the isr")
    return Grid(headers, rows)


def _place(
    places: Mapping[tuple[str, int], PartitionOffsets], topic: TopicInfo, partition: PartitionInfo
) -> PartitionOffsets:
    from replog.cli.checks.topic_figures import PartitionOffsets

    return places.get((topic.name, partition.partition_id), PartitionOffsets())


def _place_texts(place: PartitionOffsets) -> tuple[str, str, str]:
    start, end = ("not known" if each is None else f"{each}" for each in (place.log_start_offset, place.high_watermark))
    if place.former_epoch is None:
        return start, end, "none" if place.high_watermark is not None else "not known"
    return start, end, f"{place.former_epoch}, to {place.former_epoch_end_offset}"


async def _offsets(admin: Admin, topics: list[TopicInfo]) -> Mapping[tuple[str, int], PartitionOffsets]:
    from replog.cli.checks.topic_figures import offsets

    return await offsets(admin, topics)


async def _figures(
    bootstrap_servers: str, *, sizes: bool, rates: bool
) -> tuple[list[TopicInfo], dict[str, TopicSize] | None, dict[str, float] | None]:
    """Asks for all topics, with sizes and rates where they are wanted."""
    from replog.cli.checks import topic_figures

    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the brokers") as say:
            topics = sorted((await admin.describe_cluster()).topics, key=lambda topic: topic.name)
            found, silent = await topic_figures.sizes(admin, topics) if sizes else (None, {})
            for broker, error in silent.items():
                tell(f"without broker {broker}, which does not say what it has: {error}")
            say(f"looking for {RATES_S:g} s" if rates else "")
            return topics, found, await topic_figures.rates(admin, topics, RATES_S) if rates else None


def _print_figures(
    topics: list[TopicInfo], sizes: dict[str, TopicSize] | None, rates: dict[str, float] | None, *, as_json: bool
) -> None:
    from replog.cli.terminal.grid import Grid
    from replog.cli.views.reassignments import size_text

    def largeness(topic: TopicInfo) -> float:
        return -(rates or {}).get(topic.name, 0.0) if sizes is None else -sizes[topic.name].size_bytes

    rows = []
    for topic in sorted(topics, key=largeness):
        size, rate = (sizes or {}).get(topic.name), (rates or {}).get(topic.name)
        if as_json:
            fields = {"name": topic.name} | ({} if size is None else asdict(size))
            typer.echo(common.json_object(fields | ({} if rates is None else {"records_per_s": rate})))
        texts = [] if size is None else [size_text(size.size_bytes), size_text(size.disk_bytes)]
        rows.append([topic.name, *texts, *([] if rates is None else ["not known" if rate is None else f"{rate:,.1f}"])])
    if not as_json:
        of_sizes = [] if sizes is None else [">size", ">on disk"]
        common.out_console().print(Grid(["topic", *of_sizes, *([] if rates is None else [">records/s"])], rows))


app.command("alter")(reassign.alter)
app.command("reassign")(reassign.reassign)
app.command("elect-leaders")(reassign.elect_leaders)
