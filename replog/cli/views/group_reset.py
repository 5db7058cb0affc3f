"""`replog groups reset`: which offsets a group is to go to, worked out before anything is changed.

An offset that is wanted and not there becomes the nearest one that is, as with Kafka's tool, and each such row says so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.cli import common
from replog.cli.errors import UsageError
from replog.client.types import TopicPartition

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.client import Admin
    from replog.errors import ReplogError

LINES_MAX: Final = 1_000_000
"""Of a file with offsets: more than a cluster has partitions."""

_DURATION = re.compile(r"(?:P(?=.))?(?:(\d{1,9})D)?T?(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?", re.IGNORECASE)
_UNITS_S: Final = (86_400, 3_600, 60, 1)


class Where(Enum):
    """Where a group is to go."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"
    FILE = "file"


class Target(Struct, frozen=True):
    """Where a group is to go in each partition.

    Attributes:
        where: The kind of place.
        number: The offset, the number of offsets to go on or (negative) back, or the time in milliseconds since 1970.
        offsets: The offsets of a file.
    """

    where: Where
    number: int = 0
    offsets: Mapping[TopicPartition, int] | None = None


class KnownOffsets(Struct, frozen=True):
    """What is known of a partition.

    Attributes:
        current: The committed offset; None where there is none.
        log_start: The first offset that is kept.
        log_end: The high watermark.
        at_time: The first offset of a record at or after the time that is asked for; None where no record is that late.
    """

    current: int | None
    log_start: int
    log_end: int
    at_time: int | None = None


class OffsetChange(Struct, frozen=True):
    """What is to become of a partition.

    Attributes:
        current: The committed offset; None where there is none.
        new: The offset that is to be committed.
        note: Why it is not what was asked for; "" where it is.
    """

    topic: str
    partition: int
    current: int | None
    new: int
    note: str

    @property
    def difference(self) -> int | None:
        """How many offsets the group goes on, or (negative) back; None where it has no offset yet."""
        return None if self.current is None else self.new - self.current


def change_of(partition: TopicPartition, target: Target, found: KnownOffsets) -> OffsetChange:
    """Works out what is to become of a partition.

    Raises:
        UsageError: The offset is to be shifted, and there is none.
    """
    wanted, note = _wanted(partition, target, found)
    new = min(max(wanted, found.log_start), found.log_end)
    if wanted > new:
        note = f"{wanted} is past the end of the log"
    elif wanted < new:
        note = f"{wanted} is before the start of the log"
    return OffsetChange(partition.topic, partition.partition, found.current, new, note)


def _wanted(partition: TopicPartition, target: Target, found: KnownOffsets) -> tuple[int, str]:
    match target.where:
        case Where.EARLIEST:
            return found.log_start, ""
        case Where.LATEST:
            return found.log_end, ""
        case Where.OFFSET:
            return target.number, ""
        case Where.TIME:
            return (found.log_end, "no record is that late") if found.at_time is None else (found.at_time, "")
        case Where.SHIFT:
            if found.current is None:
                reason = (
                    f"{partition} has no committed offset to shift; name an offset with --to-offset, or --to-earliest"
                )
                raise UsageError("--shift-by", target.number, reason)
            return found.current + target.number, ""
        case Where.FILE:
            return (target.offsets or {})[partition], ""


def target_of(
    *,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    to_time: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: Path | None,
    now_ms: int,
) -> Target:
    """Returns where the options say that a group is to go.

    Raises:
        UsageError: They say nothing, or several things, or one that cannot be understood.
        OSError: The file cannot be read.
    """
    said = (to_offset, to_earliest or None, to_latest or None, to_time, by_duration, shift_by, from_file)
    if sum(each is not None for each in said) != 1:
        reason = (
            "say one of --to-offset, --to-earliest, --to-latest, --to-time, --by-duration, --shift-by and --from-file"
        )
        raise UsageError("reset", "", reason)
    if to_offset is not None:
        return Target(Where.OFFSET, to_offset)
    if to_time is not None:
        return Target(Where.TIME, time_ms(to_time))
    if by_duration is not None:
        return Target(Where.TIME, max(0, now_ms - duration_ms(by_duration)))
    if shift_by is not None:
        return Target(Where.SHIFT, shift_by)
    if from_file is not None:
        return Target(Where.FILE, offsets=read_offsets(from_file))
    return Target(Where.EARLIEST if to_earliest else Where.LATEST)


