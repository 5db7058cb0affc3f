"""Records as Arrow columns, straight from the decoder's buffers.  Needs pyarrow (extra `arrow`), imported here only.

One Arrow batch comes from about a megabyte of encoded records; with compression it may be larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from replog.errors import ConfigError, InvariantViolationError
from replog.host.extras import install_command
from replog.records import Buffer, Columns, decode_columns
from replog.records.arrow import fixed_array, headers_array, key_array, value_array

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError(f"Arrow columns need pyarrow, which is not installed: {install_command('arrow')}") from missing

_NO_TIMESTAMP: Final = -1
_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
FIELDS: Final[dict[str, Any]] = {
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "headers": pa.field("headers", pa.list_(pa.field("item", _HEADER)), nullable=False),
}
"""Column -> Arrow field."""


class ArrowColumns:
    """Turns record batches into Arrow batches with the given columns.

    Args:
        columns: The names of the columns, in the order wanted; nothing else is decoded.

    Raises:
        ConfigError: A name is unknown or repeated, or there is none at all.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._names = [columns] if isinstance(columns, str) else list(columns)
        if not self._names or len(set(self._names)) < len(self._names) or not set(self._names) <= set(FIELDS):
            known = ", ".join(FIELDS)
            raise ConfigError("columns", columns, f"columns is {columns!r}; it must be different ones of {known}")
        self.schema = pa.schema([FIELDS[name] for name in self._names])

    def convert(
        self, data: Buffer, *, start_offset: int, end_offset: int, max_decompressed_bytes: int
    ) -> list[pa.RecordBatch]:
        """Converts the records of `data` in [start_offset, end_offset) to one batch; to none when there are none.

        Raises:
            CorruptRecordError, InvalidRecordError: The bytes are damaged.
            UnsupportedCompressionError: The codec's library is not installed.
        """
        columns = decode_columns(
            data,
            start_offset=start_offset,
            end_offset=end_offset,
            with_offsets="offset" in self._names,
            with_timestamps="timestamp" in self._names,
            with_keys="key" in self._names,
            with_values="value" in self._names,
            with_headers="headers" in self._names,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        if not columns.count:
            return []
        return [pa.RecordBatch.from_arrays([_MAKE[name](columns) for name in self._names], schema=self.schema)]


def to_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Makes one table of all batches; nothing is copied."""
    return pa.Table.from_batches(batches, schema=schema)


def _timestamps(columns: Columns) -> Any:
    """Converts timestamps in milliseconds; -1, "none", becomes null."""
    kind = FIELDS["timestamp"].type
    numbers = fixed_array(pa.int64(), columns.count, columns.timestamps)
    if pc.min(numbers).as_py() > _NO_TIMESTAMP:
        return fixed_array(kind, columns.count, columns.timestamps)
    return pc.if_else(pc.equal(numbers, _NO_TIMESTAMP), None, numbers).cast(kind)


def _headers(columns: Columns) -> Any:
    if columns.headers is None:
        raise InvariantViolationError("headers were not decoded")
    return headers_array(columns.headers, columns.count, FIELDS["headers"].type)


_MAKE: Final[dict[str, Callable[[Columns], Any]]] = {
    "offset": lambda columns: fixed_array(pa.int64(), columns.count, columns.offsets),
    "timestamp": _timestamps,
    "key": key_array,
    "value": value_array,
    "headers": _headers,
}
"""Column -> how it is made of decoded columns."""
