"""How the code gets to executors whose machines know nothing of replog, and what is told where it did not.

The recipes are those of docs/SPARK.md.  A cluster's machines are stood in for by processes of this one: workers without replog in their
environment, and environments of Python that are copied, packed and unpacked as the recipes say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.deploy_kit import Filled, filled_topic, numbers_of
from tests.deploy.environments import make_bare_environment, make_environment, other_python, pack
from tests.deploy.spark_processes import Driver, Standalone, clean_environment
from tests.spark.conftest import REPOSITORY
from tests.spark.spark_kit import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.deploy]

ROWS = 4_000
PAGE = (REPOSITORY / "docs/SPARK.md").read_text(encoding="utf-8")
OTHER_PYTHON = "another Python"
RELATIVE = "./environment/bin/python"
"""The path of the recipe: of the environment in the folder of the driver, and of the unpacked one in that of an executor."""


@pytest.fixture(scope="module")
def filled(spark_cluster: SparkCluster) -> Filled:
    return filled_topic(spark_cluster, ROWS)


@pytest.fixture(scope="module")
def bare(spark_environment: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and workers on machines without replog."""
    with Standalone(tmp_path_factory.mktemp("bare") / "processes", clean_environment()) as processes:
        yield processes


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`environments(name)`: a folder with `environment`, and `environment.tar.gz` made of it."""
    folder = tmp_path_factory.mktemp("environments")

    def made(name: str) -> Path:
        made_of = folder / name.replace(" ", "-") / "environment"  # Spark takes no blank in spark.archives
        if not made_of.parent.exists():
            made_of.parent.mkdir()
            if name == OTHER_PYTHON:
                make_bare_environment(made_of, other_python() or pytest.skip("no second Python on this machine"))
            else:
                make_environment(made_of, replog=name != "no replog", pyarrow=name != "no pyarrow")
            pack(made_of)
        return made_of.parent

    return made


Environments = Callable[[str], Path]


@contextmanager
def driver_in(master: Standalone, folder: Path, archive: Path | None, python: str = RELATIVE) -> Iterator[Driver]:
    """A driver that is started in a folder, with an archive for its executors."""
    settings = {} if archive is None else {"spark.archives": f"{archive}#environment"}
    environment = {**clean_environment(), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    with Driver(master.url, folder, environment, settings) as running:
        yield running


def reading(cluster: SparkCluster, topic: str) -> dict[str, str]:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    return {**servers, "subscribe": topic, "startingOffsets": "earliest"}


def test_the_page_has_the_recipe_that_is_tested() -> None:
    assert f"export PYSPARK_PYTHON={RELATIVE}" in PAGE
    assert "tar czf environment.tar.gz -C environment ." in PAGE
    assert "spark.archives=environment.tar.gz#environment" in PAGE


@pytest.mark.parametrize("recipe", ["packed environment", "image"])
def test_executors_without_replog_get_it(
    bare: Standalone,
    environments: Environments,
    spark_cluster: SparkCluster,
    filled: Filled,
    tmp_path: Path,
    recipe: str,
) -> None:
    """Goal: neither the driver's PySpark nor the workers have replog but by the recipe; an image is the same path on each machine."""
    folder = environments("full")
    archive, python = (
        (folder / "environment.tar.gz", RELATIVE) if recipe == "packed environment" else (None, str(folder / RELATIVE))
    )
    with driver_in(bare, folder, archive, python) as driver:
        options = reading(spark_cluster, filled.topic)
        wanted = {"rows": ROWS, "digest": filled.digest}
        assert driver.run("read", options=options) == wanted
        assert driver.run("stream", options=options, folder=str(tmp_path)) == wanted
        target = spark_cluster.topic()
        servers = {"bootstrap.servers": spark_cluster.bootstrap_servers, "topic": target}
        driver.run("write", options=servers, rows=ROWS, tasks=2, filling=0)
        assert numbers_of(spark_cluster, target) == dict.fromkeys(range(ROWS), 1)


# ---- what is told ------------------------------------------------------------------------------------------------------

EXITED = "exited unexpectedly"


@pytest.mark.parametrize(
    ("executors", "told"),
    [
        ("no replog", "ModuleNotFoundError: No module named 'replog'"),
        ("no pyarrow", "No module named 'pyarrow'"),
        (OTHER_PYTHON, "PYTHON_VERSION_MISMATCH"),
    ],
)
def test_executors_that_lack_something_name_it(
    bare: Standalone, environments: Environments, spark_cluster: SparkCluster, filled: Filled, executors: str, told: str
) -> None:
    """Goal: the driver has it, so that planning goes well."""
    with driver_in(bare, environments("full"), environments(executors) / "environment.tar.gz") as driver:
        error = driver.error("read", options=reading(spark_cluster, filled.topic))
        assert told in error
        target = {"bootstrap.servers": spark_cluster.bootstrap_servers, "topic": filled.topic}
        assert told in driver.error("write", options=target, rows=10, tasks=2, filling=0)


def test_a_driver_without_pyarrow_says_so(
    bare: Standalone, environments: Environments, spark_cluster: SparkCluster, filled: Filled
) -> None:
    folder = environments("no pyarrow")
    with driver_in(bare, folder, folder / "environment.tar.gz") as driver:
        for job in ("read", "stream"):
            error = driver.error(job, options=reading(spark_cluster, filled.topic), folder=str(folder))
            assert "which Spark runs Python data sources with, has no pyarrow" in error
            assert EXITED not in error
        target = {"bootstrap.servers": spark_cluster.bootstrap_servers, "topic": filled.topic}
        error = driver.error("write", options=target, rows=10, tasks=2, filling=0)
        assert "which Spark runs Python data sources with, has no pyarrow" in error


def test_a_broken_neighbour_hides_replog_until_it_is_registered(
    spark_environment: object, spark_cluster: SparkCluster, filled: Filled, tmp_path: Path
) -> None:
    """Goal: Spark's log names the neighbour, its error only that nothing was found; registering by hand goes past it."""
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('no licence')\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    with Driver("local[1]", tmp_path / "driver", {**os.environ, "PYTHONPATH": path}) as driver:
        options = reading(spark_cluster, filled.topic)
        assert "DATA_SOURCE_NOT_FOUND" in driver.error("read", options=options)
        assert re.search("Skipping the lookup of Python Data Sources", driver.log.read_text())
        driver.run("register")
        assert driver.run("read", options=options) == {"rows": ROWS, "digest": filled.digest}


def test_brokers_that_cannot_be_reached_are_named(driver: Driver, spark_cluster: SparkCluster) -> None:
    """Goal: a wrong address at `load()`; a broker that died after it in each attempt of the task, by the rules of a local read."""
    wrong = reading(spark_cluster, "rides") | {"bootstrap.servers": "127.0.0.1:1"}
    assert "Check that bootstrap.servers (127.0.0.1:1) names brokers that run" in driver.error("read", options=wrong)
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [b"%d" % number for number in range(100)])
    driver.run("keep", options=reading(spark_cluster, topic) | {"directReads": "false"})
    leader = spark_cluster.admin.describe_topics([topic])[topic].partitions[0].leader
    spark_cluster.run(spark_cluster.local.kill(leader))
    try:
        error = driver.error("count")
    finally:
        spark_cluster.local.start_node(leader)
        spark_cluster.run(spark_cluster.local.wait_until_ready())
    assert re.search(rf"{topic}-0 \[0, 100\): at offset 0 nothing came for \d+ ms", error)
    assert re.search("the partition has no leader|refuses connections", error)
    assert spark_cluster.local.nodes[leader].address in error
