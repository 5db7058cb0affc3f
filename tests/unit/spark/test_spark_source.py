"""The data source and its reader without Spark's JVM."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.cloudpickle import dumps as cloudpickle_dumps
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_replog import DefaultSource
from replog.client.ranges.offset_range import COALESCE_BYTES, Encoded, OffsetRange, Piece, coalesce
from replog.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from replog.spark import worker_client
from replog.spark.reader import ReplogReader
from replog.spark.snapshot import PinnedOffsets, SizedRange
from replog.spark.source import ReplogDataSource

REPOSITORY = Path(__file__).resolve().parents[3]
SCHEMA = StructType([StructField("offset", LongType())])
RANGES = (OffsetRange("t", UUID(int=7), 0, 5, 5), OffsetRange("t", UUID(int=7), 1, 10, 20))
SNAPSHOT = PinnedOffsets("a-cluster", RANGES, (SizedRange(RANGES[1], 1000),))
OPTIONS = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls of `fetch_snapshot`, which answers SNAPSHOT."""
    calls: list[Any] = []

    def fetch(options: Any) -> PinnedOffsets:
        calls.append(options)
        return SNAPSHOT

    monkeypatch.setattr(worker_client, "fetch_snapshot", fetch)
    return calls


def test_what_spark_looks_for() -> None:
    assert DefaultSource is ReplogDataSource
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == "replog"


def test_the_snapshot_is_taken_once_and_travels(pinned: list[Any]) -> None:
    """Goal: one snapshot per DataFrame, in every process that Spark unpickles the source or the reader in."""
    source = ReplogDataSource(OPTIONS)
    assert source.schema().startswith("key binary, value binary")
    copy: ReplogDataSource = pickle.loads(cloudpickle_dumps(source))
    reader = pickle.loads(cloudpickle_dumps(copy.reader(schema=SCHEMA)))
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))
    assert partition.value == (RANGES[1],)
    assert [each.value for each in copy.reader(schema=SCHEMA).partitions()] == [partition.value]
    assert len(pinned) == 1


START = {"startingOffsets": '{"t": {"0": 5}}'}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (START, OffsetOutOfRangeError("startingOffsets: offset 5 of t-0 is outside of [9, 10]", 9, 10)),
        (START, ConfigError("startingOffsets", "t-1", "startingOffsets does not name t-1")),
        ({"subscribe": "", "subscribePattern": "t.*"}, UnknownTopicOrPartitionError("no topic matches")),
    ],
)
def test_a_stream_loads_where_a_batch_could_not_start(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], error: Exception
) -> None:
    """Goal: a query with a checkpoint starts again when retention has passed its first start, or partitions have come."""

    def fetch(_options: Any) -> PinnedOffsets:
        raise error

    monkeypatch.setattr(worker_client, "fetch_snapshot", fetch)
    given = {name: text for name, text in {**OPTIONS, **options}.items() if text}
    source = pickle.loads(cloudpickle_dumps(ReplogDataSource(given)))
    assert source.schema().startswith("key binary")
    source.streamReader(SCHEMA)
    with pytest.raises(type(error)):
        source.reader(SCHEMA)
    with pytest.raises(type(error)):
        ReplogDataSource({**given, "endingOffsets": "latest"})  # of a batch alone


@pytest.mark.parametrize(
    "error", [ConfigError("bootstrap.servers", "h:1", "nobody"), UnknownTopicOrPartitionError("no topic t")]
)
def test_what_fails_a_stream_too_fails_at_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fetch(_options: Any) -> PinnedOffsets:
        raise error

    monkeypatch.setattr(worker_client, "fetch_snapshot", fetch)
    with pytest.raises(type(error)):
        ReplogDataSource(OPTIONS)


def test_a_snapshot_of_each_action_is_taken_by_each_plan(pinned: list[Any]) -> None:
    source = ReplogDataSource({**OPTIONS, "snapshot": "action"})
    source.schema()
    assert pinned == []
    copy: ReplogDataSource = pickle.loads(cloudpickle_dumps(source))
    for planned in (1, 2):
        assert len(copy.reader(schema=SCHEMA).partitions()) == 1
        assert len(pinned) == planned


