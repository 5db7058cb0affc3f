"""Disks that are changed while all nodes are stopped in order: what the others hold is read, and the node names the file."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_kit import PATIENCE_S, QUICK, Cluster, read_to_the_end, until, wait_until_whole
from cluster_load import Load

from replog.client import Admin, Consumer, Producer
from replog.cluster import LocalCluster
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog.log.repair.repair import repair_log
from replog.records import scan
from replog.testing.history import History
from replog_checkpoints import OsFileSystem

pytestmark = pytest.mark.cluster

TOPIC, FORMER = "flights", "former"
"""The topic, and the copy of its folder from when there was another one of its name."""


def put_the_former_folder_back(data: Path, former: Path) -> None:
    shutil.rmtree(data / f"{TOPIC}-0")
    shutil.copytree(former, data / f"{TOPIC}-0")


def give_records_up_and_lose_the_note(data: Path, _former: Path) -> None:
    (log,) = (data / f"{TOPIC}-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[list(scan(content))[3].position + 40] ^= 1
    log.write_bytes(content)
    report = repair_log(OsFileSystem(), str(data / f"{TOPIC}-0"), accept_loss=True, now_ms=0)
    assert report.offsets_given_up
    (data / GIVEN_UP_FILE).unlink()


def raise_the_last_epoch_of_the_metadata(data: Path, _former: Path) -> None:
    log = max((data / "__cluster_metadata-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[list(scan(content))[-1].position + 15] ^= 64
    log.write_bytes(content)


def lose_what_was_aborted(index: Path) -> None:
    index.unlink()


def shorten_what_was_aborted(index: Path) -> None:
    index.write_bytes(index.read_bytes()[: 34 * 2])


def flip_in_a_producer_id(index: Path) -> None:
    content = bytearray(index.read_bytes())
    content[9] ^= 1  # that of the first entry: its records would count as committed
    index.write_bytes(content)


@pytest.mark.parametrize("change", [lose_what_was_aborted, shorten_what_was_aborted, flip_in_a_producer_id])
async def test_what_was_aborted_stays_so_whatever_becomes_of_the_index(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        local = await LocalCluster.start(tmp_path / "cluster", nodes=1, config=QUICK)
        stack.push_async_callback(local.kill_all)
        admin = await stack.enter_async_context(Admin(local.bootstrap_servers))
        cluster = Cluster(local, admin)
        await admin.create_topic(TOPIC, 1, 1)
        async with Producer(local.bootstrap_servers, transactional_id="t") as producer:
            for number in range(4):
                with contextlib.suppress(KeyError):
                    async with producer.transaction():
                        await producer.send_and_wait(TOPIC, b"%d" % number)
                        if number != 2:
                            raise KeyError
        await local.stop(1)
        (index,) = (cluster.data_directory(1) / f"{TOPIC}-0").glob("*.txnindex")
        good = index.read_bytes()
        change(index)
        local.start_node(1)
        await local.wait_until_ready()
        async with Consumer(local.bootstrap_servers) as consumer, asyncio.timeout(PATIENCE_S):
            await consumer.assign_topic(TOPIC)
            found = [each.value for each in await consumer.poll()]
        await local.stop(1)
        assert (found, index.read_bytes()) == ([b"2"], good)


@pytest.mark.parametrize(
    ("change", "said", "starts"),
    [
        (put_the_former_folder_back, f"{TOPIC}-0: was damaged and is fetched again", True),
        (give_records_up_and_lose_the_note, f"{GIVEN_UP_FILE} is gone", True),
        (raise_the_last_epoch_of_the_metadata, "a later epoch begins with a leader change", False),
    ],
    ids=["former folder", "lost note", "metadata epoch"],
)
async def test_damage_between_a_stop_and_a_start(
    tmp_path: Path, change: Callable[[Path, Path], None], said: str, *, starts: bool
) -> None:
    history = History()
    async with contextlib.AsyncExitStack() as stack:
        local = await LocalCluster.start(tmp_path / "cluster", nodes=3, config=QUICK)
        stack.push_async_callback(local.kill_all)
        admin = await stack.enter_async_context(Admin(local.bootstrap_servers))
        cluster = Cluster(local, admin)
        await admin.create_topic(TOPIC, 1, 3)
        async with Load(cluster, TOPIC, History()) as load:
            await load.more_acknowledged(5)
        victim = await cluster.leader(TOPIC)
        shutil.copytree(cluster.data_directory(victim) / f"{TOPIC}-0", tmp_path / FORMER)
        await admin.delete_topic(TOPIC)
        await admin.create_topic(TOPIC, 1, 3, {"min.insync.replicas": 2})
        async with Load(cluster, TOPIC, history) as load, asyncio.timeout(PATIENCE_S):
            await load.more_acknowledged(50)
        await wait_until_whole(cluster, TOPIC)
        others = [node_id for node_id in cluster.node_ids if node_id != victim]
        for node_id in (*others, victim):
            await local.stop(node_id)
        change(cluster.data_directory(victim), tmp_path / FORMER)
        for node_id in (victim, *others):
            local.start_node(node_id)

        async def is_told() -> bool:
            return said in cluster.log_text(victim)

        await until(is_told, "the node names the damage")
        if starts:
            await wait_until_whole(cluster, TOPIC)
        await read_to_the_end(cluster, TOPIC, history)
        history.check_or_raise()
