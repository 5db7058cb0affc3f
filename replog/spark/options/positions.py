"""Where a read starts and ends, as the user says it; `replog.spark.positions` makes offsets of it.

The names are those of Spark's Kafka source, and so is their order: a time for all partitions goes before a time for each, and
both before offsets.  Added are positions relative to either end (`latest-100`) and to now (`-10m`).
"""

from __future__ import annotations

import re
from typing import TypeAlias

from msgspec import Struct

from replog.errors import ConfigError
from replog.spark.options.parsers import (
    EARLIEST,
    LATEST,
    UNIT_MS,
    Parser,
    PartitionNumbers,
    parse_partition_numbers,
    refuse_json,
)

TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The end of the year 9999; what is larger was not meant in milliseconds."""

_AGO = re.compile(r"-\s*([0-9]{1,15})\s*(ms|s|m|h|d)", re.ASCII)
_NEAR = re.compile(r"(earliest)(?:\s*\+\s*([0-9]{1,18}))?|(latest)(?:\s*-\s*([0-9]{1,18}))?", re.ASCII)


class AfterStart(Struct, frozen=True):
    """So many offsets after the first one of each partition."""

    option: str
    offsets_count: int = 0


class BeforeEnd(Struct, frozen=True):
    """So many offsets before the high watermark of each partition."""

    option: str
    offsets_count: int = 0


class AtOffsets(Struct, frozen=True):
    """An offset for each partition; EARLIEST and LATEST stand for its ends."""

    option: str
    offsets: PartitionNumbers


class AtTime(Struct, frozen=True):
    """The first record of each partition at or after a time.

    Attributes:
        option: The option that said it.
        ms: Milliseconds since 1970, or before now.
        is_before_now: Whether `ms` counts back from now.
    """

    option: str
    ms: int
    is_before_now: bool = False


class AtTimes(Struct, frozen=True):
    """The first record at or after a time of its own, in milliseconds since 1970, for each partition."""

    option: str
    times_ms: PartitionNumbers


Position: TypeAlias = AfterStart | BeforeEnd | AtOffsets | AtTime | AtTimes


def position_parser(*, words: tuple[str, ...], markers: tuple[int, ...]) -> Parser:
    """Makes a parser of `startingOffsets` or `endingOffsets`.

    Args:
        words: The words that may stand alone, of "earliest" and "latest"; with a distance both are taken.
        markers: The negative numbers that a json may have, of EARLIEST and LATEST.
    """
    meanings = " and ".join(f"{marker} is {_WORDS[marker]}" for marker in markers)
    alone = " or ".join(f'"{word}"' for word in words)
    shape = (
        f'{alone}, a distance such as "earliest+100" or "latest-100", or json such as '
        f'{{"topic": {{"0": 23, "1": {markers[0]}}}}} where {meanings}'
    )

    def parse_position(name: str, text: str) -> Position:
        text = text.strip()
        if near := _NEAR.fullmatch(text.lower()):
            word, count = (near[1], near[2]) if near[1] else (near[3], near[4])
            if count is None and word not in words:
                raise ConfigError(name, text, f'{name} cannot be "{text}" here: give {shape}')
            kind = AfterStart if word == "earliest" else BeforeEnd
            return kind(name, int(count or 0))
        return AtOffsets(name, parse_partition_numbers(name, text, shape, markers=markers))

    return parse_position


_WORDS = {EARLIEST: "earliest", LATEST: "latest"}


def parse_time(name: str, text: str) -> AtTime:
    """Returns a time: milliseconds since 1970, or a while before now, such as "-10m"."""
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        ms = int(ago[1]) * UNIT_MS[ago[2]]
        if ms <= TIMESTAMP_MS_MAX:
            return AtTime(name, ms, is_before_now=True)
    elif text.isascii() and text.isdigit() and len(text) <= 15 and int(text) <= TIMESTAMP_MS_MAX:
        return AtTime(name, int(text))
    raise ConfigError(
        name,
        text,
        f'{name} is "{text[:40]}": give milliseconds since 1970, or a while before now such as "-10m" (ms, s, m, h or d)',
    )


def parse_times(name: str, text: str) -> AtTimes:
    """Returns a time for each partition, from json."""
    shape = 'json such as {"topic": {"0": 1700000000000}}, in milliseconds since 1970'
    times_ms = parse_partition_numbers(name, text.strip(), shape)
    if any(ms > TIMESTAMP_MS_MAX for partitions in times_ms.values() for ms in partitions.values()):
        refuse_json(name, text, shape)
    return AtTimes(name, times_ms)
