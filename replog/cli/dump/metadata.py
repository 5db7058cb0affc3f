"""Records of the metadata log, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.cli.dump.rows import Row
    from replog.records import Record


def metadata_fields(record: Record) -> Row:
    """Returns name and fields of one metadata record; where it is none of ours, why not, and its value."""
    from replog.cli.common import shown_bytes
    from replog.metadata.tree import record_leaf
    from replog.rpc.metadata_records import decode_metadata_record

    try:
        decoded = decode_metadata_record(record.value, offset=record.offset)
    except ReplogError as error:
        return {"unreadable": str(error), "value": shown_bytes(record.value)}
    return {"record": type(decoded).__name__} | dict(record_leaf(decoded))
