"""Disks of real processes that are full, fail, or lose power: the others go on, and nothing acknowledged is lost.

Skipped with the reason where this machine does not permit to mount or to trace.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from cluster_kit import PATIENCE_S, QUICK, Cluster, check_replicas_identical, read_to_the_end, say, wait_until_whole
from cluster_load import Load, Tail

from replog.client import Admin
from replog.cluster import LocalCluster
from replog.testing.history import History
from replog_chaos.cuttable_disk import CuttableDisk, cuttable_disk_is_missing
from replog_chaos.faults import FAULTS
from replog_chaos.scenes import prepared

pytestmark = pytest.mark.cluster

TOPIC = "flights"
CONFIG = {**QUICK, "replica.lag.time.max.ms": 2_000}
SAID = {
    "full-disk": "is read-only: ",
    "fsync-error": "the node stops",
    "power-cut": "",
}
"""What the node says about it."""


@pytest.mark.parametrize("name", SAID)
async def test_a_bad_disk(tmp_path: Path, name: str) -> None:
    fault, history = FAULTS[name], History()
    if reason := fault.missing():
        pytest.skip(reason)
    async with prepared(fault.scene, tmp_path / "cluster", 3, CONFIG, TOPIC) as target:
        cluster = Cluster(target.cluster, target.admin)
        await target.admin.create_topic(TOPIC, 3, 3, {"min.insync.replicas": 2})
        async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history), asyncio.timeout(PATIENCE_S):
            async with fault.happens(target) as (node_id,):
                say(f"{name}: node {node_id}")
                if not fault.blocks:
                    await load.more_acknowledged(100)
            await target.cluster.wait_until_ready()
            await load.more_acknowledged(100)
        assert SAID[name] in cluster.log_text(node_id)
        await wait_until_whole(cluster, TOPIC)
        await read_to_the_end(cluster, TOPIC, history)
        if target.disk is None:  # else one node's replicas lie elsewhere
            await check_replicas_identical(cluster, TOPIC)
        history.check_or_raise()


async def test_power_cut_of_all_nodes_loses_nothing_that_waited_for_its_flush(tmp_path: Path) -> None:
    """`flush.policy=always`: what was acknowledged is on every in-sync disk, whatever the page caches held."""
    if reason := cuttable_disk_is_missing():
        pytest.skip(reason)
    history = History()
    async with contextlib.AsyncExitStack() as stack:
        disks = {n: stack.enter_context(CuttableDisk(tmp_path / f"disk-{n}")) for n in (1, 2, 3)}
        own = {n: {"log.dirs": [str(disk.folder / "data")]} for n, disk in disks.items()}
        local = await LocalCluster.start(tmp_path / "cluster", nodes=3, config=CONFIG, node_config=own)
        stack.push_async_callback(local.kill_all)
        cluster = Cluster(local, await stack.enter_async_context(Admin(local.bootstrap_servers)))
        configs = {"min.insync.replicas": 2, "flush.policy": "always"}
        await cluster.admin.create_topic(TOPIC, 3, 3, configs)
        async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history), asyncio.timeout(PATIENCE_S):
            await load.more_acknowledged(200)
            await local.kill_all()
            for disk in disks.values():
                await asyncio.to_thread(disk.cut_power)
            for node_id in disks:
                local.start_node(node_id)
            await local.wait_until_ready()
            await load.more_acknowledged(100)
        await wait_until_whole(cluster, TOPIC)
        await read_to_the_end(cluster, TOPIC, history)
        history.check_or_raise()


async def test_a_full_disk_holds_up_only_what_its_broker_leads(tmp_path: Path) -> None:
    fault, history = FAULTS["full-disk"], History()
    if reason := fault.missing():
        pytest.skip(reason)
    async with prepared(fault.scene, tmp_path / "cluster", 3, CONFIG, TOPIC) as target:
        cluster = Cluster(target.cluster, target.admin)
        await target.admin.create_topic(TOPIC, assignments=[[2, 1, 3]], configs={"min.insync.replicas": 2})
        async with Load(cluster, TOPIC, history) as load, asyncio.timeout(PATIENCE_S):
            async with fault.happens(target):
                await load.more_acknowledged(100)
                assert (await cluster.partitions(TOPIC))[0].isr == (2, 3)
            await cluster.isr_is([1, 2, 3], TOPIC)
        await wait_until_whole(cluster, TOPIC)
        await read_to_the_end(cluster, TOPIC, history)
        history.check_or_raise()
