"""Decoded columns as pyarrow arrays, without copying: Arrow takes the decoder's buffers as they are.

Needs pyarrow (extra `replog[arrow]`), imported inside the functions: whoever reads records without Arrow does not pay for
it.  `columns` and Spark's source build their batches of these.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from replog.records.model import Buffer, Columns, HeaderColumns

if TYPE_CHECKING:
    import pyarrow as pa


def fixed_array(kind: pa.DataType, count: int, data: Buffer) -> Any:
    """Returns a column of fixed width without nulls: offsets, timestamps, timestamp types."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)


def number_scalar(kind: pa.DataType, value: int) -> Any:
    """Returns an integer as one of Arrow.

    `pa.scalar` would import pandas wherever that is installed, as all of pyarrow does that is given objects of Python: in each
    process of Spark a third of a second of processor time, and some 50 MB.
    """
    return fixed_array(kind, 1, value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True))[0]


def text_scalar(text: str) -> Any:
    """Returns a text as one of Arrow; see `number_scalar`."""
    import pyarrow as pa

    data = text.encode()
    offsets = bytes(4) + len(data).to_bytes(4, sys.byteorder)
    return pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))[0]


def key_array(columns: Columns) -> Any:
    """Returns the keys, binary."""
    import pyarrow as pa

    return _variable_array(
        pa.binary(), columns.count, columns.key_offsets, columns.key_data, columns.key_validity, columns.key_null_count
    )


def value_array(columns: Columns) -> Any:
    """Returns the values, binary."""
    import pyarrow as pa

    return _variable_array(
        pa.binary(),
        columns.count,
        columns.value_offsets,
        columns.value_data,
        columns.value_validity,
        columns.value_null_count,
    )


def headers_array(
    headers: HeaderColumns, count: int, kind: pa.DataType | None = None, *, none_is_null: bool = False
) -> Any:
    """Returns the headers of `count` records as list<struct<key, value>>.

    Args:
        headers: The headers from `decode_columns(..., with_headers=True)`.
        count: The number of records.
        kind: The list type to give it, of a struct of a string and a binary; by default both are named as above.
        none_is_null: True where a record without headers is null instead of an empty list, as Spark shows it.
    """
    import pyarrow as pa

    if kind is None:
        kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    names = _variable_array(pa.string(), headers.headers_count, headers.key_offsets, headers.key_data, None, 0)
    values = _variable_array(
        pa.binary(),
        headers.headers_count,
        headers.value_offsets,
        headers.value_data,
        headers.value_validity,
        headers.value_null_count,
    )
    pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    validity = headers.list_validity if none_is_null else None
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(headers.list_offsets)]
    null_count = headers.list_null_count if none_is_null else 0
    return pa.Array.from_buffers(kind, count, buffers, null_count, children=[pairs])


def _variable_array(
    kind: pa.DataType, count: int, offsets: Buffer, data: Buffer, validity: Buffer | None, null_count: int
) -> Any:
    import pyarrow as pa

    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, null_count)
