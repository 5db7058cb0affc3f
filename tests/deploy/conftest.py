"""Brokers, and a standalone Spark beside them, shared by tests of this folder; run by `make test-deploy`.

The tests are kept out of `make test`: each starts several JVMs, which takes a minute or two on two cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.deploy.spark_processes import Driver, Standalone
from tests.spark.conftest import spark_cluster, spark_environment

__all__ = ["driver", "spark_cluster", "spark_environment", "standalone"]


@pytest.fixture(scope="session")
def standalone(spark_environment: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers whose Python has replog."""
    with Standalone(tmp_path_factory.mktemp("standalone") / "processes", os.environ) as processes:
        yield processes


@pytest.fixture(scope="session")
def driver(standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of that master with two executors."""
    with Driver(standalone.url, tmp_path_factory.mktemp("driver") / "folder", os.environ) as running:
        yield running
