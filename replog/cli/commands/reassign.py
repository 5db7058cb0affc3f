"""`replog topics alter | reassign | elect-leaders`: more partitions, other brokers, other leaders.

A plan is a JSON file, the one of Kafka's tool::

    {"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [2, 3]}]}
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replog.cli import common
from replog.cli.views import reassignments as reassign_view
from replog.cli.views.reassignments import target, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from replog.cli.views.reassignments import Verified
    from replog.client import Admin, Reassignments
    from replog.controller.requests import PartitionResult
    from replog.rpc.metadata_messages import ClusterMetadata

PLAN_VERSION = 1
MANUAL_SEED = 0
"""Of the placer: the same wish gives the same plan."""

INTERVAL_S = 1.0
"""Between two looks at what is being copied."""

LOOKS_KEPT = 10
"""A rate is what arrived since the oldest of the looks that are kept."""

Key = tuple[str, int]


def alter(
    name: Annotated[str, typer.Argument(help="The topic.")],
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=common.INT_MAX, help="How many it has afterwards.")
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Give a topic more partitions.  Keys go to other partitions from then on."""
    common.ask(
        bootstrap_servers, lambda admin: admin.create_partitions(name, partitions), f"adding partitions to {name}"
    )
    typer.echo(f"{name} has {common.counted(partitions, 'partition')}")


def elect_leaders(
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Only of this topic; default: all.")] = "",
    partition: Annotated[
        int,
        typer.Option(
            "--partition", metavar="ID", max=common.INT_MAX, show_default=False, help="Only this one; needs --topic."
        ),
    ] = -1,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where nobody leads: any replica.  ACKNOWLEDGED RECORDS MAY BE LOST.")
    ] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Let the first replica of each partition lead, where it is in sync."""
    from replog.cli.errors import UsageError

    if partition >= 0 and not topic:
        raise UsageError("--partition", partition, "--partition needs --topic: each topic has its own")
    results = common.ask(
        bootstrap_servers, lambda admin: _elect(admin, topic, partition, unclean=unclean), "electing leaders"
    )
    if not _report(results, "elected"):
        typer.echo("every partition has the leader it should have")


def reassign(
    plan: Annotated[Path | None, typer.Argument(help="JSON file, for --execute, --verify and --cancel.")] = None,
    generate: Annotated[bool, typer.Option("--generate", help="Print a plan for --topics on --brokers.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Have the plan carried out.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Show how far it is; status 1 while it is not done.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="With --verify: look again until it is done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --verify: one JSON object for each look.")] = False,
    throttle: Annotated[
        int,
        typer.Option(
            "--throttle",
            metavar="BYTES/S",
            min=0,
            help="For --execute: what each broker gives new replicas, and takes for its own.",
        ),
    ] = 0,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop it: the partitions stay where they were.")] = False,
    topics: Annotated[str, typer.Option("--topics", metavar="A,B", help="For --generate; default: all.")] = "",
    brokers: Annotated[str, typer.Option("--brokers", metavar="1,2", help="For --generate; default: all in use.")] = "",
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Move partitions to other brokers, while they are used."""
    from replog.cli.errors import UsageError

    if [generate, execute, verify, cancel].count(True) != 1:
        raise UsageError("reassign", "", "say one of --generate, --execute, --verify and --cancel")
    if generate:
        named, numbers = _names(topics), _numbers(brokers)
        metadata = common.ask(bootstrap_servers, lambda admin: admin.describe_cluster())
        typer.echo(plan_text(proposed_plan(metadata, named, numbers)))
        return
    if plan is None:
        raise UsageError("PLAN", "", "name the file with the plan; `--generate` prints one")
    wanted = read_plan(plan)
    if verify:
        if not common.run(_verify(bootstrap_servers, wanted, watch=watch, as_json=as_json)):
            raise typer.Exit(1)
        return
    moves: Mapping[Key, tuple[int, ...] | None] = wanted if execute else dict.fromkeys(wanted)
    results = common.ask(
        bootstrap_servers, lambda admin: _reassign(admin, moves, throttle if execute else 0), "asking the controller"
    )
    _report(results, "moves" if execute else "canceled")


