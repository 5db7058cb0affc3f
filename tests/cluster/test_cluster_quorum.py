"""The metadata quorum as real processes: its leader killed under load, its majority lost, all its voters replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from cluster_changes import Changes, check_log, values_in_log
from cluster_kit import QUICK, StartCluster, say, until

from replog.client import Admin
from replog.cluster import LocalCluster
from replog.errors import ReplogError, RequestTimedOutError, VoterNotFoundError
from replog.rpc.node_messages import DescribeQuorumResponse

pytestmark = pytest.mark.cluster

RATE_PER_S = 1_000
CONTROLLERS_ONLY = {1: ["controller"], 2: ["controller"], 3: ["controller"]}


@contextlib.asynccontextmanager
async def quorum(directory: Path, nodes: int = 3) -> AsyncIterator[tuple[LocalCluster, Admin]]:
    """Three controllers; from the fourth on, brokers."""
    roles = {node_id: CONTROLLERS_ONLY.get(node_id, ["broker"]) for node_id in range(1, nodes + 1)}
    local = await LocalCluster.start(directory / "cluster", nodes=nodes, config=QUICK, roles=roles)
    try:
        async with Admin(local.bootstrap_servers) as admin:
            await until(lambda: dynamic(admin), "the voters stand in the log")
            yield local, admin
    finally:
        await local.kill_all()


async def dynamic(admin: Admin) -> DescribeQuorumResponse | None:
    found = await admin.describe_quorum()
    return found if found.is_dynamic else None


async def voters(admin: Admin) -> set[int]:
    return {member.node_id for member in (await admin.describe_quorum()).members if member.is_voter}


@contextlib.asynccontextmanager
async def under_load(local: LocalCluster, rate_per_s: float) -> AsyncIterator[Changes]:
    """Changes are offered while the block runs; afterwards every one of them has its answer."""
    changes, stop = Changes(local), asyncio.Event()
    load = asyncio.create_task(changes.run(rate_per_s, stop))
    try:
        yield changes
    finally:
        stop.set()
        await load
        await changes.close()


async def test_the_active_controller_is_killed_under_load(tmp_path: Path) -> None:
    """Every acknowledged change is in every log afterwards, and none twice."""
    async with quorum(tmp_path) as (local, admin):
        async with under_load(local, RATE_PER_S) as changes:
            await until(lambda: acknowledged(changes, 500), "500 changes are acknowledged")
            victim = (await admin.describe_quorum()).leader_id
            before = len(changes.acknowledged)
            await local.kill(victim)
            say(f"killed node {victim} after {before} acknowledged changes")
            await until(lambda: acknowledged(changes, before + 500), "500 more are acknowledged by another controller")
        local.start_node(victim)
        await until(lambda: level(admin, 3), "all three voters have everything")
        await local.stop_all()
        logs = [values_in_log(local.nodes[node_id].directory / "data") for node_id in local.nodes]
        for values in logs:
            check_log(changes, values)
        assert logs[0] == logs[1] == logs[2]


async def acknowledged(changes: Changes, count: int) -> bool:
    return len(changes.acknowledged) >= count


async def level(admin: Admin, count: int) -> bool:
    """Whether so many voters have everything."""
    found = await admin.describe_quorum()
    ends = [member.log_end_offset for member in found.members if member.is_voter]
    return ends.count(found.log_end_offset) >= count


async def test_without_a_majority_changes_are_refused_and_come_through_again_with_it(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3)
    leader = await cluster.controller_id()
    lost = [node_id for node_id in cluster.node_ids if node_id != leader]
    for node_id in lost:
        await cluster.local.kill(node_id)
    with pytest.raises(RequestTimedOutError) as refused:
        await cluster.admin.create_topic("too-early", 1, 1, timeout_ms=4_000)
    say(f"refused: {refused.value}")
    assert "no leader" in str(refused.value) or "leadership was lost" in str(refused.value)
    for node_id in lost:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready()
    await until(lambda: created(cluster.admin, "in-time"), "a topic is created again")


async def created(admin: Admin, name: str) -> bool:
    with contextlib.suppress(ReplogError):
        await admin.create_topic(name, 1, 1)
    return name in await admin.list_topics()


async def test_all_three_voters_are_replaced_one_by_one_under_load(tmp_path: Path) -> None:
    async with quorum(tmp_path, nodes=4) as (local, admin):
        async with under_load(local, 50) as changes:
            for old in (1, 2, 3):
                new = local.add_node(roles=["controller"], config=QUICK)
                await until(lambda node=new: observed(admin, node), f"node {new} follows")
                member = next(m for m in (await admin.describe_quorum()).members if m.node_id == new)
                assert member.directory_id is not None
                await admin.add_voter(new, member.directory_id, local.nodes[new].peer_address)
                await admin.remove_voter(old)
                await local.remove_node(old)
                say(f"node {new} votes instead of node {old}")
            before = len(changes.acknowledged)
            await until(lambda: acknowledged(changes, before + 50), "changes go on")
        async with Admin(local.bootstrap_servers) as now:
            assert await voters(now) == {5, 6, 7}
            await until(lambda: created(now, "after-all"), "the broker finds the new controllers")
            await until(lambda: level(now, 3), "all three voters have everything")
        await local.stop_all()
        for node_id in (5, 6, 7):
            check_log(changes, values_in_log(local.nodes[node_id].directory / "data"))


async def observed(admin: Admin, node_id: int) -> bool:
    return any(member.node_id == node_id for member in (await admin.describe_quorum()).members)


async def test_a_lost_disk_under_the_same_id_is_no_voter_until_it_is_made_one(tmp_path: Path) -> None:
    """Its directory id is another one: what the old disk promised does not count for the new one."""
    async with quorum(tmp_path) as (local, admin):
        leader = (await admin.describe_quorum()).leader_id
        lost = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await local.kill(lost)
        (local.nodes[lost].directory / "data").rename(local.nodes[lost].directory / "lost")
        local.start_node(lost, accept_empty=True)
        directory_id = await until(lambda: observers_directory(admin, lost), f"node {lost} follows as an observer")
        await admin.remove_voter(lost)
        await admin.add_voter(lost, directory_id, local.nodes[lost].peer_address)
        assert await voters(admin) == {1, 2, 3}
        await until(lambda: level(admin, 3), "all three voters have everything")
        with pytest.raises(VoterNotFoundError):
            await admin.remove_voter(99)


async def observers_directory(admin: Admin, node_id: int) -> UUID | None:
    members = (await admin.describe_quorum()).members
    return next((m.directory_id for m in members if m.node_id == node_id and not m.is_voter), None)
