"""Decoded json values as pyarrow arrays, without copying.  Needs pyarrow; nothing else of this package imports it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from replog.spark.json_decoder.model import JsonColumn, JsonKind, Shape

_TYPES: dict[JsonKind, Any] = {
    JsonKind.BOOLEAN: pa.bool_(),
    JsonKind.INT8: pa.int8(),
    JsonKind.INT16: pa.int16(),
    JsonKind.INT32: pa.int32(),
    JsonKind.INT64: pa.int64(),
    JsonKind.FLOAT: pa.float32(),
    JsonKind.DOUBLE: pa.float64(),
    JsonKind.STRING: pa.string(),
    JsonKind.DATE: pa.date32(),
    JsonKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def arrow_type(shape: Shape) -> pa.DataType:
    """Returns the Arrow type of a shape, with the names of its parts that Spark expects."""
    if shape.kind is JsonKind.STRUCT:
        fields = zip(shape.names, shape.children, strict=True)
        return pa.struct([pa.field(name, arrow_type(child)) for name, child in fields])
    if shape.kind is JsonKind.LIST:
        return pa.list_(pa.field("element", arrow_type(shape.children[0])))
    if shape.kind is JsonKind.MAP:
        return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", arrow_type(shape.children[0])))
    if shape.kind is JsonKind.DECIMAL:
        return pa.decimal128(shape.precision, shape.scale)
    return _TYPES[shape.kind]


def json_array(column: JsonColumn, kind: pa.DataType) -> pa.Array:
    """Returns a decoded column as an array of this type, without copying."""
    children = [json_array(child, part) for child, part in zip(column.children, _parts(kind), strict=True)]
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=children)]
    buffers = [_buffer(column.validity)]
    buffers += [_buffer(part) for part in (column.offsets, column.data) if part is not None]
    return pa.Array.from_buffers(kind, column.length, buffers, column.null_count, children=children)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Returns the types of the columns that are the children of one of this type."""
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(place).type for place in range(kind.num_fields)]


def _buffer(data: Any) -> Any:
    return None if data is None else pa.py_buffer(data)
