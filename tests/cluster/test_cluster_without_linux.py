"""A local cluster where all nodes, and the program that starts them, have nothing that only Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_linux import TAKE_AWAY

pytestmark = pytest.mark.cluster

PROGRAM = """
import asyncio, os
from replog import Admin, LocalCluster, Producer

async def main():
    assert not hasattr(os, "pidfd_open")  # it is taken away, as from the nodes
    async with await LocalCluster.start("cluster", nodes=2) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
            await admin.create_topic("t", num_partitions=1, replication_factor=2)
            await producer.send_and_wait("t", b"first")
            await cluster.kill(2)
            cluster.start_node(2)
            await cluster.wait_until_ready()
            print((await producer.send_and_wait("t", b"second")).offset)

asyncio.run(main())
"""


def test_nodes_are_started_killed_and_started_again(tmp_path: Path) -> None:
    noted = f"with open({str(tmp_path / 'processes')!r}, 'a') as noted: noted.write('x')\n"
    (tmp_path / "sitecustomize.py").write_text(TAKE_AWAY + noted, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    assert (
        len((tmp_path / "processes").read_text(encoding="utf-8")) >= 4
    )  # the program, two nodes, one of them once more
