"""Records out of columns: the same bytes as records one by one, and columns that lie are refused."""

from __future__ import annotations

import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records_codecs import IMPLEMENTATIONS

from replog import records as r
from replog.errors import InvalidRecordError
from replog.records import Columns, HeaderColumns, RecordInput
from replog.records.key_hash import murmur2

DATA = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(-1, 2**62), DATA, DATA, HEADERS), max_size=20)
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no reason to fail."""

NONE = Columns(0, b"", b"", b"", b"", b"", None, 0, b"", b"", None, 0)


def columns_of(rows: list[RecordInput], **wanted: bool) -> Columns:
    batch = r.encode_batch(rows) if rows else b""
    return r.decode_columns(batch, with_headers=True, **wanted)


def ints(*numbers: int) -> bytes:
    return array.array("i", numbers).tobytes()


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
@SETTINGS
@given(rows=ROWS, more=ROWS)
def test_rows_become_what_records_become(codec: Any, rows: list[RecordInput], more: list[RecordInput]) -> None:
    source = codec.RowSource(columns_of(rows), 5)
    ours, theirs = (codec.BatchBuilder(max_bytes=100_000) for _ in range(2))
    for builder in (ours, theirs):
        builder.extend(more)
    order = [*reversed(range(len(rows))), *range(len(rows))]
    assert codec.extend_rows(ours, source, ints(*order), len(rows)) == len(rows) == theirs.extend(rows)
    assert (ours.size_bytes, ours.records_count) == (theirs.size_bytes, theirs.records_count)
    if rows or more:
        assert ours.build() == theirs.build()
    end, bound = source.within(0, 1 << 30)
    assert end == len(rows)
    assert bound <= sum(r.batch_bytes_bound(key, value, headers) for _, key, value, headers in rows)


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
def test_what_does_not_fit_waits_and_a_bound_is_one(codec: Any) -> None:
    rows: list[RecordInput] = [(1000 + i, b"k%d" % i, b"v" * (i % 50), (("h", b"x"),)) for i in range(1000)]
    source = codec.RowSource(columns_of(rows), 0)
    order = ints(*range(1000))
    first, found = 0, []
    while first < 1000:
        builder = codec.BatchBuilder(max_bytes=2000)
        added = codec.extend_rows(builder, source, order, first)
        assert added > 0
        bound = sum(source.within(row, 0)[1] for row in range(first, first + added))
        assert builder.size_bytes <= r.HEADER_BYTES + bound
        found += r.decode_batch(builder.build())
        first += added
    assert [record[1:] for record in found] == rows
    end, bound = source.within(10, 5000)
    assert bound <= 5000 < bound + source.within(end, 0)[1]
    assert source.within(10, 0)[0] == 11
    assert source.within(1000, 0) == (1000, 0)


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
def test_what_is_left_out_is_null_and_the_time_is_the_callers(codec: Any) -> None:
    columns = columns_of([(7, b"k", b"v", (("h", b"x"),))] * 3, with_timestamps=False, with_keys=False)
    builder = codec.BatchBuilder(max_bytes=1000)
    assert codec.extend_rows(builder, codec.RowSource(columns._replace(headers=None), 99), ints(0, 2), 0) == 2
    assert [record[1:] for record in r.decode_batch(builder.build())] == [(99, None, b"v", ())] * 2


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
@SETTINGS
@given(keys=st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=30), count=st.integers(1, 2**31 - 1))
def test_keys_are_placed_as_kafka_places_them(codec: Any, keys: list[bytes | None], count: int) -> None:
    source = codec.RowSource(columns_of([(1, key, None, ()) for key in keys]), 0)
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert list(memoryview(source.partitions(count)).cast("i")) == expected
    given = [row if row % 2 else -1 for row in range(len(keys))]
    for is_by_key in (True, False):
        chosen = memoryview(source.partitions(count, ints(*given), is_by_key)).cast("i")
        other = expected if is_by_key else [-1] * len(keys)
        assert list(chosen) == [row if row % 2 else other[row] for row in range(len(keys))]
    with pytest.raises(InvalidRecordError, match="partitions is too short"):
        source.partitions(count, ints(*given)[:-1])


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
def test_rows_are_grouped_in_order(codec: Any) -> None:
    numbers = ints(2, -1, 0, 2, 1, -1, 0)
    groups = codec.group_rows(numbers, 1, 7, 3, 1)
    assert [(number, list(memoryview(rows).cast("B").cast("i"))) for number, rows in groups] == [
        (0, [2, 6]),
        (1, [1, 4, 5]),
        (2, [3]),
    ]
    assert codec.group_rows(numbers, 3, 3, 3, 0) == []
    for bad in ((0, 8, 3), (-1, 2, 3), (3, 2, 3), (0, 7, 2)):
        with pytest.raises(InvalidRecordError):
            codec.group_rows(numbers, *bad, 0)
    with pytest.raises(InvalidRecordError, match="row 0: there is no partition -2, there are 3"):
        codec.group_rows(ints(-2), 0, 1, 3, 0)


GOOD_HEADERS = HeaderColumns(1, ints(0, 1), None, 0, ints(0, 1), b"h", ints(0, 1), b"v", None, 0)
GOOD = NONE._replace(count=1, value_offsets=ints(0, 3), value_data=b"abc", headers=GOOD_HEADERS)
LIES = {
    "offsets too short": GOOD._replace(count=2),
    "a count below zero": GOOD._replace(count=-5, value_offsets=b"abcd"),
    "end behind the data": GOOD._replace(value_offsets=ints(0, 4)),
    "start below zero": GOOD._replace(value_offsets=ints(-1, 2)),
    "end before start": GOOD._replace(value_offsets=ints(2, 1)),
    "a validity too short": GOOD._replace(value_validity=b""),
    "timestamps too short": GOOD._replace(timestamps=b"1234567"),
    "a time below -1": GOOD._replace(timestamps=(-2).to_bytes(8, "little", signed=True)),
    "headers of others": GOOD._replace(headers=GOOD_HEADERS._replace(list_offsets=ints(0, 2))),
    "headers backwards": GOOD._replace(headers=GOOD_HEADERS._replace(list_offsets=ints(1, 0))),
    "a name behind the data": GOOD._replace(headers=GOOD_HEADERS._replace(key_offsets=ints(0, 9))),
    "a name that is no text": GOOD._replace(headers=GOOD_HEADERS._replace(key_data=b"\xff")),
    "more headers than there are": GOOD._replace(headers=GOOD_HEADERS._replace(headers_count=5)),
}


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
@pytest.mark.parametrize("lie", LIES)
def test_columns_that_lie_are_refused_and_leave_the_batch_alone(codec: Any, lie: str) -> None:
    builder = codec.BatchBuilder(max_bytes=1000)
    builder.append(1, None, b"before")
    size = builder.size_bytes
    with pytest.raises(InvalidRecordError):
        codec.extend_rows(builder, codec.RowSource(LIES[lie], 0), ints(0), 0)
    assert (builder.size_bytes, builder.records_count) == (size, 1)
    assert codec.extend_rows(builder, codec.RowSource(GOOD, 0), ints(0), 0) == 1
    assert r.decode_batch(builder.build())[1][1:] == (0, None, b"abc", (("h", b"v"),))


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
@pytest.mark.parametrize("row", [-1, 1, 2**31 - 1])
def test_rows_that_are_not_there_are_refused(codec: Any, row: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"no row {row} among 1"):
        codec.extend_rows(codec.BatchBuilder(max_bytes=1000), codec.RowSource(GOOD, 0), ints(row), 0)


@pytest.mark.parametrize("codec", IMPLEMENTATIONS)
def test_no_rows_are_no_trouble(codec: Any) -> None:
    source = codec.RowSource(NONE, 0)
    assert (source.count, source.within(0, 10), source.partitions(3)) == (0, (0, 0), b"")
    with pytest.raises(InvalidRecordError, match="timestamp -2 ms"):
        codec.RowSource(NONE, -2)