def time_ms(text: str) -> int:
    """Returns a time as milliseconds since 1970.

    Raises:
        UsageError: It is no time, or has no time zone.
    """
    try:
        found = datetime.fromisoformat(text)
        since_ms = round(found.timestamp() * 1000) if found.tzinfo is not None else -1
    except (ValueError, OverflowError):
        since_ms = -1
    if since_ms < 0:
        reason = f'--to-time "{text}" is no time since 1970 with its zone, such as 2026-01-31T13:00:00Z or ...+02:00'
        raise UsageError("--to-time", text, reason)
    return since_ms


def duration_ms(text: str, option: str = "--by-duration") -> int:
    """Returns the duration that an option says, in milliseconds: 90s, 1h30m, 7d; or as Kafka's tool takes it, PT1H30M.

    Raises:
        UsageError: It is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise UsageError(option, text, f'{option} "{text}" is no duration, such as 90s, 1h30m or 7d')
    parts = zip(found.groups(), _UNITS_S, strict=True)
    return sum(int(number or 0) * unit_s * 1000 for number, unit_s in parts)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Reads a file of lines TOPIC,PARTITION,OFFSET, as Kafka's tool exports it.

    Raises:
        UsageError: A line is something else, or names a partition again, or the file has none, or too many.
        OSError: The file cannot be read.
    """
    found: dict[TopicPartition, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file)
            for fields in lines:
                if fields:
                    partition, offset = _line(path, lines.line_num, fields)
                    if partition in found or len(found) == LINES_MAX:
                        raise _wrong_line(path, lines.line_num, f"names {partition} twice, or is one too many")
                    found[partition] = offset
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError("--from-file", str(path), f"{path} is no file of TOPIC,PARTITION,OFFSET: {error}") from error
    if not found:
        raise UsageError("--from-file", str(path), f"{path} has no line TOPIC,PARTITION,OFFSET")
    return found


def _line(path: Path, number: int, fields: Sequence[str]) -> tuple[TopicPartition, int]:
    if len(fields) == 3:
        topic, partition, offset = (field.strip() for field in fields)
        if topic and common.is_number(partition, common.INT_MAX) and common.is_number(offset, common.OFFSET_MAX):
            return TopicPartition(topic, int(partition)), int(offset)
    raise _wrong_line(path, number, "is not TOPIC,PARTITION,OFFSET, such as flights,0,1000")


def _wrong_line(path: Path, number: int, what: str) -> UsageError:
    return UsageError("--from-file", str(path), f"{path}: line {number} {what}")


def changes_table(changes: Iterable[OffsetChange]) -> RenderableType:
    """Renders where a group is to go."""
    from replog.cli.terminal.grid import Grid

    rows = [
        [
            f"{each.topic}-{each.partition}",
            "-" if each.current is None else f"{each.current:,}",
            f"{each.new:,}",
            "-" if each.difference is None else f"{each.difference:+,}",
            each.note,
        ]
        for each in changes
    ]
    return Grid(("partition", ">current", ">new", ">difference", "note"), rows)


def require_one_choice(target: Target, topics: Sequence[str], *, all_topics: bool) -> None:
    """Refuses options that name no partitions, or name them twice.

    Raises:
        UsageError: They do.
    """
    ways = [target.where is Where.FILE, bool(topics), all_topics].count(True)
    if ways == 1:
        return
    reason = "say which partitions: one of --topic (several times, if you like), --all-topics and --from-file"
    raise UsageError("reset", "", reason)


def members_error(group: str, members_count: int) -> ReplogError:
    """Returns the refusal of a group that has members."""
    from replog.errors import NonEmptyGroupError

    return NonEmptyGroupError(
        f'group "{group}" has {common.counted(members_count, "member")}, which would go on from their own offsets: stop them '
        f"first. `replog groups describe {group} --members` shows who they are. Nothing was changed"
    )


