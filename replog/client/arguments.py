"""What a caller may pass to the clients' methods: what is something else is refused at once, by its name.

Why: Python takes a string for a sequence of characters and a dict for a sequence of its keys, and what comes of that is an
error far away, or none.  Each check here looks at one argument; settings of constructors are in `replog.errors.choices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import index
from typing import Any, Final, SupportsIndex, TypeVar

from replog.client.types import TopicPartition
from replog.errors import InvalidRecordError, InvalidRequestError, UnknownTopicOrPartitionError
from replog.records import CHARACTER_BYTES_MAX, RECORD_HEADER_OVERHEAD_BYTES_MAX
from replog.records.model import NO_TIMESTAMP, Columns

T = TypeVar("T")

PAIR: Final = 'a (topic, partition) pair such as ("flights", 0)'
_TEXTS: Final = (str, bytes, bytearray, memoryview)
_SHOWN_CHARACTERS: Final = 80

OFFSET_MAX: Final = 2**63 - 1

LIMIT_MS_MAX: Final = 2**31 - 1
"""Of a time limit: 24 days.  A longer one is as good as this, and a request cannot say any number."""


def wrong_type(name: str, value: object, expected: str) -> TypeError:
    """Returns the error about an argument of another type than it must have.

    Args:
        name: The name of the argument.
        value: What was given.
        expected: What it must be, in words.
    """
    return TypeError(f"{name} is {shown(value)} ({type(value).__name__}); expected {expected}")


def shown(value: object) -> str:
    """Returns a value as an error shows it, cut to a length that people read."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def require_text(name: str, value: object) -> None:
    """Raises TypeError for anything but a str."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a str")


def is_whole(value: object) -> bool:
    """Whether this is an integer, of whatever library, and no bool."""
    return type(value) is int or (isinstance(value, SupportsIndex) and not isinstance(value, bool))


def require_whole(name: str, value: Any, expected: str = "an int") -> int:
    """Returns a whole number of any library as an int: those of some know no negative ones.

    Raises:
        TypeError: It is anything else.
    """
    if not is_whole(value):
        raise wrong_type(name, value, expected)
    return index(value)


def require_max_records(value: Any) -> int:
    """Returns the most records that a read takes, as an int from 1.

    Raises:
        TypeError: It is no integer.
        InvalidRequestError: It is less than 1: such a read never has anything to wait for, and a loop of them never ends.
    """
    count = require_whole("max_records", value)
    if count < 1:
        raise InvalidRequestError(
            f"max_records is {count}; it must be at least 1. To read without waiting, set timeout_ms=0"
        )
    return count


def limit_ms(value: Any, default_ms: int) -> int:
    """Returns a time limit that may be left out, in whole milliseconds, at most LIMIT_MS_MAX.

    Args:
        value: The argument `timeout_ms`; None and 0 stand for the default.
        default_ms: The limit that holds then, milliseconds.

    Raises:
        TypeError: It is no number.
        InvalidRequestError: It is not a number (NaN).
    """
    if value is None:
        return default_ms
    require_limit("timeout_ms", value)
    return int(min(value, LIMIT_MS_MAX)) or default_ms


def require_limit(name: str, value: Any) -> None:
    """Refuses a time limit that is no number.  One that has passed, below 0, is as good as 0."""
    if type(value) is int:
        return
    if not (is_whole(value) or isinstance(value, float)):
        raise wrong_type(name, value, "a number of milliseconds")
    if value != value:  # noqa: PLR0124 -- what is not a number is not even equal to itself
        raise InvalidRequestError(f"{name} is not a number (NaN); expected milliseconds")


def require_mapping(name: str, value: object, expected: str) -> None:
    """Raises TypeError for anything but a mapping."""
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, expected)


def items_of(name: str, values: Iterable[T], expected: str, *, is_ordered: bool = False) -> list[T]:
    """Returns the items of an argument that takes several.

    Args:
        name: The name of the argument.
        values: What was given.
        expected: What it must be, in words.
        is_ordered: Whether the order of the items counts, which a set has not.

    Raises:
        TypeError: It is text, bytes or a mapping, which only look like several, or cannot be iterated.
    """
    if isinstance(values, (*_TEXTS, Mapping)) or not isinstance(values, Iterable):
        raise wrong_type(name, values, expected)
    if is_ordered and isinstance(values, AbstractSet):
        raise wrong_type(name, values, f"{expected}, in an order, which a set has not")
    return list(values)


def texts_of(name: str, values: Iterable[str]) -> list[str]:
    """Returns the strings of an argument that takes several; one alone is not taken for its characters."""
    found = items_of(name, values, "a list of str")
    for value in found:
        require_text(f"an item of {name}", value)
    return found


def partition_of(name: str, value: object) -> TopicPartition:
    """Returns a (topic, partition) pair as a `TopicPartition`.

    Raises:
        TypeError: It is something else.
    """
    if type(value) is TopicPartition and type(value[0]) is str and type(value[1]) is int:
        return value
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise wrong_type(name, value, PAIR)
    topic, partition = value
    if not isinstance(topic, str) or not is_whole(partition):
        raise wrong_type(name, value, PAIR)
    return TopicPartition(topic, partition)


def partitions_of(name: str, values: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Returns the (topic, partition) pairs of an argument.

    Of a mapping these are the keys, so that what `end_offsets` returns can be given.
    """
    pairs: Iterable[object] = values if isinstance(values, Mapping) else items_of(name, values, f"a list of {PAIR}")
    return [partition_of(f"an item of {name}", value) for value in pairs]


