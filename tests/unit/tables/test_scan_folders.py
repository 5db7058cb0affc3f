"""`replog.scan` of folders: Kafka's, ours, whole ones and what is wrong with others."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import replog
from replog.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from replog.local import NewRecord
from tests import kafka_fixtures

T0 = 1_700_000_000_000
ALL = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A folder of `open_log` with 300 records in several segments."""
    with replog.open_log(tmp_path / "orders", segment_bytes=2048) as log:
        for first in range(0, 300, 10):
            log.append_many(NewRecord(b"v%d" % n, b"k", [("n", b"%d" % n)], T0 + n) for n in range(first, first + 10))
    return tmp_path / "orders"


@pytest.mark.parametrize("directory", kafka_fixtures.DIRECTORIES)
@pytest.mark.parametrize("topic", kafka_fixtures.TOPICS)
def test_kafkas_folders_show_what_kafkas_consumer_of_committed_records_read(topic: str, directory: str) -> None:
    root = kafka_fixtures.ROOT / directory
    before = kafka_fixtures.tree_digest(root)
    table = replog.scan(topic, folder=root, columns=ALL).read_all()
    table.validate(full=True)
    expected = kafka_fixtures.expected_rows(topic, "read_committed")
    rows = table.to_pylist()
    assert [row["offset"] for row in rows] == [row[0] for row in expected]
    assert [kafka_fixtures.shown(row["value"]) for row in rows] == [row[4] for row in expected]
    assert {(row["topic"], row["partition"]) for row in rows} == {(topic, 0)}
    assert kafka_fixtures.tree_digest(root) == before


def test_an_uncommitted_end_is_not_shown(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "data") as log:
        log.append_many([b"%d" % n for n in range(10)])
    for name in ("replication-offset-checkpoint", "replication-offset-checkpoint-witness"):
        (tmp_path / "data" / name).write_text("0\n1\nlog 0 7\n")
    assert replog.scan(folder=tmp_path / "data").read_all()["offset"].to_pylist() == list(range(7))
    with pytest.raises(OffsetOutOfRangeError, match="outside of \\[0, 7\\]"):
        replog.scan(folder=tmp_path / "data", end=8)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(300)),
        (17, 23, range(17, 23)),
        ("latest-5", {0: 298}, range(295, 298)),
        (
            datetime.fromtimestamp((T0 + 100) / 1000, UTC),
            datetime.fromtimestamp((T0 + 103) / 1000, UTC),
            range(100, 103),
        ),
        ("-1s", "latest", range(0)),
        ("earliest+299", "latest", range(299, 300)),
    ],
)
def test_where_it_starts_and_ends(orders: Path, start: Any, end: Any, expected: range) -> None:
    told: list[tuple[int, int]] = []
    reader = replog.scan(folder=orders, start=start, end=end, told=lambda *counts: told.append(counts))
    table = reader.read_all()
    assert table["offset"].to_pylist() == list(expected)
    assert table["value"].to_pylist() == [b"v%d" % n for n in expected]
    assert told[-1:] == ([(len(expected), len(expected))] if expected else [])
    assert replog.scan(folder=orders / "log-0", start=start, end=end).read_all() == table, "one partition folder"


def test_a_table_for_pandas_with_other_columns(orders: Path) -> None:
    frame = replog.scan(folder=orders, columns=["value", "offset"], end=3).read_pandas()
    assert list(frame.columns) == ["value", "offset"]
    assert frame["value"].tolist() == [b"v0", b"v1", b"v2"]
    assert replog.scan(folder=orders, columns=["partition"]).read_all().num_rows == 300


def test_another_working_directory(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(orders.parent)
    reader = replog.scan(folder="orders")
    monkeypatch.chdir("/")
    assert reader.read_all().num_rows == 300


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"folder": "empty"}, ConfigError, "holds no partition folders, such as rides-0"),
        ({"folder": "."}, ConfigError, "Log directories are in it: name one, such as"),
        ({"folder": "nowhere"}, ConfigError, "is no folder"),
        ({"folder": "orders", "topic": "rides"}, UnknownTopicOrPartitionError, "holds no topic rides; it holds log"),
        ({"folder": "orders", "partitions": [1]}, UnknownTopicOrPartitionError, "has no partition 1"),
        ({"folder": "orders", "bootstrap_servers": "h:1"}, ConfigError, "one of the two"),
        ({}, ConfigError, "one of the two"),
        ({"bootstrap_servers": "h:1"}, ConfigError, "needs the name of a topic"),
        ({"folder": "orders", "start": 301}, OffsetOutOfRangeError, "offset 301 of log-0 is outside of \\[0, 300\\]"),
        ({"folder": "orders", "start": 30, "end": 20}, InvalidRequestError, "give a later end"),
        ({"folder": "orders", "end": {1: 20}}, InvalidRequestError, "end has no offset for log-0"),
        ({"folder": "orders", "start": -1}, InvalidRequestError, "start is -1, which is no offset"),
        ({"folder": "orders", "start": datetime(2020, 1, 1)}, InvalidRequestError, "start: .* no time zone"),  # noqa: DTZ001
        ({"folder": "orders", "columns": ["offset", "vale"]}, ConfigError, "must be different ones of topic"),
        ({"folder": "orders", "timeout_ms": 0}, ConfigError, "timeout_ms"),
    ],
)
def test_what_is_wrong_is_told_at_once(
    orders: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    monkeypatch.chdir(orders.parent)
    (orders.parent / "empty").mkdir()
    with pytest.raises(error, match=text):
        replog.scan(**arguments)


def test_damage_is_told_with_its_place_behind_the_records_before_it(orders: Path) -> None:
    segment = sorted((orders / "log-0").glob("*.log"))[1]
    first = int(segment.stem)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    reader = replog.scan(folder=orders)
    found: list[pa.RecordBatch] = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(reader)
    assert str(segment) in str(caught.value)
    assert sum(batch.num_rows for batch in found) >= first


def test_records_that_are_deleted_before_they_are_read(orders: Path) -> None:
    reader = replog.scan(folder=orders)
    with replog.open_log(orders) as log:
        log.truncate_before(100)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.read_all()
    assert caught.value.log_start_offset == 100


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import replog; replog.scan(folder='x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert "Arrow columns need pyarrow, which is not installed" in done.stderr
    assert "pip install 'pyarrow>=" in done.stderr
