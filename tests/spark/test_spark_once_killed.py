"""The driver of a stream is killed as it has decided for a batch: the next one goes on, and each row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from replog.client import SyncConsumer
from replog.spark.environment import DRIVER_PYTHON, WORKER_PYTHON, environment_for_spark
from replog.spark.options.brokers import Brokers
from replog.spark.options.writing import OnceOptions
from replog.spark.sink.once.decisions import DECISIONS_TOPIC
from replog.spark.sink.once.ledger import require_ledger
from replog.spark.worker_client import close_clients
from tests.spark.spark_kit import SparkCluster
from tests.spark.spark_stream_kit import END_TIMEOUT_S

pytestmark = pytest.mark.spark

ROWS = 1_000
BATCH = 200

DRIVER = """
import sys
from pyspark.sql import SparkSession

servers, source, target, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
reader = builder.getOrCreate().readStream.format("replog").option("bootstrap.servers", servers).option("subscribe", source)
rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", %d).load()
writer = rows.select("value").writeStream.format("replog").option("bootstrap.servers", servers).option("topic", target)
writer.option("delivery", "exactlyOnce").option("checkpointLocation", folder).start().awaitTermination()
"""


def test_each_row_is_there_once_though_the_driver_is_killed(
    spark: Any, spark_cluster: SparkCluster, read: Any, tmp_path: Path
) -> None:
    source, target = spark_cluster.topic(partitions=2), spark_cluster.topic(partitions=2)
    for partition in (0, 1):
        spark_cluster.send_values(source, [b"%d-%d" % (partition, n) for n in range(ROWS)], partition)
    require_ledger(Brokers(spark_cluster.bootstrap_servers), OnceOptions(None, None, None, 60_000))
    close_clients()
    folder = tmp_path / "checkpoint"
    command = [sys.executable, "-c", DRIVER % BATCH, spark_cluster.bootstrap_servers, source, target, str(folder)]
    ours = {name: value for name, value in os.environ.items() if name not in {WORKER_PYTHON, DRIVER_PYTHON}}
    environment = environment_for_spark(ours, tmp_path / "environment")
    with SyncConsumer(spark_cluster.bootstrap_servers) as decisions, (tmp_path / "driver.log").open("w") as log:
        decisions.assign_topic(DECISIONS_TOPIC, start="latest")
        driver = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_for_decision(decisions, driver, version=2)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # Python and its JVM
            driver.wait(30)
    go_on(spark, spark_cluster, source, target, folder)
    found = Counter(bytes(row.value) for row in read(target, "value binary").collect())
    assert found == Counter(b"%d-%d" % (partition, n) for partition in (0, 1) for n in range(ROWS))


def wait_for_decision(decisions: SyncConsumer, driver: subprocess.Popen[bytes], version: int) -> None:
    """Waits until a batch is decided, and not done."""
    while driver.poll() is None:
        for record in decisions.poll(timeout_ms=1_000):
            is_decision = not (record.key or b"").endswith(b"/read")  # up to which a driver reads
            found = json.loads(record.value or b"{}") if is_decision else {}
            if found.get("version") == version and found.get("attempts"):
                return
    pytest.fail("the driver has ended by itself")


def go_on(spark: Any, cluster: SparkCluster, source: str, target: str, folder: Path) -> None:
    """Runs the query to the end of its source."""
    reader = spark.readStream.format("replog").option("bootstrap.servers", cluster.bootstrap_servers)
    rows = reader.option("subscribe", source).load().select("value")
    writer = rows.writeStream.format("replog").option("bootstrap.servers", cluster.bootstrap_servers)
    writer = writer.option("topic", target).option("delivery", "exactlyOnce").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).start()
    try:
        assert query.awaitTermination(END_TIMEOUT_S)
    finally:
        query.stop()
