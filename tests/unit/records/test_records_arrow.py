"""Columns as an Arrow batch: same records, valid to Arrow, and nothing copied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from replog import records as r
from replog.errors import ConfigError
from replog.records.arrow.arrays import headers_array

pytestmark = pytest.mark.usefixtures("implementation")
ROWS: list[Any] = [
    (5, b"k", None, [("a", b"1"), ("ü", None)]),
    (-1, None, b"", ()),
    (9, b"", b"long" * 50, [("", b"")]),
]


@pytest.fixture(autouse=True)
def pa() -> Any:
    return pytest.importorskip("pyarrow", reason="the extra replog[arrow] is not installed")


NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def record_batch(columns: r.Columns, names: Sequence[str] = NAMES, place: tuple[str, int] | None = None) -> Any:
    from replog.records.arrow.columns import ArrowColumns

    return ArrowColumns(names, place).batch(columns)


def decoded(**options: bool) -> r.Columns:
    return r.decode_columns(r.encode_batch(ROWS, base_offset=40), with_headers=True, **options)


def test_a_batch_of_all_columns() -> None:
    batch = record_batch(decoded())
    batch.validate(full=True)
    assert batch.schema.names == ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert batch["offset"].to_pylist() == [40, 41, 42]
    assert [time.value for time in batch["timestamp"]] == [5, None, 9]
    assert batch["key"].to_pylist() == [b"k", None, b""]
    assert batch["value"].to_pylist() == [None, b"", b"long" * 50]
    assert batch["headers"].to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "ü", "value": None}],
        [],
        [{"key": "", "value": b""}],
    ]


def test_columns_come_in_the_order_asked_for() -> None:
    columns = r.decode_columns(r.encode_batch(ROWS), with_offsets=False, with_keys=False)
    batch = record_batch(columns, ["value", "partition", "timestamp_type", "topic"], ("flüge", 3))
    assert batch.to_pylist()[1] == {"value": b"", "partition": 3, "timestamp_type": 0, "topic": "flüge"}
    with pytest.raises(ConfigError, match="different ones of offset, timestamp"):
        record_batch(columns, ["topic"])


def test_no_records_are_a_batch_without_rows() -> None:
    batch = record_batch(r.decode_columns(b"", with_headers=True))
    batch.validate(full=True)
    assert (batch.num_rows, len(batch.schema.names)) == (0, 6)


def test_records_without_headers_may_be_null() -> None:
    columns = decoded()
    assert columns.headers is not None
    array = headers_array(columns.headers, columns.count, none_is_null=True)
    array.validate(full=True)
    assert [each is None for each in array.to_pylist()] == [False, True, False]


def test_nothing_is_copied(pa: Any) -> None:
    columns = decoded()
    batch = record_batch(columns)
    headers = columns.headers
    assert headers is not None
    taken = {buffer.address for name in batch.schema.names for buffer in batch[name].buffers() if buffer is not None}
    for buffer in (columns.offsets, columns.timestamp_type, columns.key_data, columns.value_data, headers.key_data):
        assert pa.py_buffer(buffer).address in taken


def test_records_are_read_without_importing_pyarrow() -> None:
    script = "import replog.records, replog.records.arrow.arrays, sys; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})
