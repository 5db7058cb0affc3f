"""Messages of Protocol Buffers as rows: the type of each field, by the names that Spark has for them, and its values."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_F: Final = FieldDescriptor
_TYPES: Final = {
    _F.CPPTYPE_INT32: "integer",
    _F.CPPTYPE_INT64: "long",
    _F.CPPTYPE_UINT32: "long",
    _F.CPPTYPE_UINT64: "decimal(20,0)",
    _F.CPPTYPE_DOUBLE: "double",
    _F.CPPTYPE_FLOAT: "float",
    _F.CPPTYPE_BOOL: "boolean",
    _F.CPPTYPE_ENUM: "string",
}
TIMESTAMP: Final = "google.protobuf.Timestamp"


def message_type(message: Any, within: tuple[str, ...] = ()) -> Any:
    """Returns the type of a message's rows, as Spark writes types to json.

    Args:
        message: The descriptor of the message.
        within: The full names of the messages that it is in.

    Raises:
        ValueError: It has itself in it, or it has no fields: that is no type of a column.
    """
    if message.full_name == TIMESTAMP:
        return "timestamp"
    if message.full_name in within:
        raise ValueError(f"{message.full_name} has itself in it")
    if not message.fields:
        raise ValueError(f"{message.full_name} has no fields")
    inner = (*within, message.full_name)
    fields = [
        {"name": each.name, "type": _field_type(each, inner), "nullable": True, "metadata": {}}
        for each in message.fields
    ]
    return {"type": "struct", "fields": fields}


def _field_type(field: Any, within: tuple[str, ...]) -> Any:
    if _is_map(field):
        key, value = (_one_type(field.message_type.fields_by_name[name], within) for name in ("key", "value"))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    kind = _one_type(field, within)
    return {"type": "array", "elementType": kind, "containsNull": True} if field.is_repeated else kind


def _one_type(field: Any, within: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return message_type(field.message_type, within)
    if field.type == _F.TYPE_BYTES:
        return "binary"
    return _TYPES.get(field.cpp_type, "string")


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def message_row(message: Message) -> Any:
    """Returns the fields of a message by name; None where one is not there."""
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        return message.ToDatetime(dt.UTC)  # type: ignore[attr-defined]  # of this message
    return {field.name: _field_value(message, field) for field in message.DESCRIPTOR.fields}


def _field_value(message: Message, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        return [(key, _one_value(of_value, value[key])) for key in value]
    return [_one_value(field, each) for each in value] if field.is_repeated else _one_value(field, value)


def _one_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return message_row(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
