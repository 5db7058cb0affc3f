"""Brokers, executors and drivers die in the middle of tasks: what comes out is what comes out without that.

Each task is held up after some of its rows (`driver.hold_up`), the process is killed, and the task goes on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deploy.deploy_kit import Filled, filled_topic, numbers_of
from tests.deploy.spark_processes import END_TIMEOUT_S, Driver, Gate, Standalone, end_all
from tests.spark.spark_kit import SparkCluster, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.deploy]

ROWS = 60_000
VALUE_BYTES = 1_000
"""30 MB a partition: more than a task fetches ahead and Spark's buffers hold."""

WRITTEN = 40_000
FILLING = 300
BEFORE_GATE = 5_000


@pytest.fixture(scope="module")
def filled(spark_cluster: SparkCluster) -> Filled:
    return filled_topic(spark_cluster, ROWS, value_bytes=VALUE_BYTES, replicas=3)


def reading(cluster: SparkCluster, topic: str, **more: str) -> dict[str, str]:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    return {**servers, "subscribe": topic, "startingOffsets": "earliest", "directReads": "false", **more}


@contextmanager
def leader_killed(cluster: SparkCluster, topic: str) -> Iterator[None]:
    """The leader of partition 0 is dead in the block."""
    leader = cluster.admin.describe_topics([topic])[topic].partitions[0].leader
    with cluster.killed(leader):
        yield
    cluster.admin.wait_until_in_sync(topic)


def writing(cluster: SparkCluster, topic: str) -> dict[str, Any]:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    return {"options": options, "rows": WRITTEN, "tasks": 2, "filling": FILLING}


# ---- a leader ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["read", "stream"])
def test_a_leader_killed_in_the_middle_of_a_read(
    driver: Driver, filled: Filled, spark_cluster: SparkCluster, tmp_path: Path, job: str
) -> None:
    gate = Gate(tmp_path / "gate", 2_000)
    driver.begin(job, options=reading(spark_cluster, filled.topic), gate=gate.request, folder=str(tmp_path))
    gate.wait(driver, 2)
    with leader_killed(spark_cluster, filled.topic):
        gate.open()
        found = driver.answer()
    assert found == {"rows": ROWS, "digest": filled.digest}
    assert gate.attempts() == ["0-0", "1-0"], "a task failed, where another replica takes over"


def test_a_leader_killed_in_the_middle_of_a_write(driver: Driver, spark_cluster: SparkCluster, tmp_path: Path) -> None:
    """Goal: no row is missing and none there twice: no task fails, and its producer is idempotent."""
    topic = spark_cluster.topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    spark_cluster.admin.wait_until_in_sync(topic)
    gate = Gate(tmp_path / "gate", BEFORE_GATE)
    driver.begin("write", **writing(spark_cluster, topic), gate=gate.request)
    gate.wait(driver, 2)
    wait_until(lambda: spark_cluster.end_offset(topic) > 0)
    with leader_killed(spark_cluster, topic):
        gate.open()
        assert driver.answer() == {}
    assert gate.attempts() == ["0-0", "1-0"]
    assert numbers_of(spark_cluster, topic) == dict.fromkeys(range(WRITTEN), 1)


# ---- an executor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["read", "stream"])
def test_an_executor_killed_in_the_middle_of_a_read(
    driver: Driver, filled: Filled, spark_cluster: SparkCluster, tmp_path: Path, job: str
) -> None:
    """Goal: the task runs again elsewhere, and brings each row once."""
    gate = Gate(tmp_path / "gate", 2_000)
    driver.begin(job, options=reading(spark_cluster, filled.topic), gate=gate.request, folder=str(tmp_path))
    end_all([gate.wait(driver, 2)["0-0"]])
    gate.open()
    assert driver.answer() == {"rows": ROWS, "digest": filled.digest}
    assert gate.attempts() == ["0-0", "0-1", "1-0"]


def test_an_executor_killed_in_the_middle_of_a_write(
    driver: Driver, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: every row at least once; twice are the rows that the killed attempt had written, and no others."""
    topic = spark_cluster.topic(partitions=2)
    gate = Gate(tmp_path / "gate", BEFORE_GATE)
    driver.begin("write", **writing(spark_cluster, topic), gate=gate.request)
    executors = gate.wait(driver, 2)
    least = BEFORE_GATE - 1_000  # of the last Arrow batch a part is in a buffer of the JVM
    wait_until(lambda: spark_cluster.end_offset(topic) >= 2 * least)
    end_all([executors["0-0"]])
    gate.open()
    assert driver.answer() == {}
    found = numbers_of(spark_cluster, topic)
    assert found.keys() == set(range(WRITTEN))
    twice = twice_or_more(found)
    assert twice == list(range(len(twice))), "task 0 writes the rows from 0 on, in order"
    assert least <= len(twice) <= BEFORE_GATE
    assert max(found.values()) == 2


def twice_or_more(found: Counter[int]) -> list[int]:
    return sorted(number for number, count in found.items() if count > 1)


# ---- the driver --------------------------------------------------------------------------------------------------------


def test_a_driver_killed_in_the_middle_of_a_copy(
    standalone: Standalone, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: from its checkpoint the next driver copies every row; twice are rows of the micro-batch that was open, and no others."""
    source, target = spark_cluster.topic(), spark_cluster.topic(partitions=2)
    spark_cluster.send_values(source, [b"%08d" % number + b"x" * FILLING for number in range(WRITTEN)])
    batch = WRITTEN // 4
    options = reading(spark_cluster, source, maxOffsetsPerTrigger=str(batch))
    request = {"options": options, "target": target, "folder": str(tmp_path)}
    gate = Gate(tmp_path / "gate", BEFORE_GATE, batch="1")
    first = Driver(standalone.url, tmp_path / "first", os.environ)
    try:
        first.begin("copy", **request, gate=gate.request)
        executors = list(gate.wait(first, 1).values())
        written = batch + BEFORE_GATE - 1_000
        wait_until(lambda: spark_cluster.end_offset(target) >= written)
    finally:
        first.kill()
    _, left = psutil.wait_procs(executors, END_TIMEOUT_S)  # they end by themselves when their driver is gone
    assert left == []
    assert numbers_of(spark_cluster, target).keys() < set(range(WRITTEN)), "it was all copied before the kill"
    with Driver(standalone.url, tmp_path / "second", os.environ) as second:
        assert second.run("copy", **request) == {}
    found = numbers_of(spark_cluster, target)
    assert found.keys() == set(range(WRITTEN))
    twice = twice_or_more(found)
    assert twice == list(range(batch, batch + len(twice)))
    assert written - batch <= len(twice) <= BEFORE_GATE
    assert max(found.values()) == 2
