"""Record batches to Arrow, on both codecs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.client.ranges.offset_range import Encoded
from replog.errors import CorruptRecordError, InvalidRecordError
from replog.records import Codec, TimestampType, decode_columns, encode_batch, encode_leader_change
from replog.records.arrow import bounded
from replog.records.arrow.bounded import split_batches, split_rows
from replog.spark import arrow_batches
from replog.spark.arrow_batches import ArrowConverter
from replog.spark.schema import COLUMN_TYPES, Column
from tests.random_examples import examples
from tests.records_codecs import IMPLEMENTATIONS, use

ALL = tuple(COLUMN_TYPES)
END = 2**62


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, request.param)


def convert(
    data: bytes, names: Sequence[str] = ALL, *, start_offset: int = 0, end_offset: int = END, partition: int = 3
) -> list[Any]:
    converter = ArrowConverter([Column(name) for name in names], "flights", partition)
    return list(converter.convert(Encoded(start_offset, data), end_offset=end_offset))


def rows(batches: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows, with timestamps as microseconds."""
    found = []
    for batch in batches:
        columns = {
            name: (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        found += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return found


def test_every_column() -> None:
    data = encode_batch(
        [(1_700_000_000_123, b"k", b"v", (("a", b"1"), ("a", None))), (-1, None, b"", ()), (0, b"", None, ())],
        base_offset=40,
    )
    common = {"topic": "flights", "partition": 3, "timestampType": 0}
    header_list = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert rows(convert(data)) == [
        {
            "key": b"k",
            "value": b"v",
            "offset": 40,
            "timestamp": 1_700_000_000_123_000,
            "headers": header_list,
            **common,
        },
        {"key": None, "value": b"", "offset": 41, "timestamp": -1000, "headers": None, **common},
        {"key": b"", "value": None, "offset": 42, "timestamp": 0, "headers": None, **common},
    ]


def test_log_append_time_holds_for_its_own_batch_only() -> None:
    data = encode_batch([(5, None, b"a", ())]) + encode_batch(
        [(6, None, b"b", ())], base_offset=1, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert [row["timestampType"] for row in rows(convert(data, ["timestampType"]))] == [0, 1]


@pytest.mark.parametrize("names", [["offset"], ["value", "offset"], ["headers"], ["timestamp", "topic"], ["key"]])
def test_only_the_columns_asked_for_and_in_their_order(names: list[str]) -> None:
    data = encode_batch([(1, b"k", b"v", ())] * 3)
    batches = convert(data, names)
    assert [batch.schema.names for batch in batches] == [names]
    assert rows(batches) == [{name: row[name] for name in names} for row in rows(convert(data))]


def test_offsets_clip_at_both_ends() -> None:
    data = b"".join(encode_batch([(1, None, b"%d" % n, ())] * 4, base_offset=4 * n) for n in range(5))
    found = [row["offset"] for row in rows(convert(data, start_offset=6, end_offset=14))]
    assert found == list(range(6, 14))
    assert convert(data, start_offset=20) == []
    assert convert(b"") == []


def test_control_batches_are_skipped() -> None:
    control = encode_leader_change(
        base_offset=1, leader_epoch=1, timestamp_ms=1, leader_id=1, voters=(1,), granting_voters=(1,)
    )
    data = encode_batch([(1, None, b"a", ())]) + control + encode_batch([(1, None, b"b", ())], base_offset=2)
    assert [row["offset"] for row in rows(convert(data))] == [0, 2]
    assert convert(control) == []


def test_a_compressed_batch_reads_like_any_other() -> None:
    data = encode_batch([(1, b"k", b"x" * 10_000, (("h", b"1"),))] * 50, codec=Codec.GZIP)
    assert [row["value"] for row in rows(convert(data))] == [b"x" * 10_000] * 50


def test_damaged_bytes_are_refused() -> None:
    data = bytearray(encode_batch([(1, b"k", b"value", ())]))
    data[-3] ^= 1
    with pytest.raises(CorruptRecordError):
        convert(bytes(data))


def test_a_timestamp_beyond_spark_names_the_way_around() -> None:
    data = encode_batch([(2**62, None, b"x", ())])
    with pytest.raises(InvalidRecordError) as caught:
        convert(data)
    assert "leaves out" in str(caught.value)
    assert len(rows(convert(data, ["value"]))) == 1


def test_pieces_and_slices_keep_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nothing is lost or doubled where data is cut, and a compressed batch weighs more than its size."""
    monkeypatch.setattr(bounded, "DECODE_BYTES", 5_000)
    monkeypatch.setattr(bounded, "BATCH_BYTES_MAX", 2_000)
    plain = [encode_batch([(1, b"k", b"v" * 100, ())] * 10, base_offset=10 * n) for n in range(20)]
    zipped = [
        encode_batch([(1, b"k", b"v" * 100, ())] * 10, base_offset=200 + 10 * n, codec=Codec.GZIP) for n in range(20)
    ]
    data = b"".join(plain + zipped)
    pieces = [bytes(piece) for piece, _ in split_batches(data)]
    assert b"".join(pieces) == data
    assert len(pieces[0]) <= 5_000
    assert len(pieces[-1]) <= 5_000 // bounded.COMPRESSION_RATIO_GUESS
    batches = convert(data)
    assert max(batch.nbytes for batch in batches) <= 2_000
    assert [row["offset"] for row in rows(batches)] == list(range(400))


def test_batches_that_grow_too_large_together_are_decoded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a topic of equal values, each batch of which shrinks to almost nothing, can be read."""
    data = b"".join(encode_batch([(1, None, b"x" * 10_000, ())], base_offset=n, codec=Codec.GZIP) for n in range(10))
    assert len(list(split_batches(data))) == 1
    monkeypatch.setattr(bounded, "DECOMPRESSED_TOGETHER_BYTES_MAX", 35_000)
    assert [row["offset"] for row in rows(convert(data, start_offset=1, end_offset=9))] == list(range(1, 9))
    monkeypatch.setattr(bounded, "DECOMPRESSED_BYTES_MAX", 9_000)
    with pytest.raises(InvalidRecordError, match="more than 9000 bytes"):
        convert(data)


def test_no_decode_holds_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: batches that shrink a hundredfold are not decompressed together, and soon not even tried together."""
    monkeypatch.setattr(bounded, "DECODE_BYTES", 20_000)
    monkeypatch.setattr(bounded, "DECOMPRESSED_TOGETHER_BYTES_MAX", 40_000)
    calls: list[tuple[int, bool]] = []

    def decode(data: bytes, **more: Any) -> Any:
        try:
            columns = decode_columns(data, **more)
        except InvalidRecordError:
            calls.append((-1, False))
            raise
        calls.append((len(columns.value_data), True))
        return columns

    monkeypatch.setattr(arrow_batches, "decode_columns", decode)
    data = b"".join(encode_batch([(1, None, b"x" * 10_000, ())], base_offset=n, codec=Codec.GZIP) for n in range(100))
    assert [row["offset"] for row in rows(convert(data, ["offset", "value"]))] == list(range(100))
    assert max(size for size, _ in calls) <= 40_000
    assert all(is_decoded for _, is_decoded in calls[-40:]), "it has seen how they grow"


def test_a_single_large_row_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "BATCH_BYTES_MAX", 100)
    (batch,) = split_rows(pa.record_batch({"value": [b"x" * 1_000]}))
    assert batch.num_rows == 1


_bytes = st.none() | st.binary(max_size=20)
_headers = st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3).map(tuple)
_record = st.tuples(st.integers(-1, 2**41), _bytes, _bytes, _headers)


@given(st.lists(st.lists(_record, min_size=1, max_size=6), max_size=5), st.integers(0, 10), st.integers(0, 30))
@settings(max_examples=examples(25), deadline=None)
def test_rows_equal_records(groups: list[list[Any]], start_offset: int, end_offset: int) -> None:
    data, expected, offset = b"", [], 0
    for records in groups:
        data += encode_batch(records, base_offset=offset)
        for timestamp, key, value, headers in records:
            if start_offset <= offset < end_offset:
                expected.append(
                    (offset, timestamp * 1000, key, value, [{"key": k, "value": v} for k, v in headers] or None)
                )
            offset += 1
    found = rows(convert(data, start_offset=start_offset, end_offset=end_offset))
    assert [(r["offset"], r["timestamp"], r["key"], r["value"], r["headers"]) for r in found] == expected


# ---- values as text ----------------------------------------------------------------------------------------------------


def texts(data: bytes, names: Sequence[str] = ("value",)) -> list[Any]:
    converter = ArrowConverter([Column(name, is_text=name == "value") for name in names], "flights", 3)
    return list(converter.convert(Encoded(0, data), end_offset=END))


def test_values_that_are_text_come_as_strings() -> None:
    values = [b"a", None, b"", "zwölf".encode(), b"\x00"]
    (found,) = texts(encode_batch([(1, b"\xff", value, ()) for value in values]), ["key", "value"])
    assert found.schema.field("value").type == pa.string()
    assert found.column("value").to_pylist() == ["a", None, "", "zwölf", "\x00"]
    assert found.column("key").to_pylist() == [b"\xff"] * 5


@pytest.mark.parametrize("wrong", [0, 1, 6, 9])
def test_a_value_that_is_no_text_is_told_with_its_place(wrong: int) -> None:
    values = [None if n in {3, 7} else b"\xc3\xa4" for n in range(10)]
    values[wrong] = b"\xa4"
    values[9] = b"\xff"
    data = encode_batch([(1, None, value, ()) for value in values], base_offset=40)
    with pytest.raises(InvalidRecordError, match=rf"^flights-3: the value at offset {40 + wrong} is not UTF-8\. Read"):
        texts(data)
    halves = [encode_batch([(1, None, value, ())], base_offset=40 + n) for n, value in enumerate(values)]
    with pytest.raises(InvalidRecordError, match=f"offset {40 + wrong} "):
        texts(b"".join(halves))


CONVERT = """\
import sys
from replog.records import encode_batch
from replog.spark.arrow_batches import ArrowConverter
from replog.client.ranges.offset_range import Encoded
from replog.spark.schema import COLUMN_TYPES, Column
data = encode_batch([(1_700_000_000_123, b"k", b"v", (("a", b"1"),)), (0, None, None, ())])
converter = ArrowConverter([Column(name) for name in COLUMN_TYPES], "flights", 3)
(batch,) = converter.convert(Encoded(0, data), end_offset=9)
print(batch.num_rows, batch["topic"][1], batch["partition"][1], "pandas" in sys.modules)
"""


def test_pandas_is_not_imported_for_records(tmp_path: Path) -> None:
    """Goal: a third of a second of processor time and 50 MB less in each worker of Spark's."""
    (tmp_path / "pandas.py").write_text("# whoever imports it is seen in sys.modules\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", CONVERT], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "2 flights 3 False\n"
