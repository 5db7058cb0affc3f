"""Where a consumer is in its partitions, and how it is told to be elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Final

from msgspec import Struct

from replog.client.arguments import (
    OFFSET_MAX,
    is_offset,
    numbers_by_partition,
    partition_of,
    partitions_of,
    require_limit,
    require_mapping,
    shown,
)
from replog.client.cluster.offsets import list_offsets
from replog.client.cluster.view import ClusterView
from replog.client.consumer.fetch_state import PartitionFetch
from replog.client.consumer.group_reading import GroupReading
from replog.client.consumer.partition_reader import DEFAULT_TIMEOUT_MS, PartitionReader
from replog.client.consumer.start import offsets_at
from replog.client.types import OffsetAndTimestamp, TopicPartition
from replog.errors import InvalidRequestError, LeaderNotAvailableError, raised_anew
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

Partitions = Iterable[tuple[str, int]]


class ConsumerPositions:
    """The part of `Consumer` that is about positions."""

    _view: ClusterView
    _reader: PartitionReader
    _group: GroupReading | None

    def position(self, partition: tuple[str, int]) -> int:
        """Returns the offset of the next record that will be handed out.

        Raises:
            InvalidRequestError: The partition is not assigned.
            LeaderNotAvailableError: It was assigned without a leader, and no leader has told yet where its log starts.
            NoOffsetError: Its group has committed none, and nobody has said where to begin.
        """
        state = self._state(partition)
        if state.has_no_position:
            why = f"{self._view.image.why_leaderless(*state.partition)}: nobody can tell where it starts yet"
            raise raised_anew(state.error) if state.error is not None else LeaderNotAvailableError(why)
        return state.position

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Reads on at `offset`.  Whether it exists shows when it is fetched (see `auto_offset_reset`).

        Raises:
            InvalidRequestError: The partition is not assigned, or the offset is negative.
        """
        if not is_offset(offset):
            raise InvalidRequestError(f"cannot seek to offset {offset!r}; see seek_to_beginning and seek_to_end")
        self._reader.raise_if_gone()
        state = self._state(partition)
        self._reader.seek(state, index(offset))
        if self._group is not None:
            self._group.member.commits.progress.begin(state.partition, index(offset))

    def rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Takes back what was handed out from these offsets on: a caller could not pass it on to whom it was for."""
        self._reader.raise_if_gone()
        require_mapping("positions", positions, 'a dict such as {("flights", 0): 17}')
        self._reader.rewind(positions)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Goes to the first offset that exists now; without arguments, in all assigned partitions."""
        for partition, offset in (await self.beginning_offsets(partitions or self._reader.states)).items():
            self.seek(partition, offset)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Goes to the high watermark of now; without arguments, in all assigned partitions."""
        for partition, offset in (await self.end_offsets(partitions or self._reader.states)).items():
            self.seek(partition, offset)

    async def seek_to(
        self, place: str | datetime, *partitions: tuple[str, int], timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        """Goes to a place that is named; without partitions, in all that are assigned.

        Args:
            place: A time ago such as "-10m" (ms, s, m, h, d); "latest-100" or "earliest+100", so many offsets from an end
                of the log and at most to the other one ("end" is "latest"); an offset such as "17"; or a time with its zone,
                as a `datetime` or as text such as "2026-01-31T13:00:00Z".
            partitions: The partitions.
            timeout_ms: Limit of the time that it takes.

        Raises:
            InvalidRequestError: It names no place, or a partition is not assigned.
            RequestTimedOutError: A leader did not answer in time.
        """
        wanted = parse_place(place, time.time_ns() // 1_000_000)
        states = [self._state(partition) for partition in partitions] or list(self._reader.states.values())
        found = await offsets_of(self, [state.partition for state in states], wanted, timeout_ms)
        for partition, offset in found.items():
            self.seek(partition, offset)

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Asks the leaders for the first offset of each partition."""
        return await self._offsets(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Partitions, *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Asks the leaders for the high watermark of each partition: the offset after the last readable record."""
        return await self._offsets(partitions, LATEST_TIMESTAMP, timeout_ms)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hands out nothing of these partitions until they are resumed; what was fetched of them is kept.

        Raises:
            InvalidRequestError: A partition is not assigned.
        """
        self._reader.raise_if_gone()
        for state in [self._state(partition) for partition in partitions]:
            self._reader.pause(state)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Goes on with these partitions where they were paused.

        Raises:
            InvalidRequestError: A partition is not assigned.
        """
        self._reader.raise_if_gone()
        for state in [self._state(partition) for partition in partitions]:
            self._reader.resume(state)

    def paused(self) -> list[TopicPartition]:
        """Returns the partitions that are paused."""
        return [partition for partition, state in self._reader.states.items() if state.is_paused]

    async def offsets_for_times(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Asks the leaders for the first record at or after a time of each partition; None where no record is that late.

        Args:
            timestamps: Milliseconds since 1970, of each partition.
            timeout_ms: Limit of the time that it takes.

        Raises:
            InvalidRequestError: A time lies before 1970.
            RequestTimedOutError: A leader did not answer in time.
        """
        wanted = numbers_by_partition("timestamps", timestamps)
        require_limit("timeout_ms", timeout_ms)
        for partition, timestamp in wanted.items():
            if timestamp < 0:
                raise InvalidRequestError(f"timestamps[{partition}] is {timestamp}, which is before 1970")
        self._reader.raise_if_gone()
        found = await list_offsets(self._view, wanted, timeout_ms=timeout_ms)
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    def highwater(self, partition: tuple[str, int]) -> int | None:
        """Returns the high watermark that was told last: the offset after the last readable record; None before the first answer.

        An open transaction ends what is readable, too.

        Raises:
            InvalidRequestError: The partition is not assigned.
        """
        state = self._state(partition)
        return None if state.high_watermark < 0 else state.high_watermark

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Returns how many offsets lie between the position and the high watermark; None before the first answer.

        Raises:
            InvalidRequestError: The partition is not assigned.
        """
        high_watermark = self.highwater(partition)
        return None if high_watermark is None else max(0, high_watermark - self._state(partition).position)

    def _state(self, partition: tuple[str, int]) -> PartitionFetch:
        wanted = partition_of("partition", partition)
        state = self._reader.states.get(wanted)
        if state is None:
            raise InvalidRequestError(f"{wanted} is not assigned; call assign or subscribe first")
        return state

    async def _offsets(self, partitions: Partitions, timestamp: int, timeout_ms: int) -> dict[TopicPartition, int]:
        self._reader.raise_if_gone()
        require_limit("timeout_ms", timeout_ms)
        return await offsets_at(self._view, partitions_of("partitions", partitions), timestamp, timeout_ms)


# ---- places by their names: a time, a time ago, or so many records from one of the ends -----------------------------


EXPECTED: Final = (
    '"earliest", "latest", "earliest+100", "latest-100", an offset, a time ago such as "-10m" (ms, s, m, h, d), or a time '
    'with its zone such as "2026-01-31T13:00:00Z"'
)

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_FROM_AN_END: Final = re.compile(r"(earliest|latest|end)(?:([+-])(\d{1,18}))?", re.ASCII)
_OFFSET: Final = re.compile(r"\d{1,19}", re.ASCII)
_TIME_CHARACTERS_MAX: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AtTime(Struct, frozen=True):
    """The first record at or after a time; the end where none is that late."""

    timestamp_ms: int


class FromEnd(Struct, frozen=True):
    """So many offsets from the beginning or the end, and never outside of the log."""

    is_latest: bool
    distance: int = 0


class AtOffset(Struct, frozen=True):
    """An offset, or the end of the log that is nearer to it."""

    offset: int


Place = AtTime | FromEnd | AtOffset


async def offsets_of(
    positions: ConsumerPositions, partitions: Collection[TopicPartition], place: Place, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Asks the leaders where a place is in each partition; never outside of the log.

    Args:
        positions: The consumer that asks.
        partitions: The partitions, which need not be assigned.
        place: The place.
        timeout_ms: Limit of the time of each question, in milliseconds.

    Raises:
        RequestTimedOutError: A leader did not answer in time.
    """
    ends = await positions.end_offsets(partitions, timeout_ms=timeout_ms)
    if isinstance(place, AtTime):
        times: dict[tuple[str, int], int] = dict.fromkeys(partitions, place.timestamp_ms)
        found = await positions.offsets_for_times(times, timeout_ms=timeout_ms)
        return {each: answer.offset if answer else ends[each] for each, answer in found.items()}
    if place == FromEnd(is_latest=True):
        return ends
    starts = await positions.beginning_offsets(partitions, timeout_ms=timeout_ms)
    if isinstance(place, AtOffset):
        wanted = dict.fromkeys(ends, place.offset)
    else:
        wanted = {each: base + place.distance for each, base in (ends if place.is_latest else starts).items()}
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}


