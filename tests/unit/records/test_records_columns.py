"""Columns: the same records as `decode_records`, in the memory layout that Arrow takes as it is."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog import records as r
from replog.errors import CorruptRecordError

pytestmark = pytest.mark.usefixtures("implementation")
blob = st.none() | st.binary(max_size=40)
batches = st.lists(st.lists(st.tuples(blob, blob), min_size=1, max_size=12), max_size=5)


def log(contents: list[list[tuple[bytes | None, bytes | None]]], codec: r.Codec = r.Codec.NONE) -> bytes:
    out, offset = b"", 0
    for rows in contents:
        out += r.encode_batch([(100 + i, *row, ()) for i, row in enumerate(rows)], base_offset=offset, codec=codec)
        offset += len(rows)
    return out


def column(offsets: r.Buffer, data: r.Buffer, validity: r.Buffer | None, count: int) -> list[bytes | None]:
    """Reads a column the way Arrow's specification says."""
    ends = struct.unpack(f"<{count + 1}i", offsets)
    return [
        bytes(data[ends[i] : ends[i + 1]]) if validity is None or validity[i >> 3] >> (i & 7) & 1 else None
        for i in range(count)
    ]


@given(contents=batches, start=st.integers(0, 30), length=st.none() | st.integers(0, 30), gzip=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_are_the_records(contents: Any, start: int, length: int | None, gzip: bool) -> None:
    data = log(contents, r.Codec.GZIP if gzip else r.Codec.NONE)
    end = None if length is None else start + length
    expected = r.decode_records(data, start_offset=start, end_offset=end)
    torn = data[:30]  # a fetch may end in the middle of a batch
    columns = r.decode_columns(data + torn, start_offset=start, end_offset=end)
    count = columns.count
    assert count == len(expected)
    assert list(struct.unpack(f"<{count}q", columns.offsets)) == [record.offset for record in expected]
    assert list(struct.unpack(f"<{count}q", columns.timestamps)) == [record.timestamp for record in expected]
    assert columns.timestamp_type == bytes(4 * count)
    keys, values = [record.key for record in expected], [record.value for record in expected]
    assert column(columns.key_offsets, columns.key_data, columns.key_validity, count) == keys
    assert column(columns.value_offsets, columns.value_data, columns.value_validity, count) == values
    assert (columns.key_null_count, columns.value_null_count) == (keys.count(None), values.count(None))
    assert (columns.key_validity is None) == (columns.key_null_count == 0)


@pytest.mark.parametrize("kind", [r.TimestampType.CREATE_TIME, r.TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize(
    ("start", "end"), [(3, 1), (3, 3), (9, 0), (-5, -7), (2**70, None), (-(2**70), -1), (1, -(2**63))]
)
def test_a_range_without_offsets_has_no_records(kind: r.TimestampType, start: int, end: int | None) -> None:
    data = bytearray(log([[(b"k", b"v")] * 5]))
    if kind is r.TimestampType.LOG_APPEND_TIME:
        r.stamp_append_time(data, 100)
    for has_fields in (True, False):
        found = r.decode_columns(data, start_offset=start, end_offset=end, with_keys=has_fields, with_values=has_fields)
        assert (found.count, bytes(found.offsets)) == (0, b"")
    assert r.decode_records(data, start_offset=start, end_offset=end) == []


def test_validity_is_least_significant_bit_first_with_zero_padding() -> None:
    rows = [(None if i in {1, 9} else b"x", b"") for i in range(11)]
    columns = r.decode_columns(log([rows]))
    assert columns.key_validity == bytes([0b11111101, 0b00000101])
    assert columns.value_validity is None


def test_columns_not_asked_for_are_empty() -> None:
    data = log([[(b"k", b"v"), (None, None)]])
    columns = r.decode_columns(data, with_keys=False)
    assert columns[4:8] == (b"", b"", None, 0)
    assert (columns.value_data, columns.value_null_count) == (b"v", 1)
    columns = r.decode_columns(data, with_values=False)
    assert columns[8:12] == (b"", b"", None, 0)
    assert (columns.key_data, columns.key_null_count) == (b"k", 1)


def test_no_batches_are_no_rows() -> None:
    columns = r.decode_columns(b"")
    assert columns.count == 0
    assert (columns.key_offsets, columns.value_offsets) == (bytes(4), bytes(4))


def test_keys_larger_than_the_first_guess() -> None:
    rows = [(bytes([i]) * (i * 37 % 900), None) for i in range(200)]
    columns = r.decode_columns(log([rows]))
    assert column(columns.key_offsets, columns.key_data, columns.key_validity, 200) == [row[0] for row in rows]


def test_control_batches_are_left_out_but_their_checksum_counts() -> None:
    marker = r.encode_leader_change(
        base_offset=1, leader_epoch=1, timestamp_ms=1, leader_id=1, voters=[1], granting_voters=[1]
    )
    data = log([[(b"k", b"v")]])
    assert r.decode_columns(data + marker).count == 1
    with pytest.raises(CorruptRecordError):
        r.decode_columns(data + marker[:-1] + b"\xff")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    data = kind(log([[(b"k", b"v")], [(b"l", b"w")]]))
    assert r.decode_columns(data).value_data == b"vw"
    assert [record.key for record in r.decode_records(data)] == [b"k", b"l"]


def test_arrow_takes_the_buffers_as_they_are() -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra replog[spark] is not installed")
    columns = r.decode_columns(log([[(b"k", None), (None, b"vv"), (b"", b"w")]]))
    buffers = [columns.value_validity, columns.value_offsets, columns.value_data]
    arrow = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    array = pa.Array.from_buffers(pa.binary(), columns.count, arrow, columns.value_null_count)
    array.validate(full=True)
    assert array.to_pylist() == [None, b"vv", b"w"]


def test_checksums_are_looked_at_unless_the_caller_has() -> None:
    """Goal: without a look at checksums a damaged value comes out as it is, and a damaged header is still refused."""
    damaged = bytearray(log([[(None, b"value")]]))
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecordError):
        r.decode_columns(bytes(damaged))
    assert bytes(r.decode_columns(bytes(damaged), is_checked=False).value_data) == b"valud"
    damaged[16] = 1  # the format's version
    with pytest.raises(CorruptRecordError):
        r.decode_columns(bytes(damaged), is_checked=False)
