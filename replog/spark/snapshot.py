"""What one DataFrame reads: a range of offsets for each partition, fixed once.

Spark plans each scan for itself, in processes of its own: the two sides of a self-join would see different high
watermarks.  So the ranges are resolved when the DataFrame is made and travel with it.  No range ends above the high
watermark of its time, and a high watermark is only taken from a leader that knows it (KIP-207).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.cluster.image import ClusterImage
from replog.client.cluster.leader_calls import first_few
from replog.client.cluster.offsets import find_cuts
from replog.client.cluster.view import VISIBLE_WITHIN_MS, ClusterView
from replog.client.ranges.bounds import Bounds, look_up_bounds, look_up_times
from replog.client.ranges.offset_range import OffsetRange
from replog.client.ranges.patience import PlanningPatience
from replog.client.ranges.range_client import CONNECT_TIMEOUT_MS
from replog.client.types import TopicPartition
from replog.errors import (
    ConfigError,
    ReplogError,
    RequestTimedOutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.rpc.messages import Cut, ListOffsetsResult
from replog.spark.options import ReadOptions, TopicChoice
from replog.spark.positions import end_offset, require_named, start_offset, times_to_look_up
from replog.spark.words import WORDS

CUTS_TIMEOUT_MS = 5_000
"""How long leaders may take to tell where to cut: a plan that is less balanced is better than one that waits."""

CUTS_PARTITIONS_MAX = 1_000
"""Partitions of one such question; an answer has room for ten cuts of each, then."""

_log = logging.getLogger(__name__)


class SizedRange(Struct, frozen=True):
    """A range, and about how many bytes its batches have; None: nobody knows."""

    range: OffsetRange
    size_bytes: int | None


class PinnedOffsets(Struct, frozen=True):
    """What one DataFrame reads.

    Attributes:
        cluster_id: The id of the cluster.
        ranges: A range for each topic partition, empty ones included.
        parts: The same without empty ones, cut into parts of about the wished size, in order.
    """

    cluster_id: str
    ranges: tuple[OffsetRange, ...]
    parts: tuple[SizedRange, ...]


async def resolve_snapshot(view: ClusterView, options: ReadOptions, now_ms: int) -> PinnedOffsets:
    """Fixes what a batch reads, and cuts it into parts; arguments and errors are those of `resolve_ranges`."""
    ranges = await resolve_ranges(view, options, now_ms)
    return PinnedOffsets(view.cluster_id, ranges, await cut_ranges(view, ranges, options.target_bytes_per_partition))


async def resolve_ranges(view: ClusterView, options: ReadOptions, now_ms: int) -> tuple[OffsetRange, ...]:
    """Asks the leaders where each partition begins and ends, and fixes it.

    Args:
        view: A view of the cluster; opened if it is not.
        options: The checked options, which say what to read.
        now_ms: The time that relative ones count from, in milliseconds since 1970.

    Raises:
        RequestTimedOutError: No broker answers, or some partition has nobody that tells its offsets in time
            (`PlanningPatience`).
        UnknownTopicOrPartitionError: A topic or partition does not exist, or no topic matches the pattern.
        UnknownTopicIdError: A topic was deleted or created anew meanwhile.
        ConfigError: A json does not name the partitions that are read, a partition would end before it starts, or has no
            record at or after its starting time.
        OffsetOutOfRangeError: A json offset lies outside of the log, and `failOnDataLoss` is set.
    """
    await view.ready(CONNECT_TIMEOUT_MS)
    await _await_controller(view)
    topics = chosen_topics(view.image, options.chosen)
    with _naming(options.chosen):
        topic_ids = {topic: (await view.topic_or_raise(topic)).topic_id for topic in topics}
    partitions = chosen_partitions(view.image, options.chosen, topic_ids)
    require_named(options.starting, partitions)
    require_named(options.ending, partitions)
    patience = PlanningPatience(view, options.poll_timeout_ms, WORDS)
    with _naming(options.chosen):
        bounds = await look_up_bounds(view, partitions, patience)
    first, last = [
        await look_up_times(view, times_to_look_up(position, partitions, now_ms), patience)
        for position in (options.starting, options.ending)
    ]
    for topic, topic_id in topic_ids.items():
        if (now := view.image.topics.get(topic)) is None or now.topic_id != topic_id:
            raise UnknownTopicIdError(
                f"topic {topic} was deleted or created anew while it was looked at; load it again"
            )
    metadata_offset = view.image.shared_offset
    return tuple(
        replace(
            _range(options, topic_ids[p.topic], p, bounds[p], first.get(p), last.get(p)),
            metadata_offset=metadata_offset,
        )
        for p in partitions
    )


async def _await_controller(view: ClusterView) -> None:
    """Waits for metadata of a broker that knows of a controller: another one has just been started, and they may be of the past.

    Where none comes those that are there are believed: the controllers may be down.
    """

    def known() -> bool | None:
        if view.image.controller_id >= 0:
            return True
        view.request_refresh()
        return None

    with suppress(RequestTimedOutError):
        await view.wait_for(known, timeout_ms=VISIBLE_WITHIN_MS, what="find the controller")


@contextmanager
def _naming(chosen: TopicChoice) -> Iterator[None]:
    """Adds the option that asks for it to the error about a topic or partition that does not exist."""
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicOrPartitionError(f"{chosen.option}: {error}") from None


async def cut_ranges(
    view: ClusterView, ranges: Iterable[OffsetRange], target_bytes: int, *, timeout_ms: int = CUTS_TIMEOUT_MS
) -> tuple[SizedRange, ...]:
    """Cuts ranges into parts of about the wished size, between batches, as far as leaders tell where; leaves out empty ones.

    A range whose leader does not tell (a broker of an older version, say) stays whole and without a size: only balance suffers.
    """
    filled = [each for each in ranges if each.offsets_count > 0]
    parts: list[SizedRange] = []
    for first in range(0, len(filled), CUTS_PARTITIONS_MAX):
        group = {
            TopicPartition(each.topic, each.partition): each for each in filled[first : first + CUTS_PARTITIONS_MAX]
        }
        bounds = {partition: (each.start_offset, each.end_offset) for partition, each in group.items()}
        try:
            cuts = await find_cuts(view, bounds, target_bytes=target_bytes, timeout_ms=timeout_ms)
        except ReplogError as error:
            _log.info("tasks are balanced by offsets, sizes in bytes are not known: %s", error)
            cuts = {}
        for partition, each in group.items():
            parts += _parts(each, cuts.get(partition, ()))
    return tuple(parts)


def _parts(whole: OffsetRange, cuts: Sequence[Cut]) -> Iterator[SizedRange]:
    start_offset = whole.start_offset
    for cut in cuts:
        if start_offset < cut.offset <= whole.end_offset:
            yield SizedRange(replace(whole, start_offset=start_offset, end_offset=cut.offset), cut.size_bytes)
            start_offset = cut.offset
    if start_offset < whole.end_offset:
        yield SizedRange(replace(whole, start_offset=start_offset), None)


def chosen_topics(image: ClusterImage, chosen: TopicChoice) -> Sequence[str]:
    """Returns the names of the topics to read; a pattern matches none of the cluster's own.

    Raises:
        UnknownTopicOrPartitionError: No topic matches the pattern.
    """
    if chosen.pattern is None:
        return chosen.topics
    names = [name for name in image.topics if name not in INTERNAL_TOPICS]
    topics = sorted(filter(re.compile(chosen.pattern).fullmatch, names))
    if not topics:
        known = first_few(sorted(names), ", ") or "none"
        raise UnknownTopicOrPartitionError(
            f'no topic matches subscribePattern "{chosen.pattern}", which must match a whole name. Topics are: {known}.'
        )
    return topics


def chosen_partitions(image: ClusterImage, chosen: TopicChoice, topics: Iterable[str]) -> list[TopicPartition]:
    """Returns the partitions to read of these topics, in order."""
    if chosen.assignment is not None:
        return [TopicPartition(topic, p) for topic, members in chosen.assignment.items() for p in members]
    return [
        TopicPartition(topic, partition.partition_id)
        for topic in topics
        for partition in sorted(image.topics[topic].partitions, key=lambda partition: partition.partition_id)
    ]


def _range(
    options: ReadOptions,
    topic_id: UUID,
    partition: TopicPartition,
    bounds: Bounds,
    first: ListOffsetsResult | None,
    last: ListOffsetsResult | None,
) -> OffsetRange:
    strict = options.fail_on_data_loss
    start = start_offset(
        options.starting, partition, bounds, first, starts_late_at_end=options.starts_late_at_end, strict=strict
    )
    end = end_offset(options.ending, partition, bounds, last, strict=strict)
    if start > end:
        text = (
            f"{options.starting.option} starts {partition} at offset {start}, and {options.ending.option} ends it at {end}: give an "
            "end at or after the start"
        )
        raise ConfigError(options.ending.option, end, text)
    return OffsetRange(partition.topic, topic_id, partition.partition, start, end, bounds.leader_epoch)
