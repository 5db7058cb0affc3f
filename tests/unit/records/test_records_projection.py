"""Projections: every subset of columns says what the full decode says, and what is not asked for is not touched."""

from __future__ import annotations

import struct
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog import records as r
from replog.errors import InvalidRecordError
from replog.records.compression import with_section
from tests.records_codecs import empty_batch

pytestmark = pytest.mark.usefixtures("implementation")
NAMES = ("with_offsets", "with_timestamps", "with_keys", "with_values", "with_headers")
ALL = dict.fromkeys(NAMES, True)
ONLY_OFFSETS = dict.fromkeys(NAMES, False) | {"with_offsets": True}
NOTHING = dict.fromkeys(NAMES, False)
ONLY_TIMES = NOTHING | {"with_timestamps": True}
ROWS = [(5, b"k", b"v", [("a", b"1"), ("ü", None)]), (4, None, b"", ()), (9, b"", None, [("", b"")])]


def gapped(base_offset: int, deltas: list[int], **options: Any) -> bytes:
    """A batch as compaction leaves it: records with gaps before, between and after them."""
    batch = bytearray(r.encode_batch([(100 + d, b"k%d" % d, None, ()) for d in range(20)], base_offset=base_offset))
    kept, position = b"", 61
    for d in range(20):
        end = position + 1 + (batch[position] >> 1)
        if d in deltas:
            kept += batch[position:end]
        position = end
    struct.pack_into(">i", batch, 57, len(deltas))
    out = bytearray(with_section(batch, r.Codec.NONE, kept))
    if options.get("append_time"):
        r.stamp_append_time(out, 777)
    return bytes(out)


LOG = (
    r.encode_batch(ROWS)
    + gapped(3, [2, 3, 7])
    + r.encode_batch(ROWS, base_offset=23, codec=r.Codec.GZIP)
    + gapped(26, [0, 19], append_time=True)
    + empty_batch(base_offset=46, last_offset=50, max_timestamp=1)
    + r.encode_batch(ROWS, base_offset=51, timestamp_type=r.TimestampType.LOG_APPEND_TIME, codec=r.Codec.GZIP)
)


@pytest.mark.parametrize("edges", [(0, None), (1, 2), (4, 30), (6, 7), (24, 53), (45, 46), (60, None), (30, 30)])
def test_each_subset_of_columns_is_that_part_of_all(edges: tuple[int, int | None]) -> None:
    start, end = edges
    expected = r.decode_records(LOG, start_offset=start, end_offset=end)
    full = r.decode_columns(LOG, start_offset=start, end_offset=end, **ALL)
    assert full.count == len(expected)
    assert list(struct.unpack(f"<{full.count}q", full.offsets)) == [record.offset for record in expected]
    assert list(struct.unpack(f"<{full.count}q", full.timestamps)) == [record.timestamp for record in expected]
    for chosen in product([False, True], repeat=5):
        some = r.decode_columns(LOG, start_offset=start, end_offset=end, **dict(zip(NAMES, chosen, strict=True)))
        assert some.count == full.count, chosen
        assert some.offsets == (full.offsets if chosen[0] else b""), chosen
        assert some[2:4] == (full[2:4] if chosen[1] else (b"", b"")), chosen
        assert some[4:8] == (full[4:8] if chosen[2] else (b"", b"", None, 0)), chosen
        assert some[8:12] == (full[8:12] if chosen[3] else (b"", b"", None, 0)), chosen
        assert some.headers == (full.headers if chosen[4] else None), chosen


def test_offsets_of_a_gap_free_batch_need_no_records() -> None:
    """The compressed section is nonsense, and nobody looks."""
    batch = with_section(r.encode_batch(ROWS, base_offset=7), r.Codec.GZIP, b"no gzip at all")
    assert struct.unpack("<3q", r.decode_columns(batch, **ONLY_OFFSETS).offsets) == (7, 8, 9)
    assert struct.unpack("<2q", r.decode_columns(batch, start_offset=8, **ONLY_OFFSETS).offsets) == (8, 9)
    assert r.decode_columns(batch, **NOTHING).count == 3
    with pytest.raises(InvalidRecordError):
        r.decode_columns(batch, **ONLY_TIMES)


def test_append_times_need_no_records_either() -> None:
    batch = bytearray(with_section(r.encode_batch(ROWS), r.Codec.GZIP, b"no gzip at all"))
    r.stamp_append_time(batch, 55)
    columns = r.decode_columns(batch, **ONLY_TIMES)
    assert struct.unpack("<3q", columns.timestamps) == (55, 55, 55)
    assert struct.unpack("<3i", columns.timestamp_type) == (1, 1, 1)


