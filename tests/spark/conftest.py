"""A Spark session and three broker processes, shared by the tests of this folder.

Spark is started as a user would: from another folder, without registering anything, and with the source roots on
PYTHONPATH, where an installed package would be found anyway.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.systems.maven import PeerUnavailableError, jars
from replog.client import LoopThread
from replog.cluster import LocalCluster
from replog.errors import ConfigError
from replog.host.extras import install_command
from replog.spark.environment import DRIVER_PYTHON, WORKER_PYTHON, environment_for_spark
from tests.kafka.kafka_install import KafkaUnavailableError, install
from tests.kafka.secure_doors import SecureDoors, kafka_doors
from tests.spark.spark_classes import options_for
from tests.spark.spark_kit import SparkCluster

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = [str(REPOSITORY / name) for name in (".", "timeline", "quorum", "checkpoints")]


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory, java_temporary_folder: Path) -> Iterator[Path]:
    """Environment variables for Spark and brokers; yields the folder that Spark is started in."""
    for library in ("pyspark", "pyarrow"):
        pytest.importorskip(library, reason=f"Spark tests need {library}: {install_command('spark')}")
    directory = tmp_path_factory.mktemp("spark")
    try:
        ours = {name: value for name, value in os.environ.items() if name not in {WORKER_PYTHON, DRIVER_PYTHON}}
        changed = environment_for_spark(ours, directory / "environment", is_local=True)
    except ConfigError as error:
        pytest.skip(f"no Java for Spark: {error}")
    paths = [*SOURCE_ROOTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    changed |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    changed |= options_for(changed)
    patch = pytest.MonkeyPatch()
    for name, value in changed.items():
        patch.setenv(name, value)
    yield directory
    patch.undo()


@pytest.fixture(scope="session")
def spark_connector() -> Sequence[Path] | str:
    """The jars of Spark's own Kafka connector, for the one test of it; or why they cannot be had."""
    try:
        return jars("spark-kafka")
    except PeerUnavailableError as error:
        return str(error)


@pytest.fixture(scope="session")
def spark(spark_environment: Path, spark_connector: Sequence[Path] | str) -> Iterator[Any]:
    """A local session with two task slots, its working directory far from the repository.

    Spark neither compiles Java for each query nor plans it anew on its way: that pays for more rows than tests have.
    """
    from pyspark.sql import SparkSession

    before = Path.cwd()
    os.chdir(spark_environment)
    try:
        session = (
            SparkSession.builder.master("local[2]")
            .appName("replog-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.driver.memory", "1g")
            .config("spark.log.level", "ERROR")
            .config("spark.jars", "" if isinstance(spark_connector, str) else ",".join(map(str, spark_connector)))
            .getOrCreate()
        )
    finally:
        os.chdir(before)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(
    spark_environment: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkCluster]:
    """Three broker processes; a test that stops one brings it back."""
    user = object()
    thread = LoopThread.acquire(user)
    local = thread.run(lambda: LocalCluster.start(tmp_path_factory.mktemp("cluster") / "nodes"), 60)
    cluster = SparkCluster(local, thread)
    yield cluster
    cluster.close()
    thread.run(local.stop_all, 60)
    thread.release(user)


@pytest.fixture(scope="session")
def doors(spark_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureDoors]:
    """A real Kafka with a listener of each kind, the one in plain text among them."""
    try:
        found = install()
    except KafkaUnavailableError as error:
        pytest.skip(f"Apache Kafka cannot be had: {error}")
    with contextlib.closing(found), kafka_doors(found, tmp_path_factory.mktemp("doors")) as made:
        yield made


@pytest.fixture
def read(spark: Any, spark_cluster: SparkCluster) -> Callable[..., Any]:
    """`read(topic, option=value)`: a DataFrame of the topic."""

    def load(topic: str | None, schema: str | None = None, **options: object) -> Any:
        reader = spark.read.format("replog").option("bootstrap.servers", spark_cluster.bootstrap_servers)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()

    return load
