"""Clusters of real processes for tests: started in the test's folder, killed at its end, their logs shown if it fails."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from cluster_kit import QUICK, Cluster, StartCluster, say
from embedded_group_kit import Rig, group_rig

import replog
import replog_chaos
import replog_checkpoints
import replog_quorum
import replog_timeline
from replog.client import Admin
from replog.cluster import LocalCluster, NodePlace
from replog.cluster.node_spec import ConfigValue
from replog.cluster.processes import last_lines

LOG_LINES_SHOWN = 25


@pytest.fixture(scope="session", autouse=True)
def _children_find_the_sources() -> Iterator[None]:
    """Broker processes import what this process imports, installed or not."""
    modules = (replog, replog_quorum, replog_timeline, replog_checkpoints, replog_chaos)
    roots = dict.fromkeys(str(Path(module.__file__ or "").parent.parent) for module in modules)
    with pytest.MonkeyPatch.context() as patch:
        inherited = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([*roots, *([inherited] if inherited else [])]))
        yield


@pytest.fixture
async def start_cluster(tmp_path: Path) -> AsyncIterator[StartCluster]:
    """Starts clusters that end with the test.  Keys over `QUICK` are given with underscores for dots."""
    clusters: list[Cluster] = []

    async def start(
        nodes: int = 3,
        *,
        wait: bool = True,
        racks: Mapping[int, str] | None = None,
        disks: int = 1,
        places: Mapping[int, NodePlace] | None = None,
        **config: ConfigValue,
    ) -> Cluster:
        keys = {name.replace("_", "."): value for name, value in config.items()}
        directory = tmp_path / f"cluster-{len(clusters)}"
        started_s = time.monotonic()
        own: dict[int, dict[str, ConfigValue]] = {
            node_id: {"broker.rack": rack} for node_id, rack in (racks or {}).items()
        }
        if disks > 1:
            names = ["data", *(f"data-{number}" for number in range(2, disks + 1))]
            for node_id in range(1, nodes + 1):
                paths = [str(directory / f"node-{node_id}" / name) for name in names]
                own.setdefault(node_id, {})["log.dirs"] = paths
        local = await LocalCluster.start(
            directory,
            nodes=nodes,
            config={**QUICK, **keys},
            node_config=own,
            places=places,
            wait=wait,
        )
        say(f"{nodes} nodes up after {time.monotonic() - started_s:.2f} s in {directory}")
        admin = Admin(local.bootstrap_servers)
        clusters.append(Cluster(local, admin))
        return clusters[-1]

    try:
        yield start
    finally:
        for cluster in clusters:
            await cluster.admin.close()
            await cluster.local.kill_all()


@pytest.fixture(scope="module")
def _node_of_a_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Runs one node for all tests of a file."""
    local = asyncio.run(LocalCluster.start(tmp_path_factory.mktemp("kept") / "cluster", nodes=1, config=QUICK))
    yield local
    asyncio.run(local.kill_all())


@pytest.fixture
async def cluster(_node_of_a_file: LocalCluster) -> AsyncIterator[Cluster]:
    """Gives a node that other tests of the file have used: for tests that leave it as it was."""
    async with Admin(_node_of_a_file.bootstrap_servers) as admin:
        yield Cluster(_node_of_a_file, admin)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows where the brokers' directories are, and the ends of their logs."""
    report = yield
    given = getattr(item, "funcargs", {})
    kept = given.get("cluster")
    directory = kept.local.directory if isinstance(kept, Cluster) else given.get("tmp_path")
    if report.failed and isinstance(directory, Path):
        for log in sorted(directory.rglob("*.log")):
            if log.parent.name.startswith("node-") and log.name == "server.log":
                report.sections.append((f"end of {log}", last_lines(log, LOG_LINES_SHOWN)))
        report.sections.append(("directory of all nodes", str(directory)))
    return report


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """Runs a broker in this process, with a topic for groups of consumers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with group_rig() as found:
        yield found
