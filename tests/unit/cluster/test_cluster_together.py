"""Two commands on one cluster at the same time: every process that one of them starts, the other one finds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from replog.cli.commands import cluster as commands
from replog.cluster import LocalCluster, NodeRunsError, cluster_file
from replog.cluster.known_nodes import KnownNodes
from replog.errors import BrokerNotAvailableError, ConfigError

Processes = list[subprocess.Popen[bytes]]


async def two_commands(directory: Path, nodes: int = 1) -> tuple[LocalCluster, LocalCluster]:
    """What two commands know of a cluster that runs."""
    await LocalCluster.start(directory, nodes=nodes, wait=False)
    return LocalCluster.load(directory), LocalCluster.load(directory)


def pids(directory: Path) -> dict[int, int | None]:
    found = LocalCluster.load(directory).nodes
    return {node_id: spec.process.pid if spec.process else None for node_id, spec in found.items()}


def running(processes: Processes) -> list[int]:
    return [process.pid for process in processes if process.poll() is None]


async def nothing(*_args: object, **_kwargs: object) -> None: ...


async def test_of_two_that_start_a_node_again_one_does_and_the_other_one_hears_of_it(
    tmp_path: Path, processes: Processes
) -> None:
    one, other = await two_commands(tmp_path)
    await asyncio.gather(one.stop(1), other.stop(1))
    one.start_node(1)
    with pytest.raises(NodeRunsError, match=r"another command may have started it .*`replog cluster restart 1 --dir"):
        other.start_node(1)
    assert len(processes) == 2
    assert running(processes) == [pids(tmp_path)[1]]
    await other.stop_all()
    assert running(processes) == []
    assert pids(tmp_path) == {1: None}


async def test_a_restart_starts_the_rest_where_another_one_has_started_a_node(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await two_commands(tmp_path, nodes=3)
    stop = one.stop

    async def stop_and_lose_the_race(node_id: int) -> None:
        await stop(node_id)
        if node_id == 2:
            other.start_node(node_id)

    monkeypatch.setattr(one, "stop", stop_and_lose_the_race)
    monkeypatch.setattr(one, "wait_until_ready", nothing)
    monkeypatch.setattr(commands, "_until_running", nothing)
    assert await commands._restart(one, [1, 2, 3], print, accept_empty=False) == [2]
    assert len(processes) == 6
    assert sorted(running(processes)) == sorted(pid for pid in pids(tmp_path).values() if pid)
    await one.stop_all()
    assert running(processes) == []


async def test_a_restart_stops_what_another_one_has_started_since_it_has_looked(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, _ = await two_commands(tmp_path)
    await other.stop(1)
    one = LocalCluster.load(tmp_path)
    other.start_node(1)
    monkeypatch.setattr(one, "wait_until_ready", nothing)
    monkeypatch.setattr(commands, "_until_running", nothing)
    assert await commands._restart(one, [1], print, accept_empty=False) == []
    assert len(processes) == 3
    assert running(processes) == [processes[2].pid] == [pids(tmp_path)[1]]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([2], "restarted nodes 1, 3\nanother command has started node 2 at the same time. "),
        ([1, 2, 3], "another command has started nodes 1, 2, 3 at the same time. "),
    ],
)
def test_a_restart_says_which_nodes_another_one_has_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], others: list[int], told: str
) -> None:
    async def restart(*_args: object, **_kwargs: object) -> list[int]:
        return others

    cluster = SimpleNamespace(nodes=dict.fromkeys((1, 2, 3)), directory=Path("c"), require_data=lambda _: None)
    monkeypatch.setattr(commands, "_load", lambda _: cluster)
    monkeypatch.setattr(commands, "_restart", restart)
    commands.restart(Path("c"))
    assert capsys.readouterr().out == f"{told}`replog cluster status --dir c` shows what runs\n"


async def test_who_waits_for_the_end_of_a_node_keeps_the_process_that_another_one_has_started_since(
    tmp_path: Path, processes: Processes
) -> None:
    one, other = await two_commands(tmp_path)
    stopping = asyncio.create_task(one.stop(1))
    while processes[0].poll() is None:
        await asyncio.sleep(0)
    other.start_node(1)
    await stopping
    assert pids(tmp_path) == {1: processes[1].pid}
    one.pause(1)
    one.resume(1)
    await one.kill(1)
    assert running(processes) == []


@pytest.mark.parametrize("how", ["stop_all", "kill_all"])
async def test_the_end_of_all_is_the_end_of_what_others_have_started(
    tmp_path: Path, processes: Processes, how: str
) -> None:
    async with await LocalCluster.start(tmp_path, nodes=2, wait=False) as local:
        other = LocalCluster.load(tmp_path)
        await other.kill(1)
        other.start_node(1)
        other.add_node()
        await getattr(local, how)()
        assert running(processes) == []
    assert pids(tmp_path) == dict.fromkeys((1, 2, 3))


async def test_two_that_add_a_node_add_two(tmp_path: Path, processes: Processes) -> None:
    one, other = await two_commands(tmp_path, nodes=2)
    assert [one.add_node(), other.add_node(), one.add_node()] == [3, 4, 5]
    found = LocalCluster.load(tmp_path).nodes.values()
    assert len({port for spec in found for port in (spec.port, spec.peer_port)}) == 10
    assert sorted(running(processes)) == sorted(spec.process.pid for spec in found if spec.process)
    await one.stop_all()
    assert running(processes) == []


async def test_a_node_that_another_one_has_removed_is_named(tmp_path: Path, processes: Processes) -> None:
    one, other = await two_commands(tmp_path, nodes=2)
    await one.remove_node(2)
    with pytest.raises(ConfigError, match=r"no node 2 in .* now; its nodes are 1"):
        other.start_node(2)
    await other.stop_all()
    assert running(processes) == []


async def test_who_waits_for_a_node_that_another_one_stops_hears_of_it(tmp_path: Path, processes: Processes) -> None:
    one, other = await two_commands(tmp_path)
    waiting = asyncio.create_task(one.wait_until_ready())
    await asyncio.sleep(0)  # it has begun
    await other.stop(1)
    with pytest.raises(BrokerNotAvailableError, match=r"node 1 was stopped .* by another command .*restart 1 --dir"):
        await waiting
    assert running(processes) == []


async def test_a_process_that_cannot_be_written_down_is_ended(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = await two_commands(tmp_path)
    await one.kill(1)

    def disk_is_full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(KnownNodes, "write", disk_is_full)
    with pytest.raises(OSError, match="No space left"):
        one.start_node(1)
    assert len(processes) == 2
    assert running(processes) == []


def test_two_that_make_a_cluster_in_one_directory_make_one(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, write_configs = threading.Barrier(2), LocalCluster._write_configs

    def write_configs_together(*args: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):  # as it must be: the other one waits for the lock
            both.wait(0.5)
        write_configs(*args)  # type: ignore[arg-type] # as they came

    def start() -> str:
        try:
            asyncio.run(LocalCluster.start(tmp_path / "c", nodes=2, wait=False, die_with_parent=False))
        except ConfigError as error:
            return str(error)
        return "started"

    monkeypatch.setattr(LocalCluster, "_write_configs", write_configs_together)
    with ThreadPoolExecutor(2) as threads:
        told = sorted(each.result() for each in [threads.submit(start), threads.submit(start)])
    assert told[1] == "started"
    assert "holds a cluster already" in told[0]
    assert running(processes) == list(pids(tmp_path / "c").values())


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_node_ends_whose_directory_is_gone(tmp_path: Path, processes: Processes, end: str) -> None:
    directory = tmp_path / "cluster"
    cluster = await LocalCluster.start(directory, nodes=1, wait=False)
    shutil.rmtree(directory)
    await getattr(cluster, end)(1)
    assert not running(processes)
    assert not cluster.nodes[1].is_alive
    assert not directory.exists()


@pytest.mark.parametrize("end", ["stop_all", "kill_all"])
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_the_end_of_a_cluster_that_was_removed_leaves_what_is_in_its_place(
    tmp_path: Path, processes: Processes, end: str, is_replaced: bool
) -> None:
    """Goal: a new cluster keeps its file, and an empty directory stays empty."""
    directory = tmp_path / "cluster"
    cluster = await LocalCluster.start(directory, nodes=1, wait=False)
    shutil.rmtree(directory)
    directory.mkdir()
    if is_replaced:
        await LocalCluster.start(directory, nodes=1, wait=False)
        before = pids(directory)
    await getattr(cluster, end)()
    assert len(running(processes)) == is_replaced
    if is_replaced:
        assert pids(directory) == before
        assert LocalCluster.load(directory).cluster_id != cluster.cluster_id
    else:
        assert not list(directory.iterdir())


async def test_nothing_is_started_in_a_cluster_that_was_removed(tmp_path: Path, processes: Processes) -> None:
    directory = tmp_path / "cluster"
    cluster = await LocalCluster.start(directory, nodes=1, wait=False)
    await cluster.stop_all()
    shutil.rmtree(directory)
    directory.mkdir()
    for start in (lambda: cluster.start_node(1), cluster.add_node):
        with pytest.raises(ConfigError, match=r"is not in .* any more: it was removed"):
            start()
    assert not running(processes)
    assert not list(directory.iterdir())


async def test_who_has_the_nodes_in_hand_finds_those_that_are_added(tmp_path: Path, processes: Processes) -> None:
    cluster = await LocalCluster.start(tmp_path, nodes=1, wait=False)
    nodes = cluster.nodes
    assert nodes[cluster.add_node()].node_id == 2
    assert len(running(processes)) == 2


async def test_a_full_disk_is_told_before_a_node_is_started(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = await two_commands(tmp_path)
    await one.stop(1)
    before = (tmp_path / cluster_file.NAME).read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cluster_file.os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            one.start_node(1)
    assert (len(processes), running(processes)) == (1, [])
    assert (tmp_path / cluster_file.NAME).read_bytes() == before
    one.start_node(1)
    assert running(processes) == [pids(tmp_path)[1]]