def test_offsets_of_a_batch_with_gaps_are_read_from_its_records() -> None:
    batch = gapped(100, [1, 5, 6])
    assert struct.unpack("<3q", r.decode_columns(batch, **ONLY_OFFSETS).offsets) == (101, 105, 106)
    assert r.decode_columns(batch, **NOTHING).count == 3
    assert r.decode_columns(batch, end_offset=106, **NOTHING).count == 2  # a cut through it has to be looked up


def test_fields_that_are_not_asked_for_are_not_checked_but_the_deltas_are() -> None:
    batch = bytearray(r.encode_batch([(5, b"k", b"v", ()), (6, b"k", b"v", ())]))
    bad_key = bytearray(batch)
    bad_key[65] = 0x03  # a key of -2 bytes
    assert r.decode_columns(with_section(bad_key, r.Codec.NONE, bad_key[61:]), **ONLY_TIMES).count == 2
    for position, byte in ((61, 0x7F), (61, 0x02), (73, 0x00), (61, 0x01)):
        bad = bytearray(batch)
        bad[position] = byte
        with pytest.raises(InvalidRecordError):
            r.decode_columns(with_section(bad, r.Codec.NONE, bad[61:]), **ONLY_TIMES)


# ---- headers ------------------------------------------------------------------------------------------------------------


def headers_of(columns: r.Columns) -> list[list[tuple[str, bytes | None]]]:
    """Reads the headers the way Arrow's specification says."""
    found = columns.headers
    assert found is not None
    ends = struct.unpack(f"<{columns.count + 1}i", found.list_offsets)
    key_ends = struct.unpack(f"<{found.headers_count + 1}i", found.key_offsets)
    value_ends = struct.unpack(f"<{found.headers_count + 1}i", found.value_offsets)
    validity = found.value_validity
    pairs: list[tuple[str, bytes | None]] = []
    for i in range(found.headers_count):
        is_there = validity is None or validity[i >> 3] >> (i & 7) & 1
        value = bytes(found.value_data[value_ends[i] : value_ends[i + 1]]) if is_there else None
        pairs.append((bytes(found.key_data[key_ends[i] : key_ends[i + 1]]).decode(), value))
    return [pairs[ends[i] : ends[i + 1]] for i in range(columns.count)]


names = st.text(max_size=6)
lists = st.lists(st.lists(st.tuples(names, st.none() | st.binary(max_size=9)), max_size=5), min_size=1, max_size=40)


@given(lists=lists)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_headers_are_the_records_headers(lists: list[list[tuple[str, bytes | None]]]) -> None:
    columns = r.decode_columns(r.encode_batch([(1, None, None, headers) for headers in lists]), with_headers=True)
    assert headers_of(columns) == lists
    assert columns.headers is not None
    assert columns.headers.list_null_count == lists.count([])
    assert columns.headers.value_null_count == sum(value is None for headers in lists for _, value in headers)
    validity = columns.headers.list_validity
    if validity is not None:
        assert [bool(validity[i >> 3] >> (i & 7) & 1) for i in range(len(lists))] == [bool(each) for each in lists]


def test_more_headers_than_the_first_guess() -> None:
    lists = [[("n" * (i % 30), b"v" * (i % 50))] * (i % 7) for i in range(500)]
    columns = r.decode_columns(r.encode_batch([(1, None, None, headers) for headers in lists]), with_headers=True)
    assert headers_of(columns) == lists


def test_a_name_that_is_not_utf8_becomes_valid() -> None:
    batch = bytearray(r.encode_batch([(1, None, None, [("ab", b"x"), ("c", None)])]))
    batch[batch.index(b"ab")] = 0xFF
    columns = r.decode_columns(with_section(batch, r.Codec.NONE, batch[61:]), with_headers=True)
    assert headers_of(columns) == [[("\ufffdb", b"x"), ("c", None)]]


def test_more_records_in_a_compressed_batch_than_its_size_suggests() -> None:
    rows = [(1, None, None, ())] * 20_000  # hardly a bit each
    columns = r.decode_columns(r.encode_batch(rows, codec=r.Codec.GZIP), **ALL)
    assert columns.count == 20_000
    assert columns.offsets == struct.pack("<20000q", *range(20_000))
    assert columns.key_null_count == columns.value_null_count == 20_000
