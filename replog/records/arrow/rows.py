"""Arrow batches to columns of records: buffers are handed on, rows are never made Python objects.  Needs pyarrow."""

from __future__ import annotations

from array import array as array_of_numbers
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from replog.errors import InvalidRecordError
from replog.records.arrow.arrays import fixed_array, number_scalar
from replog.records.model import Buffer, Columns, HeaderColumns

_NO_PARTITION = -1
_OFFSET_BYTES = 4


def columns_of(batch: pa.RecordBatch, *, now_ms: int, include_headers: bool = True) -> Columns:
    """Returns the rows of a batch as records: its columns value, key, timestamp and headers, of which only value must be there.

    Args:
        batch: The rows.
        now_ms: The time of rows whose timestamp is null, in milliseconds since 1970.
        include_headers: Whether a column `headers` is taken.

    Raises:
        InvalidRecordError: A header is null, or has no name.
    """
    names = batch.schema.names
    key = _variable(batch.column("key")) if "key" in names else (b"", b"", None, 0)
    value = _variable(batch.column("value"))
    timestamps = _timestamps(batch.column("timestamp"), now_ms) if "timestamp" in names else b""
    headers = _headers(batch.column("headers")) if "headers" in names and include_headers else None
    return Columns(batch.num_rows, b"", timestamps, b"", *key, *value, headers)


def _variable(array: Any) -> tuple[Buffer, Buffer, Buffer | None, int]:
    """Returns offsets, data, validity and the number of nulls of a column of text or bytes."""
    if not len(array):  # headers of rows that have none: the offsets may be left out altogether
        return b"", b"", None, 0
    if array.type not in {pa.binary(), pa.string()}:  # large ones, by `spark.sql.execution.arrow.useLargeVarTypes`
        array = array.cast(pa.string()).cast(pa.binary()) if _is_text(array.type) else array.cast(pa.binary())
    _, offsets, data = array.buffers()
    window = offsets.slice(array.offset * _OFFSET_BYTES, (len(array) + 1) * _OFFSET_BYTES)
    return memoryview(window), b"" if data is None else memoryview(data), _validity(array), array.null_count


def _validity(array: Any) -> Buffer | None:
    if not array.null_count:
        return None
    return memoryview(array.is_valid().buffers()[1])  # made anew, so that it begins with the first row


def _timestamps(array: Any, now_ms: int) -> Buffer:
    """Returns milliseconds; of rows without a time `now_ms`."""
    milliseconds = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64())
    return _fixed(pc.fill_null(milliseconds, number_scalar(pa.int64(), now_ms)), 8)


def int32s(array: Any) -> Buffer:
    """Returns a column of int32, such as partitions; -1 where it is null."""
    return _fixed(pc.fill_null(array, number_scalar(pa.int32(), _NO_PARTITION)), 4)


def _fixed(array: Any, width: int) -> Buffer:
    return memoryview(array.buffers()[1].slice(array.offset * width, len(array) * width))


def _headers(array: Any) -> HeaderColumns:
    if array.null_count:
        places = fixed_array(pa.int64(), len(array), memoryview(array_of_numbers("q", range(len(array)))).cast("B"))
        array = array.take(places)  # what is null may have had headers
    offsets = array.offsets
    pairs = array.values
    names, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count:
        raise InvalidRecordError('a header in column "headers" is null or has no name: every header has one')
    name_offsets, name_data, _, _ = _variable(names)
    return HeaderColumns(
        len(pairs), _fixed(offsets, _OFFSET_BYTES), None, 0, name_offsets, name_data, *_variable(values)
    )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))
