"""From what callers hand over to record batches.

Everything that can be wrong with a record is found here, in the caller's own thread or task: records of many callers share
a batch later, and one that is refused there would take its neighbours with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from replog.errors import InvalidRecordError, RecordTooLargeError
from replog.records import HEADER_BYTES, BatchBuilder, Buffer, Codec, Header, RecordInput, batch_bytes_bound

_TIMESTAMP_MAX: Final = 2**63 - 1
_SINGLE_OVERHEAD_BYTES: Final = HEADER_BYTES + 36  # as `batch_bytes_bound` counts a record without headers
_WINDOW_RECORDS: Final = 10_000  # copied at a time, so that a million records in one call cost no quadratic copying


class NewRecord(NamedTuple):
    """A record to append.

    Attributes:
        value: The payload; None is a tombstone for compaction.
        key: The key; None = no key.
        headers: The (name, value) pairs in order; names may repeat.
        timestamp_ms: The time in milliseconds since 1970, from 0; None = now.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None


RecordLike: TypeAlias = Buffer | NewRecord | tuple[Buffer | None, Buffer | None] | None
"""What `append_many` takes for one record: a value, a (value, key) pair, or a `NewRecord`."""


class Group(NamedTuple):
    """Records of one or many callers, to be appended together.

    Attributes:
        entries: One a caller: a single record, or a sequence that should stay together.
    """

    entries: Sequence[RecordInput | list[RecordInput]]


def record_input(
    value: Buffer | None,
    key: Buffer | None,
    headers: Sequence[Header],
    timestamp_ms: int | None,
    batch_bytes: int,
) -> RecordInput:
    """Checks one record and returns it as the codec takes it.

    Args:
        batch_bytes: The size that a batch with just this record must not exceed.

    Raises:
        TypeError: A value, key or header is neither bytes-like nor None, or the timestamp is no integer.
        InvalidRecordError: The timestamp is out of range, or a header name is not valid Unicode.
        RecordTooLargeError: It does not fit.
    """
    if value is not None and type(value) is not bytes:
        value = _to_bytes("value", value)
    if key is not None and type(key) is not bytes:
        key = _to_bytes("key", key)
    if headers:
        if not isinstance(headers, (tuple, list)):
            hint = "; of a dict pass list(headers.items())" if isinstance(headers, Mapping) else ""
            raise TypeError(f"headers is a list of (name, value) pairs, not {type(headers).__name__}{hint}")
        headers = tuple(_header(header) for header in headers)
        size_bytes = batch_bytes_bound(key, value, headers)
    else:
        headers = ()
        size_bytes = _SINGLE_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    if size_bytes > batch_bytes:
        raise RecordTooLargeError(
            f"a record of {size_bytes} bytes with its batch header; the limit is {batch_bytes}: "
            "open the log with a larger max_batch_bytes (and segment_bytes at least twice that)"
        )
    if timestamp_ms is None:
        timestamp_ms = wall_ms()
    elif type(timestamp_ms) is not int:
        raise TypeError(f"timestamp_ms is an int, milliseconds since 1970, not {type(timestamp_ms).__name__}")
    elif not 0 <= timestamp_ms <= _TIMESTAMP_MAX:
        raise InvalidRecordError(f"timestamp_ms is {timestamp_ms}; it must be from 0 to {_TIMESTAMP_MAX}")
    return timestamp_ms, key, value, headers


def record_inputs(records: Iterable[RecordLike], batch_bytes: int) -> list[RecordInput]:
    """Checks what `append_many` takes, and returns each record as `record_input` does."""
    if isinstance(records, (bytes, bytearray, memoryview, str)):
        raise TypeError("append_many takes a sequence of records; append takes one")
    if isinstance(records, Mapping) or not isinstance(records, Iterable):
        raise TypeError(
            f"append_many takes an iterable of values, (value, key) pairs or NewRecords, not {type(records).__name__}"
        )
    inputs = []
    for record in records:
        if isinstance(record, NewRecord):
            inputs.append(record_input(record.value, record.key, record.headers, record.timestamp_ms, batch_bytes))
        elif isinstance(record, tuple):
            if len(record) != 2:
                raise TypeError(f"a tuple is (value, key), not {len(record)} things; use NewRecord for more")
            inputs.append(record_input(record[0], record[1], (), None, batch_bytes))
        else:
            inputs.append(record_input(record, None, (), None, batch_bytes))
    return inputs


class GroupEncoder:
    """Encodes groups into batches.  Made once per log; any thread, one call at a time per thread.

    Args:
        codec: The compression of the batches.
        batch_bytes: The size of the largest batch, before compression.

    Raises:
        UnsupportedCompressionError: The codec's library is not installed.
    """

    def __init__(self, codec: Codec, batch_bytes: int) -> None:
        self._attributes = int(codec)
        self._batch_bytes = batch_bytes
        self._new_builder()

    def one(self, record: RecordInput) -> bytes:
        """Returns a batch with just this record."""
        builder = self._new_builder()
        builder.append(*record)
        return bytes(builder.build())

    def many(self, records: Sequence[RecordInput]) -> list[bytes]:
        """Encodes records into as few batches as they fit into, in order; into one where they fit into one."""
        batches: list[bytes] = []
        builder = self._new_builder()
        done = 0
        while done < len(records):
            window = records[done : done + _WINDOW_RECORDS]
            fitted = builder.extend(window)
            done += fitted
            if fitted < len(window):
                batches.append(bytes(builder.build()))
        if builder.records_count:
            batches.append(bytes(builder.build()))
        return batches

    def group(self, group: Group) -> list[bytes]:
        """Encodes a group: neighbouring single records share batches; what came together begins a batch of its own."""
        batches: list[bytes] = []
        singles: list[RecordInput] = []
        for entry in group.entries:
            if isinstance(entry, tuple):
                singles.append(entry)
                continue
            batches += self.many(singles)
            singles = []
            batches += self.many(entry)
        return batches + self.many(singles)

    def _new_builder(self) -> BatchBuilder:
        return BatchBuilder(max_bytes=self._batch_bytes, attributes=self._attributes)


def wall_ms() -> int:
    """Returns the time now, ms since 1970."""
    return time.time_ns() // 1_000_000


def _to_bytes(name: str, data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    hint = ": encode it first" if isinstance(data, str) else ""
    raise TypeError(f"{name} is bytes or None, not {type(data).__name__}{hint}")


def _header(header: object) -> Header:
    if not isinstance(header, tuple) or len(header) != 2:
        raise TypeError(f"a header is a (name, value) pair, not {header!r}")
    name, value = header
    if not isinstance(name, str):
        raise TypeError(f"a header name is str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"header name {name!r} is not valid Unicode: {error.reason}") from None
    return name, None if value is None else _to_bytes(f"header {name!r}", value)
