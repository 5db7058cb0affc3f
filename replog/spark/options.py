"""Options of the data source: what a user may write, checked before anything is asked of a broker.

Names and meanings are those of Spark's Kafka source, so that a job moves over by changing the format's name.  An option
that would be ignored is refused instead: a misspelled `endingOffsets` must not read a whole topic.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from replog.errors import ConfigError

EARLIEST = -2
"""In a json of starting offsets: the partition's first record."""

LATEST = -1
"""In a json of ending offsets: the high watermark."""

READ_OPTIONS = (
    "assign",
    "bootstrap.servers",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafkaConsumer.pollTimeoutMs",
    "minPartitions",
    "startingOffsets",
    "subscribe",
)

_NOT_SUPPORTED = {
    "endingOffsetsByTimestamp": "endingOffsets",
    "endingTimestamp": "endingOffsets",
    "fetchOffset.numRetries": "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.retryIntervalMs": "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix": "",
    "maxBytesPerTrigger": "",
    "maxOffsetsPerTrigger": "",
    "maxRecordsPerPartition": "minPartitions",
    "maxTriggerDelay": "",
    "minOffsetsPerTrigger": "",
    "path": "subscribe",
    "startingOffsetsByTimestamp": "startingOffsets",
    "startingOffsetsByTimestampStrategy": "startingOffsets",
    "startingTimestamp": "startingOffsets",
    "subscribePattern": "subscribe",
    "topic": "subscribe",
}
"""Known from Spark's Kafka source, or likely, but not understood here: the nearest valid option for each, or "".

`path` is what `load("...")` sets.
"""

MIN_PARTITIONS_MAX = 1_000_000
"""Tasks of one scan: Spark plans each of them in the driver."""

POLL_TIMEOUT_MS_MAX = 86_400_000
"""A day: longer is a mistake in the unit."""