def parse_place(place: object, now_ms: int) -> Place:
    """Returns the place that is named.

    Args:
        place: The name, or a `datetime`.
        now_ms: The time of day, in milliseconds since 1970.

    Raises:
        InvalidRequestError: It names none.
    """
    if isinstance(place, datetime):
        return _at(place)
    found = _named(place, now_ms) if isinstance(place, str) else None
    if found is None:
        raise InvalidRequestError(f"{shown(place)} is no place in a partition; say {EXPECTED}")
    return found


def _named(text: str, now_ms: int) -> Place | None:
    return _ago(text, now_ms) or _from_an_end(text) or _offset(text) or _time(text)


def _at(time: datetime) -> AtTime:
    if time.tzinfo is None:
        raise InvalidRequestError(f"{time!r} has no time zone; say which, for example with time.astimezone()")
    return AtTime(max(0, (time - _EPOCH) // timedelta(milliseconds=1)))


def _time(text: str) -> AtTime | None:
    try:
        time = datetime.fromisoformat(text) if len(text) <= _TIME_CHARACTERS_MAX else None
    except ValueError:
        return None
    if time is not None and time.tzinfo is None:
        whole = text if len(text) > len("2026-01-31") else f"{text}T00:00"
        raise InvalidRequestError(
            f"{text} has no time zone; say which: {whole}Z is UTC, {whole}+02:00 two hours east of it"
        )
    return None if time is None else _at(time)


def _offset(text: str) -> AtOffset | None:
    match = _OFFSET.fullmatch(text)
    return None if match is None or int(text) > OFFSET_MAX else AtOffset(int(text))


def _ago(text: str, now_ms: int) -> AtTime | None:
    match = _AGO.fullmatch(text)
    return None if match is None else AtTime(max(0, now_ms - int(match[1]) * _UNITS_MS[match[2]]))


def _from_an_end(text: str) -> FromEnd | None:
    match = _FROM_AN_END.fullmatch(text)
    if match is None:
        return None
    is_latest, distance = match[1] != "earliest", int(match[3] or 0)
    if match[2] is not None and (match[2] == "-") is not is_latest:
        return None  # there is nothing on that side
    return FromEnd(is_latest, -distance if is_latest else distance)
