"""Brokers, executors and drivers die in the middle of writes that are to be there exactly once: so they are."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deploy.spark_processes import END_TIMEOUT_S, Driver, Gate, Standalone, end_all
from tests.deploy.test_deploy_faults import BEFORE_GATE, FILLING, WRITTEN, leader_killed, reading, writing
from tests.spark.spark_kit import SparkCluster, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.deploy]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
"""A task that takes longer than the other one runs a second time beside itself."""

EACH_ONCE = dict.fromkeys(range(WRITTEN), 1)


def writing_once(cluster: SparkCluster, topic: str) -> dict[str, Any]:
    request = writing(cluster, topic)
    return {**request, "options": {**request["options"], "delivery": "exactlyOnce"}}


def committed_numbers(cluster: SparkCluster, topic: str) -> Counter[int]:
    return Counter(int(value[:8]) for value in cluster.committed_values(topic))


def log_bytes(cluster: SparkCluster, topic: str) -> int:
    """The bytes in the logs of a topic with one replica or more, open transactions included."""
    return sum(path.stat().st_size for partition in (0, 1) for path in cluster.segment_files(topic, partition))


def test_an_executor_killed_in_the_middle_of_a_write_leaves_no_row_twice(
    driver: Driver, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: the open transaction of the killed attempt is aborted, and the task's next attempt counts."""
    topic = spark_cluster.topic(partitions=2)
    gate = Gate(tmp_path / "gate", BEFORE_GATE)
    driver.begin("write", **writing_once(spark_cluster, topic), gate=gate.request)
    executors = gate.wait(driver, 2)
    wait_until(lambda: log_bytes(spark_cluster, topic) >= 2 * (BEFORE_GATE - 1_000) * FILLING)
    end_all([executors["0-0"]])
    gate.open()
    assert driver.answer() == {}
    assert gate.attempts() == ["0-0", "0-1", "1-0"]
    assert committed_numbers(spark_cluster, topic) == EACH_ONCE


def test_an_executor_killed_behind_a_task_leaves_no_row_twice(
    driver: Driver, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: a task has prepared its transaction, and its executor dies before Spark hears of it: the next attempt prepares another one."""
    topic = spark_cluster.topic(partitions=2)
    gate = Gate(tmp_path / "gate", 0)
    driver.begin("write_held", **writing_once(spark_cluster, topic), gate=gate.request)
    executors = gate.wait(driver, 1)
    end_all([executors["0-0"]])
    assert driver.answer() == {}
    assert gate.attempts() == ["0-0", "0-1"]
    assert committed_numbers(spark_cluster, topic) == EACH_ONCE


def test_of_two_attempts_at_the_same_time_one_counts(
    standalone: Standalone, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: speculation: the first attempt has prepared and is held up, the second one comes in first."""
    topic = spark_cluster.topic(partitions=2)
    gate = Gate(tmp_path / "gate", 0)
    with Driver(standalone.url, tmp_path / "driver", os.environ, SPECULATION) as driver:
        driver.begin("write_held", **writing_once(spark_cluster, topic), gate=gate.request)
        assert driver.answer() == {}
    assert gate.attempts() == ["0-0", "0-1"]
    assert committed_numbers(spark_cluster, topic) == EACH_ONCE


def test_a_leader_killed_in_the_middle_of_a_write_fails_no_task(
    driver: Driver, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    topic = spark_cluster.topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    spark_cluster.admin.wait_until_in_sync(topic)
    gate = Gate(tmp_path / "gate", BEFORE_GATE)
    driver.begin("write", **writing_once(spark_cluster, topic), gate=gate.request)
    gate.wait(driver, 2)
    wait_until(lambda: log_bytes(spark_cluster, topic) > 0)
    with leader_killed(spark_cluster, topic):
        gate.open()
        assert driver.answer() == {}
    assert gate.attempts() == ["0-0", "1-0"]
    assert committed_numbers(spark_cluster, topic) == EACH_ONCE


def test_a_driver_killed_in_the_middle_of_a_copy_leaves_no_row_twice(
    standalone: Standalone, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    source, target = spark_cluster.topic(), spark_cluster.topic(partitions=2)
    spark_cluster.send_values(source, [b"%08d" % number + b"x" * FILLING for number in range(WRITTEN)])
    batch = WRITTEN // 4
    options = reading(spark_cluster, source, maxOffsetsPerTrigger=str(batch))
    request = {"options": options, "target": target, "folder": str(tmp_path), "delivery": "exactlyOnce"}
    gate = Gate(tmp_path / "gate", BEFORE_GATE, batch="1")
    first = Driver(standalone.url, tmp_path / "first", os.environ)
    try:
        first.begin("copy", **request, gate=gate.request)
        executors = list(gate.wait(first, 1).values())
        wait_until(lambda: log_bytes(spark_cluster, target) >= (batch + BEFORE_GATE - 1_000) * FILLING)
    finally:
        first.kill()
    _, left = psutil.wait_procs(executors, END_TIMEOUT_S)
    assert left == []
    with Driver(standalone.url, tmp_path / "second", os.environ) as second:
        assert second.run("copy", **request) == {}
    assert committed_numbers(spark_cluster, target) == EACH_ONCE


def test_two_drivers_on_one_checkpoint_leave_no_row_twice(
    spark_environment: Path, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: the first one is held up in a batch while the second one writes that and all others: its open transaction is aborted."""
    source, target = spark_cluster.topic(), spark_cluster.topic(partitions=2)
    spark_cluster.send_values(source, [b"%08d" % number + b"x" * FILLING for number in range(WRITTEN)])
    options = reading(spark_cluster, source, maxOffsetsPerTrigger=str(WRITTEN // 4))
    request = {"options": options, "target": target, "folder": str(tmp_path), "delivery": "exactlyOnce"}
    gate = Gate(tmp_path / "gate", BEFORE_GATE, batch="1")
    drivers = [Driver("local[2]", tmp_path / name, os.environ) for name in ("first", "second")]
    with drivers[0] as first, drivers[1] as second:
        first.begin("copy", **request, gate=gate.request)
        gate.wait(first, 1)
        assert second.run("copy", **request) == {}
        gate.open()
        assert "no reader of committed records will see them" in first.answer()["error"]
    assert committed_numbers(spark_cluster, target) == EACH_ONCE
