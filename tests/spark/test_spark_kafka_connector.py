"""Spark's own Kafka connector, unchanged, works with brokers of ours: batch and stream, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import replog
from replog.client import SyncAdmin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

PARTITIONS = 3
ROWS = 1000


def served(function: str) -> pytest.MarkDecorator:
    """A cell of docs/KAFKA_CLIENTS.md, in the column of the connector."""
    return pytest.mark.served(function, client="spark-sql-kafka")


@pytest.fixture(scope="module")
def brokers() -> Iterator[replog.EmbeddedCluster]:
    """Three brokers of ours with a topic of PARTITIONS partitions."""
    with (
        replog.embedded(brokers=3, config={"min.insync.replicas": 2}) as cluster,
        SyncAdmin(cluster.bootstrap_servers) as admin,
    ):
        for topic in ("rides", "copied", "packed"):
            admin.create_topic(topic, PARTITIONS, 3)
        yield cluster


@pytest.fixture(scope="module")
def connector(spark: Any, spark_connector: list[Path] | str, brokers: replog.EmbeddedCluster) -> dict[str, str]:
    """The options that both ways need."""
    if isinstance(spark_connector, str):
        pytest.skip(f"Spark's Kafka connector cannot be had: {spark_connector}")
    return {"kafka.bootstrap.servers": brokers.bootstrap_servers}


@pytest.fixture(scope="module")
def written(spark: Any, connector: dict[str, str]) -> DataFrame:
    """What was written: ROWS rows with keys and headers."""
    rows: DataFrame = spark.range(ROWS).selectExpr(
        "concat('k', id % 100) AS key",
        "concat('ride ', id) AS value",
        "array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )
    settings = {"topic": "rides", "kafka.compression.type": "zstd", "kafka.acks": "all", "includeHeaders": "true"}
    rows.write.format("kafka").options(**connector, **settings).save()
    return rows


def plain(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Key, value and header of rows, in order."""
    texts = rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "CAST(headers[0].value AS STRING)")
    return sorted(map(tuple, texts.collect()))


@served("produce, `acks=all`; gzip, snappy, lz4, zstd")
def test_codecs(spark: Any, connector: dict[str, str]) -> None:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        row = spark.range(1).selectExpr(f"'{codec}' AS value")
        settings = {"topic": "packed", "kafka.compression.type": codec}
        row.write.format("kafka").options(**connector, **settings).save()
    rows = spark.read.format("kafka").options(**connector, subscribe="packed").load()
    assert sorted(row.value.decode() for row in rows.select("value").collect()) == sorted(codecs)


@served("consume assigned partitions")
def test_batch(spark: Any, connector: dict[str, str], written: DataFrame) -> None:
    reader = spark.read.format("kafka").options(**connector, subscribe="rides", includeHeaders="true")
    rows = reader.load()
    assert plain(rows) == plain(written)
    assert {row.partition for row in rows.select("partition").distinct().collect()} == set(range(PARTITIONS))


@served("consume from an offset")
@served("beginning, end, offset of a time")
def test_ranges(spark: Any, connector: dict[str, str], written: DataFrame) -> None:
    reader = spark.read.format("kafka").options(**connector, assign='{"rides": [0]}')
    some = reader.options(startingOffsets='{"rides": {"0": 10}}', endingOffsets='{"rides": {"0": 25}}').load()
    assert sorted(row.offset for row in some.select("offset").collect()) == list(range(10, 25))
    assert reader.options(startingTimestamp="1", endingOffsets='{"rides": {"0": 7}}').load().count() == 7


def test_stream(spark: Any, connector: dict[str, str], written: DataFrame, tmp_path: Path) -> None:
    """From topic to topic, with a checkpoint; the second run finds nothing new."""
    reader = spark.readStream.format("kafka").options(**connector, subscribe="rides", startingOffsets="earliest")
    stream = reader.option("includeHeaders", "true").load().select("key", "value", "headers")
    settings = {"topic": "copied", "includeHeaders": "true", "checkpointLocation": str(tmp_path / "checkpoint")}
    for _ in range(2):
        writer = stream.writeStream.format("kafka").options(**connector, **settings)
        writer.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("kafka").options(**connector, subscribe="copied", includeHeaders="true").load()
    assert plain(copied) == plain(written)
