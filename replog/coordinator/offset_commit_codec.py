"""Reads and writes records of committed offsets in one go: a coordinator that moves reads a million of them before it serves
anybody, and most of what coordinators write is these.

Field by field through the generated classes costs several times as much.  Only the shape that Kafka writes since 4.1 is known
here; of every other one, and of whatever is wrong with one, nothing is said: the generated classes are asked.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from struct import Struct
from uuid import UUID

from replog.coordinator.messages.offset_commit import ZERO_UUID, OffsetCommitKey, OffsetCommitValue
from replog.coordinator.records import EncodedRecord, Record, RecordPart

_partition = Struct(">i")
_head = Struct(">hqi")  # version, offset, leader epoch
_timestamp = Struct(">q")
_text = Struct(">h")

_VERSION = 4
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"  # one tagged field, number 0, 16 bytes
_ONE_BYTE_LENGTH_MAX = 0x7F
_TEXT_BYTES_MAX = 0x7FFF


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def read_offset_commit(key: bytes, value: bytes) -> Record | None:
    """Returns a record of a committed offset, as Kafka writes it since 4.1; None for one of any other shape."""
    try:
        parsed_key, parsed_value = _key(key), _value(value)
    except UnicodeDecodeError:
        return None
    return None if parsed_key is None or parsed_value is None else Record(parsed_key, parsed_value, _VERSION)


def _key(key: bytes) -> OffsetCommitKey | None:
    topic_at = 6 + int.from_bytes(key[2:4], "big")
    end = topic_at + int.from_bytes(key[topic_at - 2 : topic_at], "big")
    if end + 4 != len(key):
        return None
    return OffsetCommitKey(
        sys.intern(str(key[4 : topic_at - 2], "utf-8")),
        sys.intern(str(key[topic_at:end], "utf-8")),
        _partition.unpack_from(key, end)[0],
    )


def _value(value: bytes) -> OffsetCommitValue | None:
    if len(value) <= _head.size:
        return None
    version, offset, leader_epoch = _head.unpack_from(value)
    text_bytes = value[_head.size] - 1
    text_at = _head.size + 1
    timestamp_at = text_at + text_bytes
    tags_at = timestamp_at + _timestamp.size
    if version != _VERSION or not 0 <= text_bytes < _ONE_BYTE_LENGTH_MAX:
        return None
    tags = value[tags_at:]
    if tags == _NO_TAGS:
        topic_id = ZERO_UUID
    elif tags[:3] == _TOPIC_ID_TAG and len(tags) == 19:
        topic_id = _uuid(tags[3:])
    else:
        return None
    metadata = str(value[text_at:timestamp_at], "utf-8") if text_bytes else ""
    return OffsetCommitValue(
        offset, leader_epoch, metadata, _timestamp.unpack_from(value, timestamp_at)[0], -1, topic_id
    )


def write_offset_commit(key: RecordPart, value: RecordPart, version: int) -> EncodedRecord | None:
    """Returns the bytes of a record of a committed offset, in the version that Kafka writes since 4.1; None for any other."""
    if version != _VERSION or not isinstance(key, OffsetCommitKey) or not isinstance(value, OffsetCommitValue):
        return None
    try:
        head, text = _key_head(key.group, key.topic), value.metadata.encode()
        if head is None or len(text) >= _ONE_BYTE_LENGTH_MAX:
            return None
        fields = _head.pack(_VERSION, value.offset, value.leader_epoch) + bytes((len(text) + 1,)) + text
        body = fields + _timestamp.pack(value.commit_timestamp) + _tags(value.topic_id)
        return head + _partition.pack(key.partition), body
    except (UnicodeEncodeError, struct.error):
        return None


@lru_cache(maxsize=4096)
def _key_head(group: str, topic: str) -> bytes | None:
    """Returns a key up to its partition; None where it cannot be written."""
    parts = [_text.pack(OffsetCommitKey.RECORD_TYPE)]
    for text in (group.encode(), topic.encode()):
        if len(text) > _TEXT_BYTES_MAX:
            return None
        parts += (_text.pack(len(text)), text)
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _tags(topic_id: UUID) -> bytes:
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id.bytes
