"""What `replog groups` prints: lines and tables for people, lines of JSON for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from replog.cli import common
from replog.cli.views.reassignments import time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.client import GroupDescription, MemberDescription, PartitionLag, TopicPartition
    from replog.coordinator.describing.requests import ListedGroup

RUN_LENGTH = 3
"""So many partitions in a row are shown as a range."""


def listed(groups: Sequence[ListedGroup]) -> Iterator[str]:
    """Describes groups, one a line under a heading; plain text, since there may be many thousands."""
    rows = [("group", "type", "state")]
    rows += [(shown(each.group_id), each.group_type.value, each.state) for each in groups]
    name_width, type_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, kind, state in rows:
        yield f"{name:{name_width}}  {kind:{type_width}}  {state}"


def shown(text: str) -> str:
    """Returns a name as a terminal may show it: what clients choose may hold anything."""
    return text if text.isprintable() else repr(text)


def headline(group: GroupDescription) -> str:
    """Describes a group in a line."""
    partitions = [each for member in group.members for each in member.assignment]
    topics = {each.topic for each in partitions}
    words = [f"{shown(group.group_id)}: {group.state}", common.counted(len(group.members), "member")]
    if partitions:
        words[1] += f" with {common.counted(len(partitions), 'partition')} of {common.counted(len(topics), 'topic')}"
    words.append(f"{group.group_type.value} protocol")
    if group.protocol_type and group.protocol_type != "consumer":
        words.append(f"of {shown(group.protocol_type)}")
    if group.assignor:
        words.append(f"assigned by {shown(group.assignor)}")
    if group.epoch is not None:
        words.append(f"epoch {group.epoch}")
    if group.target_epoch != group.epoch:
        words.append(f"target epoch {group.target_epoch}")
    return ", ".join([*words, f"coordinated by broker {group.coordinator_id}"])


def members_table(members: Iterable[MemberDescription]) -> RenderableType:
    """Renders members with what they read."""
    from replog.cli.terminal.grid import Grid

    rows = [
        [
            shown(each.member_id),
            shown(each.instance_id) if each.instance_id is not None else "-",
            shown(each.client_id),
            shown(each.host),
            "-" if each.epoch is None else str(each.epoch),
            partitions_text(each.assignment),
        ]
        for each in members
    ]
    return Grid(("member", "instance", "client", "host", ">epoch", "partitions"), rows)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Says which partitions these are, by topic, with ranges: `flights:0-7,9 bookings:0`; "-" where there are none."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(_ranges(numbers))}" for topic, numbers in by_topic.items()) or "-"


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    first = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            run = numbers[first:index]
            yield from [f"{run[0]}-{run[-1]}"] if len(run) >= RUN_LENGTH else map(str, run)
            first = index


def lag_table(lags: Iterable[PartitionLag]) -> RenderableType:
    """Renders how far a group has come in each partition."""
    from replog.cli.terminal.grid import Grid

    rows = [
        [
            f"{each.topic}-{each.partition}",
            _number(each.committed),
            _number(each.log_end),
            _number(each.lag),
            _age(each),
            "nobody" if each.owner is None else shown(each.owner.member_id),
        ]
        for each in lags
    ]
    return Grid(("partition", ">committed", ">log end", ">lag", ">for", "read by"), rows)


def lag_words(group: str, lags: Sequence[PartitionLag]) -> str:
    """Describes how far a group has come in all its partitions together."""
    if not lags:
        return f"{shown(group)}: no committed offsets, and nobody reads"
    known = [each.lag for each in lags if each.lag is not None]
    words = f"{shown(group)}: {sum(known):,} behind in {common.counted(len(known), 'partition')}"
    if oldest_ms := max((each.lag_ms or 0 for each in lags), default=0):
        words += f", for {time_text(oldest_ms / 1000)}"
    if len(known) == len(lags):
        return words
    return f"{words}; not known in {common.counted(len(lags) - len(known), 'partition')}: no committed offset, or no leader"


def lag_screen(found: Mapping[str, Sequence[PartitionLag]]) -> RenderableType:
    """Renders one look at the lags of groups as a whole."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for group, lags in found.items():
        parts += [lag_table(lags)] if lags else []
        parts.append(Text(lag_words(group, lags)))
    return Group(*parts)


def lag_metrics(found: Mapping[str, Sequence[PartitionLag]]) -> Iterator[str]:
    """Returns lags as lines that Prometheus reads; what is not known has none."""
    kinds: tuple[tuple[str, str, Callable[[PartitionLag], float | None]], ...] = (
        ("replog_group_lag_records", "Records that a group has not committed past.", lambda each: each.lag),
        (
            "replog_group_lag_seconds",
            "Age of the first record that a group has not committed past.",
            lambda each: None if each.lag_ms is None else each.lag_ms / 1000,
        ),
    )
    for name, text, value_of in kinds:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} gauge"
        for group, lags in found.items():
            for each in lags:
                if (value := value_of(each)) is not None:
                    yield f'{name}{{group="{_label(group)}",topic="{each.topic}",partition="{each.partition}"}} {value}'


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def lag_json(group: str, lags: Sequence[PartitionLag]) -> str:
    """Returns one look at the lag as a line of JSON; `lag` and `lag_ms`, the longest, are of the partitions in which they are known."""
    partitions = [asdict(each) | {"owner": None if each.owner is None else each.owner.member_id} for each in lags]
    total = sum(each.lag for each in lags if each.lag is not None)
    oldest_ms = max((each.lag_ms for each in lags if each.lag_ms is not None), default=None)
    return common.json_object({"group_id": group, "lag": total, "lag_ms": oldest_ms, "partitions": partitions})


def _age(lag: PartitionLag) -> str:
    if lag.lag_ms is None:
        return "-"
    return time_text(lag.lag_ms / 1000) if lag.lag else "0 s"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
