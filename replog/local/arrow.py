"""Records as Arrow columns, straight from the decoder's buffers.  Needs pyarrow (extra `arrow`), imported here only.

One Arrow batch comes from about a megabyte of encoded records; with compression it may be larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from replog.errors import ConfigError
from replog.records import Buffer, Columns, Record, decode_columns, decode_records

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError("Arrow columns need pyarrow, which is not installed: pip install 'replog[arrow]'") from missing

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
        columns: names, in the order wanted; nothing else is decoded.

    Raises:
        ConfigError: an unknown or repeated name, or none at all.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._names = [columns] if isinstance(columns, str) else list(columns)
        if not self._names or len(set(self._names)) < len(self._names) or not set(self._names) <= set(FIELDS):
            known = ", ".join(FIELDS)
            raise ConfigError("columns", columns, f"columns is {columns!r}; it must be different ones of {known}")
        self.schema = pa.schema([FIELDS[name] for name in self._names])

    def convert(self, data: Buffer, *, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        """The records of `data` in [start_offset, end_offset) as one batch; none when there are none.

        Raises:
            CorruptRecordError, InvalidRecordError: the bytes are damaged.
            UnsupportedCompressionError: the codec's library is not installed.
        """
        columns = decode_columns(
            data,
            start_offset=start_offset,
            end_offset=end_offset,
            with_keys="key" in self._names,
            with_values="value" in self._names,
        )
        if not columns.count:
            return
        make: dict[str, Callable[[], Any]] = {
            "offset": lambda: _fixed(pa.int64(), columns.count, columns.offsets),
            "timestamp": lambda: _timestamps(columns),
            "key": lambda: _binary(
                columns.count, columns.key_validity, columns.key_offsets, columns.key_data, columns.key_null_count
            ),
            "value": lambda: _binary(
                columns.count,
                columns.value_validity,
                columns.value_offsets,
                columns.value_data,
                columns.value_null_count,
            ),
            "headers": lambda: _headers(decode_records(data, start_offset=start_offset, end_offset=end_offset)),
        }
        yield pa.RecordBatch.from_arrays([make[name]() for name in self._names], schema=self.schema)


def to_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """One table of all batches; nothing is copied."""
    return pa.Table.from_batches(batches, schema=schema)


def _fixed(kind: Any, count: int, data: Buffer) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)


def _timestamps(columns: Columns) -> Any:
    """Milliseconds; -1, "none", becomes null."""
    kind = FIELDS["timestamp"].type
    numbers = _fixed(pa.int64(), columns.count, columns.timestamps)
    if pc.min(numbers).as_py() > _NO_TIMESTAMP:
        return _fixed(kind, columns.count, columns.timestamps)
    return pc.if_else(pc.equal(numbers, _NO_TIMESTAMP), None, numbers).cast(kind)


def _binary(count: int, validity: Buffer | None, offsets: Buffer, data: Buffer, null_count: int) -> Any:
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count)


def _headers(records: Sequence[Record]) -> Any:
    return pa.array(
        [[{"key": key, "value": value} for key, value in record.headers] for record in records], FIELDS["headers"].type
    )
