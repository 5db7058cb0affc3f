"""Record batches as Kafka 4.1.1's own classes print them (KAFKA.md 1.1 to 1.4): written byte for byte, and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from replog import records as r
from tests.records_codecs import IMPLEMENTATIONS, use

T0 = 1_700_000_000_000
PRODUCER = {"producer_id": 4242, "producer_epoch": 3}
WRITTEN = ("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A9", "A15")
VOTER = r.QuorumVoter(
    1, UUID("01020304-0506-0708-1112-131415161718"), (r.VoterEndpoint("CONTROLLER", "localhost", 9093),)
)

VECTORS = {
    "A1 plain": "0000000000000064000000520000000702c5bdd2e60000000000010000018bcfe568000000018bcfe5687bffffffffffffffffffffffffffff0000000230000000066b65790a76616c756504046831047631046832010e00f60102010100",
    "A2 transactional": "0000000000000000000000500000000002f3e4359700100000000200000000000000050000000000000006000000000000109200037ffffffe0000000310000000026b02760014000102046b320476320014000204046b3304763300",
    "A3 COMMIT": "000000000000000a00000042000000050255aefb0a0030000000000000018bcfe568000000018bcfe5680000000000000010920003ffffffff000000012000000008000000010c00000000000900",
    "A4 ABORT": "000000000000000b000000420000000502a1902d420030000000000000018bcfe568000000018bcfe5680000000000000010920003ffffffff000000012000000008000000000c00000000000900",
    "A5 LeaderChange": "00000000000000000000005e0000000102ca7001930020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff00000001580000000800000002440000000000010400000001000000000200000000030003000000010000000003000000",
    "A6 SnapshotHeader": "0000000000000000000000470000000102b9ed88800020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000012a00000008000000031600000000018bcfe567ff0000",
    "A7 SnapshotFooter": "00000000000000090000003f00000001028f6608e60020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000011a00000008000000040600000000",
    "A8 KRaftVersion": "0000000000000003000000410000000102a89c55860020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000011e00000008000000050a000000010000",
    "A9 KRaftVoters": "00000000000000040000007400000001029ae04d700020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff00000001820100000008000000066e0000020000000101020304050607081112131415161718020b434f4e54524f4c4c45520a6c6f63616c686f73742385000000000100000000",
    "A10 empty": "00000000000000140000003100000002025e1a8cab000000000004ffffffffffffffff0000018bcfe56800000000000000109200030000000500000000",
    "A11 gzip": "000000000000000000000052000000000220b441c300010000000000000000000000010000000000000001ffffffffffffffffffffffffffff000000011f8b08000000000000ff5bc3c8c0c0e0904800242491081800d5113e4658000000",
    "A12 snappy": "000000000000000000000059000000000264ce38ef00020000000000000000000000010000000000000001ffffffffffffffffffffffffffff0000000182534e41505059000000000100000001000000145818ac0100000040617a0100046062ba01000000",
    "A13 lz4": "000000000000000000000057000000000294b8f76400030000000000000000000000010000000000000001ffffffffffffffffffffffffffff0000000104224d18604082170000007fac01000000406101000c2f606201001850626262620000000000",
    "A14 zstd": "00000000000000000000004f0000000002b17426eb00040000000000000000000000010000000000000001ffffffffffffffffffffffffffff0000000128b52ffd005894000050ac0100000040616062000200800837c008010000",
    "A15 delete horizon": "00000000000000000000003a00000000023a7f46b20040000000000000018bcfe56be80000018bcfe56800ffffffffffffffffffffffffffff000000011000cf0f00026b0100",
}


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    use(monkeypatch, request.param)
    return request.param


def written(name: str) -> bytes:
    """What our writers make of the inputs that the reference names."""
    match name.split(maxsplit=1)[0]:
        case "A1":
            rows = [(T0, b"key", b"value", [("h1", b"v1"), ("h2", None)]), (T0 + 123, None, None, ())]
            return r.encode_batch(rows, base_offset=100, partition_leader_epoch=7)
        case "A2":
            rows = [(5, b"k", b"v", ()), (4, b"k2", b"v2", ()), (6, b"k3", b"v3", ())]
            return r.encode_batch(
                rows, partition_leader_epoch=0, base_sequence=2**31 - 2, is_transactional=True, **PRODUCER
            )
        case "A3" | "A4":
            return r.encode_end_transaction_marker(
                base_offset=10 if name.startswith("A3") else 11,
                leader_epoch=5,
                timestamp_ms=T0,
                coordinator_epoch=9,
                is_commit=name.startswith("A3"),
                **PRODUCER,
            )
        case "A5":
            return r.encode_leader_change(
                base_offset=0, leader_epoch=1, timestamp_ms=T0, leader_id=1, voters=[1, 2, 3], granting_voters=[1, 3]
            )
        case "A6":
            return r.encode_snapshot_header((), last_contained_timestamp_ms=T0 - 1, leader_epoch=1, timestamp_ms=T0)
        case "A7":
            return r.encode_snapshot_footer(base_offset=9, leader_epoch=1, timestamp_ms=T0)
        case "A9":
            return r.encode_voters_batch((VOTER,), writes_version=False, base_offset=4, leader_epoch=1, timestamp_ms=T0)
        case "A15":
            return r.encode_batch([(T0, b"k", None, ())], partition_leader_epoch=0, delete_horizon_ms=T0 + 1000)
    raise KeyError(name)


@pytest.mark.parametrize("name", [name for name in VECTORS if name.split()[0] in WRITTEN])
def test_written_byte_for_byte(name: str) -> None:
    assert written(name).hex() == VECTORS[name]


@pytest.mark.parametrize("name", VECTORS)
def test_every_vector_scans_and_checks(name: str) -> None:
    batch = bytes.fromhex(VECTORS[name])
    (header,) = r.scan(batch)
    r.check_crc(batch, header)
    assert header.size_bytes == len(batch)
    if header.codec in {r.Codec.NONE, r.Codec.GZIP}:
        assert r.check_records(batch) == header.records_count


def test_plain_header_and_records() -> None:
    batch = bytes.fromhex(VECTORS["A1 plain"])
    header = r.parse_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 101, 102)
    assert (header.partition_leader_epoch, header.base_timestamp, header.max_timestamp) == (7, T0, T0 + 123)
    assert (header.has_producer_id, header.last_sequence) == (False, -1)
    assert r.decode_batch(batch) == [
        r.Record(100, T0, b"key", b"value", (("h1", b"v1"), ("h2", None))),
        r.Record(101, T0 + 123, None, None, ()),
    ]


def test_sequence_wraps_and_timestamp_goes_back() -> None:
    batch = bytes.fromhex(VECTORS["A2 transactional"])
    header = r.parse_header(batch)
    assert header.last_sequence == 0
    assert header.is_transactional
    assert [record.timestamp for record in r.decode_batch(batch)] == [5, 4, 6]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A3 COMMIT", r.ControlRecordType.COMMIT),
        ("A4 ABORT", r.ControlRecordType.ABORT),
        ("A5 LeaderChange", r.ControlRecordType.LEADER_CHANGE),
        ("A6 SnapshotHeader", r.ControlRecordType.SNAPSHOT_HEADER),
        ("A7 SnapshotFooter", r.ControlRecordType.SNAPSHOT_FOOTER),
        ("A8 KRaftVersion", r.ControlRecordType.KRAFT_VERSION),
        ("A9 KRaftVoters", r.ControlRecordType.KRAFT_VOTERS),
    ],
)
def test_control_records(name: str, kind: r.ControlRecordType) -> None:
    batch = bytes.fromhex(VECTORS[name])
    assert r.parse_header(batch).is_control
    (record,) = r.decode_batch(batch)
    assert r.control_record_type(record) is kind
    assert r.decode_records(batch) == []
    assert r.decode_columns(batch).count == 0


def test_leader_change_is_read_back() -> None:
    (record,) = r.decode_batch(bytes.fromhex(VECTORS["A5 LeaderChange"]))
    assert r.decode_leader_change(record) == r.LeaderChange(1, (1, 2, 3), (1, 3))


def test_quorum_control_records_are_read_back() -> None:
    (header,) = r.decode_batch(bytes.fromhex(VECTORS["A6 SnapshotHeader"]))
    (version,) = r.decode_batch(bytes.fromhex(VECTORS["A8 KRaftVersion"]))
    (voters,) = r.decode_batch(bytes.fromhex(VECTORS["A9 KRaftVoters"]))
    assert r.decode_snapshot_header(header) == T0 - 1
    assert r.decode_kraft_version(version) == 1
    assert r.decode_voters(voters) == (VOTER,)


def test_the_first_voters_batch_of_a_log_says_the_version_too() -> None:
    batch = r.encode_voters_batch((VOTER,), writes_version=True, base_offset=3, leader_epoch=1, timestamp_ms=T0)
    version, voters = r.decode_batch(batch)
    (kafkas_version,) = r.decode_batch(bytes.fromhex(VECTORS["A8 KRaftVersion"]))
    assert (version.key, version.value, version.offset) == (kafkas_version.key, kafkas_version.value, 3)
    assert r.decode_voters(voters) == (VOTER,)


def test_empty_batch_keeps_its_offsets_and_sequences() -> None:
    batch = bytes.fromhex(VECTORS["A10 empty"])
    header = r.parse_header(batch)
    assert (header.base_offset, header.next_offset, header.last_sequence, header.records_count) == (20, 25, 9, 0)
    assert r.decode_batch(batch) == []


@pytest.mark.parametrize("name", ["A11 gzip", "A12 snappy", "A13 lz4", "A14 zstd"])
def test_compressed_vectors_are_read(name: str) -> None:
    if name != "A11 gzip":
        pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")
    batch = bytes.fromhex(VECTORS[name])
    expected = r.Record(0, 1, b"a" * 32, b"b" * 48, ())
    assert r.decode_batch(batch) == [expected]
    assert r.decode_records(batch) == [expected]
    assert bytes(r.decode_columns(batch).value_data) == b"b" * 48


def test_delete_horizon_is_the_base_of_record_times() -> None:
    batch = bytes.fromhex(VECTORS["A15 delete horizon"])
    header = r.parse_header(batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == T0 + 1000
    assert r.decode_batch(batch) == [r.Record(0, T0, b"k", None, ())]
