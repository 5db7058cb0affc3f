"""Records as Arrow columns, straight from the decoder's buffers.  Needs pyarrow (extra `arrow`), imported with this module.

The one table of names and types for all that hands records to Python as Arrow: `open_log(...).to_arrow`, `replog.scan`,
exports.  Spark's source has types of its own, which Spark prescribes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from replog.errors import ConfigError, InvariantViolationError
from replog.host.extras import install_command
from replog.records.arrow.arrays import fixed_array, headers_array, key_array, number_scalar, text_scalar, value_array
from replog.records.arrow.bounded import BoundedBatches
from replog.records.batch import decode_columns
from replog.records.model import Buffer, Columns

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError(f"Arrow columns need pyarrow, which is not installed: {install_command('arrow')}") from missing

_NO_TIMESTAMP: Final = -1
_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
FIELDS: Final[dict[str, Any]] = {
    "topic": pa.field("topic", pa.string(), nullable=False),
    "partition": pa.field("partition", pa.int32(), nullable=False),
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    "timestamp_type": pa.field("timestamp_type", pa.int32(), nullable=False),
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "headers": pa.field("headers", pa.list_(pa.field("item", _HEADER)), nullable=False),
}
"""Column -> Arrow field.  **Shapes**: timestamps are null where a record has none; timestamp types are 0 (CreateTime) and 1
(LogAppendTime); headers are a list, possibly empty, never null."""

_OF_A_TOPIC: Final = frozenset({"topic", "partition"})


class ArrowColumns:
    """Turns the records of one partition into Arrow batches with the given columns.

    Args:
        columns: The names of the columns, in the order wanted; nothing else is decoded.
        place: The topic and the partition of the records; None: they have none, and no such columns.

    Raises:
        ConfigError: A name is unknown or repeated, or there is none at all.
    """

    def __init__(self, columns: Sequence[str], place: tuple[str, int] | None = None) -> None:
        self._names = [columns] if isinstance(columns, str) else list(columns)
        known = [name for name in FIELDS if place is not None or name not in _OF_A_TOPIC]
        if not self._names or len(set(self._names)) < len(self._names) or not set(self._names) <= set(known):
            text = f"columns is {columns!r}; it must be different ones of {', '.join(known)}"
            raise ConfigError("columns", columns, text)
        self.schema = pa.schema([FIELDS[name] for name in self._names])
        self._constants: dict[str, Any] = {}
        if place is not None:
            self._constants = {"topic": text_scalar(place[0]), "partition": number_scalar(pa.int32(), place[1])}
        self._decode = partial(
            decode_columns,
            with_offsets="offset" in self._names,
            with_timestamps="timestamp" in self._names or "timestamp_type" in self._names,
            with_keys="key" in self._names,
            with_values="value" in self._names,
            with_headers="headers" in self._names,
        )
        self._bounded = BoundedBatches(self._decode, self.batch)

    def convert(
        self, data: Buffer, *, start_offset: int, end_offset: int, max_decompressed_bytes: int
    ) -> list[pa.RecordBatch]:
        """Converts the records of `data` in [start_offset, end_offset) to one batch; to none when there are none.

        Raises:
            CorruptRecordError, InvalidRecordError: The bytes are damaged.
            UnsupportedCompressionError: The codec's library is not installed.
        """
        columns = self._decode(
            data, start_offset=start_offset, end_offset=end_offset, max_decompressed_bytes=max_decompressed_bytes
        )
        return [self.batch(columns)] if columns.count else []

    def bounded(
        self, data: Buffer, *, start_offset: int, end_offset: int, is_checked: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of `data` in [start_offset, end_offset) as batches of bounded size (`BoundedBatches.convert`)."""
        return self._bounded.convert(data, start_offset=start_offset, end_offset=end_offset, is_checked=is_checked)

    def batch(self, columns: Columns) -> pa.RecordBatch:
        """Makes one batch of what was decoded for these columns; its buffers are the decoder's."""
        return pa.RecordBatch.from_arrays([self._array(name, columns) for name in self._names], schema=self.schema)

    def table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Makes one table of all batches; nothing is copied."""
        return pa.Table.from_batches(batches, schema=self.schema)

    def reader(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Makes a stream of batches, which ends `batches` when it is dropped."""
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _array(self, name: str, columns: Columns) -> Any:
        constant = self._constants.get(name)
        return _MAKE[name](columns) if constant is None else pa.repeat(constant, columns.count)


def _timestamps(columns: Columns) -> Any:
    """Converts timestamps in milliseconds; -1, "none", becomes null."""
    kind = FIELDS["timestamp"].type
    numbers = fixed_array(pa.int64(), columns.count, columns.timestamps)
    if not columns.count or pc.min(numbers).as_py() > _NO_TIMESTAMP:
        return fixed_array(kind, columns.count, columns.timestamps)
    return pc.if_else(pc.equal(numbers, _NO_TIMESTAMP), None, numbers).cast(kind)


def _headers(columns: Columns) -> Any:
    if columns.headers is None:
        raise InvariantViolationError("headers were not decoded")
    return headers_array(columns.headers, columns.count, FIELDS["headers"].type)


_MAKE: Final[dict[str, Callable[[Columns], Any]]] = {
    "offset": lambda columns: fixed_array(pa.int64(), columns.count, columns.offsets),
    "timestamp": _timestamps,
    "timestamp_type": lambda columns: fixed_array(pa.int32(), columns.count, columns.timestamp_type),
    "key": key_array,
    "value": value_array,
    "headers": _headers,
}
"""Column -> how it is made of decoded columns."""
