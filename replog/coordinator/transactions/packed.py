"""Looks at records of transactions as they stand in the log, without an object for each of their fields.

A coordinator that moves reads a million of them before it serves anybody, and nearly all of them are asked for much later or
never.  So a transactional id is kept as the bytes of its newest record, and unpacked when somebody asks::

    int16 version | int64 producer id | int16 epoch | int32 time-out | int8 status | partitions | int64 update | int64 start
    version 1: and tagged fields

What a record has to be known for at once is in a `Glance`.  Of a record that this module does not take for whole nothing is
said: the classes of `messages` are asked, which take several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, error, unpack_from
from typing import Final, NamedTuple

from replog.coordinator.transactions.messages import TransactionLogKey
from replog.coordinator.transactions.records import (
    LAST_EPOCH_TAG,
    PARTITIONS_AT,
    PLAIN_VERSION,
    TAGGED_VERSION,
    TransactionStatus,
    WrittenTransaction,
)
from replog.wire.primitives import Reader

_text = Struct(">h")
_count = Struct(">i")
_head = Struct(">hqhib")
_times = Struct(">qq")

_KEY_PREFIX: Final = _text.pack(TransactionLogKey.RECORD_TYPE)
_STATUSES: Final = tuple(each for each in TransactionStatus if each.is_at_rest or each.is_decided or each == 1)
_BY_NUMBER: Final[Mapping[int, TransactionStatus]] = {int(each): each for each in _STATUSES}
_TAG_BYTES: Final[Mapping[int, int]] = {0: 8, 1: 8, 2: 2, 3: 2, LAST_EPOCH_TAG: 2}

TAILS_REMEMBERED: Final = 4_096
"""How many ends of records are remembered: nearly all are one of a few, since most producers have had few epochs."""
TAIL_BYTES_MAX: Final = 64
"""More than all tagged fields that are known take together."""


class Glance(NamedTuple):
    """What has to be known of each transactional id.

    Attributes:
        producer_id: The producer id.
        status: Where its transaction is.
        has_partitions: Whether partitions are part of it.
        timeout_ms: How long a transaction may be open.
        update_ms: When the record was made, by the wall clock.
        start_ms: When the transaction began; -1: none has.
    """

    producer_id: int
    status: TransactionStatus
    has_partitions: bool
    timeout_ms: int
    update_ms: int
    start_ms: int


def read_key(key: bytes) -> str | None:
    """Returns the transactional id of a record; None for any other key."""
    if len(key) < 4 or key[:2] != _KEY_PREFIX or _text.unpack_from(key, 2)[0] != len(key) - 4:
        return None
    try:
        return key[4:].decode()
    except UnicodeDecodeError:
        return None


def glance_at(value: bytes) -> Glance | None:
    """Returns what has to be known of a whole record; None for one that may be damaged, or is of another shape."""
    try:
        version, producer_id, _, timeout_ms, status = _head.unpack_from(value)
        if version == TAGGED_VERSION:
            at = _after_tagged(value)
            update_ms, start_ms = _times.unpack_from(value, at)
            tail = value[at + _times.size :]
            is_whole = len(tail) <= TAIL_BYTES_MAX and _is_tail(tail)
        elif version == PLAIN_VERSION:
            at = _after_plain(value)
            update_ms, start_ms = _times.unpack_from(value, at)
            is_whole = at + _times.size == len(value)
        else:
            return None
    except (error, IndexError, UnicodeDecodeError):
        return None
    known = _BY_NUMBER.get(status)
    if not is_whole or known is None:
        return None
    has_partitions = at > _head.size + (1 if version == TAGGED_VERSION else _count.size)
    return Glance(producer_id, known, has_partitions, timeout_ms, update_ms, start_ms)


def unpack(value: bytes) -> WrittenTransaction:
    """Returns a transactional id from a whole record."""
    if _text.unpack_from(value)[0] != TAGGED_VERSION or value[PARTITIONS_AT] <= 1:
        return _by_fields(value)
    topics, end = _topics(value)
    found = _by_fields(b"%b\0%b" % (value[:PARTITIONS_AT], value[end:]))
    found.transaction_partitions = topics
    return found


def _by_fields(value: bytes) -> WrittenTransaction:
    reader = Reader(memoryview(value)[_text.size :], elements_max=len(value))
    return WrittenTransaction.read(reader, _text.unpack_from(value)[0])


def _after_plain(value: bytes) -> int:
    """Returns where the partitions end."""
    at = _head.size
    count = _count.unpack_from(value, at)[0]
    at += _count.size
    for _ in range(_not_negative(count + 1) - 1):  # -1: null
        size = _text.unpack_from(value, at)[0]
        at += _text.size
        value[at : at + _not_negative(size)].decode()
        at += size
        at += _count.size + 4 * _not_negative(_count.unpack_from(value, at)[0])
    return at


def _not_negative(size: int) -> int:
    if size < 0:
        raise IndexError(size)
    return size


def _after_tagged(value: bytes) -> int:
    """Returns where the partitions end."""
    if value[_head.size] <= 1:  # null, or none: all that is at rest
        return _head.size + 1
    count, at = _uvarint(value, _head.size)
    for _ in range(count - 1):
        size, at = _uvarint(value, at)
        value[at : at + _not_negative(size - 1)].decode()
        ids, at = _uvarint(value, at + size - 1)
        at += 4 * _not_negative(ids - 1) + 1
        if value[at - 1]:
            raise IndexError(at)  # tagged fields of a topic: nobody writes any
    return at


def _topics(value: bytes) -> tuple[list[WrittenTransaction.PartitionsSchema], int]:
    """Returns the partitions of a whole record with tagged fields, and where they end."""
    count, at = _uvarint(value, PARTITIONS_AT)
    found: list[WrittenTransaction.PartitionsSchema] = []
    for _ in range(count - 1):
        size, at = _uvarint(value, at)
        name = value[at : at + size - 1].decode()
        ids, at = _uvarint(value, at + size - 1)
        found.append(WrittenTransaction.PartitionsSchema(name, [*unpack_from(f">{ids - 1}i", value, at)]))
        at += 4 * (ids - 1) + 1
    return found, at


def _uvarint(value: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned varint, and where it ends."""
    found = value[at]
    if found < 0x80:
        return found, at + 1
    found &= 0x7F
    for shift in (7, 14, 21):
        at += 1
        byte = value[at]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at + 1
    raise IndexError(at)  # larger than any record


@lru_cache(TAILS_REMEMBERED)
def _is_tail(tail: bytes) -> bool:
    """Whether these are tagged fields that are known, in order, and nothing else."""
    count, at = _uvarint(tail, 0)
    last = -1
    for _ in range(count):
        tag, at = _uvarint(tail, at)
        if tag <= last or tail[at] != _TAG_BYTES.get(tag):
            return False
        last = tag
        at += 1 + tail[at]
    return at == len(tail)
