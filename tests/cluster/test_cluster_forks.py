"""Children of a process that uses a cluster use it too, however they begin."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from cluster_kit import StartCluster

PROGRAM = Path(__file__).parent / "forking_client.py"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_children_write_and_read_beside_their_parent(method: str, start_cluster: StartCluster) -> None:
    cluster = await start_cluster(nodes=1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "default", PROGRAM, method, cluster.bootstrap_servers,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert (out, err, process.returncode) == (b"done\n", b"", 0), err.decode()