def read_plan(path: Path) -> dict[Key, tuple[int, ...]]:
    """Reads a plan from a file: replicas by topic and partition.

    Raises:
        ConfigError: The file is not a plan; the message says what is expected.
        OSError: The file cannot be read.
    """
    from replog.errors import ConfigError

    try:
        entries: Any = json.loads(path.read_text(encoding="utf-8"))["partitions"]
        plan = {(str(e["topic"]), int(e["partition"])): tuple(int(b) for b in e["replicas"]) for e in entries}
    except (ValueError, KeyError, TypeError) as error:
        example = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise ConfigError("PLAN", str(path), f"{path} is no plan ({error!r}); expected {example}") from error
    numbers = [number for (_, partition), replicas in plan.items() for number in (partition, *replicas)]
    if any(not 0 <= number <= common.INT_MAX for number in numbers):
        raise ConfigError("PLAN", str(path), f"{path} has a number that is no partition or broker")
    if len(plan) != len(entries):
        raise ConfigError("PLAN", str(path), f"{path} names a partition twice")
    return plan


def plan_text(plan: Mapping[Key, Iterable[int]]) -> str:
    """Returns a plan as text that `read_plan` takes."""
    entries = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in plan.items()]
    return json.dumps({"version": PLAN_VERSION, "partitions": entries})


def proposed_plan(
    metadata: ClusterMetadata, topics: tuple[str, ...], brokers: tuple[int, ...]
) -> dict[Key, tuple[int, ...]]:
    """Spreads topics anew over brokers, by racks, with as many replicas as each partition has.

    Raises:
        InvalidReplicationFactorError: A topic has more replicas than there are brokers.
        UnknownTopicOrPartitionError, InvalidRequestError: A topic or broker is not there.
    """
    from replog.controller.partitions.placement import ReplicaPlacer, UsableBroker
    from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError

    known = {broker.broker_id: broker for broker in metadata.brokers}
    for broker_id in brokers:
        if broker_id not in known:
            raise InvalidRequestError(f"there is no broker {broker_id}; there are: {', '.join(map(str, known))}")
    chosen = brokers or tuple(b for b, info in known.items() if not (info.drained or info.in_controlled_shutdown))
    by_name = {topic.name: topic for topic in metadata.topics}
    plan: dict[Key, tuple[int, ...]] = {}
    placer = ReplicaPlacer(
        [UsableBroker(b, known[b].rack, fenced=known[b].fenced) for b in chosen],
        random.Random(MANUAL_SEED),  # noqa: S311 -- no secret
    )
    for name in topics or tuple(sorted(by_name)):
        if name not in by_name:
            raise UnknownTopicOrPartitionError(f'there is no topic "{name}"')
        partitions = by_name[name].partitions
        placed = placer.place(len(partitions), len(target(partitions[0]))) if partitions else ()
        for partition, replicas in zip(partitions, placed, strict=True):
            plan[name, partition.partition_id] = tuple(replicas)
    return plan


async def _elect(admin: Admin, topic: str, partition: int, *, unclean: bool) -> tuple[PartitionResult, ...]:
    from replog.metadata.records import ElectionType

    election_type = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    chosen = await _partitions_of(admin, topic, partition)
    return await admin.elect_leaders(chosen, election_type=election_type)


async def _partitions_of(admin: Admin, topic: str, partition: int) -> list[Key] | None:
    if not topic:
        return None
    if partition >= 0:
        return [(topic, partition)]
    info = (await admin.describe_topics([topic]))[topic]
    return [(topic, one.partition_id) for one in info.partitions]


