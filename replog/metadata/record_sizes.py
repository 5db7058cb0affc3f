"""How large a metadata record is on disk at most, without encoding it.

Why: the controller replays its records before anybody encodes them, so whether they fit into a batch must be known before
that.  An upper bound is enough, and takes a fraction of the time.
"""

from __future__ import annotations

from typing import cast
from uuid import UUID

from msgspec import Struct

from replog.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord

_NUMBER_BYTES = 12
"""A number of 64 bits with its tag, and what frames a text, an id or a list: a tag and a length."""

_ID_BYTES = 16 + _NUMBER_BYTES
_UTF8_BYTES_MAX = 4

_PARTITION_BYTES = 160
"""Of a partition record without its lists: the frame, an id, and up to eleven numbers or lengths."""


def encoded_bytes_max(record: MetadataRecord) -> int:
    """Returns a size that the encoded record does not exceed; about twice the size of a usual one."""
    if type(record) is PartitionRecord:
        members_count = len(record.replicas) + len(record.isr) + len(record.elr) + len(record.last_known_elr)
        members_count += len(record.adding_replicas) + len(record.removing_replicas)
        return _PARTITION_BYTES + 10 * members_count
    if type(record) is PartitionChangeRecord:
        lists = (record.isr, record.elr, record.last_known_elr, record.replicas)
        moved = (record.adding_replicas, record.removing_replicas)
        return _PARTITION_BYTES + 10 * sum(len(members) for members in (*lists, *moved) if members is not None)
    return _NUMBER_BYTES + _bytes_of(record)


def _bytes_of(value: object) -> int:
    if isinstance(value, str):
        return _NUMBER_BYTES + (len(value) if value.isascii() else _UTF8_BYTES_MAX * len(value))
    if isinstance(value, UUID):
        return _ID_BYTES
    if isinstance(value, tuple):
        members = cast("tuple[object, ...]", value)
        return _NUMBER_BYTES + sum(map(_bytes_of, members))
    if isinstance(value, Struct):
        return _NUMBER_BYTES + sum(_bytes_of(getattr(value, name)) for name in value.__struct_fields__)
    return 0 if value is None else _NUMBER_BYTES
