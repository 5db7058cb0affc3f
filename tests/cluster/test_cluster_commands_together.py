"""Commands for one cluster that run at the same time know of what the others have done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_kit import QUICK, say

from replog.cluster import LocalCluster
from replog.cluster.node_spec import NodeSpec
from replog.cluster.processes import ProcessId

pytestmark = pytest.mark.cluster


ADD_NODE = "import sys; from replog.cluster import LocalCluster; print(LocalCluster.load(sys.argv[1]).add_node())"
SETTINGS = [argument for key, value in QUICK.items() for argument in ("--set", f"{key}={value}")]


async def python(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """How a process has ended, and what it has told."""
    told, _ = await process.communicate()
    return process.returncode, told.decode()


async def outcome(directory: Path, *arguments: str) -> tuple[int | None, str]:
    return await ended(await python("-m", "replog", "cluster", *arguments, "--dir", str(directory)))


async def replog(directory: Path, *arguments: str) -> None:
    status, told = await outcome(directory, *arguments)
    assert status == 0, told


def running(directory: Path) -> list[int]:
    """The processes of nodes in the directory, whatever its file says."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            command = (process / "cmdline").read_bytes()
            if b"replog.broker" in command and os.fsencode(directory) in command:
                found.append(int(process.name))
    return sorted(found)


def named(directory: Path) -> list[int]:
    """The processes that the file of the cluster names."""
    return sorted(spec.process.pid for spec in LocalCluster.load(directory).nodes.values() if spec.process is not None)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster, none of whose processes outlives the test."""
    yield tmp_path / "c"
    for pid in running(tmp_path / "c"):
        os.kill(pid, signal.SIGKILL)


async def test_nodes_that_several_commands_restart_are_all_known(directory: Path) -> None:
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


async def test_a_node_that_two_commands_restart_runs_once(directory: Path) -> None:
    await replog(directory, "start", "--nodes", "1", "--port", "0", *SETTINGS)
    for status, told in await asyncio.gather(*(outcome(directory, "restart", "1") for _ in range(2))):
        assert status == 0 or "node 1 was stopped before it was ready, by another command" in told, told
        say(told)
    assert running(directory) == named(directory)
    assert len(running(directory)) == 1
    await replog(directory, "stop")
    assert running(directory) == named(directory) == []


async def test_a_foreground_command_ends_the_node_that_another_one_has_restarted(directory: Path) -> None:
    arguments = ["start", "--foreground", "--nodes", "1", "--port", "0", "--dir", str(directory), *SETTINGS]
    foreground = await python("-m", "replog", "cluster", *arguments)
    assert foreground.stdout is not None
    while b"Ctrl-C" not in (line := await foreground.stdout.readline()):
        assert line, "it ended early"
    (first,) = running(directory)
    await replog(directory, "restart", "1")
    (second,) = running(directory)
    assert first != second
    foreground.send_signal(signal.SIGINT)
    assert (await ended(foreground))[0] == 0
    assert running(directory) == named(directory) == []


async def test_two_nodes_that_are_added_at_once_have_numbers_of_their_own(directory: Path) -> None:
    async with await LocalCluster.start(directory, nodes=1, config=QUICK) as local:
        adding = [await python("-c", ADD_NODE, str(directory)) for _ in range(2)]
        assert sorted([await ended(each) for each in adding]) == [(0, "2\n"), (0, "3\n")]
        assert running(directory) == named(directory)
        assert len(running(directory)) == 3
        await local.stop_all()
        assert running(directory) == []


def test_what_one_command_writes_of_a_node_another_one_keeps(tmp_path: Path) -> None:
    specs = {number: NodeSpec(number, number, 10 + number, tmp_path / f"node-{number}") for number in (1, 2, 3)}
    LocalCluster(tmp_path, "c", specs, die_with_parent=False)._known.write()
    first, second = (LocalCluster.load(tmp_path) for _ in range(2))
    for number, each in ((1, first), (2, second)):
        with each._known.alone():
            each.nodes[number].process = ProcessId(number, 1)
            each._known.write()
    with first._known.alone():  # what it knew of the second node was old
        first._known.write()
    with second._known.alone():
        second.nodes[4] = NodeSpec(4, 4, 14, tmp_path / "node-4")
        second._known.write()
    with first._known.alone():
        del first.nodes[3]
        first._known.write()
    with second._known.alone():  # which had not heard that the third node is gone
        second._known.write()
    found = {number: spec.process for number, spec in LocalCluster.load(tmp_path).nodes.items()}
    assert found == {1: ProcessId(1, 1), 2: ProcessId(2, 1), 4: None}
