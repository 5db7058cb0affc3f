"""The stream reader without Spark's JVM."""

from __future__ import annotations

import inspect
import pickle
from typing import Any
from uuid import UUID

import pytest
from pyspark.cloudpickle import dumps as cloudpickle_dumps
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StructField, StructType

from replog.client.ranges.offset_range import OffsetRange
from replog.errors import ConfigError
from replog.spark import worker_client
from replog.spark.options import parse_stream_options
from replog.spark.reader import ReplogReader
from replog.spark.snapshot import PinnedOffsets
from replog.spark.source import ReplogDataSource
from replog.spark.stream.reader import ReplogStreamReader, StreamPartition

SCHEMA = StructType([StructField("offset", LongType())])
OPTIONS = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "fetch_snapshot", lambda _: PinnedOffsets("c", (), ()))


def reader(**options: str) -> ReplogStreamReader:
    return ReplogStreamReader(parse_stream_options({**OPTIONS, **options}), ())


def test_what_spark_looks_for() -> None:
    """Goal: limits and targets are only used of readers that have these."""
    made = ReplogDataSource(OPTIONS).streamReader(SCHEMA)
    assert isinstance(made, SupportsTriggerAvailableNow)
    assert len(inspect.signature(made.latestOffset).parameters) == 2


def test_a_reader_travels_and_asks_nobody_before_it_must() -> None:
    made = pickle.loads(cloudpickle_dumps(ReplogDataSource({**OPTIONS, "maxOffsetsPerTrigger": "5"}))).streamReader(
        SCHEMA
    )
    copy: ReplogStreamReader = pickle.loads(cloudpickle_dumps(made))
    assert copy.getDefaultReadLimit() == ReadMaxRows(5)
    copy.commit({})
    copy.stop()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "10"}, ReadMaxBytes(10)),
        ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
        ({"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "70"}, ReadMaxRows(70)),
    ],
)
def test_the_read_limit(options: dict[str, str], limit: Any) -> None:
    assert reader(**options).getDefaultReadLimit() == limit


def test_a_task_reads_its_ranges_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = [OffsetRange("t", UUID(int=1), number, 0, 5) for number in (2, 0)]
    monkeypatch.setattr(ReplogReader, "_read_range", lambda _, wanted, _stop: iter([wanted]))
    task = pickle.loads(pickle.dumps(StreamPartition("c", ranges)))
    assert list(reader().read(task)) == ranges
    assert list(reader().read(InputPartition(None))) == []
    assert repr(task) == "StreamPartition(t-2 [0, 5), t-0 [0, 5))"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, 'option "endingOffsets" is one of a batch read'),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, 'maxTriggerDelay is "soon": give a length of time'),
        ({"maxTriggerDelay": "0s"}, "give a length of time"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "give a maximum at or above the minimum"),
        ({"maxOffsetPerTrigger": "4"}, 'Did you mean "maxOffsetsPerTrigger"?'),
    ],
)
def test_options_that_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_stream_options({**OPTIONS, **options})
    assert text in str(caught.value)


def test_options() -> None:
    found = parse_stream_options({**OPTIONS, "maxTriggerDelay": "90s", "minOffsetsPerTrigger": "3"})
    assert (found.limits.max_delay_ms, found.limits.min_offsets) == (90_000, 3)
    assert parse_stream_options(OPTIONS).limits.max_delay_ms == 15 * 60_000


@pytest.mark.parametrize("text", ["15m", "15min", "900s", "900000ms", "900000", " 15 Min "])
def test_lengths_of_time_are_spelt_as_those_of_spark(text: str) -> None:
    assert parse_stream_options({**OPTIONS, "maxTriggerDelay": text}).limits.max_delay_ms == 900_000


@pytest.mark.parametrize("text", ["", "0", "m", "-5s", "1.5h", "15 minutes", "366d", "9" * 40])
def test_other_lengths_of_time_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"give a length of time up to 365d"):
        parse_stream_options({**OPTIONS, "maxTriggerDelay": text})


# ---- one source, two kinds of reading --------------------------------------------------------------------------------


def test_options_of_a_stream_only_load_and_refuse_a_batch() -> None:
    """Goal: Spark makes the source before it says whether it is to be read as a stream."""
    source = pickle.loads(cloudpickle_dumps(ReplogDataSource({**OPTIONS, "startingOffsets": "latest"})))
    assert source.schema().startswith("key binary")
    source.streamReader(SCHEMA)
    with pytest.raises(ConfigError, match='startingOffsets cannot be "latest" here'):
        source.reader(SCHEMA)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "latest"}, 'Did you mean "startingOffsets"?'),
        ({"maxOffsetsPerTrigger": "none"}, 'maxOffsetsPerTrigger is "none"'),
        ({"maxOffsetsPerTrigger": "5", "endingOffsets": "latest"}, "endingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be"),
        ({"startingOffsets": "latest", "failOnDataLoss": "maybe"}, 'failOnDataLoss is "maybe"'),
        ({"startingOffsets": "latest", "endingOffsets": "latest"}, 'startingOffsets cannot be "latest" here'),
    ],
)
def test_options_of_neither_are_refused_at_once(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReplogDataSource({**OPTIONS, **options})
    assert text in str(caught.value)
