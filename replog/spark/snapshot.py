"""What one DataFrame reads: a range of offsets for each partition, fixed once.

Spark plans each scan for itself, in processes of its own: the two sides of a self-join would see different high
watermarks.  So the ranges are resolved when the DataFrame is made and travel with it.  No range ends above the high
watermark of its time, and a high watermark is only taken from a leader that knows it (KIP-207).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from replog.client.cluster.offsets import list_offsets
from replog.client.cluster.view import ClusterView
from replog.client.types import OffsetAndTimestamp, TopicPartition
from replog.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicIdError
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from replog.spark.options import EARLIEST, LATEST, PartitionOffsets, ReadOptions
from replog.spark.patience import PlanningPatience

CONNECT_TIMEOUT_MS = 5_000
"""How long the first answer of a broker may take: with what Spark adds, a wrong port is told within ten seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of one partition, `end_offset` at most the high watermark.

    The topic id tells a topic from a later one of the same name.
    """

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"

    @property
    def offsets_count(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class PinnedOffsets:
    """The ranges of one DataFrame, one for each topic partition, empty ones included."""

    cluster_id: str
    ranges: tuple[OffsetRange, ...]


async def resolve_snapshot(view: ClusterView, options: ReadOptions) -> PinnedOffsets:
    """Asks the leaders where each partition begins and ends, and fixes it.

    Args:
        view: A view of the cluster; opened if it is not.
        options: The checked options, which say what to read.

    Raises:
        RequestTimedOutError: No broker answers, or some partition has nobody that tells its offsets in time
            (`PlanningPatience`).
        UnknownTopicOrPartitionError: A topic or partition does not exist.
        UnknownTopicIdError: A topic was deleted or created anew meanwhile.
        ConfigError: Json offsets do not name the partitions that are read, or end before they start.
        OffsetOutOfRangeError: A json offset lies outside of the log, and `failOnDataLoss` is set.
    """
    await view.ready(CONNECT_TIMEOUT_MS)
    topic_ids = {topic: (await view.topic_or_raise(topic)).topic_id for topic in options.topics}
    partitions = _partitions(view, options)
    _require_named("startingOffsets", options.starting_offsets, partitions)
    _require_named("endingOffsets", options.ending_offsets, partitions)
    patience = PlanningPatience(view, options.poll_timeout_ms)
    starts, ends = await asyncio.gather(
        *(
            list_offsets(
                view, dict.fromkeys(partitions, which), timeout_ms=patience.timeout_ms, give_up=patience.give_up
            )
            for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        )
    )
    for topic, topic_id in topic_ids.items():
        if (now := view.image.topics.get(topic)) is None or now.topic_id != topic_id:
            raise UnknownTopicIdError(
                f"topic {topic} was deleted or created anew while it was looked at; load it again"
            )
    ranges = (_range(options, topic_ids[p.topic], p, _Bounds.of(starts[p], ends[p])) for p in partitions)
    return PinnedOffsets(view.cluster_id, tuple(ranges))


@dataclass(frozen=True, slots=True)
class _Bounds:
    log_start_offset: int
    high_watermark: int

    @classmethod
    def of(cls, start: OffsetAndTimestamp, end: OffsetAndTimestamp) -> _Bounds:
        """Makes bounds of two answers that were asked for side by side: the log start may lie above the other one."""
        return cls(min(start.offset, end.offset), end.offset)

    def __contains__(self, offset: int) -> bool:
        return self.log_start_offset <= offset <= self.high_watermark

    def clip(self, offset: int) -> int:
        return min(max(offset, self.log_start_offset), self.high_watermark)


def _partitions(view: ClusterView, options: ReadOptions) -> list[TopicPartition]:
    if options.assignment is not None:
        return [TopicPartition(topic, p) for topic, members in options.assignment.items() for p in members]
    topics = view.image.topics
    return [
        TopicPartition(topic, partition.partition_id)
        for topic in options.topics
        for partition in sorted(topics[topic].partitions, key=lambda partition: partition.partition_id)
    ]


def _require_named(name: str, offsets: PartitionOffsets | None, partitions: Iterable[TopicPartition]) -> None:
    """Refuses json offsets that leave out a partition that is read, or name any other.

    A forgotten one must not be read by surprise.
    """
    if offsets is None:
        return
    wanted = set(partitions)
    named = {TopicPartition(topic, partition) for topic, members in offsets.items() for partition in members}
    for missing in sorted(wanted - named):
        raise ConfigError(
            name, str(missing), f"{name} does not name {missing}: a json has every partition that is read"
        )
    for strange in sorted(named - wanted):
        raise ConfigError(
            name, str(strange), f"{name} names {strange}, which does not exist or is not read: take it out"
        )


def _range(options: ReadOptions, topic_id: UUID, partition: TopicPartition, bounds: _Bounds) -> OffsetRange:
    start = _wanted(options.starting_offsets, partition, EARLIEST, bounds.log_start_offset)
    end = _wanted(options.ending_offsets, partition, LATEST, bounds.high_watermark)
    if start > end:
        text = f"{partition} would start at offset {start} and end at {end}: give an end at or after the start"
        raise ConfigError("endingOffsets", end, text)
    start = _inside("startingOffsets", start, partition, bounds, strict=options.fail_on_data_loss)
    end = _inside("endingOffsets", end, partition, bounds, strict=options.fail_on_data_loss)
    return OffsetRange(partition.topic, topic_id, partition.partition, start, end)


def _wanted(offsets: PartitionOffsets | None, partition: TopicPartition, marker: int, default: int) -> int:
    if offsets is None:
        return default
    members: Mapping[int, int] = offsets[partition.topic]
    offset = members[partition.partition]
    return default if offset == marker else offset


def _inside(name: str, offset: int, partition: TopicPartition, bounds: _Bounds, *, strict: bool) -> int:
    if offset in bounds:
        return offset
    text = (
        f"{name}: offset {offset} of {partition} is outside of [{bounds.log_start_offset}, {bounds.high_watermark}], "
        "the log start and the high watermark"
    )
    if strict:
        raise OffsetOutOfRangeError(
            f'{text}. Give an offset inside, or failOnDataLoss "false" to read what is there.',
            bounds.log_start_offset,
            bounds.high_watermark,
        )
    _log.warning("%s; reading from there (failOnDataLoss is false)", text)
    return bounds.clip(offset)
