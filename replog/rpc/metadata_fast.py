"""The frequent metadata records by hand: topics, partitions, and changes of partitions.

Why: every node encodes or decodes every one of them, a cluster has a hundred thousand of them, and the general way by field
name (`convert`) takes several times as long.  What is written is byte for byte what the general way writes (fields in order
of their numbers, zeros left out, lists packed).  What is read is read only if it has exactly that form; for everything else,
an unknown field of a later version say, the caller takes the general way, which also has the better error messages.

One value: `80`, the tag of the kind, the length of what follows, the fields::

    80 22 15  0a 01 74  12 10 <16 bytes>             topic "t"
    80 32 ..  12 10 <16 bytes>  1a 01 01  22 01 01   partition 0, replicas 1, ISR 1, all epochs 0, leader ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from replog.metadata.records import (
    ElectionType,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

FRAME_VERSION = 0x80
_TOPIC_TAG, _PARTITION_TAG, _CHANGE_TAG = 0x22, 0x32, 0x3A
_STATES = {int(state): state for state in LeaderRecoveryState}
_ELECTIONS = {int(kind): kind for kind in ElectionType}
_MASK = 2**64 - 1


class _OtherFormError(Exception):
    """Not what `encode_fast` writes; caught here."""


# ---- writing ----------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    """Encodes a number of at most 64 bits; negative ones take ten bytes."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= _MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = tuple(bytes((value,)) for value in range(0x80))


def _list(values: tuple[int, ...]) -> bytes:
    """Encodes a list as length and packed values."""
    try:
        packed = bytes(values)
        if not packed.isascii():
            packed = b"".join(map(_varint, values))
    except ValueError:
        packed = b"".join(map(_varint, values))
    return _varint(len(packed)) + packed


def _list_message(values: tuple[int, ...]) -> bytes:
    """Encodes length and content of a message whose field 1 is the list."""
    content = b"\x0a" + _list(values) if values else b""
    return _varint(len(content)) + content


