"""Arrow columns of a local log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from local_kit import T0, child_environment

import replog
from replog.errors import ConfigError
from replog.local import LocalLog, NewRecord

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    with replog.open_log(tmp_path / "log", segment_bytes=2048) as log:
        for number in range(60):
            value = None if number % 7 == 0 else b"%d" % number * 10
            headers = [("n", b"%d" % number), ("none", None)] if number % 2 else []
            log.append_many([NewRecord(value, b"key" if number % 3 else None, headers, T0 + number)])
        yield log


def test_the_table_holds_what_the_iterator_yields(log: LocalLog) -> None:
    table = log.to_arrow(columns=("offset", "timestamp", "key", "value", "headers"))
    records = list(log)
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert table["offset"].to_pylist() == [record.offset for record in records]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [record.timestamp for record in records]
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["value"].to_pylist() == [record.value for record in records]
    found = [tuple((h["key"], h["value"]) for h in headers) for headers in table["headers"].to_pylist()]
    assert found == [record.headers for record in records]


def test_a_range_and_a_projection(log: LocalLog) -> None:
    table = log.to_arrow(10, 20, columns=["value", "offset"])
    assert table.column_names == ["value", "offset"]
    assert table["offset"].to_pylist() == list(range(10, 20))
    assert [batch.num_columns for batch in log.arrow_batches(columns=("offset",))] == [1] * len(
        list(log.arrow_batches())
    )


def test_no_records_make_an_empty_table_with_the_schema(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "empty") as log:
        table = log.to_arrow()
        assert (table.num_rows, table.column_names) == (0, ["offset", "timestamp", "key", "value"])


@pytest.mark.parametrize("columns", [(), ("offset", "offset"), ("colour",)])
def test_wrong_columns(log: LocalLog, columns: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="different ones of offset, timestamp"):
        log.to_arrow(columns=columns)


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["pyarrow"] = None
import replog
with replog.open_log({str(tmp_path / "log")!r}) as log:
    log.append(b"works")
    try:
        log.to_arrow()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert "pip install 'pyarrow>=" in done.stdout
