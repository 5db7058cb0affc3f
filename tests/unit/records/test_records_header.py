"""The batch header: what it says, where a scan stops, and what is refused."""

from __future__ import annotations

import struct

import pytest

from replog import records as r
from replog.errors import CorruptRecordError, UnsupportedCompressionError


def batch(count: int = 3, **options: int) -> bytes:
    return r.encode_batch([(1000 + i, b"k", b"v" * i, ()) for i in range(count)], **options)  # type: ignore[arg-type]


def patched(data: bytes, layout: str, position: int, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, position, value)
    return bytes(out)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_scan_walks_whole_batches_and_stops_before_a_torn_one(kind: type) -> None:
    first, second = batch(2), batch(3, base_offset=2)
    whole = first + second
    for cut in range(len(second)):
        buffer = kind(whole + second[:cut])
        assert [h.position for h in r.scan(buffer)] == [0, len(first)]
    assert [h.base_offset for h in r.scan(kind(whole), len(first))] == [2]


def test_empty_buffer_has_no_batches() -> None:
    assert list(r.scan(b"")) == []


@pytest.mark.parametrize(
    ("layout", "position", "value"),
    [(">i", 8, 48), (">i", 8, -1), (">i", 8, 0), (">b", 16, 1), (">b", 16, 3), (">b", 16, -2)],
)
def test_nonsense_is_corrupt(layout: str, position: int, value: int) -> None:
    good = batch()
    bad = patched(good, layout, position, value)
    with pytest.raises(CorruptRecordError) as error:
        list(r.scan(good + bad))
    assert error.value.position == len(good)
    with pytest.raises(CorruptRecordError):
        r.parse_header(bad)


@pytest.mark.parametrize(
    ("layout", "position", "value"),
    [
        (">q", 0, -1),
        (">q", 0, 2**63 - 1),
        (">q", 0, 2**63 - 3),
        (">i", 23, -1),
        (">i", 57, -1),
        (">i", 57, 4),
        (">i", 57, 2**31 - 1),
    ],
)
def test_scan_refuses_headers_without_valid_offsets(layout: str, position: int, value: int) -> None:
    with pytest.raises(CorruptRecordError):
        list(r.scan(patched(batch(), layout, position, value)))


@pytest.mark.parametrize("position", [-1, 1, 200])
def test_header_outside_the_buffer_is_corrupt(position: int) -> None:
    with pytest.raises(CorruptRecordError):
        r.parse_header(batch()[:61], position)


def test_the_header_alone_is_enough_to_parse() -> None:
    assert r.parse_header(batch()[:61]).size_bytes == len(batch())


def test_every_flipped_bit_that_the_checksum_covers_is_found() -> None:
    good = batch()
    for position in range(21, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(CorruptRecordError):
            r.check_crc(bad, r.parse_header(bad))


def test_checksum_of_a_torn_batch_is_corrupt() -> None:
    torn = batch()[:-1]
    with pytest.raises(CorruptRecordError):
        r.check_crc(torn, r.parse_header(torn))


def test_restamping_changes_offset_and_epoch_and_keeps_the_checksum() -> None:
    sent = b"other bytes" + batch()
    stamped = r.restamped_prefix(sent, 11, 5000, 7) + sent[11 + 16 :]
    header = r.parse_header(stamped)
    r.check_crc(stamped, header)
    assert (header.base_offset, header.partition_leader_epoch, header.next_offset) == (5000, 7, 5003)
    assert [record.offset for record in r.decode_batch(stamped)] == [5000, 5001, 5002]


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_undefined_codecs_are_named(codec_id: int) -> None:
    header = r.parse_header(patched(batch(), ">b", 22, codec_id))
    with pytest.raises(UnsupportedCompressionError, match=str(codec_id)):
        _ = header.codec


def test_only_the_low_byte_of_the_attributes_counts() -> None:
    header = r.parse_header(patched(batch(), ">b", 21, 0x7F))
    assert header.codec is r.Codec.NONE
    assert not header.is_control
    assert not header.is_transactional


@pytest.mark.parametrize(
    ("base", "count", "last"), [(0, 3, 2), (2**31 - 3, 3, 2**31 - 1), (2**31 - 2, 3, 0), (-1, 3, -1)]
)
def test_sequences_wrap_after_31_bits(base: int, count: int, last: int) -> None:
    assert r.parse_header(batch(count, base_sequence=base)).last_sequence == last


def test_another_producer_is_all_that_differs() -> None:
    """Goal: a batch that is stamped afterwards is, byte for byte, one that was encoded so."""
    plain = batch(3)
    stamped = r.with_producer(plain, 2**40, 7, 2**31 - 1)
    assert stamped == batch(3, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1)
    assert r.with_producer(stamped, -1, -1, -1) == plain == batch(3)
    in_transaction = r.with_producer(plain, 7, 1, 0, is_transactional=True)
    header = r.parse_header(in_transaction)
    assert (header.is_transactional, header.attributes & ~0x10) == (True, r.parse_header(plain).attributes)
    assert r.with_producer(in_transaction, -1, -1, -1) == plain
