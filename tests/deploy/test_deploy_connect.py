"""Spark Connect: the session is in another process, and the data source does not notice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.deploy_kit import filled_topic, numbers_of
from tests.deploy.driver import CONNECT
from tests.deploy.spark_processes import Driver
from tests.spark.spark_kit import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.deploy]

ROWS = 3_000
NO_PLAN_CACHE = {"spark.connect.session.planCache.enabled": "false"}
"""It hides for a while, for the last 16 plans, that the server analyses a DataFrame anew for each action."""


@pytest.fixture(scope="module")
def connect(spark_environment: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A client and a server, which it starts."""
    folder = tmp_path_factory.mktemp("connect")
    with Driver(f"{CONNECT}local[2]", folder / "folder", os.environ, NO_PLAN_CACHE) as running:
        yield running


def test_batch_stream_and_sink_work_as_in_a_classic_session(
    connect: Driver, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    filled = filled_topic(spark_cluster, ROWS)
    servers = {"bootstrap.servers": spark_cluster.bootstrap_servers}
    options = {**servers, "subscribe": filled.topic, "startingOffsets": "earliest"}
    wanted = {"rows": ROWS, "digest": filled.digest}
    assert connect.run("read", options=options) == wanted
    assert connect.run("stream", options=options, folder=str(tmp_path)) == wanted
    target = spark_cluster.topic()
    connect.run("write", options={**servers, "topic": target}, rows=ROWS, tasks=2, filling=0)
    assert numbers_of(spark_cluster, target) == dict.fromkeys(range(ROWS), 1)
    assert 'Did you mean "startingOffsets"?' in connect.error("read", options={**options, "startingOffset": "latest"})


def test_a_view_is_a_snapshot_and_a_dataframe_is_not(connect: Driver, spark_cluster: SparkCluster) -> None:
    """Goal: what docs/SPARK.md says of Connect holds, and this test ends the day that Spark gives more."""
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [b"first"] * 10)
    options = {"bootstrap.servers": spark_cluster.bootstrap_servers, "subscribe": topic}
    assert connect.run("keep", options=options) == {"frame": 10, "view": 10}
    spark_cluster.send_values(topic, [b"later"] * 5)
    assert connect.run("count") == {"frame": 15, "view": 10}
