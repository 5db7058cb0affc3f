"""Records of the metadata log, in words."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.cli.dump.rows import Row
    from replog.records import Record


def metadata_fields(record: Record) -> Row:
    """Name and fields of one metadata record; why not, where it is none of ours."""
    from replog.cli.common import shown_bytes
    from replog.rpc.metadata_records import decode_metadata_record

    try:
        decoded = decode_metadata_record(record.value, offset=record.offset)
    except ReplogError as error:
        return {"unreadable": str(error), "value": shown_bytes(record.value)}
    given = {field.name: _plain(getattr(decoded, field.name)) for field in fields(decoded)}
    return {"record": type(decoded).__name__} | given


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case Enum():
            return value.name.lower()
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