async def _verify(bootstrap_servers: str, wanted: Mapping[Key, tuple[int, ...]], *, watch: bool, as_json: bool) -> bool:
    """Looks twice where something is being copied, for a rate; with `watch` until nothing of the plan is under way."""
    async with await common.admin_of(bootstrap_servers) as admin:
        looks: deque[Reassignments] = deque(maxlen=LOOKS_KEPT)
        with _shown(watch=watch, as_json=as_json) as show:
            while True:
                metadata = await admin.describe_cluster()
                moves = await admin.describe_reassignments(looks[0] if looks else None)
                is_first = not looks
                looks.append(moves)
                found = verified(metadata, moves, wanted)
                goes_on = watch and any(one.is_under_way for one in found)
                if not (is_first and any(one.copies for one in found)):
                    show(found, moves)
                    if not goes_on:
                        break
                await asyncio.sleep(INTERVAL_S)
        if not any(p.adding_replicas for topic in metadata.topics for p in topic.partitions) and await _is_throttled(
            admin
        ):
            await _set_throttle(admin, None)
            typer.echo("nothing moves any more: the throttle is removed", err=as_json)
    return all(one.is_done for one in found)


@contextmanager
def _shown(*, watch: bool, as_json: bool) -> Iterator[Callable[[Sequence[Verified], Reassignments], None]]:
    """Shows looks: one after the other, or on a terminal with `watch` each in the place of the one before."""
    from rich.live import Live
    from rich.text import Text

    console = common.out_console()
    if as_json:
        yield lambda found, moves: typer.echo(reassign_view.as_json(found, moves))
    elif watch and console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda found, moves: live.update(Text("\n".join(reassign_view.lines(found, moves))), refresh=True)
    else:
        yield lambda found, moves: typer.echo("\n".join(reassign_view.lines(found, moves)))


async def _reassign(
    admin: Admin, moves: Mapping[Key, tuple[int, ...] | None], throttle: int
) -> tuple[PartitionResult, ...]:
    if throttle:
        await _require_throttles(admin)
        await _set_throttle(admin, throttle)
    return await admin.reassign_partitions(moves)


async def _require_throttles(admin: Admin) -> None:
    """Raises UsageError where a rate alone throttles nothing: brokers of Apache Kafka want the replicas named."""
    from replog.cli.errors import UsageError
    from replog.client.cluster.image import are_kafkas

    if are_kafkas((await admin.describe_cluster()).brokers):
        raise UsageError(
            "--throttle",
            "",
            "Apache Kafka throttles only replicas that the topics name: set leader.replication.throttled.replicas=* and "
            "follower.replication.throttled.replicas=* of each topic, and the two rates, by `replog configs set`, and leave "
            "--throttle out",
        )


async def _set_throttle(admin: Admin, bytes_per_s: int | None) -> None:
    from replog.client.admin.operations import CLUSTER
    from replog.metadata.config_keys import REPLICATION_THROTTLES

    await admin.alter_configs(CLUSTER, {key.name: bytes_per_s for key in REPLICATION_THROTTLES})


async def _is_throttled(admin: Admin) -> bool:
    from replog.client.admin.operations import CLUSTER
    from replog.metadata.config_keys import REPLICATION_THROTTLES

    names = {key.name for key in REPLICATION_THROTTLES}
    return any(one.name in names and one.source == "cluster" for one in await admin.describe_configs(CLUSTER))


def _report(results: tuple[PartitionResult, ...], word: str) -> int:
    """Says what became of each partition; status 1 when one was refused."""
    from replog.errors import ErrorCode

    refused = False
    for result in results:
        fine = result.error in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
        refused = refused or not fine
        words = word if result.error is ErrorCode.NONE else result.message or result.error.name.lower()
        typer.echo(f"{result.topic}-{result.partition_id}: {words}", err=not fine)
    if refused:
        raise typer.Exit(1)
    return len(results)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _numbers(text: str) -> tuple[int, ...]:
    from replog.cli.errors import UsageError

    try:
        numbers = tuple(int(number) for number in _names(text))
    except ValueError:
        numbers = (-1,)
    if not all(0 <= number <= common.INT_MAX for number in numbers):
        raise UsageError("--brokers", text, f'--brokers "{text}" is not a list of node ids')
    return numbers
