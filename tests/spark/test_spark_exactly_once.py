"""Writes that are there exactly once, by Spark and real brokers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_kit import SparkCluster

pytestmark = pytest.mark.spark

Read = Callable[..., Any]


def values(read: Read, topic: str) -> list[int]:
    return sorted(int(row.value) for row in read(topic).selectExpr("CAST(value AS STRING) value").collect())


def save(frame: Any, cluster: SparkCluster, topic: str, **options: object) -> None:
    writer = frame.write.format("replog").mode("append").option("bootstrap.servers", cluster.bootstrap_servers)
    writer = writer.option("topic", topic).option("delivery", "exactlyOnce")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def numbers(spark: Any, first: int, last: int, tasks: int = 2) -> Any:
    return spark.range(first, last, 1, tasks).selectExpr("CAST(id AS STRING) value")


def test_a_write_that_is_repeated_writes_nothing_again(spark: Any, read: Read, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic(partitions=2)
    save(numbers(spark, 0, 100), spark_cluster, topic)
    save(numbers(spark, 100, 200), spark_cluster, topic, writeId="monday")
    save(numbers(spark, 100, 200), spark_cluster, topic, writeId="monday")
    for version in (1, 2, 2, 1, 3):
        save(
            numbers(spark, 100 + 100 * version, 200 + 100 * version),
            spark_cluster,
            topic,
            txnAppId="app",
            txnVersion=version,
        )
    assert values(read, topic) == list(range(500))


def test_a_write_that_fails_is_not_there_and_holds_nobody_back(
    spark: Any, read: Read, spark_cluster: SparkCluster
) -> None:
    topic = spark_cluster.topic()
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "CAST(id AS STRING) value", "CAST(IF(id = 99, -1, 0) AS INT) partition"
    )
    with pytest.raises(Exception) as caught:
        save(frame, spark_cluster, topic)
    assert 'its column "partition" is negative' in str(caught.value)
    save(numbers(spark, 0, 10), spark_cluster, topic)
    assert values(read, topic) == list(range(10))


def test_the_micro_batches_of_a_stream_are_there_once(
    spark: Any, read: Read, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: batches with rows, one without, and the last one run again as if the driver had died before Spark knew that it was done."""
    topic = spark_cluster.topic(partitions=2)
    source = tmp_path / "source"
    source.mkdir()

    def run(first: int) -> None:
        (source / f"{first}.txt").write_text("".join(f"{number}\n" for number in range(first, first + 100)))
        stream = spark.readStream.schema("value string").text(str(source)).where("value <> '0'" if first else "false")
        query = (
            stream.writeStream.format("replog")
            .option("bootstrap.servers", spark_cluster.bootstrap_servers)
            .option("topic", topic)
            .option("delivery", "exactlyOnce")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for first in (0, 100, 200):
        run(first)
    last = max(int(each.name) for each in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run(300)
    assert values(read, topic) == list(range(100, 400))


def test_a_batch_that_foreach_batch_runs_again_writes_nothing_again(
    spark: Any, read: Read, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: the function has written the batch, and fails before Spark knows that it is done; the query starts again."""
    topic = spark_cluster.topic(partitions=2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("".join(f"{number}\n" for number in range(100)))
    calls: list[int] = []

    def write(batch: Any, batch_id: int) -> None:
        calls.append(batch_id)
        save(batch, spark_cluster, topic, txnAppId=f"of-{topic}", txnVersion=batch_id)
        if len(calls) == 1:
            raise RuntimeError("the driver fails")

    def run() -> None:
        stream = spark.readStream.schema("value string").text(str(tmp_path / "source"))
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the driver fails"):
        run()
    run()
    assert calls == [0, 0]
    assert values(read, topic) == list(range(100))


def test_a_checkpoint_that_is_deleted_begins_another_query(
    spark: Any, read: Read, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: it writes everything that it reads again, as the page says, and nothing of either query is in the way."""
    topic = spark_cluster.topic()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("1\n2\n")
    for _ in range(2):
        stream = spark.readStream.schema("value string").text(str(tmp_path / "source")).coalesce(1)
        writer = stream.writeStream.format("replog").option("bootstrap.servers", spark_cluster.bootstrap_servers)
        writer = writer.option("topic", topic).option("delivery", "exactlyOnce").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        shutil.rmtree(tmp_path / "checkpoint")
    assert values(read, topic) == [1, 1, 2, 2]
