"""What a leader refuses from a client: one case per rule of docs/KAFKA.md 4.1."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import crc32c
import pytest

from replog import records as r
from replog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    ReplogError,
    UnsupportedCompressionError,
)
from replog.records.compression import compress, compress_batch, with_section

GOOD = r.encode_batch([(1, b"k", b"v", ()), (2, None, None, ())])
LIMIT = 1_048_588


PRODUCER = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def with_field(layout: str, position: int, *values: int, batch: bytes = GOOD) -> bytes:
    out = bytearray(batch)
    struct.pack_into(layout, out, position, *values)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def claiming(records_count: int, *, codec: r.Codec = r.Codec.NONE) -> bytes:
    """A batch whose header has so many records, and room for one or two."""
    batch = r.encode_batch([(1, None, b"v", ())], codec=codec)
    return with_field(">i", 57, records_count, batch=with_field(">i", 23, records_count - 1, batch=batch))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_good_batch_passes(kind: type) -> None:
    header = r.validate_produced(kind(GOOD), max_batch_bytes=len(GOOD))
    assert (header.records_count, header.size_bytes, header.position) == (2, len(GOOD), 0)


@pytest.mark.parametrize(
    ("rule", "batch", "error"),
    [
        ("nothing", b"", CorruptRecordError),
        ("cut short", GOOD[:-1], CorruptRecordError),
        ("header cut short", GOOD[:60], CorruptRecordError),
        ("old magic", with_field(">b", 16, 1), CorruptRecordError),
        ("damaged", GOOD[:-1] + b"\xff", CorruptRecordError),
        ("two batches", GOOD + GOOD, InvalidRecordError),
        ("bytes behind it", GOOD + b"\0", InvalidRecordError),
        ("offset set", with_field(">q", 0, 5), InvalidRecordError),
        ("negative offset", with_field(">q", 0, -1), InvalidRecordError),
        ("no records", with_field(">i", 57, 0), InvalidRecordError),
        ("negative count", with_field(">i", 57, -2), InvalidRecordError),
        ("count above the delta", with_field(">i", 57, 3), InvalidRecordError),
        ("delta above the count", with_field(">i", 23, 2), InvalidRecordError),
        ("negative delta", with_field(">i", 23, -1), InvalidRecordError),
        ("control", with_field(">h", 21, 0x20), InvalidRecordError),
        ("append time", with_field(">h", 21, 0x08), InvalidTimestampError),
        ("delete horizon", with_field(">h", 21, 0x40), InvalidRecordError),
        ("producer without sequence", with_field(">q", 43, 9), InvalidRecordError),
        ("producer without epoch", with_field(">qhi", 43, 9, -1, 0), InvalidRecordError),
        ("negative producer", with_field(">qhi", 43, -2, 0, 0), InvalidRecordError),
        ("transactional", with_field(">h", 21, 0x10), InvalidRecordError),
        ("transactional control", with_field(">h", 21, 0x30), InvalidRecordError),
        *((f"bit {bit}", with_field(">h", 21, 1 << bit), InvalidRecordError) for bit in range(7, 15)),
        ("bit 15", with_field(">H", 21, 1 << 15), InvalidRecordError),
        ("negative base timestamp", with_field(">q", 27, -2), InvalidTimestampError),
        ("negative largest timestamp", with_field(">q", 35, -2), InvalidTimestampError),
        ("largest timestamp before the base", with_field(">q", 35, 0), InvalidTimestampError),
        ("no largest timestamp", with_field(">q", 35, -1), InvalidTimestampError),
        ("more records than bytes", claiming(3), InvalidRecordError),
        ("all offsets there are", claiming(2**31 - 1), InvalidRecordError),
        ("all offsets, compressed", claiming(2**31 - 1, codec=r.Codec.GZIP), InvalidRecordError),
        ("unknown codec", with_field(">h", 21, 5), UnsupportedCompressionError),
    ],
)
def test_each_rule(rule: str, batch: bytes, error: type[ReplogError]) -> None:
    with pytest.raises(error):
        r.validate_produced(batch, max_batch_bytes=LIMIT)


def with_records(records: bytes, count: int = 2, codec: r.Codec = r.Codec.NONE) -> bytes:
    """A batch whose header and checksum are right, and whose records are these bytes."""
    batch = bytearray(compress_batch(GOOD[:61] + records, codec))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch = bytearray(with_field(">i", 23, count - 1, batch=bytes(batch)))
    return with_field(">i", 57, count, batch=bytes(batch))


TWO_RECORDS = bytes.fromhex("0c0000000101 00 0c0000020101 00")
NO_RECORDS = {
    "text": b"these are no records, whatever the checksum says",
    "zeros": bytes(40),
    "an offset twice": bytes.fromhex("0c0000000101 00 0c0000000101 00"),
    "an offset left out": bytes.fromhex("0c0000000101 00 0c0000040101 00"),
    "an offset below the first": bytes.fromhex("0c0000010101 00 0c0000000101 00"),
    "one too few": bytes.fromhex("0c0000000101 00"),
    "one too many": bytes.fromhex("0c0000000101 00 0c0000020101 00 0c0000040101 00"),
    "the last one cut": bytes.fromhex("0c0000000101 00 0e0000020101 00"),
    "a length below nothing": bytes.fromhex("01000000000000 0c0000020101 00"),
    "a key beyond its record": bytes.fromhex("0c0000000801 00 0c0000020101 00"),
    "a value beyond its record": bytes.fromhex("0c0000000108 00 0c0000020101 00"),
    "a record longer than its fields": bytes.fromhex("0e000000010100 00 0c0000020101 00"),
    "more headers than bytes": bytes.fromhex("0c0000000101 02 0c0000020101 00"),
    "a header without a name": bytes.fromhex("100000000101 020101 0c0000020101 00"),
    "a number that does not end": bytes.fromhex("0c00000001ffffffffffff 0c0000020101 00"),
}


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("records", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_no_records_is_refused_whatever_the_checksum_says(records: bytes) -> None:
    """librdkafka and kcat stop before such a batch for ever, and say nothing."""
    r.validate_produced(with_records(TWO_RECORDS), max_batch_bytes=LIMIT)
    batch = with_records(records)
    with pytest.raises(InvalidRecordError):
        r.validate_produced(batch, max_batch_bytes=LIMIT)
    with pytest.raises(InvalidRecordError):
        r.validate_produced(batch, max_batch_bytes=LIMIT, rules=r.RecordRules(are_keys_required=True))


@pytest.mark.usefixtures("implementation")
def test_compressed_records_are_not_looked_at_where_no_rule_asks() -> None:
    batch = with_records(NO_RECORDS["text"], codec=r.Codec.GZIP)
    r.validate_produced(batch, max_batch_bytes=LIMIT)
    with pytest.raises(InvalidRecordError):
        r.validate_produced(batch, max_batch_bytes=LIMIT, rules=r.RecordRules(are_keys_required=True))


def test_a_batch_of_a_transaction_names_its_producer() -> None:
    with pytest.raises(InvalidRecordError, match="names no producer"):
        r.validate_produced(with_field(">h", 21, 0x10), max_batch_bytes=LIMIT)
    named = r.encode_batch([(1, None, b"v", ())], **PRODUCER)
    assert r.validate_produced(named, max_batch_bytes=LIMIT).is_transactional


def test_the_shortest_records_pass() -> None:
    for codec in (r.Codec.NONE, r.Codec.GZIP):
        r.validate_produced(r.encode_batch([(1, None, None, ())] * 60, codec=codec), max_batch_bytes=LIMIT)


def test_a_batch_above_the_limit_is_too_large_whatever_else_is_wrong() -> None:
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        r.validate_produced(GOOD[:-1], max_batch_bytes=len(GOOD) - 1)


@pytest.mark.parametrize("field", [(">h", 51, 0), (">i", 53, 0)], ids=["epoch", "sequence"])
def test_epoch_and_sequence_say_nothing_without_a_producer_id(field: tuple[str, int, int]) -> None:
    """Example: aiokafka sends sequence 0 where idempotence is off, which Kafka takes."""
    header = r.validate_produced(with_field(*field), max_batch_bytes=LIMIT)
    assert not header.has_producer_id


def test_an_idempotent_batch_passes() -> None:
    batch = r.encode_batch([(1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    assert r.validate_produced(batch, max_batch_bytes=LIMIT).has_producer_id


NOW = 1_000_000


def timed(*timestamps: int, codec: r.Codec = r.Codec.NONE) -> bytes:
    return r.encode_batch([(timestamp, b"k", b"v", ()) for timestamp in timestamps], codec=codec)


def checked(batch: bytes, **rules: Any) -> r.BatchHeader:
    return r.validate_produced(batch, max_batch_bytes=LIMIT, rules=r.RecordRules(**rules), now_ms=NOW)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("codec", [r.Codec.NONE, r.Codec.GZIP])
class TestRulesOfATopic:
    def test_timestamps_at_the_limits_pass_and_beyond_them_do_not(self, codec: r.Codec) -> None:
        limits = {"timestamp_before_max_ms": 100, "timestamp_after_max_ms": 10}
        checked(timed(NOW, NOW + 10, NOW - 100, codec=codec), **limits)
        with pytest.raises(InvalidTimestampError, match=r"after\.max\.ms"):
            checked(timed(NOW, NOW + 11, NOW, codec=codec), **limits)
        with pytest.raises(InvalidTimestampError, match=r"before\.max\.ms"):
            checked(timed(NOW, NOW - 101, NOW, codec=codec), **limits)

    def test_no_timestamp_is_within_every_limit(self, codec: r.Codec) -> None:
        checked(timed(-1, -1, codec=codec), timestamp_before_max_ms=0, timestamp_after_max_ms=0)
        checked(timed(-1, NOW, codec=codec), timestamp_before_max_ms=0, timestamp_after_max_ms=0)

    def test_append_time_makes_the_clients_timestamps_irrelevant(self, codec: r.Codec) -> None:
        limits = {"timestamp_before_max_ms": 0, "timestamp_after_max_ms": 0}
        checked(timed(1, 2**62, codec=codec), timestamp_type=r.TimestampType.LOG_APPEND_TIME, **limits)

    def test_compacted_topics_need_keys(self, codec: r.Codec) -> None:
        keyless = r.encode_batch([(1, b"", b"v", ()), (1, None, b"v", ())], codec=codec)
        checked(keyless)
        checked(timed(1, codec=codec), are_keys_required=True)
        with pytest.raises(InvalidRecordError, match="1 of 2 records have no key"):
            checked(keyless, are_keys_required=True)

    @pytest.mark.parametrize("keyless", [[0], [7, 8, 16], range(17), range(1_200)], ids=len)
    def test_the_places_of_records_without_a_key_are_told(self, codec: r.Codec, keyless: Sequence[int]) -> None:
        batch = r.encode_batch([(1, None if at in keyless else b"", b"v", ()) for at in range(1_201)], codec=codec)
        with pytest.raises(r.KeylessRecordsError) as raised:
            checked(batch, are_keys_required=True)
        assert raised.value.places == tuple(keyless)[:1_000]

    def test_offsets_out_of_order_are_refused(self, codec: r.Codec) -> None:
        plain = bytearray(r.encode_batch([(1, b"k", None, ()), (1, b"k", None, ())]))
        plain[-5] = 4  # the second record's offset delta, 1 as 02, becomes 2
        struct.pack_into(">I", plain, 17, crc32c.crc32c(bytes(plain[21:])))
        with pytest.raises(InvalidRecordError, match="offset delta"):
            checked(compress_batch(bytes(plain), codec), are_keys_required=True)


def test_a_header_that_understates_its_largest_timestamp_is_seen_through_where_the_records_are_read() -> None:
    batch = bytearray(timed(NOW, NOW + 5_000))
    struct.pack_into(">q", batch, 35, NOW)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    with pytest.raises(InvalidTimestampError):
        checked(bytes(batch), timestamp_before_max_ms=1_000_000, timestamp_after_max_ms=10)


def test_what_a_leader_decompresses_is_bounded() -> None:
    plain = r.encode_batch([(NOW, b"k", bytes(33 << 20), ())])
    bomb = with_section(plain, r.Codec.GZIP, compress(r.Codec.GZIP, memoryview(plain)[r.HEADER_BYTES :]))
    checked(bomb)  # nothing asks for the records
    with pytest.raises(InvalidRecordError, match="more than"):
        checked(bomb, are_keys_required=True)
