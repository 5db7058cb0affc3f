"""Control records of the metadata quorum: who votes, and how a snapshot begins and ends (KIP-630, KIP-853).

**Shapes**, big-endian, flexible encoding (`replog.wire.primitives`), each value version 0::

    snapshot header   version int16 | timestamp of the last contained record int64, ms | 0
    snapshot footer   version int16 | 0
    kraft version     version int16 | 0 static voters, 1 voters in the log: int16 | 0
    voters            version int16 | n + 1 | voter * | 0
      voter           id int32 | directory id, 16 bytes | m + 1 | endpoint * | min int16 | max int16 | 0 | 0
      endpoint        name | host | port uint16 | 0

The version range of a voter stands in a struct of its own, hence two counts of tagged fields behind it.  A voter from a
static configuration never appears here: the record exists to name directories.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from replog.errors import InvalidRecordError, MalformedFrameError
from replog.records.batch import encode_batch
from replog.records.control import ControlRecordType, control_record_key
from replog.records.model import Record
from replog.wire.primitives import Reader, Writer

_VERSION = struct.Struct(">h")
_HEADER = struct.Struct(">hq")
_KRAFT_VERSION = struct.Struct(">hh")
_VOTER_ID = struct.Struct(">i")
_PORT = struct.Struct(">H")
_RANGE = struct.Struct(">hh")
_VOTER_BYTES_MIN = 27
_ENDPOINT_BYTES_MIN = 5

KRAFT_VERSION_DYNAMIC = 1
"""`kraft.version` 1: the voters stand in the log."""


class VoterEndpoint(Struct, frozen=True):
    """Where a voter listens; `name` is that of its listener."""

    name: str
    host: str
    port: int


class QuorumVoter(Struct, frozen=True):
    """One voter as the log names it.

    Attributes:
        voter_id: The node id.
        directory_id: The id of the log directory that holds its metadata log; another one is another voter.
        endpoints: The addresses where it listens.
        min_version: The lowest `kraft.version` it can work with.
        max_version: The highest one.
    """

    voter_id: int
    directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]
    min_version: int = 0
    max_version: int = KRAFT_VERSION_DYNAMIC


def encode_voters_batch(
    voters: Sequence[QuorumVoter], *, writes_version: bool, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """Returns the control batch that puts a voter set in force.

    Args:
        voters: The voters of the set, all of them.
        writes_version: Whether `kraft.version` 1 stands in front, as in the first such batch of a log.
        base_offset: The offset of the batch.
        leader_epoch: The epoch of the leader that writes it.
        timestamp_ms: The wall time.
    """
    values = [(ControlRecordType.KRAFT_VOTERS, _voters_value(voters))]
    if writes_version:
        values.insert(0, (ControlRecordType.KRAFT_VERSION, _kraft_version_value()))
    return _encode(values, base_offset, leader_epoch, timestamp_ms)


def encode_snapshot_header(
    voters: Sequence[QuorumVoter], *, last_contained_timestamp_ms: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """Returns the first batch of a snapshot, at offset 0 of it.

    Args:
        voters: The voters in force at its end; empty where they are configured statically.
        last_contained_timestamp_ms: The time of the last record the snapshot stands for.
        leader_epoch: The epoch of that record.
        timestamp_ms: The wall time.
    """
    values = [(ControlRecordType.SNAPSHOT_HEADER, _HEADER.pack(0, last_contained_timestamp_ms) + b"\0")]
    if voters:
        values.append((ControlRecordType.KRAFT_VERSION, _kraft_version_value()))
        values.append((ControlRecordType.KRAFT_VOTERS, _voters_value(voters)))
    return _encode(values, 0, leader_epoch, timestamp_ms)


def encode_snapshot_footer(*, base_offset: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """Returns the last batch of a snapshot."""
    values = [(ControlRecordType.SNAPSHOT_FOOTER, _VERSION.pack(0) + b"\0")]
    return _encode(values, base_offset, leader_epoch, timestamp_ms)


def decode_snapshot_header(record: Record) -> int:
    """Returns the timestamp, ms, of the last record a snapshot contains.

    Raises:
        InvalidRecordError: The value is missing, cut short, or of a version other than 0.
    """
    return _fields(record, _HEADER, "snapshot header")[1]


def decode_kraft_version(record: Record) -> int:
    """Returns the `kraft.version` in force from here on.

    Raises:
        InvalidRecordError: The value is missing, cut short, or of a version other than 0.
    """
    return _fields(record, _KRAFT_VERSION, "kraft version")[1]


def decode_voters(record: Record) -> tuple[QuorumVoter, ...]:
    """Returns the voters in force from here on.

    Raises:
        InvalidRecordError: The value is missing, cut short, or of a version other than 0.
    """
    reader = Reader(memoryview(record.value or b""))
    try:
        (version,) = reader.fixed(_VERSION)
        count = reader.nullable_count(flexible=True, least_bytes=_VOTER_BYTES_MIN) or 0 if version == 0 else 0
        voters = tuple([_read_voter(reader) for _ in range(count)])
    except MalformedFrameError:
        raise InvalidRecordError(f"the voters record at offset {record.offset} is cut short or damaged") from None
    _check_version(record, version, "voters record")
    return voters


def _encode(
    values: Sequence[tuple[ControlRecordType, bytes]], base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    return encode_batch(
        [(timestamp_ms, control_record_key(kind), value, ()) for kind, value in values],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        is_control=True,
    )


def _kraft_version_value() -> bytes:
    return _KRAFT_VERSION.pack(0, KRAFT_VERSION_DYNAMIC) + b"\0"


def _voters_value(voters: Sequence[QuorumVoter]) -> bytes:
    value = Writer()
    value.fixed(_VERSION, 0)
    value.count(voters, flexible=True)
    for voter in voters:
        value.fixed(_VOTER_ID, voter.voter_id)
        value.uuid(voter.directory_id)
        value.count(voter.endpoints, flexible=True)
        for endpoint in voter.endpoints:
            value.text(endpoint.name, flexible=True)
            value.text(endpoint.host, flexible=True)
            value.fixed(_PORT, endpoint.port)
            value.tagged()
        value.fixed(_RANGE, voter.min_version, voter.max_version)
        value.tagged()
        value.tagged()
    value.tagged()
    return value.joined()


def _read_voter(reader: Reader) -> QuorumVoter:
    (voter_id,) = reader.fixed(_VOTER_ID)
    directory_id = reader.uuid()
    endpoints = tuple(
        [
            _read_endpoint(reader)
            for _ in range(reader.nullable_count(flexible=True, least_bytes=_ENDPOINT_BYTES_MIN) or 0)
        ]
    )
    min_version, max_version = reader.fixed(_RANGE)
    reader.tagged()
    reader.tagged()
    return QuorumVoter(voter_id, directory_id, endpoints, min_version, max_version)


def _read_endpoint(reader: Reader) -> VoterEndpoint:
    name, host = reader.text(flexible=True), reader.text(flexible=True)
    (port,) = reader.fixed(_PORT)
    reader.tagged()
    return VoterEndpoint(name, host, port)


def _fields(record: Record, layout: struct.Struct, what: str) -> tuple[int, ...]:
    value = record.value or b""
    if len(value) < layout.size:
        raise InvalidRecordError(f"the {what} at offset {record.offset} is cut short")
    fields = layout.unpack_from(value)
    _check_version(record, fields[0], what)
    return fields


def _check_version(record: Record, version: int, what: str) -> None:
    if version != 0:
        raise InvalidRecordError(f"the {what} at offset {record.offset} has version {version}, 0 is known")
