"""Arrow batches of Spark become columns of records: nulls, slices, topics, and what no record can say."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra replog[spark] is not installed")

from replog.errors import InvalidRecordError  # noqa: E402 -- after the check for pyarrow
from replog.records import BatchBuilder, Record, RowSource, decode_batch, extend_rows  # noqa: E402
from replog.spark.sink.columns import TopicRows, pieces  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMES = pa.timestamp("us", tz="UTC")
TYPES = {
    "key": pa.binary(),
    "value": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": TIMES,
    "headers": HEADERS,
}


def batch_of(**columns: list[Any]) -> Any:
    fields = [pa.field(name, TYPES[name]) for name in columns]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, TYPES[name]) for name, values in columns.items()], schema=pa.schema(fields)
    )


def records(piece: TopicRows) -> list[Record]:
    builder = BatchBuilder(max_bytes=1 << 20)
    rows = b"".join(row.to_bytes(4, "little") for row in range(piece.columns.count))
    assert extend_rows(builder, RowSource(piece.columns, 7), rows, 0) == piece.columns.count
    return decode_batch(builder.build())


def made(batch: Any, topic: str | None = "t", *, include_headers: bool = True) -> list[TopicRows]:
    return list(pieces(batch, 100, topic=topic, include_headers=include_headers))


WRITE = """
import sys
import pyarrow as pa
from replog.spark.sink.columns import pieces

with pa.ipc.open_stream(sys.argv[1]) as batches:
    for batch in batches:
        found = list(pieces(batch, 0, topic=sys.argv[2] or None, include_headers=True))
print([piece.topic for piece in found], "pandas" in sys.modules)
"""


@pytest.mark.parametrize(("topic", "topics"), [("t", ["t"]), ("", ["a", "b"])])
def test_pandas_is_not_imported_for_rows(topic: str, topics: list[str], tmp_path: Path) -> None:
    """Goal: a task that writes does not pay for a library that it has no use for, wherever that is installed."""
    (tmp_path / "pandas.py").write_text("# whoever imports it is seen in sys.modules\n")
    batch = batch_of(
        value=["v", None],
        topic=["a", "b"],
        partition=[1, None],
        timestamp=[datetime(2020, 1, 1, tzinfo=UTC), None],
        headers=[[("a", b"1")], None],
    )
    with pa.OSFile(str(tmp_path / "rows"), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-c", WRITE, str(tmp_path / "rows"), topic]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{topics} False\n"


def test_every_column_and_its_nulls() -> None:
    batch = batch_of(
        key=[b"k", None, b""],
        value=["zwölf", None, ""],
        partition=[1, None, 0],
        timestamp=[datetime(2020, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, microsecond=1999, tzinfo=UTC), None],
        headers=[[("a", b"1"), ("a", None)], None, []],
    )
    (piece,) = made(batch)
    found = records(piece)
    assert [record[2:] for record in found] == [
        (b"k", "zwölf".encode(), (("a", b"1"), ("a", None))),
        (None, None, ()),
        (b"", b"", ()),
    ]
    assert [record.timestamp for record in found][:2] == [1_577_836_800_000, 1]
    assert found[2].timestamp > 1_577_836_800_000, "now"
    assert piece.partitions is not None
    assert list(memoryview(piece.partitions).cast("B").cast("i")) == [1, -1, 0]
    assert records(made(batch, include_headers=False)[0])[0].headers == ()


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9])
def test_a_slice_is_read_from_where_it_begins(start: int) -> None:
    """Goal: offsets, validity and headers of a slice are those of its rows."""
    count = 20
    batch = batch_of(
        key=[None if i % 3 == 0 else b"%d" % i for i in range(count)],
        value=[None if i % 5 == 0 else f"v{i}" for i in range(count)],
        partition=[None if i % 7 == 0 else i for i in range(count)],
        headers=[None if i % 2 else [(f"h{i}", None if i % 4 else b"%d" % i)] for i in range(count)],
    )
    whole, part = (records(made(each)[0]) for each in (batch, batch.slice(start)))
    assert [record[1:] for record in part] == [record[1:] for record in whole[start:]]
    (piece,) = made(batch.slice(start))
    assert piece.partitions is not None
    expected = [-1 if i % 7 == 0 else i for i in range(start, count)]
    assert list(memoryview(piece.partitions).cast("B").cast("i")) == expected


@pytest.mark.parametrize("is_null", [False, True])
def test_a_column_without_any_header_may_have_no_offsets(is_null: bool) -> None:
    """Goal: Java's Arrow writes no offsets of a column without values, not even the 0 that it begins with."""
    nothing = pa.py_buffer(b"")
    names, values = (pa.Array.from_buffers(each, 0, [None, nothing, nothing]) for each in (pa.string(), pa.binary()))
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    validity = pa.py_buffer(b"\0") if is_null else None
    headers = pa.Array.from_buffers(HEADERS, 2, [validity, pa.py_buffer(bytes(12))], children=[pairs])
    (piece,) = made(pa.RecordBatch.from_arrays([pa.array(["a", "b"]), headers], ["value", "headers"]))
    assert [(record.value, record.headers) for record in records(piece)] == [(b"a", ()), (b"b", ())]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_of_text_are_taken(kind: Any) -> None:
    values = pa.array([b"a", None, b"c"] if kind == pa.large_binary() else ["a", None, "c"], kind)
    (piece,) = made(pa.RecordBatch.from_arrays([values], ["value"]))
    assert [record.value for record in records(piece)] == [b"a", None, b"c"]


def test_rows_are_parted_by_topic_in_order() -> None:
    batch = batch_of(value=[f"{i}" for i in range(7)], topic=["b", "a", "b", "c", "a", "b", "b"])
    found = {piece.topic: [record.value for record in records(piece)] for piece in made(batch, None)}
    assert found == {"b": [b"0", b"2", b"5", b"6"], "a": [b"1", b"4"], "c": [b"3"]}
    assert [piece.topic for piece in made(batch, "given")] == ["given"], "the option goes before the column"
    assert [piece.columns.count for piece in made(batch_of(value=["x"] * 3, topic=["a"] * 3), None)] == [3]


def test_no_rows_are_no_pieces() -> None:
    assert made(batch_of(value=[])) == []


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": ["t", "t", None]}, r'row 102 of the task .*"topic" is null'),
        ({"partition": [None, -1, 0]}, r'row 101 of the task .*"partition" is negative'),
        (
            {"timestamp": [None, None, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]},
            r"row 102 of the task .*before 1970",
        ),
        ({"headers": [None, [(None, b"x")], None]}, "has no name"),
        ({"headers": [None, [None], None]}, "is null"),
    ],
)
def test_what_no_record_can_say_is_refused_by_its_row(columns: dict[str, list[Any]], text: str) -> None:
    with pytest.raises(InvalidRecordError, match=text):
        made(batch_of(value=["x"] * 3, **columns), None if "topic" in columns else "t")
