"""What reads the value of one option: text in, checked value out.

Each parser is called with the option's name and its text, and raises a ConfigError that names both and says what to give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from replog.errors import ConfigError

EARLIEST = -2
"""In a json of offsets: the partition's first record."""

LATEST = -1
"""In a json of offsets: the high watermark."""

JSON_CHARACTERS_MAX = 64 << 20
"""Length of a json; 100,000 partitions with offsets are 2 MB."""

PATTERN_CHARACTERS_MAX = 10_000
"""Length of a regular expression."""

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""What a length of time may be counted in."""

DURATION_MS_MAX = 365 * UNIT_MS["d"]

_DURATION = re.compile(r"([0-9]{1,15})\s*(ms|s|m|min|h|d|)", re.ASCII)
_DURATION_UNIT_MS = {**UNIT_MS, "min": UNIT_MS["m"], "": 1}  # the spellings that Spark's own options have

PartitionNumbers = Mapping[str, Mapping[int, int]]
"""topic -> partition -> offset, or time."""

GROUP_CHARACTERS_MAX = 255
"""Length of the name of a consumer group; far below what a broker takes."""

RACK_CHARACTERS_MAX = 255
"""Length of the name of a rack."""

WRITER_CHARACTERS_MAX = 200
"""Length of the name of what writes once; it is a part of names of transactions."""

AT_LEAST_ONCE = "atLeastOnce"
EXACTLY_ONCE = "exactlyOnce"

_WRITER = re.compile(r"[A-Za-z0-9._:-]{1,200}", re.ASCII)

Parser = Callable[[str, str], Any]
"""Called with an option's name and text; returns the checked value."""


def parse_servers(name: str, text: str) -> str:
    """Returns bootstrap servers, which are looked at where they are used."""
    if not text.strip():
        raise ConfigError(name, text, f'give the option "{name}", for example "127.0.0.1:9092"')
    return text.strip()


def parse_text(_name: str, text: str) -> str:
    """Returns the text, which is looked at with others of its kind."""
    return text


def parse_url(name: str, text: str) -> str:
    """Returns a url of http or https."""
    if not text.strip().startswith(("http://", "https://")):
        raise ConfigError(name, text, f'{name} is "{text[:200]}": give a url, for example "http://127.0.0.1:8081"')
    return text.strip()


def parse_subject(name: str, text: str) -> str:
    """Returns the name of a subject."""
    if not text:
        raise ConfigError(name, text, f'{name} is empty: give the name of a subject, for example "rides-value"')
    return text


def parse_boolean(name: str, text: str) -> bool:
    """Returns whether the option is "true"."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError(name, text, f'{name} is "{text}": give "true" or "false"')
    return word == "true"


def choice_parser(*words: str) -> Parser:
    """Makes a parser of an option that is one of a few words, in lower case."""

    def parse_choice(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            listed = ", ".join(f'"{each}"' for each in words)
            raise ConfigError(name, text, f'{name} is "{word[:40]}": give one of {listed}')
        return word

    return parse_choice


def parse_delivery(name: str, text: str) -> bool:
    """Returns whether rows are to be there exactly once."""
    word = text.strip().lower()
    if word not in {AT_LEAST_ONCE.lower(), EXACTLY_ONCE.lower()}:
        raise ConfigError(name, text, f'{name} is "{text[:40]}": give one of "{AT_LEAST_ONCE}", "{EXACTLY_ONCE}"')
    return word == EXACTLY_ONCE.lower()


def parse_writer(name: str, text: str) -> str:
    """Returns the name of what writes once."""
    if _WRITER.fullmatch(text) is None:
        raise ConfigError(
            name,
            text[:WRITER_CHARACTERS_MAX],
            f'{name} has to be 1 to {WRITER_CHARACTERS_MAX} letters, digits, ".", "_", ":" or "-": give such a name',
        )
    return text


def parse_duration_ms(name: str, text: str) -> int:
    """Returns a length of time in milliseconds, such as that of "15m"; a number without a unit counts milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    ms = int(found[1]) * _DURATION_UNIT_MS[found[2]] if found else 0
    if not 1 <= ms <= DURATION_MS_MAX:
        raise ConfigError(
            name, text, f'{name} is "{text[:40]}": give a length of time up to 365d, such as "15m" (ms, s, m, h or d)'
        )
    return ms


def parse_rack(name: str, text: str) -> str:
    """Returns the name of a rack, as `broker.rack` may be."""
    rack = text.strip()
    if not 0 < len(rack) <= RACK_CHARACTERS_MAX or not rack.isprintable():
        raise ConfigError(
            name, text[:RACK_CHARACTERS_MAX], f"{name}: give 1 to {RACK_CHARACTERS_MAX} printable characters"
        )
    return rack


