"""Nodes that are forked from a process that has loaded a broker are what nodes are that were started by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import PATIENCE_S, QUICK, until

from replog.client import Admin, Producer
from replog.cluster import LocalCluster, NodePlace, node_processes
from replog.cluster.node_processes import ForkedNode
from replog.cluster.processes import ProcessId

pytestmark = pytest.mark.cluster

WAYS = {"forked": NodePlace(), "by itself": NodePlace(environment={"PYTHONNOUSERSITE": "1"})}


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """A node, started in each of the two ways."""
    places = {1: WAYS[request.param]}
    async with await LocalCluster.start(tmp_path / "c", nodes=1, config=QUICK, places=places) as local:
        assert isinstance(local.nodes[1].child, ForkedNode) == (request.param == "forked")
        yield local


def pid_of(local: LocalCluster, node_id: int = 1) -> int:
    process = local.nodes[node_id].process
    assert process is not None
    return process.pid


def status_of(local: LocalCluster) -> int:
    """How the process of the node has ended."""
    child = local.nodes[1].child
    assert child is not None
    return child.wait(PATIENCE_S)


# ---- the same in both ways -----------------------------------------------------------------------------------------------


def seen_from_outside(pid: int, own: Path) -> dict[str, Any]:
    """What the system says of a process, as far as another one of the same kind should have it alike.

    Args:
        pid: Its id.
        own: The folder in which it opens and closes files by itself, some of them at this moment.
    """
    folder = Path(f"/proc/{pid}")
    status = dict(re.findall(r"^(\w+):\s*(.*)$", (folder / "status").read_text(), re.MULTILINE))
    alike = (
        "Umask",
        "Uid",
        "Gid",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "CapEff",
        "NoNewPrivs",
        "Cpus_allowed_list",
        "TracerPid",
    )
    limits = dict(re.findall(r"^(Max .*?)  +(.*?) *$", (folder / "limits").read_text(), re.MULTILINE))
    open_files = {int(file.name): name for file in (folder / "fd").iterdir() if (name := link_of(file))}
    stat = (folder / "stat").read_text().rpartition(")")[2].split()
    return {
        **{name: status.get(name) for name in alike},
        **limits,
        "stdin": open_files[0],
        "stdout": Path(open_files[1]).name,
        "stderr": Path(open_files[2]).name,
        "kinds of open files": sorted(
            {re.sub(r"[\d\[\]]+|.*/", "", name) for name in open_files.values() if not Path(name).is_relative_to(own)}
        ),
        "group": int(stat[2]) == os.getpgrp(),
        "session": int(stat[3]) == os.getsid(0),
        "directory": str((folder / "cwd").readlink()),
        "nice": stat[16],
    }


def link_of(file: Path) -> str:
    """What an entry of /proc/PID/fd stands for; "" where it was closed meanwhile."""
    try:
        return str(file.readlink())
    except FileNotFoundError:
        return ""


async def test_both_have_the_same_surroundings(tmp_path: Path) -> None:
    found = []
    for number, place in enumerate(WAYS.values()):
        places = {1: place}
        async with await LocalCluster.start(tmp_path / str(number), nodes=1, config=QUICK, places=places) as local:
            found.append(seen_from_outside(pid_of(local), tmp_path))
    assert found[0] == found[1]
    assert found[0]["group"]


async def test_its_arguments_say_which_node_it_is(cluster: LocalCluster) -> None:
    shown = Path(f"/proc/{pid_of(cluster)}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    assert shown.startswith(f"{sys.executable} -P -m replog.broker --config {cluster.nodes[1].config_file}".encode())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
async def test_its_end_is_heard_of(cluster: LocalCluster, number: signal.Signals, status: int) -> None:
    cluster.nodes[1].tell(number)
    assert status_of(cluster) == status
    assert not cluster.nodes[1].is_alive
    assert not ProcessId.of(pid_of(cluster)).is_alive()  # and it is no zombie


async def test_it_keeps_its_records_through_kill_and_restart(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        await admin.create_topic("flights", 1)
        for number in range(3):
            assert (await (await producer.send("flights", b"%d" % number))).offset == number
            await cluster.kill(1)
            cluster.start_node(1)
            await cluster.wait_until_ready()


async def test_what_it_cannot_do_is_in_its_log_and_its_status(cluster: LocalCluster) -> None:
    await cluster.stop(1)
    (cluster.nodes[1].directory / "data" / "meta.properties").write_text("damaged")
    cluster.start_node(1)
    assert status_of(cluster) == 2
    assert "meta.properties" in cluster.nodes[1].log_file.read_text().splitlines()[-1]


async def test_it_is_forked_from_a_process_with_one_thread(tmp_path: Path) -> None:
    """As gRPC wants it, and Python from 3.12 on."""
    async with await LocalCluster.start(tmp_path / "c", nodes=1, config=QUICK):
        assert node_processes._server is not None
        assert len(list(Path(f"/proc/{node_processes._server.process.pid}/task").iterdir())) == 1


# ---- who ends with whom --------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, json, os, sys
from replog.cluster import LocalCluster, node_processes

async def main():
    local = await LocalCluster.start(sys.argv[1], nodes=2, die_with_parent=sys.argv[2] == "dies")
    children = [type(spec.child).__name__ for spec in local.nodes.values()]
    pids = [spec.process.pid for spec in local.nodes.values()]
    print(json.dumps([node_processes._server.process.pid, pids, children]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@contextlib.contextmanager
def program(directory: Path, how: str) -> Iterator[tuple[subprocess.Popen[bytes], ProcessId, list[ProcessId]]]:
    """Runs a program with two forked nodes; yields it, the process that forked them, and the nodes."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory), how], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout is not None
            server, nodes, kinds = json.loads(parent.stdout.readline())
            assert kinds == ["ForkedNode", "ForkedNode"]
            yield parent, ProcessId.of(server), [ProcessId.of(pid) for pid in nodes]
        finally:
            parent.kill()
            for process in nodes:
                ProcessId.of(process).signal(signal.SIGKILL)


