"""Processes and directories: who dies with whom, and what a node that cannot start says, with nothing changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster_kit import Cluster, StartCluster, read_to_the_end, run_node, say, until, wait_until_whole

from replog.client import Producer
from replog.cluster.processes import KeptPorts, ProcessId
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"

PARENT = """
import asyncio, json, pathlib, sys
from replog.cluster import LocalCluster

async def main():
    cluster = await LocalCluster.start(pathlib.Path(sys.argv[1]), nodes=3)
    print(json.dumps([[node.process.pid, node.process.started, node.port] for node in cluster.nodes.values()]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


# ---- children ----------------------------------------------------------------------------------------------------------


async def test_children_die_with_their_parent(tmp_path: Path) -> None:
    """SIGKILL leaves the parent no chance to clean up; the kernel ends its brokers."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path / "cluster"), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(60):
        nodes = json.loads(await parent.stdout.readline())
    processes = [ProcessId(pid, started) for pid, started, _ in nodes]
    assert all(process.is_alive() for process in processes)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()

    async def all_gone() -> bool:
        return not any(process.is_alive() for process in processes)

    async def all_ports_are_free() -> bool:
        return all(is_free(port) for _, _, port in nodes)

    await until(all_gone, "all brokers are gone")
    await until(all_ports_are_free, "their ports are free")  # their last threads may end a moment later


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # fails only where somebody listens
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def test_a_child_whose_parent_is_gone_does_not_start(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await cluster.local.stop(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replog.broker", "--config", str(cluster.local.nodes[1].config_file),
        "--parent-pid", "1" if os.getpid() != 1 else "2", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    assert process.returncode != 0
    assert b"is gone" in errors


async def test_what_it_logs_may_be_objects(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1, logging_format="json")
    lines = [json.loads(line) for line in cluster.log_text(1).splitlines()]
    assert "quorum_leader" in [line.get("event") for line in lines]
    assert {line["node"] for line in lines} == {1}


# ---- a node that cannot start ------------------------------------------------------------------------------------------


async def cluster_with_records(start_cluster: StartCluster, history: History, nodes: int = 1) -> Cluster:
    cluster = await start_cluster(nodes)
    await cluster.admin.create_topic(TOPIC, 1, nodes)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(100):
            send = history.send("p", b"%d" % number)
            place = await (await producer.send(TOPIC, send.value))
            send.acknowledged((place.topic, place.partition), place.offset)
    return cluster


async def check_nothing_lost(cluster: Cluster, history: History) -> None:
    await wait_until_whole(cluster, TOPIC)
    await read_to_the_end(cluster, TOPIC, history)
    history.check_or_raise()


def config_with(cluster: Cluster, tmp_path: Path, **keys: object) -> Path:
    """The configuration of node 1 with some keys replaced, in a file of its own."""
    lines = cluster.local.nodes[1].config_file.read_text(encoding="utf-8").splitlines()
    own = {"log.dirs": [str(cluster.data_directory(1))]}  # a relative name would count from the other file's folder
    values = own | {name.replace("_", "."): value for name, value in keys.items()}
    kept = [line for line in lines if json.loads(line.split(" = ", 1)[0]) not in values]
    file = tmp_path / "other.toml"
    file.write_text("\n".join([*kept, *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items())]) + "\n")
    return file


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by name."""
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


async def check_refuses(config_file: Path, *words: str, options: Sequence[str] = ()) -> None:
    """The node ends with status 2 and one error line, which holds all `words`; no traceback."""
    status, output = await run_node(config_file, *options)
    say(output.strip())
    assert status == 2, output
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("error: ")
    for word in words:
        assert word in output


async def test_two_brokers_on_one_port(start_cluster: StartCluster, tmp_path: Path) -> None:
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    other = config_with(cluster, tmp_path, log_dirs=[str(tmp_path / "other")])
    words = ("cannot listen at", cluster.address(1), "Choose another port")
    await check_refuses(other, *words, options=["--accept-empty"])
    await check_nothing_lost(cluster, history)


async def test_occupied_directory(start_cluster: StartCluster, tmp_path: Path) -> None:
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    ports = KeptPorts()
    address, peer_address = (f"127.0.0.1:{port}" for port in ports.take(2))
    own = {"inter_broker_listener": peer_address, "controller_quorum_voters": [f"1@{peer_address}"]}
    other = config_with(cluster, tmp_path, listeners=[address], **own)
    await check_refuses(other, "is in use by another process", "stop it", "another directory")
    ports.release()
    await check_nothing_lost(cluster, history)


async def test_directory_of_another_cluster(start_cluster: StartCluster, tmp_path: Path) -> None:
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    await cluster.local.stop(1)
    before = snapshot(cluster.data_directory(1))
    other = config_with(cluster, tmp_path, cluster_id="another-cluster")
    await check_refuses(
        other, f"belongs to cluster {cluster.local.cluster_id}", "another-cluster", "Nothing was changed"
    )
    assert snapshot(cluster.data_directory(1)) == before
    cluster.local.start_node(1)
    await check_nothing_lost(cluster, history)


async def test_directory_of_another_node(start_cluster: StartCluster, tmp_path: Path) -> None:
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    await cluster.local.stop(1)
    before = snapshot(cluster.data_directory(1))
    other = config_with(
        cluster, tmp_path, node_id=7, controller_quorum_voters=[f"7@{cluster.local.nodes[1].peer_address}"]
    )
    await check_refuses(other, "belongs to node 1, this is node 7", "Nothing was changed")
    assert snapshot(cluster.data_directory(1)) == before
    cluster.local.start_node(1)
    await check_nothing_lost(cluster, history)


async def test_address_others_can_reach(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = await start_cluster(1)
    await cluster.local.stop(1)
    other = config_with(cluster, tmp_path, listeners=["0.0.0.0:9092"])
    await check_refuses(other, 'listeners = "0.0.0.0:9092"', "allow.insecure")
    other = config_with(cluster, tmp_path, inter_broker_listener="0.0.0.0:9093")
    await check_refuses(other, 'inter.broker.listener = "0.0.0.0:9093"', "allow.insecure")


DAMAGED = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "__cluster_metadata-0/quorum-state",
]


async def test_damaged_checkpoints(start_cluster: StartCluster) -> None:
    """A flipped byte in any file the node believes in: it names the file, changes nothing, and starts once mended."""
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    await cluster.local.stop(1)
    data = cluster.data_directory(1)
    for name in DAMAGED:
        file = data / name
        said = str(data) if name == "meta.properties" else name.rpartition("/")[2]  # the directory itself is refused
        healthy = file.read_bytes()
        for position in (len(healthy) // 2,):
            damaged = bytearray(healthy)
            damaged[position] ^= 0x80
            file.write_bytes(damaged)
            before = snapshot(data)
            await check_refuses(cluster.local.nodes[1].config_file, said)
            check_unchanged(before, snapshot(data))
        file.write_bytes(b"")
        await check_refuses(cluster.local.nodes[1].config_file, said)
        file.write_bytes(healthy)
    cluster.local.start_node(1)
    await check_nothing_lost(cluster, history)


def check_unchanged(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Only the clean-shutdown marker is taken; checkpoint lines may stand in another order."""
    changed = {name for name in before if before[name] != after.get(name)} - {".kafka_cleanshutdown"}
    for name in changed:
        assert sorted(before[name].splitlines()) == sorted(after.get(name, b"").splitlines()), name


async def test_a_damaged_replica_is_offline_alone(start_cluster: StartCluster) -> None:
    """The node starts, says which file is wrong, and changes nothing in it; once mended, everything is there."""
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    await cluster.admin.create_topic("healthy", num_partitions=1, replication_factor=1)
    await cluster.local.stop(1)
    file = cluster.data_directory(1) / f"{TOPIC}-0" / "partition.metadata"
    healthy = file.read_bytes()
    file.write_bytes(b"\xff" + healthy[1:])
    before = snapshot(file.parent)
    cluster.local.start_node(1)

    async def is_offline() -> bool:
        status = await cluster.replica(1, TOPIC)
        return status.state == "offline" and "partition.metadata" in status.reason

    await until(is_offline, "the replica is reported offline, with the file")
    await until(lambda: produce(cluster, "healthy"), "the other topic takes records")
    await cluster.local.stop(1)
    assert snapshot(file.parent) == before
    file.write_bytes(healthy)
    cluster.local.start_node(1)
    await check_nothing_lost(cluster, history)


async def test_a_damaged_replica_is_fetched_again_where_others_have_it(start_cluster: StartCluster) -> None:
    """It leaves ISR and ELR first; what was left of it is kept beside the new one."""
    cluster = await start_cluster(3)
    await cluster.admin.create_topic(TOPIC, 1, 3)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            await producer.send(TOPIC, b"%d" % number, partition=0)
    await cluster.admin.wait_until_in_sync(TOPIC)
    victim = await cluster.leader(TOPIC)
    await cluster.local.stop(victim)
    data = cluster.data_directory(victim)
    damaged = data / f"{TOPIC}-0" / "partition.metadata"
    damaged.write_bytes(b"\xff" + damaged.read_bytes()[1:])
    cluster.local.start_node(victim)

    async def is_whole() -> bool:
        status = await cluster.replica(victim, TOPIC)
        return status.log_end_offset == 20 and status.high_watermark == 20

    await until(is_whole, "the replica has been fetched again")
    await cluster.admin.wait_until_in_sync(TOPIC)
    assert len(list(data.glob(f"{TOPIC}-0.*-stray"))) == 1
    assert damaged.read_bytes()[0] != 0xFF


async def produce(cluster: Cluster, topic: str) -> bool:
    """One record, acknowledged."""
    async with Producer(cluster.bootstrap_servers) as producer:
        return (await (await producer.send(topic, value=b"x"))).offset >= 0


async def test_damaged_leader_epochs(start_cluster: StartCluster) -> None:
    """They follow from the log, so they are made from it again: the node starts, and the file is whole."""
    history = History()
    cluster = await cluster_with_records(start_cluster, history)
    await cluster.local.stop(1)
    file = cluster.data_directory(1) / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    healthy = file.read_bytes()
    file.write_bytes(b"\xff" + healthy[1:])
    cluster.local.start_node(1)
    await check_nothing_lost(cluster, history)
    assert file.read_bytes().startswith(healthy[:2])


async def test_wiped_directory_of_one_of_three(start_cluster: StartCluster) -> None:
    """The data of one node is gone: it comes back empty, and the others give it everything again."""
    history = History()
    cluster = await cluster_with_records(start_cluster, history, nodes=3)
    node_id = await cluster.controller_id() % 3 + 1  # a controller must not forget that it was elected
    await cluster.local.kill(node_id)
    shutil.rmtree(cluster.data_directory(node_id))
    cluster.local.start_node(node_id, accept_empty=True)
    await check_nothing_lost(cluster, history)
