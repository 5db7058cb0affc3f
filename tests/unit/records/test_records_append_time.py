"""LogAppendTime: the leader's clock on every record, without touching one."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from replog import records as r
from replog.errors import InvalidRecordError

ROWS = [(5, b"k", b"v", ()), (-1, None, b"w", [("h", None)]), (9, b"l", None, ())]


@pytest.mark.parametrize("codec", [r.Codec.NONE, r.Codec.GZIP])
@pytest.mark.parametrize("kind", [bytearray, lambda batch: memoryview(bytearray(batch))])
def test_every_record_reads_as_the_append_time(implementation: Any, codec: r.Codec, kind: Any) -> None:
    sent = r.encode_batch(ROWS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    batch = kind(sent)
    r.stamp_append_time(batch, 1234)
    header = r.parse_header(batch)
    r.check_crc(batch, header)
    assert (header.timestamp_type, header.max_timestamp) == (r.TimestampType.LOG_APPEND_TIME, 1234)
    assert (header.codec, header.producer_id, header.base_sequence, header.base_timestamp) == (codec, 7, 3, 5)
    assert [record.timestamp for record in r.decode_batch(batch)] == [1234] * 3
    assert [record[2:] for record in r.decode_batch(batch)] == [record[2:] for record in r.decode_batch(sent)]
    columns = r.decode_columns(batch)
    assert struct.unpack("<3q", columns.timestamps) == (1234,) * 3
    assert struct.unpack("<3i", columns.timestamp_type) == (1, 1, 1)


def test_nothing_but_type_time_and_checksum_changes() -> None:
    sent = r.encode_batch(ROWS, is_transactional=True, producer_id=7, producer_epoch=1, base_sequence=3)
    batch = bytearray(sent)
    r.stamp_append_time(batch, 1234)
    changed = {position for position in range(len(sent)) if sent[position] != batch[position]}
    assert changed <= {*range(17, 21), 22, *range(35, 43)}
    assert r.parse_header(batch).is_transactional


def test_stamping_twice_is_stamping_once() -> None:
    once, twice = bytearray(r.encode_batch(ROWS)), bytearray(r.encode_batch(ROWS))
    r.stamp_append_time(twice, 1)
    for batch in (once, twice):
        r.stamp_append_time(batch, 1234)
    assert once == twice


def test_what_is_no_batch_or_no_time_is_refused_and_left_alone() -> None:
    with pytest.raises(InvalidRecordError):
        r.stamp_append_time(bytearray(60), 1)
    for time in (-1, 2**63):
        batch = bytearray(r.encode_batch(ROWS))
        with pytest.raises(InvalidRecordError):
            r.stamp_append_time(batch, time)
        assert batch == r.encode_batch(ROWS)