async def gone(*processes: ProcessId) -> None:
    async def are_gone() -> bool:
        return not any(process.is_alive() for process in processes)

    await until(are_gone, f"{processes} are gone")


async def test_all_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with program(tmp_path / "c", "dies") as (parent, server, nodes):
        parent.kill()
        await gone(server, *nodes)


async def test_nodes_that_outlive_their_parent_do(tmp_path: Path) -> None:
    with program(tmp_path / "c", "outlives") as (parent, server, nodes):
        parent.kill()
        await gone(server)
        local = LocalCluster.load(tmp_path / "c")
        await local.wait_until_ready()
        assert all(os.getsid(node.pid) == node.pid for node in nodes)
        assert all(node.is_alive() for node in nodes)
        await local.stop_all()
        await gone(*nodes)


async def test_a_signal_for_the_whole_group_stops_nodes_in_order(tmp_path: Path) -> None:
    """Ctrl-C: the terminal tells all of them; the nodes must not be killed because who forked them ends sooner."""
    with program(tmp_path / "c", "dies") as (parent, server, nodes):
        os.kill(parent.pid, signal.SIGSTOP)  # it does not end, and takes nobody with it
        os.killpg(parent.pid, signal.SIGINT)
        await gone(*nodes)
        assert server.is_alive()
        for folder in (tmp_path / "c").glob("node-*"):
            assert (folder / "data" / ".kafka_cleanshutdown").exists()


async def test_who_forks_them_may_be_killed_and_nodes_are_started_again(tmp_path: Path) -> None:
    async with await LocalCluster.start(tmp_path / "c", nodes=2, config=QUICK) as local:
        assert node_processes._server is not None
        node_processes._server.process.kill()
        async with asyncio.timeout(PATIENCE_S):
            while any(spec.is_alive for spec in local.nodes.values()):
                await asyncio.sleep(0)
        assert status_of(local) == -9
        for node_id in local.nodes:
            local.start_node(node_id)
        await local.wait_until_ready()


async def test_who_forks_them_may_be_stopped_and_forks_none_that_nobody_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_processes, "FORK_TIMEOUT_S", 0.2)
    async with await LocalCluster.start(tmp_path / "c", nodes=1, config=QUICK) as local:
        await local.stop(1)
        assert node_processes._server is not None
        server = node_processes._server.process
        server.send_signal(signal.SIGSTOP)
        goes_on = threading.Timer(PATIENCE_S, server.send_signal, [signal.SIGCONT])  # else a start could wait for ever
        goes_on.start()
        try:
            with pytest.raises(TimeoutError, match=f"kill -CONT {server.pid}"):
                local.start_node(1)
        finally:
            goes_on.cancel()
            server.send_signal(signal.SIGCONT)
        monkeypatch.undo()
        local.start_node(1)
        await local.wait_until_ready()
        assert Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split() == [str(pid_of(local))]


# ---- who may ask ---------------------------------------------------------------------------------------------------------


async def test_what_has_changed_around_this_process_changed_for_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await LocalCluster.start(tmp_path / "c", nodes=1, config=QUICK) as local:
        first = node_processes._server
        monkeypatch.setenv("SOME_VARIABLE", "here")  # no node reads it
        await node_processes.prepare_forks()
        assert node_processes._server is first
        monkeypatch.setenv("PYTHONNOUSERSITE", "1")
        await local.stop(1)
        local.start_node(1)  # without forks: nobody waits until modules are loaded
        assert not isinstance(local.nodes[1].child, ForkedNode)
        assert b"PYTHONNOUSERSITE=1" in Path(f"/proc/{pid_of(local)}/environ").read_bytes()
        async with await LocalCluster.start(tmp_path / "d", nodes=1, config=QUICK) as other:
            assert node_processes._server is not first
            assert isinstance(other.nodes[1].child, ForkedNode)
            assert b"PYTHONNOUSERSITE=1" in Path(f"/proc/{pid_of(other)}/environ").read_bytes()


async def run_in_a_fork(directory: Path) -> None:
    async with await LocalCluster.start(directory, nodes=1, config=QUICK) as local:
        assert isinstance(local.nodes[1].child, ForkedNode)


# a process of pytest-xdist is
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_fork_of_this_process_has_one_of_its_own(tmp_path: Path) -> None:
    async with await LocalCluster.start(tmp_path / "c", nodes=1, config=QUICK) as local:
        child = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(run_in_a_fork(tmp_path / "forked")), daemon=True
        )
        child.start()
        await asyncio.to_thread(child.join, PATIENCE_S)
        assert child.exitcode == 0
        assert local.nodes[1].is_alive


def test_threads_start_clusters_at_once(tmp_path: Path) -> None:
    """And nodes go on when the thread that started them has ended."""

    def start(number: int) -> LocalCluster:
        return asyncio.run(LocalCluster.start(tmp_path / str(number), nodes=1, config=QUICK))

    with ThreadPoolExecutor(3) as threads:
        running = list(threads.map(start, range(3)))
    try:
        asyncio.run(running[0].wait_until_ready())
        assert all(local.nodes[1].is_alive for local in running)
    finally:
        for local in running:
            asyncio.run(local.kill_all())