def numbers_by_partition(name: str, values: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
    """Returns a copy of a mapping from (topic, partition) pairs to integers."""
    require_mapping(name, values, 'a dict such as {("flights", 0): 17}')
    found = {partition_of(f"a key of {name}", key): value for key, value in values.items()}
    for partition, value in found.items():
        require_whole(f"{name}[{partition}]", value)
    return found


def is_offset(offset: object) -> bool:
    """Whether this is a whole number from 0 that a request can say, of whatever library."""
    return isinstance(offset, SupportsIndex) and 0 <= index(offset) <= OFFSET_MAX


def checked_offsets(offsets: Mapping[tuple[str, int], int] | None) -> dict[TopicPartition, int]:
    """Returns a copy of offsets that are to be committed; none of None.

    Raises:
        InvalidRequestError: One is no offset.
        TypeError: They are no mapping, or one is no whole number.
    """
    given = {} if offsets is None else numbers_by_partition("offsets", offsets)
    for partition, offset in given.items():
        if not is_offset(offset):
            raise InvalidRequestError(f"offsets[{partition}] is {offset!r}, which is no offset from 0")
    return given


def broker_ids_of(name: str, values: Iterable[int]) -> tuple[int, ...]:
    """Returns broker ids in the order given, the preferred leader first."""
    found = items_of(name, values, "a list of broker ids such as [1, 2, 3]", is_ordered=True)
    for value in found:
        require_whole(f"an item of {name}", value)
    return tuple(found)


def assignments_of(values: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Returns the argument `assignments`: the replicas of each partition, in order."""
    expected = "a list of lists of broker ids such as [[1, 2], [2, 3]]"
    found = items_of("assignments", values, expected, is_ordered=True)
    return tuple(broker_ids_of("an item of assignments", replicas) for replicas in found)


def headers_bytes_bound(headers: Any) -> int:
    """Returns an upper bound of what headers take in a record, as in `batch_bytes_bound`.

    Each `send` pays for this, so that it looks once at a header of the usual types.

    Raises:
        TypeError: They are no list of (name, value) pairs.
    """
    if not isinstance(headers, (tuple, list)):
        hint = "; of a dict pass list(headers.items())" if isinstance(headers, Mapping) else ""
        raise wrong_type("headers", headers, f'a list of (name, value) pairs such as [("trace", b"1")]{hint}')
    size_bytes = RECORD_HEADER_OVERHEAD_BYTES_MAX * len(headers)
    for header in headers:
        if type(header) is tuple and len(header) == 2:
            name, data = header
            if type(name) is str and type(data) is bytes:
                size_bytes += CHARACTER_BYTES_MAX * len(name) + len(data)
                continue
        name, data = _header_of(header)
        size_bytes += CHARACTER_BYTES_MAX * len(name) + len(data)
    return size_bytes


def _header_of(header: Any) -> tuple[str, bytes]:
    is_pair = isinstance(header, (tuple, list)) and len(header) == 2
    if not is_pair or not isinstance(header[0], str) or not isinstance(header[1], (bytes, type(None))):
        raise wrong_type("an item of headers", header, 'a (str, bytes or None) pair such as ("trace", b"1")')
    return header[0], header[1] or b""


def require_records(records: object, method: str) -> None:
    """Refuses what only looks like several records.

    Args:
        records: What was given.
        method: The name of the method, for the error.
    """
    if isinstance(records, _TEXTS):
        raise wrong_type("records", records, f"an iterable of records; {method.replace('_many', '')} takes one")
    if isinstance(records, Mapping):
        raise wrong_type("records", records, "an iterable of values or (value, key) pairs, not a mapping")
    if not isinstance(records, Iterable):
        raise wrong_type("records", records, "an iterable of values or (value, key) pairs")


def require_columns(columns: object, partitions: object) -> None:
    """Refuses records that are not columns, and partitions that are not a buffer of numbers."""
    if not isinstance(columns, Columns):
        raise wrong_type("columns", columns, "replog.records.Columns")
    if partitions is not None and not isinstance(partitions, (bytes, bytearray, memoryview)):
        raise wrong_type("partitions", partitions, "a buffer of int32, or None")


def require_partition(topic: str, partitions_count: int, partition: int) -> None:
    """Refuses the number of a partition that the topic has not."""
    if type(partition) is not int:
        require_whole("partition", partition)
    if not 0 <= partition < partitions_count:
        raise UnknownTopicOrPartitionError(
            f"{topic} has {partitions_count} partitions, numbered from 0; there is no partition {partition}"
        )


def require_timestamp(timestamp_ms: int) -> None:
    """Refuses, before anything is waited for, a timestamp that the codec would refuse after it."""
    if type(timestamp_ms) is not int:
        require_whole("timestamp_ms", timestamp_ms, "an int, milliseconds since 1970, or None for now")
    if not NO_TIMESTAMP <= timestamp_ms < 1 << 63:
        raise InvalidRecordError(f"timestamp {timestamp_ms} ms is neither a time since 1970 nor -1 for none")
