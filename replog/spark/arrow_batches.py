"""From record batches to Arrow: the decoder's buffers become columns without an object per record.

Spark checks the schema of the first batch to the letter (order, names, types, nullability) and takes the batches as
they are; `replog.records.arrow.bounded` decides their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from replog.client.ranges.offset_range import Encoded
from replog.errors import InvalidRecordError, InvariantViolationError
from replog.records import Columns, decode_columns
from replog.records.arrow.arrays import fixed_array, headers_array, key_array, number_scalar, text_scalar, value_array
from replog.records.arrow.bounded import BoundedBatches
from replog.spark.json_decoder.arrow import arrow_type
from replog.spark.json_values import JsonValues
from replog.spark.schema import CORRUPT, HEADERS, MISFIT_COLUMNS, WHY, Column

if TYPE_CHECKING:
    from replog.spark.registry_values import BulkJsonValues, RowValues

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW_TYPES: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", _HEADER)),
    CORRUPT: pa.binary(),
    WHY: pa.string(),
}
"""Column -> Arrow type, equal to what Spark derives from its schema with the session's time zone out of the way."""


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Returns the Arrow schema of these columns."""
    return pa.schema([pa.field(column.name, _arrow_type(column), nullable=column.is_nullable) for column in columns])


def _arrow_type(column: Column) -> Any:
    if column.shape is not None:
        return arrow_type(column.shape)
    if column.registered is not None:
        from replog.spark.registry_types import arrow_type_of

        return arrow_type_of(column.registered.type)
    return pa.string() if column.is_text else ARROW_TYPES[column.name]


class ArrowConverter:
    """Turns record batches of one partition into Arrow batches.

    Args:
        columns: The columns to fill, in this order; nothing else is decoded.
        topic: The topic of the records, for the constant column.
        partition: The partition of the records, for the constant column.
    """

    def __init__(self, columns: Sequence[Column], topic: str, partition: int) -> None:
        self._place = f"{topic}-{partition}"
        self._values = _structured_values(columns, self._place)
        if self._values is not None:
            columns = undecoded(columns)
        self._schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._is_text = any(column.is_text for column in columns)
        self._topic = text_scalar(topic)
        self._partition = number_scalar(pa.int32(), partition)
        self._constants: dict[str, Any] = {}
        decode = partial(
            decode_columns,
            with_offsets="offset" in self._names or self._is_text,
            with_timestamps="timestamp" in self._names or "timestampType" in self._names,
            with_keys="key" in self._names,
            with_values="value" in self._names,
            with_headers=HEADERS in self._names,
        )
        self._bounded = BoundedBatches(decode, self._batch)

    def convert(self, encoded: Encoded, *, end_offset: int) -> Iterator[pa.RecordBatch]:
        """Yields the records in [encoded.start_offset, end_offset), in order; batches of at most BATCH_BYTES_MAX.

        Args:
            encoded: Whole record batches; control batches are skipped.  Nothing refers to their bytes afterwards.
            end_offset: The end of what is wanted, exclusive, also inside a batch.

        Raises:
            CorruptRecordError, InvalidRecordError: The bytes are damaged, or hold what Spark cannot.
            UnsupportedCompressionError: The codec's library is not installed.
        """
        decoded = self._bounded.convert(
            encoded.data,
            start_offset=encoded.start_offset,
            end_offset=end_offset,
            is_checked=not encoded.is_checked,
        )
        for batch in decoded:
            yield from self._values.decoded(batch) if self._values is not None else (batch,)

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        make: dict[str, Callable[[], Any]] = {
            "key": lambda: key_array(columns),
            "value": lambda: self._texts(columns) if self._is_text else value_array(columns),
            "topic": lambda: self._constant("topic", self._topic, columns.count),
            "partition": lambda: self._constant("partition", self._partition, columns.count),
            "offset": lambda: fixed_array(pa.int64(), columns.count, columns.offsets),
            "timestamp": lambda: _timestamps(columns),
            "timestampType": lambda: fixed_array(pa.int32(), columns.count, columns.timestamp_type),
            HEADERS: lambda: _headers(columns),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self._names], schema=self._schema)

    def _texts(self, columns: Columns) -> Any:
        """Returns the values as strings.

        Raises:
            InvalidRecordError: One is not UTF-8.
        """
        values = value_array(columns)
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            offset = memoryview(columns.offsets).cast("B").cast("q")[first_not_text(values)]
        raise InvalidRecordError(
            f'{self._place}: the value at offset {offset} is not UTF-8. Read with the option valueFormat "binary", and cast what '
            "is text after the read."
        )

    def _constant(self, name: str, value: Any, count: int) -> Any:
        """Returns `count` times the same: made once, sliced afterwards."""
        kept = self._constants.get(name)
        if kept is None or len(kept) < count:
            kept = self._constants[name] = pa.repeat(value, count)
        return kept.slice(0, count)


def _structured_values(columns: Sequence[Column], place: str) -> JsonValues | BulkJsonValues | RowValues | None:
    """Returns what decodes the values where they are read as what a schema says."""
    for column in columns:
        if column.registered is not None:
            from replog.spark.registry_values import BulkJsonValues, Misfits, RowValues

            misfits = Misfits(arrow_schema(columns), place, column.is_strict)
            if column.shape is not None:
                return BulkJsonValues(column.registered, column.shape, misfits)
            return RowValues(column.registered, misfits)
        if column.shape is not None:
            return JsonValues(arrow_schema(columns), column.shape, is_strict=column.is_strict, place=place)
    return None


def undecoded(columns: Sequence[Column]) -> list[Column]:
    """Returns the columns with values as they are, and the offset, by which an error names its record."""
    plain = [replace(column, shape=None, registered=None) for column in columns if column.name not in MISFIT_COLUMNS]
    return plain if any(column.name == "offset" for column in columns) else [*plain, Column("offset")]


def first_not_text(values: pa.BinaryArray) -> int:
    """Returns the place of the first value that is not UTF-8; one of them is not."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_text(values.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _is_text(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _timestamps(columns: Columns) -> Any:
    """Turns milliseconds into microseconds.  -1, "none", stays one millisecond before 1970, as in Spark's Kafka source."""
    try:
        milliseconds = fixed_array(pa.timestamp("ms", tz="UTC"), columns.count, columns.timestamps)
        return milliseconds.cast(ARROW_TYPES["timestamp"])
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(
            f"a timestamp is beyond what Spark can hold ({error}). Read without it: give a schema that leaves out "
            '"timestamp", for example .schema("key binary, value binary, offset bigint").'
        ) from None


def _headers(columns: Columns) -> Any:
    """Returns one list per record, null where a record has none."""
    if columns.headers is None:
        raise InvariantViolationError("headers were not decoded")
    return headers_array(columns.headers, columns.count, ARROW_TYPES[HEADERS], none_is_null=True)
