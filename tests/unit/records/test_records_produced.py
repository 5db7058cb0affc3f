"""What a leader refuses from a client: one case per rule of kafka-reference 4.1."""

from __future__ import annotations

import struct

import crc32c
import pytest

from replog import records as r
from replog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
    ReplogError,
    UnsupportedCompressionError,
)

GOOD = r.encode_batch([(1, b"k", b"v", ()), (2, None, None, ())])
LIMIT = 1_048_588


def with_field(layout: str, position: int, value: int) -> bytes:
    out = bytearray(GOOD)
    struct.pack_into(layout, out, position, value)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


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
        ("append time", with_field(">h", 21, 0x08), InvalidRecordError),
        ("producer without sequence", with_field(">q", 43, 9), InvalidRecordError),
        ("unknown codec", with_field(">h", 21, 5), UnsupportedCompressionError),
    ],
)
def test_each_rule(rule: str, batch: bytes, error: type[ReplogError]) -> None:
    with pytest.raises(error):
        r.validate_produced(batch, max_batch_bytes=LIMIT)


def test_a_batch_above_the_limit_is_too_large_whatever_else_is_wrong() -> None:
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        r.validate_produced(GOOD[:-1], max_batch_bytes=len(GOOD) - 1)


def test_an_idempotent_batch_passes() -> None:
    batch = r.encode_batch([(1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    assert r.validate_produced(batch, max_batch_bytes=LIMIT).has_producer_id
