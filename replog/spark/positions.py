"""From where a user wants a read to start and end to an offset for each partition.  Pure; leaders are asked elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TypeGuard

from replog.client.ranges.bounds import Bounds
from replog.client.types import TopicPartition
from replog.errors import ConfigError, OffsetOutOfRangeError
from replog.rpc.messages import ListOffsetsResult
from replog.spark.options.parsers import EARLIEST, LATEST, PartitionNumbers
from replog.spark.options.positions import AfterStart, AtOffsets, AtTime, AtTimes, BeforeEnd, Position

_log = logging.getLogger(__name__)


def require_named(position: Position, partitions: Collection[TopicPartition]) -> None:
    """Refuses a json that leaves out a partition that is read, or names any other.

    A forgotten one must not be read by surprise.

    Raises:
        ConfigError: It does; the text names the partition.
    """
    match position:
        case AtOffsets(name, numbers) | AtTimes(name, numbers):
            wanted = set(partitions)
            named = {TopicPartition(topic, partition) for topic, members in numbers.items() for partition in members}
        case _:
            return
    for missing in sorted(wanted - named)[:1]:
        raise ConfigError(
            name, str(missing), f"{name} does not name {missing}: a json has every partition that is read"
        )
    for strange in sorted(named - wanted)[:1]:
        raise ConfigError(
            name, str(strange), f"{name} names {strange}, which does not exist or is not read: take it out"
        )


def times_to_look_up(
    position: Position, partitions: Collection[TopicPartition], now_ms: int
) -> dict[TopicPartition, int]:
    """Returns the times that leaders must be asked about, in milliseconds since 1970; none where offsets are enough."""
    match position:
        case AtTime():
            return dict.fromkeys(partitions, _time_ms(position, now_ms))
        case AtTimes():
            return {partition: _number(position.times_ms, partition) for partition in partitions}
        case _:
            return {}


def start_offset(
    position: Position,
    partition: TopicPartition,
    bounds: Bounds,
    found: ListOffsetsResult | None,
    *,
    starts_late_at_end: bool,
    strict: bool,
) -> int:
    """Returns the first offset to read of one partition.

    Args:
        position: Where the user wants to start.
        partition: The partition.
        bounds: What it holds.
        found: What its leader answered about a time; None where it was not asked.
        starts_late_at_end: Whether a partition without a record at or after its time starts at its end.
        strict: Whether an offset outside of the bounds is an error; otherwise it is moved inside, with a warning.

    Raises:
        ConfigError: There is no record at or after the time, and it does not start at its end instead.
        OffsetOutOfRangeError: The offset is outside of the bounds.
    """
    if not isinstance(position, AtTime | AtTimes):
        return _by_offset(position, partition, bounds, strict=strict)
    if _is_match(found, bounds):
        return bounds.clip(found.offset)
    if starts_late_at_end:
        return bounds.high_watermark
    raise ConfigError(
        position.option,
        str(partition),
        f"{position.option}: {partition} has no record at or after that time. Give an earlier one, or "
        'startingOffsetsByTimestampStrategy "latest" to read nothing of it.',
    )


def end_offset(
    position: Position,
    partition: TopicPartition,
    bounds: Bounds,
    found: ListOffsetsResult | None,
    *,
    strict: bool,
) -> int:
    """Returns the end of what to read of one partition, exclusive: the high watermark where no record is that late.

    Raises:
        OffsetOutOfRangeError: The offset is outside of the bounds, and `strict` is set.
    """
    if not isinstance(position, AtTime | AtTimes):
        return _by_offset(position, partition, bounds, strict=strict)
    return bounds.clip(found.offset) if _is_match(found, bounds) else bounds.high_watermark


def _is_match(found: ListOffsetsResult | None, bounds: Bounds) -> TypeGuard[ListOffsetsResult]:
    """Whether a record was found that is also below the high watermark that was asked for beside it."""
    return found is not None and 0 <= found.offset < bounds.high_watermark


def _by_offset(
    position: AfterStart | BeforeEnd | AtOffsets, partition: TopicPartition, bounds: Bounds, *, strict: bool
) -> int:
    match position:
        case AfterStart():
            return bounds.clip(bounds.log_start_offset + position.offsets_count)
        case BeforeEnd():
            return bounds.clip(bounds.high_watermark - position.offsets_count)
        case AtOffsets():
            offset = _number(position.offsets, partition)
    if offset == EARLIEST:
        return bounds.log_start_offset
    return (
        bounds.high_watermark
        if offset == LATEST
        else _inside(position.option, offset, partition, bounds, strict=strict)
    )


def _inside(name: str, offset: int, partition: TopicPartition, bounds: Bounds, *, strict: bool) -> int:
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


def _time_ms(position: AtTime, now_ms: int) -> int:
    return max(0, now_ms - position.ms) if position.is_before_now else position.ms


def _number(numbers: PartitionNumbers, partition: TopicPartition) -> int:
    members: Mapping[int, int] = numbers[partition.topic]
    return members[partition.partition]