def committed_partitions(topics: Iterable[str], committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns which committed partitions TOPIC or TOPIC:0,2 name; the topics need not exist any more.

    Raises:
        UsageError: A text cannot be understood.
        InvalidRequestError: The group has committed nothing of what one names.
    """
    from replog.errors import InvalidRequestError

    found: set[TopicPartition] = set()
    known = set(committed)
    for text in topics:
        topic, numbers = _parsed(text)
        named = {each for each in known if each.topic == topic and (not numbers or each.partition in numbers)}
        missing = [number for number in numbers if TopicPartition(topic, number) not in known]
        if not named or missing:
            what = ", ".join(f"{topic}-{number}" for number in missing) or f'topic "{topic}"'
            raise InvalidRequestError(f"the group has committed nothing of {what}; nothing was deleted")
        found |= named
    return sorted(found)


def chosen_partitions(
    topics: Iterable[str], counts: Mapping[str, int], committed: Iterable[TopicPartition], *, all_topics: bool
) -> list[TopicPartition]:
    """Returns the partitions that the options name, sorted.

    Args:
        topics: The values of --topic: TOPIC, or TOPIC:0,2 for some of its partitions.
        counts: The number of partitions of every topic that there is.
        committed: The partitions that the group has committed offsets of.
        all_topics: Whether these are all meant.

    Raises:
        UsageError: A value cannot be understood.
        UnknownTopicOrPartitionError: There is no such topic or partition.
    """
    found = {each for each in committed if each.partition < counts.get(each.topic, 0)} if all_topics else set()
    for text in topics:
        found |= _named(text, counts)
    return sorted(found)


def _named(text: str, counts: Mapping[str, int]) -> set[TopicPartition]:
    topic, numbers = _parsed(text)
    partitions = [TopicPartition(topic, number) for number in numbers]
    require_existing([TopicPartition(topic, 0), *partitions], counts)
    return set(partitions or (TopicPartition(topic, number) for number in range(counts[topic])))


def _parsed(text: str) -> tuple[str, list[int]]:
    topic, colon, numbers = text.partition(":")
    given = [number.strip() for number in numbers.split(",")] if colon else []
    if not topic or not all(common.is_number(number, common.INT_MAX) for number in given):
        raise UsageError("TOPIC", text, f'"{text}" is not TOPIC, or TOPIC:0,2 for some of its partitions')
    return topic, [int(number) for number in given]


def require_existing(partitions: Iterable[TopicPartition], counts: Mapping[str, int]) -> None:
    """Refuses partitions that there are not.

    Raises:
        UnknownTopicOrPartitionError: There are such.
    """
    from replog.errors import UnknownTopicOrPartitionError

    for topic, partition in partitions:
        count = counts.get(topic)
        if count is None:
            raise UnknownTopicOrPartitionError(f'there is no topic "{topic}". `replog topics list` shows the topics')
        if partition >= count:
            raise UnknownTopicOrPartitionError(
                f"{topic} has {common.counted(count, 'partition')}, numbered from 0; there is no partition {partition}"
            )


# ---- asking -----------------------------------------------------------------------------------------------------------


async def standing(admin: Admin, name: str, *, may_be_new: bool) -> tuple[int, dict[TopicPartition, int] | None]:
    """Returns how many members a group has, and its offsets; None for those of a group that there is not, if it may be new."""
    from replog.errors import GroupIdNotFoundError

    try:
        members = (await admin.describe_groups([name]))[name].members
        return len(members), await admin.group_offsets(name)
    except GroupIdNotFoundError:
        if not may_be_new:
            raise
        return 0, None


async def planned(
    admin: Admin,
    name: str,
    target: Target,
    topics: Sequence[str],
    committed: Mapping[TopicPartition, int],
    *,
    all_topics: bool,
) -> list[OffsetChange]:
    """Asks where a group is to go in each partition, and changes nothing.

    Args:
        admin: The client that asks.
        name: The name of the group.
        target: The place to go to.
        topics: The partitions: TOPIC, or TOPIC:0,2 for some of its partitions.
        committed: The offsets of the group.
        all_topics: Whether all partitions of these are meant.

    Raises:
        UsageError: A text cannot be understood, or an offset is to be shifted, and there is none.
        UnknownTopicOrPartitionError: There is no such topic or partition.
        InvalidRequestError: Nothing is named, and the group has committed nothing.
    """
    from replog.errors import InvalidRequestError
    from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    metadata = await admin.describe_cluster()
    counts = {topic.name: len(topic.partitions) for topic in metadata.topics}
    if target.offsets is not None:
        partitions = sorted(target.offsets)
        require_existing(partitions, counts)
    else:
        partitions = chosen_partitions(topics, counts, committed, all_topics=all_topics)
    if not partitions:
        raise InvalidRequestError(f'group "{name}" has committed no offsets; name a topic with --topic')
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    is_by_time = target.where is Where.TIME
    times = await admin.list_offsets(dict.fromkeys(partitions, target.number)) if is_by_time else {}
    found = {
        each: KnownOffsets(
            committed.get(each),
            starts[each].offset,
            ends[each].offset,
            times[each].offset if each in times and times[each].offset >= 0 else None,
        )
        for each in partitions
    }
    return [change_of(each, target, found[each]) for each in partitions]
