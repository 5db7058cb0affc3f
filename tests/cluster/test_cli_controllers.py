"""The command line on a cluster whose controllers are nodes of their own, real processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_runs import replog
from cluster_kit import QUICK
from test_cli_cluster import good, until

from replog.cluster import LocalCluster

pytestmark = pytest.mark.cluster

ROLES = {1: ["controller"], 2: ["broker"], 3: ["broker"]}


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    """Of a cluster of one controller and two brokers."""
    cluster = await LocalCluster.start(tmp_path / "c", nodes=3, config=QUICK, roles=ROLES)
    yield tmp_path / "c"
    await cluster.kill_all()


def states(directory: Path) -> list[tuple[int, str]]:
    nodes = json.loads(good("cluster", "status", "--json", "--dir", directory))["nodes"]
    return [(node["node_id"], node["description"]["state"] if node["description"] else "none") for node in nodes]


async def test_a_controller_runs_as_soon_as_it_answers(directory: Path) -> None:
    assert states(directory) == [(1, "running"), (2, "running"), (3, "running")]
    rows = [line.split() for line in good("cluster", "status", "--dir", directory).splitlines()]
    assert ["1", "running", "controller"] in [row[:3] for row in rows]
    until(lambda: replog("status", "--dir", directory).status == 0)
    assert json.loads(good("status", "--json", "--dir", directory))["is_healthy"] is True
    assert good("cluster", "restart", "1", "--dir", directory) == "restarted node 1\n"
    assert states(directory)[0] == (1, "running")
    good("cluster", "kill", "1", "--dir", directory)
    until(lambda: replog("status", "--dir", directory).status == 1)
    assert "1 stopped" in " ".join(good("cluster", "status", "--dir", directory).split())


async def test_a_controller_says_what_it_goes_by(directory: Path) -> None:
    quorum = ("quorum", "describe", "--json", "--dir", directory)
    until(lambda: json.loads(replog(*quorum).out or "{}").get("is_dynamic", False))
    (address,) = [node.address for node in LocalCluster.load(directory).nodes.values() if node.node_id == 1]
    broker = json.loads(good("brokers", "list", "--json", "--dir", directory).splitlines()[0])
    for where in (("--dir", directory), ("-b", f"{broker['address']},{address}"), ("-b", broker["address"])):
        said = good("configs", "describe", "--node", 1, "process.roles", "node.id", *where)
        assert said == "process.roles=controller  (node)\nnode.id=1  (node)\n"
    done = replog("configs", "describe", "--node", 7, "-b", broker["address"])
    assert (done.status, "the metadata quorum has no such voter. There are brokers: 2, 3;" in done.err) == (1, True)
    good("cluster", "kill", "1", "--dir", directory)
    done = replog("configs", "describe", "--node", 1, "process.roles", "--dir", directory)
    assert (done.status, done.out) == (0, "process.roles=controller  (node)\n")
    assert done.err.startswith("node 1 does not run: this is what ")
