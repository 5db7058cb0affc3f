"""From where a user wants a scan to start and end to offsets of each partition.  Pure; leaders and logs are asked elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from msgspec import Struct

from replog.client.arguments import is_offset
from replog.client.cluster.leader_calls import first_few
from replog.client.consumer.positions import AtOffset, AtTime, FromEnd, parse_place
from replog.client.ranges.bounds import Bounds
from replog.client.types import TopicPartition
from replog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

Bound = str | int | datetime | Mapping[int, int]
"""A place as `Consumer.seek_to` takes it; an offset, of each partition; or a mapping from partitions to offsets."""


class ScanLimits(Struct, frozen=True):
    """Where a scan starts and ends, checked.

    Attributes:
        start, end: A time, a distance from an end of the log, or offsets by partition; an int is for all.
    """

    start: AtTime | FromEnd | int | Mapping[int, int]
    end: AtTime | FromEnd | int | Mapping[int, int]


def parse_limits(start: Bound, end: Bound, now_ms: int) -> ScanLimits:
    """Returns what the two say.

    Args:
        start: Where each partition begins, inclusive.
        end: Where it ends, exclusive.
        now_ms: The time that "-10m" counts from, in milliseconds since 1970.

    Raises:
        InvalidRequestError: One is no place and no offset.
    """
    return ScanLimits(parse_bound("start", start, now_ms), parse_bound("end", end, now_ms))


def parse_bound(name: str, bound: Bound, now_ms: int) -> AtTime | FromEnd | int | Mapping[int, int]:
    """Returns what one argument, of this name, says; see `parse_limits`."""
    if isinstance(bound, Mapping):
        for partition, offset in bound.items():
            if not is_offset(offset):
                raise InvalidRequestError(f"{name} of partition {partition} is {offset!r}, which is no offset from 0")
        return bound
    if isinstance(bound, int):
        if not is_offset(bound):
            raise InvalidRequestError(f"{name} is {bound!r}, which is no offset from 0")
        return bound
    try:
        place = parse_place(bound, now_ms)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{name}: {error}; an offset, or a dict from partitions to offsets") from None
    return place.offset if isinstance(place, AtOffset) else place


def times_of(limits: ScanLimits) -> tuple[int | None, int | None]:
    """Returns the times, in milliseconds since 1970, whose offsets have to be looked up; None: start, or end, is no time."""
    start, end = limits.start, limits.end
    return (
        start.timestamp_ms if isinstance(start, AtTime) else None,
        end.timestamp_ms if isinstance(end, AtTime) else None,
    )


def offsets_of(
    limits: ScanLimits, partition: TopicPartition, bounds: Bounds, found: tuple[int | None, int | None]
) -> tuple[int, int]:
    """Returns the offsets [start, end) to read of one partition.

    Args:
        limits: Where the user wants to start and end.
        partition: The partition.
        bounds: What it has for readers.
        found: The offsets of the first records at or after the times of `times_of`; None: not asked, or no record is that late.

    Raises:
        InvalidRequestError: A mapping lacks the partition, or its offsets end before they start.
        OffsetOutOfRangeError: An offset lies outside of what there is.
    """
    start = offset_at("start", limits.start, partition, bounds, found[0])
    end = offset_at("end", limits.end, partition, bounds, found[1])
    if start <= end:
        return start, end
    if isinstance(limits.start, AtTime) or isinstance(limits.end, AtTime):
        return start, start  # nothing is that late, or times do not rise with offsets
    raise InvalidRequestError(f"the scan of {partition} starts at offset {start} and ends at {end}: give a later end")


def offset_at(
    name: str,
    bound: AtTime | FromEnd | int | Mapping[int, int],
    partition: TopicPartition,
    bounds: Bounds,
    found: int | None,
) -> int:
    """Returns the offset in one partition that an argument, of this name, says; see `offsets_of`."""
    match bound:
        case AtTime():
            return bounds.high_watermark if found is None else bounds.clip(found)
        case FromEnd():
            base = bounds.high_watermark if bound.is_latest else bounds.log_start_offset
            return bounds.clip(base + bound.distance)
        case int():
            offset = bound
        case _:
            if partition.partition not in bound:
                raise InvalidRequestError(
                    f"{name} has no offset for {partition}: name it, or leave it out of partitions"
                )
            offset = bound[partition.partition]
    if offset not in bounds:
        raise OffsetOutOfRangeError(
            f"{name}: offset {offset} of {partition} is outside of [{bounds.log_start_offset}, {bounds.high_watermark}], the "
            'log start and the end of what is committed; "earliest" and "latest" stand for the two',
            bounds.log_start_offset,
            bounds.high_watermark,
        )
    return offset


def chosen_numbers(topic: str, wanted: Collection[int], known: Collection[int]) -> list[int]:
    """Returns the partitions to read, in order.

    Args:
        topic: The name of the topic, for the error.
        wanted: The partitions that are asked for; none: all.
        known: The partitions that there are.

    Raises:
        UnknownTopicOrPartitionError: One that is asked for is not there.
    """
    if unknown := sorted(set(wanted) - set(known)):
        have = first_few([str(number) for number in sorted(known)], ", ") or "none"
        raise UnknownTopicOrPartitionError(f"{topic} has no partition {unknown[0]}; its partitions here are: {have}")
    return sorted(set(wanted) or known)
