"""Control batches: what leaders write into a log for each other, never shown to clients (docs/KAFKA.md 1.3).

**Shapes**, big-endian. The key of a control record is `version int16 = 0 | type int16`. The value of a transaction
marker is `version int16 = 0 | coordinator epoch int32`. The value of a leader change is a flexible message, version 0:
lengths are unsigned varints of n + 1, and each struct ends in a count of tagged fields, always 0 here (`replog.wire.primitives`)::

    version int16 | leader id int32 | n + 1 | { voter id int32 | 0 }* | m + 1 | { granting voter id int32 | 0 }* | 0

Example, leader 1 of voters 1, 2: `0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from replog.errors import InvalidRecordError, MalformedFrameError
from replog.records.batch import encode_batch
from replog.records.model import Record
from replog.wire.primitives import Reader, Writer

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_LEADER = struct.Struct(">hi")
_VOTER = struct.Struct(">ib")


class ControlRecordType(IntEnum):
    """The second half of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class LeaderChange(Struct, frozen=True):
    """First record of every epoch of the metadata log.

    Attributes:
        leader_id: The node that won.
        voters: All voters at that time.
        granting_voters: The voters whose votes made the majority.
    """

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


def control_record_key(kind: ControlRecordType) -> bytes:
    """Returns the key of a control record."""
    return _KEY.pack(0, kind)


def control_record_type(record: Record) -> ControlRecordType | None:
    """Returns what a record of a control batch is; None for a type from a later version, to be skipped.

    A key of a later version may be longer; what it begins with stays, so it is read like version 0, as Kafka does.

    Raises:
        InvalidRecordError: It is no control record at all: its key is shorter than 4 bytes, or its version negative.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecordError(f"the control record at offset {record.offset} has no key of {_KEY.size} bytes")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecordError(f"the control record at offset {record.offset} has a key of version {version}")
    try:
        return ControlRecordType(kind)
    except ValueError:
        return None


def encode_leader_change(
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    leader_id: int,
    voters: Sequence[int],
    granting_voters: Sequence[int],
) -> bytes:
    """Returns the control batch a new leader of the metadata quorum appends before anything else."""
    value = Writer()
    value.fixed(_LEADER, 0, leader_id)
    for ids in (voters, granting_voters):
        value.count(ids, flexible=True)
        for voter_id in ids:
            value.fixed(_VOTER, voter_id, 0)
    value.tagged()
    return encode_batch(
        [(timestamp_ms, control_record_key(ControlRecordType.LEADER_CHANGE), value.joined(), ())],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        is_control=True,
    )


def encode_end_transaction_marker(
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    is_commit: bool,
) -> bytes:
    """Returns the control batch that ends a transaction in one partition."""
    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    return encode_batch(
        [(timestamp_ms, control_record_key(kind), _MARKER.pack(0, coordinator_epoch), ())],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_coordinator_epoch(record: Record) -> int:
    """Reads the value of an ABORT or COMMIT record: the epoch of the coordinator that ended the transaction.

    Raises:
        InvalidRecordError: The value is missing, cut short, or of a negative version.
    """
    value = record.value or b""
    if len(value) < _MARKER.size:
        raise InvalidRecordError(f"the transaction marker at offset {record.offset} is cut short")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"the transaction marker at offset {record.offset} has version {version}")
    return int(coordinator_epoch)


def decode_leader_change(record: Record) -> LeaderChange:
    """Reads the value of a LEADER_CHANGE record.

    Raises:
        InvalidRecordError: The value is missing, cut short, or of a version other than 0.
    """
    reader = Reader(memoryview(record.value or b""))
    try:
        version, leader_id = reader.fixed(_LEADER)
        voters, granting_voters = _read_voters(reader), _read_voters(reader)
    except MalformedFrameError:
        raise InvalidRecordError(f"the leader change at offset {record.offset} is cut short") from None
    if version != 0:
        raise InvalidRecordError(f"the leader change at offset {record.offset} has version {version}, 0 is known")
    return LeaderChange(leader_id, voters, granting_voters)


def _read_voters(reader: Reader) -> tuple[int, ...]:
    return tuple(
        reader.fixed(_VOTER)[0] for _ in range(reader.nullable_count(flexible=True, least_bytes=_VOTER.size) or 0)
    )
