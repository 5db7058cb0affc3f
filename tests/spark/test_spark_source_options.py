"""What the options of a batch read do in a real session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.spark.spark_kit import Sent, SparkCluster

pytestmark = pytest.mark.spark

Read = Callable[..., Any]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def topic(spark_cluster: SparkCluster) -> str:
    """Three partitions of 30, 20 and 10 records, one a second from T0 on."""
    name = spark_cluster.topic(partitions=3, retention_ms=-1)
    spark_cluster.send(
        name, [Sent(p, b"v", timestamp_ms=T0 + n * 1000) for p, count in enumerate((30, 20, 10)) for n in range(count)]
    )
    return name


@pytest.fixture(params=["true", "false"], ids=["pushdown on", "pushdown off"])
def pushdown(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.unset(PUSHDOWN)


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_filters_give_the_same_rows_with_pushdown_and_without(read: Read, topic: str, pushdown: str) -> None:
    """Goal: no query sees the ranges that another query's filters left, which Spark keeps with the DataFrame."""
    frame = read(topic)
    first, second = frame.where("partition = 0 and offset >= 28"), frame.where("partition = 1 and offset < 2")
    assert offsets(first.union(second)) == [(0, 28), (0, 29), (1, 0), (1, 1)]
    assert frame.where("offset > 100 or partition = 2").count() == 10
    assert frame.count() == 60


def test_a_snapshot_of_each_action(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: what docs/SPARK.md says of snapshot=action: fixed by the first plan, which Spark keeps."""
    name = spark_cluster.topic()
    spark_cluster.send_values(name, [b"1"] * 10)
    fixed, planned = read(name), read(name, snapshot="action")
    spark_cluster.send_values(name, [b"2"] * 5)
    assert (fixed.count(), planned.count()) == (10, 15)
    spark_cluster.send_values(name, [b"3"] * 5)
    assert (fixed.count(), planned.count()) == (10, 15)


def test_a_pattern_times_and_distances(read: Read, topic: str) -> None:
    pattern = read(None, subscribePattern=f"{topic[:-1]}[{topic[-1]}]", startingOffsets="latest-2")
    assert offsets(pattern) == [(0, 28), (0, 29), (1, 18), (1, 19), (2, 8), (2, 9)]
    between = read(topic, startingTimestamp=T0 + 8000, endingTimestamp=T0 + 10_000)
    assert offsets(between) == [(p, n) for p in range(3) for n in (8, 9)]
    each = json.dumps({topic: {str(p): T0 + 28_000 for p in range(3)}})
    late = {"startingOffsetsByTimestamp": each, "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(read(topic, **late)) == [(0, 28), (0, 29)]
    with pytest.raises(Exception) as caught:
        read(topic, startingOffsetsByTimestamp=each).count()
    assert "has no record at or after that time" in str(caught.value)


def test_tasks_are_sized_by_bytes(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: a large partition is several tasks, small ones share one, and every record comes once."""
    name = spark_cluster.topic(partitions=6)
    for partition in range(5):
        spark_cluster.send_values(name, [b"small"] * 10, partition)
    spark_cluster.send_values(name, [b"v" * 1000] * 2_000, 5, batch_size_bytes=20_000)
    assert read(name).rdd.getNumPartitions() == 1
    frame = read(name, targetBytesPerPartition="500k")
    assert 4 <= frame.rdd.getNumPartitions() <= 6
    assert frame.distinct().count() == frame.count() == 2_050
    capped = read(name, maxRecordsPerPartition=100)
    assert capped.rdd.getNumPartitions() >= 20


def test_a_job_for_kafka_moves_over_by_the_name_of_the_format(
    spark: Any, topic: str, spark_cluster: SparkCluster
) -> None:
    frame = (
        spark.read.format("replog")
        .option("kafka.bootstrap.servers", spark_cluster.bootstrap_servers)
        .option("subscribe", topic)
        .option("kafka.group.id", "nightly")
        .option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    assert frame.count() == 60
