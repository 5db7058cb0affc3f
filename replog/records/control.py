"""Control batches: what leaders write into a log for each other, never shown to clients (docs/KAFKA.md 1.3).

**Shapes**, big-endian. The key of a control record is `version int16 = 0 | type int16`. The value of a transaction
marker is `version int16 = 0 | coordinator epoch int32`. The value of a leader change is a flexible message, version 0:
lengths are unsigned varints of n + 1, and each struct ends in a count of tagged fields, always 0 here::

    version int16 | leader id int32 | n + 1 | { voter id int32 | 0 }* | m + 1 | { granting voter id int32 | 0 }* | 0

Example, leader 1 of voters 1, 2: `0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from replog.errors import InvalidRecordError
from replog.records.batch import encode_batch
from replog.records.model import Record

_SHIFT_MAX = 28  # five bytes hold 32 bits


def unsigned_varint(number: int) -> bytes:
    """Returns `number` in groups of seven bits, the lowest first.

    Lengths of arrays and strings are unsigned varints of n + 1 (0 = null); every struct ends in a count of tagged fields,
    which is 0 in everything written here.
    """
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Returns a text as length + 1 and UTF-8."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


class FlexibleReader:
    """Reads one value from its start to its end.

    Every method raises `IndexError` where the value ends before, or a length cannot be right.
    """

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Reads fixed-size fields."""
        return layout.unpack(self.take(layout.size))

    def take(self, size: int) -> bytes:
        """Reads the next `size` bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise IndexError(f"{size} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def varint(self) -> int:
        """Reads an unsigned varint of at most 32 bits."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            if shift >= _SHIFT_MAX:
                raise IndexError("a varint of more than five bytes")
            shift += 7

    def count(self, element_bytes_min: int) -> int:
        """Reads the length of an array whose elements take at least `element_bytes_min` bytes each; null is empty."""
        count = max(0, self.varint() - 1)
        if count * element_bytes_min > len(self._data) - self._position:
            raise IndexError(f"{count} elements in {len(self._data) - self._position} bytes")
        return count

    def string(self) -> str:
        """Reads a compact string."""
        return self.take(self.varint() - 1).decode()

    def skip_tags(self) -> None:
        """Skips the tagged fields at the end of a struct, whatever they are."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


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
    value = _LEADER.pack(0, leader_id) + _encode_voters(voters) + _encode_voters(granting_voters) + b"\0"
    return encode_batch(
        [(timestamp_ms, control_record_key(ControlRecordType.LEADER_CHANGE), value, ())],
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
    reader = FlexibleReader(record.value or b"")
    try:
        version, leader_id = reader.fields(_LEADER)
        voters, granting_voters = _read_voters(reader), _read_voters(reader)
    except IndexError:
        raise InvalidRecordError(f"the leader change at offset {record.offset} is cut short") from None
    if version != 0:
        raise InvalidRecordError(f"the leader change at offset {record.offset} has version {version}, 0 is known")
    return LeaderChange(leader_id, voters, granting_voters)


def _encode_voters(voters: Sequence[int]) -> bytes:
    return unsigned_varint(len(voters) + 1) + b"".join(_VOTER.pack(voter_id, 0) for voter_id in voters)


def _read_voters(reader: FlexibleReader) -> tuple[int, ...]:
    return tuple(reader.fields(_VOTER)[0] for _ in range(reader.count(_VOTER.size)))
