"""Control records: what is read, what a later version may bring, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from replog import records as r
from replog.errors import InvalidRecordError


def control(key: bytes | None, value: bytes | None = None) -> r.Record:
    (record,) = r.decode_batch(r.encode_batch([(1, key, value, ())], is_control=True))
    return record


@pytest.mark.parametrize("kind", list(r.ControlRecordType))
def test_known_types(kind: r.ControlRecordType) -> None:
    assert r.control_record_type(control(struct.pack(">hh", 0, kind))) is kind


@pytest.mark.parametrize("key", [struct.pack(">hh", 0, 7), struct.pack(">hh", 0, -1), struct.pack(">hh", 3, 99)])
def test_unknown_types_are_for_the_reader_to_skip(key: bytes) -> None:
    assert r.control_record_type(control(key)) is None


def test_a_longer_key_of_a_later_version_keeps_its_type() -> None:
    assert r.control_record_type(control(struct.pack(">hhq", 1, 1, 5))) is r.ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_what_is_no_control_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        r.control_record_type(control(key))


def test_the_coordinator_epoch_of_a_marker() -> None:
    batch = r.encode_end_transaction_marker(
        base_offset=1,
        leader_epoch=1,
        timestamp_ms=1,
        producer_id=1,
        producer_epoch=1,
        coordinator_epoch=9,
        is_commit=True,
    )
    assert r.decode_coordinator_epoch(r.decode_batch(batch)[0]) == 9


@pytest.mark.parametrize("value", [None, b"", bytes(5), struct.pack(">hi", -1, 9)])
def test_a_marker_that_is_none_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        r.decode_coordinator_epoch(control(b"\0\0\0\1", value))


def test_a_voter_count_that_never_ends_is_refused_quickly() -> None:
    """A varint of a megabyte would be a number of a million digits."""
    with pytest.raises(InvalidRecordError, match="cut short"):
        r.decode_leader_change(control(b"\0\0\0\2", bytes(6) + b"\xff" * 1_000_000 + b"\0"))


VOTERS = (
    r.QuorumVoter(1, UUID(int=1), (r.VoterEndpoint("CONTROLLER", "h1", 1), r.VoterEndpoint("B", "::1", 65535))),
    r.QuorumVoter(7, UUID(int=2**128 - 1), (), 1, 3),
)


def test_a_snapshot_header_with_voters_is_read_back() -> None:
    batch = r.encode_snapshot_header(VOTERS, last_contained_timestamp_ms=5, leader_epoch=3, timestamp_ms=9)
    header, version, voters = r.decode_batch(batch)
    assert r.decode_snapshot_header(header) == 5
    assert r.decode_kraft_version(version) == 1
    assert r.decode_voters(voters) == VOTERS
    assert (r.parse_header(batch).partition_leader_epoch, r.parse_header(batch).base_offset) == (3, 0)


def voters_value() -> bytes:
    *_, record = r.decode_batch(
        r.encode_snapshot_header(VOTERS, last_contained_timestamp_ms=5, leader_epoch=3, timestamp_ms=9)
    )
    return bytes(record.value or b"")


@pytest.mark.parametrize("size", range(len(voters_value())))
def test_a_voters_record_that_is_cut_short_is_refused(size: int) -> None:
    value = voters_value()[:size]
    if size < len(voters_value()) - 1:  # the last byte counts tagged fields that nobody reads
        with pytest.raises(InvalidRecordError):
            r.decode_voters(control(b"\0\0\0\6", value))


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff" * 1_000_000])
def test_a_voters_record_with_a_wrong_count_is_refused_quickly(count: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        r.decode_voters(control(b"\0\0\0\6", b"\0\0" + count))


@pytest.mark.parametrize("decode", [r.decode_voters, r.decode_kraft_version, r.decode_snapshot_header])
def test_later_versions_of_quorum_records_are_refused(decode: Callable[[r.Record], object]) -> None:
    with pytest.raises(InvalidRecordError, match="version 1"):
        decode(control(b"\0\0\0\6", b"\0\1" + bytes(20)))
    with pytest.raises(InvalidRecordError):
        decode(control(b"\0\0\0\6", None))


def test_client_reads_never_show_unknown_control_batches() -> None:
    batch = r.encode_batch([(1, struct.pack(">hh", 0, 42), b"?", ())], is_control=True)
    assert r.decode_records(batch) == []
    assert r.decode_columns(batch).count == 0
