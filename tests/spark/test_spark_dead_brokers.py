"""A broker dies or stands still in the middle of a task's range: real processes, real signals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from replog.errors import RequestTimedOutError
from tests.spark.spark_kit import SparkCluster, read_directly

pytestmark = pytest.mark.spark

RECORDS = 30_000
VALUE = b"v" * 1000
"""More than a task fetches ahead."""

REPORT_TIMEOUT_S = 45
"""Below what a task waits for a leader that may answer yet (60 s)."""


def filled_topic(cluster: SparkCluster, replication_factor: int) -> tuple[str, int]:
    """A topic of one partition, and the broker that leads it."""
    topic = cluster.topic(replication_factor=replication_factor)
    cluster.send_values(topic, [VALUE] * RECORDS)
    cluster.admin.wait_until_in_sync(topic)
    return topic, cluster.admin.describe_topics([topic])[topic].partitions[0].leader


@contextmanager
def killed(cluster: SparkCluster, node_id: int) -> Iterator[None]:
    cluster.run(cluster.local.kill(node_id))
    try:
        yield
    finally:
        cluster.local.start_node(node_id)
        cluster.run(cluster.local.wait_until_ready())


@contextmanager
def standing_still(cluster: SparkCluster, node_id: int) -> Iterator[None]:
    cluster.local.pause(node_id)
    try:
        yield
    finally:
        cluster.local.resume(node_id)
        cluster.run(cluster.local.wait_until_ready())


TROUBLES = {"killed": killed, "standing still": standing_still}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_partition_without_another_replica_is_reported(spark_cluster: SparkCluster, trouble: str) -> None:
    """Goal: the error comes long before the 60 s of a leader that may answer yet, and says what to look at."""
    topic, leader = filled_topic(spark_cluster, 1)
    offsets: list[int] = []

    def read_on() -> None:
        for more in task:
            offsets.extend(more)

    with closing(read_directly(spark_cluster, topic, directReads="false")) as task, ThreadPoolExecutor(1) as pool:
        offsets += next(task)
        with TROUBLES[trouble](spark_cluster, leader), pytest.raises(RequestTimedOutError) as caught:
            pool.submit(read_on).result(REPORT_TIMEOUT_S)
    assert offsets == list(range(len(offsets)))
    told = re.search(rf"{topic}-0 \[0, {RECORDS}\): at offset (\d+) nothing came for \d+ ms", str(caught.value))
    assert told is not None
    assert len(offsets) <= int(told[1]) < RECORDS  # the last reply was not decoded yet
    assert f"broker {leader} ({spark_cluster.local.nodes[leader].address})" in str(caught.value)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_another_replica_takes_over_in_the_middle(spark_cluster: SparkCluster, trouble: str) -> None:
    topic, leader = filled_topic(spark_cluster, 3)
    with closing(read_directly(spark_cluster, topic, directReads="false")) as task:
        offsets = next(task)
        with TROUBLES[trouble](spark_cluster, leader):
            for more in task:
                offsets += more
    assert offsets == list(range(RECORDS))
