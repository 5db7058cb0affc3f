"""The worked examples of `tests/data/replication`: every rule of leader and follower as a story with numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from replication_harness import ClusterDriver, LeaderDriver

from tests import datadriven

DATA = Path(__file__).parents[2] / "data" / "replication"
LEADER_FILES = sorted(DATA.glob("worked_leader_*.txt"))
CLUSTER_FILES = sorted(DATA.glob("worked_cluster_*.txt"))


@pytest.mark.parametrize("path", LEADER_FILES, ids=lambda path: path.stem)
def test_leader(path: Path) -> None:
    driver = LeaderDriver()
    datadriven.run(path, lambda command: "\n".join(driver.execute(command)))


@pytest.mark.parametrize("path", CLUSTER_FILES, ids=lambda path: path.stem)
def test_cluster(path: Path) -> None:
    driver = ClusterDriver()
    datadriven.run(path, lambda command: "\n".join(driver.execute(command)))


def test_there_are_scenarios() -> None:
    assert len(LEADER_FILES) >= 20
    assert len(CLUSTER_FILES) >= 6
