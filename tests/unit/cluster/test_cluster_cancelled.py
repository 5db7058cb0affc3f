"""A local cluster whose start or end is cancelled at any of its waits leaves no process behind."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from replog.cluster import LocalCluster
from tests.cancelling import cancelled_at_wait

NODES = 3
WAITS = 6
"""Some in the client that looks for the nodes, some in the pauses between."""


def require_ended(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.wait(10)  # a signal that was sent is on its way
    processes.clear()


async def test_a_start_that_is_cancelled_ends_what_it_started(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    for number in range(1, WAITS):
        assert await cancelled_at_wait(number, LocalCluster.start(tmp_path / str(number), nodes=NODES))
        assert len(processes) == NODES
        require_ended(processes)


@pytest.mark.parametrize("steps", range(6))
async def test_a_start_that_is_cancelled_twice_ends_what_it_started(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]], steps: int
) -> None:
    """Goal: the second Ctrl-C comes while the first is being served."""
    starting = asyncio.create_task(LocalCluster.start(tmp_path / "c", nodes=NODES))
    while len(processes) < NODES:
        await asyncio.sleep(0)
    starting.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    require_ended(processes)


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("how", ["stop_all", "kill_all"])
async def test_ending_all_nodes_reaches_each_of_them_though_it_is_cancelled(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]], how: str, steps: int
) -> None:
    cluster = await LocalCluster.start(tmp_path / "c", nodes=NODES, wait=False)
    ending = asyncio.create_task(getattr(cluster, how)())
    await asyncio.sleep(0)  # it has begun
    for _ in range(steps):
        await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    require_ended(processes)
