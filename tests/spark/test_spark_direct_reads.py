"""Tasks beside the brokers read segment files: real files of real brokers, while things happen to them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import chain, pairwise
from typing import Any

import pytest

from tests.spark.spark_kit import SparkCluster, read_directly

pytestmark = pytest.mark.spark

RECORDS = 80_000
VALUE = b"v" * 1000
"""More segments of a MiB than one answer tells of; the first frame is handed out when most of them are not read yet."""


@pytest.fixture
def topic(spark_cluster: SparkCluster) -> str:
    topic = spark_cluster.topic(segment_bytes=1 << 20)
    spark_cluster.send_values(topic, [VALUE] * RECORDS)
    return topic


def leader_of(cluster: SparkCluster, topic: str) -> int:
    return cluster.admin.describe_topics([topic])[topic].partitions[0].leader


def test_more_files_than_one_answer_tells_of_are_read_without_the_broker(
    spark_cluster: SparkCluster, topic: str
) -> None:
    """Goal: with its broker stopped a task reads on to the last file it was told of, and not one record is fetched."""
    assert len(list(spark_cluster.segment_files(topic))) > 64
    assert [*chain.from_iterable(read_directly(spark_cluster, topic))] == list(range(RECORDS))
    ending = f'{{"{topic}": {{"0": 15000}}}}'
    with closing(read_directly(spark_cluster, topic, endingOffsets=ending)) as task:
        offsets = next(task)
        assert len(offsets) < 15_000
        leader = leader_of(spark_cluster, topic)
        spark_cluster.local.pause(leader)
        try:
            offsets += chain.from_iterable(task)
        finally:
            spark_cluster.local.resume(leader)
            spark_cluster.run(spark_cluster.local.wait_until_ready())
    assert offsets == list(range(15_000))


def test_records_that_are_deleted_in_the_middle_are_told_as_lost(spark_cluster: SparkCluster, topic: str) -> None:
    """Goal: what is open is read on; what comes after it is data loss, as in a stream."""
    with closing(read_directly(spark_cluster, topic, failOnDataLoss="false")) as task:
        offsets = next(task)
        spark_cluster.admin.delete_records({(topic, 0): 75_000})
        offsets += chain.from_iterable(task)
    gap = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
    assert (offsets[0], offsets[-1]) == (0, RECORDS - 1)
    assert [b for _, b in gap] == [75_000]
    assert len(offsets) > 60_000 + 5_000


def test_a_session_reads_the_same_from_files_and_from_brokers(read: Callable[..., Any], topic: str) -> None:
    wanted = ("count(*)", "sum(offset)", "sum(length(value))")
    rows = [read(topic, minPartitions=3, directReads=each).selectExpr(*wanted).first() for each in ("true", "false")]
    assert rows == [(RECORDS, RECORDS * (RECORDS - 1) // 2, RECORDS * len(VALUE))] * 2


def test_a_task_that_stops_early_does_not_wait_for_a_silent_broker(spark_cluster: SparkCluster, topic: str) -> None:
    """Goal: `limit` ends the thread that reads ahead, also in the middle of a wait for records that do not come."""
    task = read_directly(spark_cluster, topic, directReads="false", **{"kafkaConsumer.pollTimeoutMs": "600000"})
    leader = leader_of(spark_cluster, topic)
    try:
        next(task)
        spark_cluster.local.pause(leader)
        task.close()
    finally:
        spark_cluster.local.resume(leader)
        spark_cluster.run(spark_cluster.local.wait_until_ready())
    assert "replog-read-ahead" not in {thread.name for thread in threading.enumerate()}