PartitionOffsets = Mapping[str, Mapping[int, int]]
"""topic -> partition -> offset."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of one read.

    Attributes:
        bootstrap_servers: "host:port,host:port".
        topics: Names, in the order given, without doubles.
        assignment: Topic -> partitions, with `assign`; None: all partitions of `topics`.
        starting_offsets: First offsets; EARLIEST in it means the log start.  None: the log start everywhere.
        ending_offsets: Ends, exclusive; LATEST in it means the high watermark.  None: the high watermark everywhere.
        include_headers: Whether the schema has a column `headers`.
        fail_on_data_loss: Whether records that are gone fail the query; otherwise the rest is read, with a warning.
        min_partitions: The wished number of tasks; 0: one for each topic partition.
        poll_timeout_ms: How long a task may get no records, and planning no offsets; None: 10 s where no broker could serve
            it, 60 s where one may answer yet.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]] | None
    starting_offsets: PartitionOffsets | None
    ending_offsets: PartitionOffsets | None
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int
    poll_timeout_ms: int | None


def is_read(options: Mapping[str, str]) -> bool:
    """Whether the options ask to read: a writer and a catalog may make a data source without them."""
    return any(name.lower() in {"subscribe", "assign", "subscribepattern"} for name in options)


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a batch read.  Names are case-insensitive, values are as the user wrote them.

    Raises:
        ConfigError: An option is unknown, missing, doubled or has a bad value; it names the next step.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(options)
    topics, assignment = _topics(given)
    return ReadOptions(
        bootstrap_servers=_bootstrap_servers(given),
        topics=topics,
        assignment=assignment,
        starting_offsets=_offsets(given, "startingOffsets", word="earliest", marker=EARLIEST),
        ending_offsets=_offsets(given, "endingOffsets", word="latest", marker=LATEST),
        include_headers=_boolean(given, "includeHeaders", default=False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        min_partitions=_min_partitions(given),
        poll_timeout_ms=_poll_timeout_ms(given),
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    valid = {name.lower(): name for name in READ_OPTIONS}
    unsupported = {name.lower(): name for name in _NOT_SUPPORTED}
    for name, value in options.items():
        key = name.lower()
        if key in valid:
            continue
        if key in unsupported:
            spelled = unsupported[key]
            nearest = _NOT_SUPPORTED[spelled]
            advice = f'The nearest is "{nearest}".' if nearest else f"Leave it out. Options are: {_listed()}."
            raise ConfigError(spelled, value, f'option "{spelled}" is not supported by a replog batch read. {advice}')
        close = difflib.get_close_matches(key, valid, n=1)
        advice = f'Did you mean "{valid[close[0]]}"?' if close else f"Options are: {_listed()}."
        raise ConfigError(name, value, f'option "{name}" is unknown to format replog. {advice}')


def _listed() -> str:
    return ", ".join(READ_OPTIONS)


def _bootstrap_servers(given: Mapping[str, str]) -> str:
    names = [name for name in ("bootstrap.servers", "kafka.bootstrap.servers") if given.get(name, "").strip()]
    if not names:
        raise ConfigError(
            "bootstrap.servers", None, 'give the option "bootstrap.servers", for example "127.0.0.1:9092"'
        )
    if len({given[name].strip() for name in names}) > 1:
        raise ConfigError(
            "bootstrap.servers", given[names[0]], '"bootstrap.servers" and "kafka.bootstrap.servers" differ: give one'
        )
    return given[names[0]].strip()


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]] | None]:
    if ("subscribe" in given) == ("assign" in given):
        raise ConfigError(
            "subscribe",
            given.get("subscribe"),
            'give exactly one of "subscribe" (topics, comma-separated) and "assign" (json, {"topic": [0, 1]})',
        )
    if "assign" in given:
        assignment = _assignment(given["assign"])
        return tuple(assignment), assignment
    topics = tuple(dict.fromkeys(name.strip() for name in given["subscribe"].split(",") if name.strip()))
    if not topics:
        raise ConfigError("subscribe", given["subscribe"], 'option "subscribe" names no topic')
    return topics, None


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    shape = '{"topic": [0, 1]} with at least one partition for each topic'
    parsed = _json_object("assign", text, shape)
    for partitions in parsed.values():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(item) for item in partitions):
            _refuse_json("assign", text, shape)
    if not parsed:
        _refuse_json("assign", text, shape)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def _offsets(given: Mapping[str, str], name: str, *, word: str, marker: int) -> PartitionOffsets | None:
    """Returns the offsets of one end; None for `word`, which is also the default."""
    text = given.get(name.lower(), word).strip()
    if text.lower() == word:
        return None
    shape = f'"{word}", or json such as {{"topic": {{"0": 23, "1": {marker}}}}} where {marker} is {word}'
    if text.lower() in {"earliest", "latest"}:
        raise ConfigError(name, text, f'{name} of a batch read cannot be "{text}": give {shape}')
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in _json_object(name, text, shape).items():
        if not isinstance(partitions, dict):
            _refuse_json(name, text, shape)
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or not (_is_count(offset) or offset == marker):
                _refuse_json(name, text, shape)
            offsets.setdefault(topic, {})[int(partition)] = offset
    return offsets


def _json_object(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=_without_doubles)
    except ValueError:
        _refuse_json(name, text, shape)
    if not isinstance(parsed, dict):
        _refuse_json(name, text, shape)
    return parsed


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def _refuse_json(name: str, text: str, shape: str) -> NoReturn:
    raise ConfigError(name, text, f"{name} is {text!r}: give {shape}") from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(name, text, f'{name} is "{text}": give "true" or "false"')
    return text == "true"


def _min_partitions(given: Mapping[str, str]) -> int:
    text = given.get("minpartitions", "0").strip()
    if not _is_number(text, 1 if "minpartitions" in given else 0, MIN_PARTITIONS_MAX):
        raise ConfigError(
            "minPartitions",
            text,
            f'minPartitions is "{text}": give a number of tasks, at least 1 and at most {MIN_PARTITIONS_MAX}',
        )
    return int(text)


def _poll_timeout_ms(given: Mapping[str, str]) -> int | None:
    name = "kafkaConsumer.pollTimeoutMs"
    if (text := given.get(name.lower())) is None:
        return None
    text = text.strip()
    if not _is_number(text, 1, POLL_TIMEOUT_MS_MAX):
        raise ConfigError(name, text, f'{name} is "{text}": give milliseconds from 1 to {POLL_TIMEOUT_MS_MAX}')
    return int(text)


def _is_number(text: str, smallest: int, largest: int) -> bool:
    """Whether `text` is decimal digits, of a number in that range."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and smallest <= int(text) <= largest