def number_parser(what: str, smallest: int, largest: int) -> Parser:
    """Makes a parser of whole numbers.

    Args:
        what: The words for such a number, as in "give a number of tasks from 1 to 10".
        smallest: The smallest number that is accepted.
        largest: The largest number that is accepted.
    """

    def parse_number(name: str, text: str) -> int:
        digits = text.strip()
        if not is_number(digits, smallest, largest):
            shown = digits if len(digits) <= 40 else f"{digits[:40]}..."
            raise ConfigError(name, text, f'{name} is "{shown}": give {what} from {smallest} to {largest}')
        return int(digits)

    return parse_number


def size_parser(smallest: int, largest: int) -> Parser:
    """Makes a parser of sizes in bytes, which may end in k, m or g."""

    def parse_size(name: str, text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,18})\s*([kmg]?)b?", text.strip().lower(), re.ASCII)
        size = int(found[1]) << _SHIFTS[found[2]] if found else -1
        if not smallest <= size <= largest:
            shape = f'a size from {smallest} to {largest} bytes, such as "128m"'
            raise ConfigError(name, text, f'{name} is "{text.strip()[:40]}": give {shape}')
        return size

    return parse_size


_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}


def level_parser(smallest: int, largest: int) -> Parser:
    """Makes a parser of levels of compression, which may be negative."""

    def parse_level(name: str, text: str) -> int:
        digits = text.strip()
        is_level = digits.removeprefix("-").isdecimal() and digits.isascii() and len(digits) <= len(str(smallest)) + 1
        if not is_level or not smallest <= int(digits) <= largest:
            raise ConfigError(name, text, f'{name} is "{digits[:40]}": give a level from {smallest} to {largest}')
        return int(digits)

    return parse_level


def parse_topic(name: str, text: str) -> str:
    """Returns the name of one topic."""
    if not text.strip():
        raise ConfigError(name, text, f'option "{name}" names no topic')
    return text.strip()


def parse_group(name: str, text: str) -> str:
    """Returns the name of a consumer group."""
    group_id = text.strip()
    if not 0 < len(group_id) <= GROUP_CHARACTERS_MAX or not group_id.isprintable():
        raise ConfigError(
            name, text[:GROUP_CHARACTERS_MAX], f"{name}: give 1 to {GROUP_CHARACTERS_MAX} printable characters"
        )
    return group_id


def is_number(text: str, smallest: int, largest: int) -> bool:
    """Whether `text` is decimal digits, of a number in that range."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and smallest <= int(text) <= largest


def parse_topics(name: str, text: str) -> tuple[str, ...]:
    """Returns topics separated by commas, in the order given, without doubles."""
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ConfigError(name, text, f'option "{name}" names no topic')
    return topics


def parse_pattern(name: str, text: str) -> str:
    """Returns a regular expression for the names of topics."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(name, text, f'{name} is "{text[:200]}", which is no regular expression: {error}') from None
    if not text.strip() or len(text) > PATTERN_CHARACTERS_MAX:
        shape = f'a regular expression of at most {PATTERN_CHARACTERS_MAX} characters for names of topics, such as "rides-.*"'
        raise ConfigError(name, text, f"{name}: give {shape}")
    return text.strip()


def parse_assignment(name: str, text: str) -> Mapping[str, tuple[int, ...]]:
    """Returns topic -> partitions, from json."""
    shape = '{"topic": [0, 1]} with at least one partition for each topic'
    parsed = parse_json_object(name, text, shape)
    for partitions in parsed.values():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(item) for item in partitions):
            refuse_json(name, text, shape)
    if not parsed:
        refuse_json(name, text, shape)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def parse_partition_numbers(name: str, text: str, shape: str, *, markers: tuple[int, ...] = ()) -> PartitionNumbers:
    """Returns topic -> partition -> number, from json.

    Args:
        name: The option's name.
        text: The json.
        shape: What to give instead of something else.
        markers: The negative numbers that are accepted.
    """
    numbers: dict[str, dict[int, int]] = {}
    for topic, partitions in parse_json_object(name, text, shape).items():
        if not isinstance(partitions, dict):
            refuse_json(name, text, shape)
        for partition, number in partitions.items():
            is_partition = is_number(partition, 0, 2**31 - 1)
            if not is_partition or not (_is_count(number) or (type(number) is int and number in markers)):
                refuse_json(name, text, shape)
            numbers.setdefault(topic, {})[int(partition)] = number
    return numbers


def parse_json_object(name: str, text: str, shape: str) -> dict[str, Any]:
    """Returns a json object none of whose keys appears twice."""
    try:
        parsed = json.loads(text, object_pairs_hook=_without_doubles) if len(text) <= JSON_CHARACTERS_MAX else None
    except (ValueError, RecursionError):
        refuse_json(name, text, shape)
    if not isinstance(parsed, dict):
        refuse_json(name, text, shape)
    return parsed


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def refuse_json(name: str, text: str, shape: str) -> NoReturn:
    """Raises a ConfigError that says which shape to give."""
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    raise ConfigError(name, text, f"{name} is {shown!r}: give {shape}") from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
