"""Commands for one cluster that run at the same time know of what the others have done."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from cluster_kit import QUICK

from replog.cluster import LocalCluster
from replog.cluster.node_spec import NodeSpec
from replog.cluster.processes import ProcessId

pytestmark = pytest.mark.cluster


async def replog(directory: Path, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replog.cli", "cluster", *arguments, "--dir", str(directory),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert process.returncode == 0, told


async def test_nodes_that_several_commands_restart_are_all_known(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    async with await LocalCluster.start(directory, nodes=3, config=QUICK) as local:
        await local.kill_all()
        try:
            await asyncio.gather(*(replog(directory, "restart", str(number)) for number in (1, 2, 3)))
            assert all(spec.is_alive for spec in LocalCluster.load(directory).nodes.values())
            await asyncio.gather(*(replog(directory, "kill", str(number)) for number in (1, 2)))
            found = LocalCluster.load(directory).nodes
            assert [node_id for node_id, spec in found.items() if spec.is_alive] == [3]
        finally:
            await LocalCluster.load(directory).stop_all()
    assert not any(spec.is_alive for spec in LocalCluster.load(directory).nodes.values())


def test_what_one_command_writes_of_a_node_another_one_keeps(tmp_path: Path) -> None:
    specs = {number: NodeSpec(number, number, 10 + number, tmp_path / f"node-{number}") for number in (1, 2, 3)}
    LocalCluster(tmp_path, "c", specs, die_with_parent=False)._save()
    first, second = (LocalCluster.load(tmp_path) for _ in range(2))
    for number, each in ((1, first), (2, second)):
        each.nodes[number].process = ProcessId(number, 1)
        each._save(number)
    first._save()  # what it knows of the second node is old
    second.nodes[4] = NodeSpec(4, 4, 14, tmp_path / "node-4")
    second._save(4)
    del first.nodes[3]
    first._save(3)
    second._save(2)  # which has not heard that the third node is gone
    found = {number: spec.process for number, spec in LocalCluster.load(tmp_path).nodes.items()}
    assert found == {1: ProcessId(1, 1), 2: ProcessId(2, 1), 4: None}
