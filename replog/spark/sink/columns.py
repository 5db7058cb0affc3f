"""Arrow batches of Spark to columns of records: buffers are handed on, rows are never made Python objects."""

from __future__ import annotations

import time
from array import array as array_of_numbers
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from replog.errors import InvalidRecordError
from replog.records import Buffer, Columns, HeaderColumns
from replog.records.arrow.arrays import fixed_array, number_scalar
from replog.spark.schema import HEADERS

_NO_PARTITION = -1
_OFFSET_BYTES = 4


class TopicRows(Struct, frozen=True):
    """Rows for one topic.

    Attributes:
        topic: Its name.
        columns: The rows, in order.
        partitions: The partition of each row, int32, -1 for one to be chosen; None: all are.
    """

    topic: str
    columns: Columns
    partitions: Buffer | None


def pieces(batch: pa.RecordBatch, first_row: int, *, topic: str | None, include_headers: bool) -> Iterator[TopicRows]:
    """Yields the rows of a batch by topic.

    Args:
        batch: The columns that `check_write_schema` let pass.
        first_row: The place of its first row among those of the task, for errors.
        topic: The topic of all rows; None: the column `topic` says it.
        include_headers: Whether the column `headers` is written.

    Raises:
        InvalidRecordError: A row has no topic, a negative partition, a time before 1970 or a header without a name.
    """
    if not batch.num_rows:
        return
    _check_rows(batch, first_row)
    if topic is not None:
        yield _piece(topic, batch, include_headers)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise _at(first_row, pc.is_null(topics), 'its column "topic" is null, and there is no option "topic"')
    names = pc.unique(topics)
    if len(names) == 1:
        yield _piece(names[0].as_py(), batch, include_headers)
        return
    for name in names:
        yield _piece(name.as_py(), batch.filter(pc.equal(topics, name)), include_headers)


def _check_rows(batch: pa.RecordBatch, first_row: int) -> None:
    if "partition" in batch.schema.names:
        negative = pc.less(batch.column("partition"), number_scalar(pa.int32(), 0))
        if pc.any(negative).as_py():
            raise _at(first_row, negative, 'its column "partition" is negative: give a partition, or null')
    if "timestamp" in batch.schema.names:
        early = pc.less(batch.column("timestamp").cast(pa.int64()), number_scalar(pa.int64(), 0))
        if pc.any(early).as_py():
            raise _at(first_row, early, 'its column "timestamp" is before 1970, which records cannot say')


def _at(first_row: int, mask: Any, reason: str) -> InvalidRecordError:
    row = first_row + pc.index(mask, True).as_py()
    return InvalidRecordError(f"row {row} of the task (counted from 0): {reason}")


def _piece(topic: str, batch: pa.RecordBatch, include_headers: bool) -> TopicRows:
    names = batch.schema.names
    count = batch.num_rows
    key = _variable(batch.column("key")) if "key" in names else (b"", b"", None, 0)
    value = _variable(batch.column("value"))
    timestamps = _timestamps(batch.column("timestamp")) if "timestamp" in names else b""
    headers = _headers(batch.column(HEADERS)) if HEADERS in names and include_headers else None
    partitions = _int32s(batch.column("partition")) if "partition" in names else None
    return TopicRows(topic, Columns(count, b"", timestamps, b"", *key, *value, headers), partitions)


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


def _timestamps(array: Any) -> Buffer:
    """Returns milliseconds; of rows without a time now."""
    milliseconds = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64())
    return _fixed(pc.fill_null(milliseconds, number_scalar(pa.int64(), time.time_ns() // 1_000_000)), 8)


def _int32s(array: Any) -> Buffer:
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
