"""Reads, keeps and writes records of committed offsets in one go: a coordinator that moves reads a million of them before it
serves anybody, and most of what coordinators write is these.

Field by field through the classes of `messages` costs several times as much.  Only the shape that Kafka writes since 4.1 is known
here; of every other one, and of whatever is wrong with one, nothing is said: the classes of `messages` are asked.

An offset is kept packed, as the value of version 4 that stands in the log, and unpacked when somebody asks for it.  The
objects of a million offsets would be a million that Python's garbage collector walks over in each full pass, with the event
loop held; it does not look into bytes::

    in the log and kept   int16 4 | int64 offset | int32 leader epoch | text | int64 time of the commit | tagged fields
    kept, expires         int16 1 | int64 time of expiry | the above

Very old clients may choose a time of expiry: version 1 of the record has one, and lacks what later versions have.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from replog.coordinator.messages import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.records import EncodedRecord
from replog.wire.primitives import Reader, Writer
from replog.wire.record_parts import ZERO_UUID, RecordPart

_partition = Struct(">i")
_head = Struct(">hqi")  # version, offset, leader epoch
_timestamp = Struct(">q")
_text = Struct(">h")
_expiry = Struct(">hq")  # what is kept in front of an offset that expires

_VERSION = 4
_EXPIRING = 1
_KEY_PREFIX = _text.pack(OffsetCommitKey.RECORD_TYPE)
_VALUE_PREFIX = _text.pack(_VERSION)
_BYTES_BESIDE_TEXT = _head.size + 1 + _timestamp.size  # and tagged fields
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"  # one tagged field, number 0, 16 bytes
_TOPIC_ID_BYTES = len(_TOPIC_ID_TAG) + 16
_ONE_BYTE_LENGTH_MAX = 0x7F
_TEXT_BYTES_MAX = 0x7FFF

PARTITIONS_SHARED: Final = 16_384
"""How many topics and partitions are remembered to be shared by all groups that have offsets of them."""


class OffsetTimes(NamedTuple):
    """When an offset was committed and when it expires, in milliseconds since 1970; negative: it does not by itself."""

    commit_timestamp: int
    expire_timestamp: int


# ---- the log ----------------------------------------------------------------------------------------------------------


def read_key(key: bytes) -> tuple[str, tuple[str, int]] | None:
    """Returns the group, and topic and partition, of a record of a committed offset; None for any other key."""
    if len(key) < 4 or key[:2] != _KEY_PREFIX:
        return None
    group_bytes = _text.unpack_from(key, 2)[0]
    if group_bytes < 0:
        return None
    topic_at = 4 + group_bytes
    try:
        partition = _shared_partition(key[topic_at:])
        return None if partition is None else (key[4:topic_at].decode(), partition)
    except UnicodeDecodeError:
        return None


@lru_cache(PARTITIONS_SHARED)
def _shared_partition(data: bytes) -> tuple[str, int] | None:
    """Returns topic and partition, which are the end of a key; None for any other bytes."""
    topic_bytes = int.from_bytes(data[:2], "big", signed=True)
    partition_at = 2 + topic_bytes
    if topic_bytes < 0 or partition_at + _partition.size != len(data):
        return None
    return sys.intern(data[2:partition_at].decode()), _partition.unpack_from(data, partition_at)[0]


def may_be_kept(value: bytes) -> bool:
    """Whether a value of the log is whole, and of the shape that offsets are kept in; of any other one nothing is said."""
    size = len(value)
    if size <= _BYTES_BESIDE_TEXT or value[:2] != _VALUE_PREFIX:
        return False
    text_bytes = value[_head.size] - 1
    tags_bytes = size - _BYTES_BESIDE_TEXT - text_bytes
    if tags_bytes == _TOPIC_ID_BYTES:
        is_whole = value[-_TOPIC_ID_BYTES:-16] == _TOPIC_ID_TAG
    else:
        is_whole = tags_bytes == len(_NO_TAGS) and value[-1] == 0
    return is_whole and (text_bytes == 0 or _is_text(value, text_bytes))


def _is_text(value: bytes, text_bytes: int) -> bool:
    if not 0 <= text_bytes < _ONE_BYTE_LENGTH_MAX:
        return False
    try:
        value[_head.size + 1 : _head.size + 1 + text_bytes].decode()
    except UnicodeDecodeError:
        return False
    return True


def write_offset_commit(key: RecordPart, value: RecordPart, version: int) -> EncodedRecord | None:
    """Returns the bytes of a record of a committed offset, in the version that Kafka writes since 4.1; None for any other."""
    if version != _VERSION or not isinstance(key, OffsetCommitKey) or not isinstance(value, OffsetCommitValue):
        return None
    try:
        head, body = _key_head(key.group, key.topic), _written(value)
        return None if head is None or body is None else (head + _partition.pack(key.partition), body)
    except (UnicodeEncodeError, struct.error):
        return None


def _written(value: OffsetCommitValue) -> bytes | None:
    text = value.metadata.encode()
    if len(text) >= _ONE_BYTE_LENGTH_MAX:
        return None
    fields = _head.pack(_VERSION, value.offset, value.leader_epoch) + bytes((len(text) + 1,)) + text
    return fields + _timestamp.pack(value.commit_timestamp) + _tags(value.topic_id)


@lru_cache(maxsize=4096)
def _key_head(group: str, topic: str) -> bytes | None:
    """Returns a key up to its partition; None where it cannot be written."""
    parts = [_KEY_PREFIX]
    for text in (group.encode(), topic.encode()):
        if len(text) > _TEXT_BYTES_MAX:
            return None
        parts += (_text.pack(len(text)), text)
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _tags(topic_id: UUID) -> bytes:
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id.bytes


# ---- what is kept -----------------------------------------------------------------------------------------------------


def pack(value: OffsetCommitValue) -> bytes:
    """Returns an offset as it is kept.

    Raises:
        ValueError: A text is too long, or no Unicode.
        struct.error: A number does not fit into its field.
    """
    packed = _written(value)
    if packed is None:
        writer = Writer()
        writer.fixed(_text, _VERSION)
        value.write(writer, _VERSION)
        packed = writer.joined()
    return packed if value.expire_timestamp < 0 else _expiry.pack(_EXPIRING, value.expire_timestamp) + packed


def unpack(packed: bytes) -> OffsetCommitValue:
    """Returns an offset that is kept."""
    if packed[1] == _EXPIRING:
        value = unpack(packed[_expiry.size :])
        value.expire_timestamp = _expiry.unpack_from(packed)[1]
        return value
    text_length = packed[_head.size]
    if text_length > _ONE_BYTE_LENGTH_MAX:
        return OffsetCommitValue.read(Reader(memoryview(packed)[len(_VALUE_PREFIX) :]), _VERSION)
    _, offset, leader_epoch = _head.unpack_from(packed)
    timestamp_at = _head.size + text_length
    tags = packed[timestamp_at + _timestamp.size :]
    return OffsetCommitValue(
        offset,
        leader_epoch,
        packed[_head.size + 1 : timestamp_at].decode(),
        _timestamp.unpack_from(packed, timestamp_at)[0],
        -1,
        ZERO_UUID if tags == _NO_TAGS else _uuid(tags[len(_TOPIC_ID_TAG) :]),
    )


def unpack_times(packed: bytes) -> OffsetTimes:
    """Returns the times of an offset that is kept; less than all of it, for callers that look at a great many."""
    text_length = packed[_head.size]
    if packed[1] == _EXPIRING or text_length > _ONE_BYTE_LENGTH_MAX:
        value = unpack(packed)
        return OffsetTimes(value.commit_timestamp, value.expire_timestamp)
    return OffsetTimes(_timestamp.unpack_from(packed, _head.size + text_length)[0], -1)


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)