def _framed(tag: int, parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    return b"".join((_FRAMES[tag], _varint(len(content)), content))


_FRAMES = {tag: bytes((FRAME_VERSION, tag)) for tag in (_TOPIC_TAG, _PARTITION_TAG, _CHANGE_TAG)}


def _encode_topic(record: TopicRecord) -> bytes:
    name = record.name.encode()
    parts = [b"\x0a", _varint(len(name)), name] if name else []
    parts += (b"\x12\x10", record.topic_id.bytes)
    return _framed(_TOPIC_TAG, parts)


def _encode_partition(record: PartitionRecord) -> bytes:
    parts = [b"\x08", _varint(record.partition_id)] if record.partition_id else []
    parts += (b"\x12\x10", record.topic_id.bytes)
    if record.replicas:
        parts += (b"\x1a", _list(record.replicas))
    if record.isr:
        parts += (b"\x22", _list(record.isr))
    if record.leader:
        parts += (b"\x28", _varint(record.leader))
    if record.leader_epoch:
        parts += (b"\x30", _varint(record.leader_epoch))
    if record.partition_epoch:
        parts += (b"\x38", _varint(record.partition_epoch))
    if record.elr:
        parts += (b"\x42", _list(record.elr))
    if record.last_known_elr:
        parts += (b"\x4a", _list(record.last_known_elr))
    if record.leader_recovery_state:
        parts += (b"\x50", _varint(record.leader_recovery_state))
    if record.adding_replicas:
        parts += (b"\x5a", _list(record.adding_replicas))
    if record.removing_replicas:
        parts += (b"\x62", _list(record.removing_replicas))
    return _framed(_PARTITION_TAG, parts)


def _encode_change(record: PartitionChangeRecord) -> bytes:
    parts = [b"\x08", _varint(record.partition_id)] if record.partition_id else []
    parts += (b"\x12\x10", record.topic_id.bytes)
    if record.leader is not None:
        parts += (b"\x18", _varint(record.leader))
    if record.isr is not None:
        parts += (b"\x22", _list_message(record.isr))
    if record.elr is not None:
        parts += (b"\x2a", _list_message(record.elr))
    if record.last_known_elr is not None:
        parts += (b"\x32", _list_message(record.last_known_elr))
    if record.replicas is not None:
        parts += (b"\x3a", _list_message(record.replicas))
    if record.leader_recovery_state is not None:
        parts += (b"\x40", _varint(record.leader_recovery_state))
    if record.election_type is not None:
        parts += (b"\x48", _varint(record.election_type))
    if record.adding_replicas is not None:
        parts += (b"\x52", _list_message(record.adding_replicas))
    if record.removing_replicas is not None:
        parts += (b"\x5a", _list_message(record.removing_replicas))
    return _framed(_CHANGE_TAG, parts)


FAST_ENCODERS: Mapping[type, Callable[[Any], bytes]] = {
    TopicRecord: _encode_topic,
    PartitionRecord: _encode_partition,
    PartitionChangeRecord: _encode_change,
}
"""By the class of the record; the whole value, frame byte included."""


# ---- reading ----------------------------------------------------------------------------------------------------------


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads the number at `position` as 32 bits with sign, and the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise _OtherFormError
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value, position


def _values(packed: bytes) -> tuple[int, ...]:
    if packed.isascii():
        return tuple(packed)
    values: list[int] = []
    position = 0
    while position < len(packed):
        value, position = _read_varint(packed, position)
        values.append(value)
    return tuple(values)


def _fields(data: bytes, position: int) -> tuple[dict[int, Any], int]:
    """Reads numbers and byte strings by tag, and the last tag; tags must rise, as they do in what is written here."""
    fields: dict[int, Any] = {}
    end, last_tag = len(data), 0
    while position < end:
        tag, value = data[position], data[position + 1]
        if tag <= last_tag or tag >= 0x80:
            raise _OtherFormError
        last_tag = tag
        position += 2
        if value >= 0x80:
            value, position = _read_varint(data, position - 1)
        wire_type = tag & 7
        if wire_type == 0:
            fields[tag] = value
        elif wire_type == 2:
            content = fields[tag] = data[position : position + value]
            position += value
            if len(content) != value:
                raise _OtherFormError
        else:
            raise _OtherFormError
    return fields, last_tag


def _list_or_none(content: bytes | None) -> tuple[int, ...] | None:
    """Decodes the list in a message of its own."""
    if not content:
        return None if content is None else ()
    if content[0] != 0x0A or content[1] != len(content) - 2 or len(content) < 3:  # an empty list has no field
        raise _OtherFormError
    return _values(content[2:])


def _topic(fields: dict[int, Any], _last_tag: int) -> TopicRecord:
    if not fields.keys() <= _TOPIC_TAGS:
        raise _OtherFormError
    return TopicRecord(fields.get(0x0A, b"").decode(), UUID(bytes=fields[0x12]))


def _partition(fields: dict[int, Any], last_tag: int) -> PartitionRecord:
    if not fields.keys() <= _PARTITION_TAGS:
        raise _OtherFormError
    get = fields.get
    partition_id, topic_id = get(0x08, 0), UUID(bytes=fields[0x12])
    replicas, isr = _values(get(0x1A, b"")), _values(get(0x22, b""))
    leader, leader_epoch, partition_epoch = get(0x28, 0), get(0x30, 0), get(0x38, 0)
    if last_tag <= 0x38:
        return PartitionRecord(partition_id, topic_id, replicas, isr, leader, leader_epoch, partition_epoch)
    return PartitionRecord(
        partition_id,
        topic_id,
        replicas,
        isr,
        leader,
        leader_epoch,
        partition_epoch,
        _values(get(0x42, b"")),
        _values(get(0x4A, b"")),
        _STATES[get(0x50, 0)],
        _values(get(0x5A, b"")),
        _values(get(0x62, b"")),
    )


def _change(fields: dict[int, Any], last_tag: int) -> PartitionChangeRecord:
    if not fields.keys() <= _CHANGE_TAGS:
        raise _OtherFormError
    get = fields.get
    partition_id, topic_id = get(0x08, 0), UUID(bytes=fields[0x12])
    leader, isr, elr = get(0x18), _list_or_none(get(0x22)), _list_or_none(get(0x2A))
    if last_tag <= 0x2A:
        return PartitionChangeRecord(partition_id, topic_id, leader, isr, elr)
    state, election_type = get(0x40), get(0x48)
    return PartitionChangeRecord(
        partition_id,
        topic_id,
        leader,
        isr,
        elr,
        _list_or_none(get(0x32)),
        _list_or_none(get(0x3A)),
        None if state is None else _STATES[state],
        None if election_type is None else _ELECTIONS[election_type],
        _list_or_none(get(0x52)),
        _list_or_none(get(0x5A)),
    )


_TOPIC_TAGS = frozenset({0x0A, 0x12})
_PARTITION_TAGS = frozenset({0x08, 0x12, 0x1A, 0x22, 0x28, 0x30, 0x38, 0x42, 0x4A, 0x50, 0x5A, 0x62})
_CHANGE_TAGS = frozenset({0x08, 0x12, 0x18, 0x22, 0x2A, 0x32, 0x3A, 0x40, 0x48, 0x52, 0x5A})
_KINDS: Mapping[int, Callable[[dict[int, Any], int], MetadataRecord]] = {
    _TOPIC_TAG: _topic,
    _PARTITION_TAG: _partition,
    _CHANGE_TAG: _change,
}


def decode_fast(value: bytes) -> MetadataRecord | None:
    """Decodes the record in `value`, after the frame byte; returns None if it must be read the general way."""
    try:
        read = _KINDS.get(value[1])
        if read is None:
            return None
        length, position = value[2], 3
        if length >= 0x80:
            length, position = _read_varint(value, 2)
        if length != len(value) - position:
            return None
        return read(*_fields(value, position))
    except (_OtherFormError, LookupError, ValueError):  # ValueError: an id of the wrong length, a name that is no UTF-8
        return None