def test_the_reader_takes_no_filters() -> None:
    """Goal: Spark gives tasks that filters left to other queries of the DataFrame; and refuses the reader without the setting."""
    assert ReplogReader.pushFilters is DataSourceReader.pushFilters


def test_no_task_reads_nothing(pinned: list[Any]) -> None:
    reader = ReplogDataSource(OPTIONS).reader(schema=SCHEMA)
    assert list(reader.read(InputPartition(None))) == []


def test_headers_are_in_the_schema_on_request(pinned: list[Any]) -> None:
    assert (
        ReplogDataSource({**OPTIONS, "includeHeaders": "true"})
        .schema()
        .endswith("array<struct<key:string,value:binary>>")
    )


def test_without_a_topic_there_is_nothing_to_read(pinned: list[Any]) -> None:
    """Goal: a writer's options make a source too; only reading asks for a topic."""
    source = ReplogDataSource({"bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    for read in (source.schema, lambda: source.reader(schema=SCHEMA)):
        with pytest.raises(ConfigError) as caught:
            read()
        assert '"subscribe"' in str(caught.value)
    assert pinned == []


def test_a_wrong_port_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.spark.snapshot.CONNECT_TIMEOUT_MS", 300)
    try:
        with pytest.raises(ConfigError) as caught:
            ReplogDataSource(OPTIONS)
    finally:
        worker_client.close_clients()
    assert "127.0.0.1:1" in str(caught.value)
    assert "Check that bootstrap.servers" in str(caught.value)


def test_discovery_imports_next_to_nothing() -> None:
    """Goal: one `pyspark_*` module that fails on import hides all Python data sources of a session."""
    heavy = ("grpc", "pyarrow", "google.protobuf", "replog.client", "replog.rpc", "replog.records")
    program = f"import sys, pyspark_replog; print([name for name in {heavy!r} if name in sys.modules])"
    paths = [str(REPOSITORY / name) for name in (".", "timeline", "quorum", "checkpoints")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {program}"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


# ---- tables of the catalog -------------------------------------------------------------------------------------------


def test_a_table_that_spark_makes_is_refused(pinned: list[Any]) -> None:
    """Goal: these are the options that Spark 4.3 gives while it makes a table, and never again."""
    options = {**OPTIONS, "option.subscribe": "t", "owner": "root", "Provider": "replog"}
    with pytest.raises(ConfigError, match="OPTIONS is refused"):
        ReplogDataSource(options)
    assert pinned == []


@pytest.mark.parametrize("use", ["reader", "streamReader"])
def test_a_table_without_options_says_how_to_give_them(use: str) -> None:
    with pytest.raises(ConfigError, match="FROM rides WITH"):
        getattr(ReplogDataSource({}), use)(schema=SCHEMA)


def test_an_insert_without_options_says_how_to_give_them() -> None:
    with pytest.raises(ConfigError, match="none has arrived"):
        ReplogDataSource({}).writer(schema=SCHEMA, overwrite=False)


# ---- coalescing ------------------------------------------------------------------------------------------------------


def piece(start: int, size: int, base: int | None = None) -> Piece:
    return Piece(start, start if base is None else base, b"%d" % (start % 10) * size)


def test_small_pieces_are_put_together() -> None:
    assert list(coalesce([piece(0, 3), piece(1, 2), piece(2, 1)])) == [Encoded(0, b"000112")]
    assert list(coalesce([])) == []


def test_large_pieces_pass_as_they_are() -> None:
    large = [piece(0, COALESCE_BYTES), piece(1, COALESCE_BYTES), piece(2, 5), piece(3, 5)]
    found = list(coalesce(large))
    assert [(each.start_offset, len(each.data)) for each in found] == [
        (0, COALESCE_BYTES),
        (1, COALESCE_BYTES),
        (2, 10),
    ]
    assert found[0].data is large[0].data


def test_a_piece_that_reaches_back_stands_at_the_front() -> None:
    """Goal: its first records lie below its start, and only the start of what is decoded together counts."""
    found = list(coalesce([piece(0, 2), piece(5, 2, base=3), piece(7, 1)]))
    assert [each.start_offset for each in found] == [0, 5]
