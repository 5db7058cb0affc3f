"""Arrow buffers being filled in pure Python: the column half of `_codec_py`.

The memory layout is that of `replog.records.model.Columns`; nothing here knows how records are parsed.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from replog.errors import InvalidRecordError
from replog.records.model import Buffer, Columns, Header, HeaderColumns, TimestampType, Wanted

_INT32_MAX = 2**31 - 1


class BinaryColumn:
    """One variable-length Arrow column being filled."""

    def __init__(self) -> None:
        self._offsets = array("i", (0,))
        self._data = bytearray()
        self._nulls: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def append(self, data: bytes | None) -> None:
        """Adds a value, None for null."""
        if data is None:
            self._nulls.append(len(self))
        else:
            self._data += data
            if len(self._data) > _INT32_MAX:
                raise InvalidRecordError("a column would pass 2 GiB: decode fewer batches at a time")
        self._offsets.append(len(self._data))

    def finish(self) -> tuple[bytes, bytes, bytes | None, int]:
        """Returns offsets, data, validity, number of nulls."""
        return _little_endian(self._offsets), bytes(self._data), _validity(len(self), self._nulls), len(self._nulls)


class HeaderColumn:
    """Headers as list<struct<key, value>> being filled."""

    def __init__(self) -> None:
        self._ends = array("i", (0,))
        self._without: list[int] = []
        self._names = BinaryColumn()
        self._values = BinaryColumn()

    def append(self, headers: Sequence[Header]) -> None:
        """Adds the headers of a record."""
        if not headers:
            self._without.append(len(self._ends) - 1)
        for name, value in headers:
            self._names.append(name.encode())
            self._values.append(value)
        self._ends.append(len(self._names))

    def finish(self) -> HeaderColumns:
        """Returns the buffers."""
        validity = _validity(len(self._ends) - 1, self._without)
        key_offsets, key_data, _, _ = self._names.finish()
        return HeaderColumns(
            len(self._names),
            _little_endian(self._ends),
            validity,
            len(self._without),
            key_offsets,
            key_data,
            *self._values.finish(),
        )


class ColumnSet:
    """The columns of one `decode_columns` call; those that are not wanted stay empty."""

    def __init__(self, wanted: int) -> None:
        self._has_offsets = bool(wanted & Wanted.OFFSETS)
        self._has_timestamps = bool(wanted & Wanted.TIMESTAMPS)
        self._count = 0
        self._offsets, self._timestamps, self._types = array("q"), array("q"), array("i")
        self._keys = BinaryColumn() if wanted & Wanted.KEYS else None
        self._values = BinaryColumn() if wanted & Wanted.VALUES else None
        self._headers = HeaderColumn() if wanted & Wanted.HEADERS else None

    def append(self, offset: int, timestamp: int, kind: TimestampType) -> None:
        """Adds the offset and the time of a record."""
        self._count += 1
        if self._has_offsets:
            self._offsets.append(offset)
        if self._has_timestamps:
            self._timestamps.append(timestamp)
            self._types.append(kind)

    def append_fields(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        """Adds the rest of that record."""
        if self._keys is not None:
            self._keys.append(key)
        if self._values is not None:
            self._values.append(value)
        if self._headers is not None:
            self._headers.append(headers)

    def finish(self) -> Columns:
        """Returns the buffers."""
        return Columns(
            self._count,
            _little_endian(self._offsets),
            _little_endian(self._timestamps),
            _little_endian(self._types),
            *_finished(self._keys),
            *_finished(self._values),
            None if self._headers is None else self._headers.finish(),
        )


def _finished(column: BinaryColumn | None) -> tuple[Buffer, Buffer, Buffer | None, int]:
    return (b"", b"", None, 0) if column is None else column.finish()


def _validity(count: int, nulls: Sequence[int]) -> bytes | None:
    if not nulls:
        return None
    bits = bytearray(b"\xff" * ((count + 7) // 8))
    if count % 8:
        bits[-1] = (1 << count % 8) - 1
    for i in nulls:
        bits[i >> 3] &= ~(1 << (i & 7))
    return bytes(bits)


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
