"""Records as Arrow columns with the leader epoch of their batch.  Needs pyarrow (extra `arrow`)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replog.cli.export.source import Run
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, Columns, decode_columns
from replog.records.arrow import fixed_array, headers_array, key_array, value_array

_NONE: Final = -1
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS, nullable=False),
        pa.field("leader_epoch", pa.int32()),
    ]
)
"""**Shapes**: timestamp and leader epoch are null where a record has none, headers are a list, never null."""


def record_batch(run: Run) -> pa.RecordBatch:
    """Decodes the wanted records of a run, perhaps none, into columns.

    Raises:
        CorruptRecordError, InvalidRecordError: The bytes are damaged.
        UnsupportedCompressionError: The codec's library is not installed.
    """
    columns = decode_columns(
        run.data,
        start_offset=run.start_offset,
        end_offset=run.end_offset,
        with_headers=True,
        max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX,
    )
    if not columns.count or columns.headers is None:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    epoch = None if run.leader_epoch == _NONE else run.leader_epoch
    arrays = [
        fixed_array(pa.int64(), columns.count, columns.offsets),
        _timestamps(columns),
        key_array(columns),
        value_array(columns),
        headers_array(columns.headers, columns.count, _HEADERS),
        pa.repeat(pa.scalar(epoch, pa.int32()), columns.count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _timestamps(columns: Columns) -> Any:
    """Makes the column of timestamps from milliseconds; -1, "none", becomes null."""
    kind = SCHEMA.field("timestamp").type
    numbers = fixed_array(pa.int64(), columns.count, columns.timestamps)
    if pc.min(numbers).as_py() > _NONE:
        return fixed_array(kind, columns.count, columns.timestamps)
    return pc.if_else(pc.equal(numbers, _NONE), None, numbers).cast(kind)
