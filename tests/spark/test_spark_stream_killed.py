"""The driver of a streaming query is killed: the next one goes on where the checkpoint says, and each row comes once.

The driver that is killed has Python as Spark starts it on any machine, with its own zips before all else; the session that goes
on, as all tests of this folder, the one of `prepare(is_local=True)`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from replog.spark.environment import DRIVER_PYTHON, WORKER_PYTHON, environment_for_spark
from tests.spark.spark_kit import SparkCluster, wait_until
from tests.spark.spark_stream_kit import END_TIMEOUT_S

pytestmark = pytest.mark.spark

COMMITS = 3
"""Batches after which the driver is killed."""

DRIVER = """
import sys
from pyspark.sql import SparkSession

servers, topic, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
reader = builder.getOrCreate().readStream.format("replog").option("bootstrap.servers", servers).option("subscribe", topic)
rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100).load()
writer = rows.select("partition", "offset", "value").writeStream.format("parquet")
writer.option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
"""


def digest(rows: list[tuple[int, int, bytes]]) -> str:
    return sha256(repr(sorted(rows)).encode()).hexdigest()


def commits(folder: Path) -> int:
    return len(list(folder.glob("[0-9]*")))


def test_each_row_comes_once_though_the_driver_is_killed(
    spark: Any, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    topic = spark_cluster.topic(partitions=2)
    sent = [(partition, n, b"%d-%d" % (partition, n)) for partition in (0, 1) for n in range(2_000)]
    for partition in (0, 1):
        spark_cluster.send_values(topic, [value for p, _, value in sent if p == partition], partition)
    command = [sys.executable, "-c", DRIVER, spark_cluster.bootstrap_servers, topic, str(tmp_path)]
    ours = {name: value for name, value in os.environ.items() if name not in {WORKER_PYTHON, DRIVER_PYTHON}}
    environment = environment_for_spark(ours, tmp_path / "environment")
    with (tmp_path / "driver.log").open("w") as log:
        driver = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until(lambda: commits(tmp_path / "checkpoint" / "commits") >= COMMITS or driver.poll() is not None, 300)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3_000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and its JVM
        driver.wait(30)
    reader = spark.readStream.format("replog").option("bootstrap.servers", spark_cluster.bootstrap_servers)
    rows = reader.option("subscribe", topic).load().select("partition", "offset", "value")
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows")).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert query.awaitTermination(END_TIMEOUT_S)
    finally:
        query.stop()
    found = [(row[0], row[1], bytes(row[2])) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert len(found) == len(sent)
    assert digest(found) == digest(sent)
