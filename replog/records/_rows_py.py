"""Records out of columns, in pure Python: the twin of the compiled `_codec_rows.pxi`.

What `decode_columns` gives is taken here: Arrow's layout, see `replog.records.model.Columns`.  Nothing in it is believed
before it is compared with the size of its buffer, for the columns may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from replog.errors import InvalidRecordError
from replog.records.key_hash import murmur2
from replog.records.model import NO_TIMESTAMP, Buffer, Columns, Header, HeaderColumns

ROW_OVERHEAD_BYTES = 36
"""What a record takes at most beyond its key, its value and its headers."""

HEADER_OVERHEAD_BYTES = 10
"""What a header takes at most beyond its name and its value."""


class RowSource:
    """The rows of some columns, to be put into batches.

    Args:
        columns: The columns; keys, values, headers and timestamps may be left out, offsets are not looked at.
        timestamp_ms: The time of all rows where there are no timestamps.

    Raises:
        InvalidRecordError: A buffer is too short for the number of rows, or the time is below -1.
    """

    def __init__(self, columns: Columns, timestamp_ms: int) -> None:
        self.count = columns.count
        check_time(0, timestamp_ms)
        self._timestamp_ms = timestamp_ms
        self._timestamps = _numbers("timestamps", columns.timestamps, "q", self.count)
        self._keys = _Field("key", columns.key_offsets, columns.key_data, columns.key_validity, self.count)
        self._values = _Field("value", columns.value_offsets, columns.value_data, columns.value_validity, self.count)
        self._headers = None if columns.headers is None else _Headers(columns.headers, self.count)

    def record(self, row: int) -> tuple[int, bytes | None, bytes | None, Sequence[Header]]:
        """Returns a row as the codec takes records."""
        timestamp = self._timestamp_ms if self._timestamps is None else self._timestamps[row]
        check_time(row, timestamp)
        headers = () if self._headers is None else self._headers.at(row)
        return timestamp, self._keys.at(row), self._values.at(row), headers

    def within(self, start: int, bytes_max: int) -> tuple[int, int]:
        """Returns the end of the rows from `start` on that take at most `bytes_max` bytes, one at least, and a bound of
        what they take in batches, without the batches' headers.

        Raises:
            InvalidRecordError: A row's bytes are not there.
        """
        total, row = 0, start
        while row < self.count:
            size = self._bound(row)
            if row > start and total + size > bytes_max:
                break
            total += size
            row += 1
        return row, total

    def partitions(self, partitions_count: int, given: Buffer | None = None, is_by_key: bool = True) -> bytes:
        """Returns the partition of each row, int32; -1 where it is still to be chosen.

        Args:
            partitions_count: The number of partitions.
            given: The partition that each row must have, int32; -1 for none, None for all.
            is_by_key: Whether a key decides, where there is one and no partition is given.
        """
        numbers = [-1] * self.count if given is None else list(_int32s(given))[: self.count]
        if len(numbers) < self.count:
            raise too_short("partitions", self.count)
        for row in range(self.count):
            key = self._keys.at(row) if is_by_key and numbers[row] == -1 else None
            if key is not None:
                numbers[row] = (murmur2(key) & 0x7FFFFFFF) % partitions_count
        return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)

    def _bound(self, row: int) -> int:
        _, key, value, headers = self.record(row)
        size = ROW_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, data in headers:
            size += HEADER_OVERHEAD_BYTES + len(name.encode()) + len(data or b"")
        return size


class _Builder(Protocol):
    """What is used of a `BatchBuilder`."""

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int | None: ...


def extend_rows(builder: _Builder, source: RowSource, rows: Buffer, first: int) -> int:
    """Encodes rows until one does not fit; returns how many went in.

    Args:
        builder: The batch.
        source: The columns.
        rows: Numbers of rows, int32.
        first: The place in `rows` to begin at.

    Raises:
        InvalidRecordError: A row's bytes are not there, its time is below -1, or there is no such row.
    """
    numbers = _int32s(rows)
    added = 0
    for row in numbers[first:]:
        if not 0 <= row < source.count:
            raise no_such_row(row, source.count)
        if builder.append(*source.record(row)) is None:
            break
        added += 1
    return added


def group_rows(
    partitions: Buffer, start: int, end: int, partitions_count: int, instead: int
) -> list[tuple[int, Buffer]]:
    """Returns the numbers of the rows [start, end), int32, by their partition, in order within each.

    Args:
        partitions: The partition of each row, int32; -1 for `instead`.
        start, end: The range of rows.
        partitions_count: The number of partitions.
        instead: The partition of rows that have none.

    Raises:
        InvalidRecordError: A partition is not one of them.
    """
    numbers = _int32s(partitions)
    if not 0 <= start <= end <= len(numbers):
        raise InvalidRecordError(f"rows {start} to {end} of {len(numbers)}")
    groups: dict[int, bytearray] = {}
    for row in range(start, end):
        number = instead if numbers[row] == -1 else numbers[row]
        if not 0 <= number < partitions_count:
            raise no_such_partition(row, number, partitions_count)
        groups.setdefault(number, bytearray()).extend(row.to_bytes(4, "little"))
    return [(number, memoryview(groups[number])) for number in sorted(groups)]


class _Field:
    """One variable-length column; without offsets, a null in every row."""

    def __init__(self, name: str, offsets: Buffer, data: Buffer, validity: Buffer | None, count: int) -> None:
        self._name = name
        self._offsets = _numbers(name, offsets, "i", count + 1)
        self._data = memoryview(data).cast("B")
        self._validity = None if validity is None else memoryview(validity).cast("B")
        if self._validity is not None and len(self._validity) < (count + 7) // 8:
            raise too_short(name, count)

    def at(self, row: int) -> bytes | None:
        if self._offsets is None or (self._validity is not None and not self._validity[row >> 3] >> (row & 7) & 1):
            return None
        start, end = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise not_there(self._name, row)
        return bytes(self._data[start:end])


class _Headers:
    """The headers of all rows."""

    def __init__(self, columns: HeaderColumns, count: int) -> None:
        lists = _numbers("headers", columns.list_offsets, "i", count + 1)
        self._lists: Sequence[int] = [0] * (count + 1) if lists is None else lists
        self._count = columns.headers_count
        self._names = _Field("header", columns.key_offsets, columns.key_data, None, self._count)
        self._values = _Field("header", columns.value_offsets, columns.value_data, columns.value_validity, self._count)

    def at(self, row: int) -> list[Header]:
        start, end = self._lists[row], self._lists[row + 1]
        if not 0 <= start <= end <= self._count:
            raise not_there("headers", row)
        return [(_text(row, self._names.at(number)), self._values.at(number)) for number in range(start, end)]


def _text(row: int, name: bytes | None) -> str:
    try:
        return (name or b"").decode()
    except UnicodeDecodeError:
        raise InvalidRecordError(f"row {row}: the name of a header is not valid UTF-8") from None


def _numbers(name: str, data: Buffer, kind: str, count: int) -> memoryview[int] | None:
    view = memoryview(data).cast("B")
    if not len(view):
        return None
    if len(view) < count * (8 if kind == "q" else 4):
        raise too_short(name, count)
    return view[: len(view) // 8 * 8].cast("q") if kind == "q" else _int32s(view)


def _int32s(data: Buffer) -> memoryview[int]:
    view = memoryview(data).cast("B")
    return view[: len(view) // 4 * 4].cast("i")


def check_time(row: int, timestamp: int) -> None:
    """Refuses what is no time of a record."""
    if not NO_TIMESTAMP <= timestamp < 1 << 63:
        raise InvalidRecordError(f"row {row}: timestamp {timestamp} ms is neither a time since 1970 nor -1 for none")


def too_short(name: str, count: int) -> InvalidRecordError:
    """Returns the error about a buffer that has not so many rows."""
    return InvalidRecordError(f"the column {name} is too short for {count} rows")


def not_there(name: str, row: int) -> InvalidRecordError:
    """Returns the error about offsets that point beyond their column."""
    return InvalidRecordError(f"row {row}: its {name} lies outside of the column's data")


def no_such_row(row: int, count: int) -> InvalidRecordError:
    """Returns the error about a number of no row."""
    return InvalidRecordError(f"there is no row {row} among {count}")


def no_such_partition(row: int, number: int, count: int) -> InvalidRecordError:
    """Returns the error about a row of a partition that there is not."""
    return InvalidRecordError(f"row {row}: there is no partition {number}, there are {count}, numbered from 0")
