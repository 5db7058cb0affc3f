"""Several executor processes give what one process gives: batch, stream and sink, by a digest of all rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.deploy_kit import Filled, filled_topic, numbers_of
from tests.deploy.spark_processes import Driver, Standalone
from tests.spark.spark_kit import SparkCluster

ROWS = 20_000


@pytest.fixture(scope="module", params=["local[2]", "local-cluster[2,1,1024]", "standalone"])
def driver(
    request: pytest.FixtureRequest, standalone: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    master = standalone.url if request.param == "standalone" else request.param
    with Driver(master, tmp_path_factory.mktemp("driver") / "folder", os.environ) as running:
        yield running


@pytest.fixture(scope="module")
def filled(spark_cluster: SparkCluster) -> Filled:
    return filled_topic(spark_cluster, ROWS)


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.deploy
def test_batch_stream_and_sink_are_the_same_whatever_runs_the_tasks(
    request: pytest.FixtureRequest, driver: Driver, filled: Filled, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: what is pinned in one process is read in others, of other executors, and each row comes and goes once."""
    servers = {"bootstrap.servers": spark_cluster.bootstrap_servers}
    reading = {**servers, "subscribe": filled.topic, "startingOffsets": "earliest"}
    executors = driver.run("executors")["pids"]
    assert len(executors) == (1 if "local[2]" in request.node.name else 2)
    wanted = {"rows": ROWS, "digest": filled.digest}
    for direct in ("true", "false"):
        assert driver.run("read", options={**reading, "minPartitions": 4, "directReads": direct}) == wanted
    assert driver.run("stream", options={**reading, "maxOffsetsPerTrigger": 7_000}, folder=str(tmp_path)) == wanted
    target = spark_cluster.topic(partitions=3)
    driver.run("write", options={**servers, "topic": target}, rows=ROWS, tasks=4, filling=20)
    assert numbers_of(spark_cluster, target) == dict.fromkeys(range(ROWS), 1)
