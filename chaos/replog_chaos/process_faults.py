"""Processes that are killed, stopped, restarted, or come back without their disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

from replog.errors import BrokerNotAvailableError
from replog_chaos.fault import SESSION_MS, Fault, Target, until

PAUSE_S = 1.3 * SESSION_MS / 1000
STAGGER_S = 1.0
"""Between two nodes of a rolling restart."""


@asynccontextmanager
async def _kill_leader(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    await target.cluster.kill(node_id)
    yield [node_id]
    target.cluster.start_node(node_id)


@asynccontextmanager
async def _kill_controller(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.controller()
    await target.cluster.kill(node_id)
    yield [node_id]
    target.cluster.start_node(node_id)


@asynccontextmanager
async def _kill_follower(target: Target) -> AsyncIterator[list[int]]:
    """Kills a broker that leads nothing: its partitions have been given to the others before."""
    node_id = await target.leader()
    before = {(target.topic, part.partition_id): part.replicas for part in await target.partitions()}
    await target.prefer({place: sorted(replicas, key=node_id.__eq__) for place, replicas in before.items()})
    await until(lambda: _leads_nothing(target, node_id))
    await target.cluster.kill(node_id)
    yield [node_id]
    target.cluster.start_node(node_id)
    await target.prefer(before)


async def _leads_nothing(target: Target, node_id: int) -> bool:
    return node_id not in {part.leader for part in await target.partitions()}


@asynccontextmanager
async def _kill_all(target: Target) -> AsyncIterator[list[int]]:
    nodes = sorted(target.cluster.nodes)
    await asyncio.gather(*(target.cluster.kill(node_id) for node_id in nodes))
    yield nodes
    for node_id in nodes:
        target.cluster.start_node(node_id)


@asynccontextmanager
async def _pause_leader(target: Target) -> AsyncIterator[list[int]]:
    async with _paused(target, await target.leader()) as nodes:
        yield nodes


@asynccontextmanager
async def _pause_controller(target: Target) -> AsyncIterator[list[int]]:
    async with _paused(target, await target.controller()) as nodes:
        yield nodes


@asynccontextmanager
async def _paused(target: Target, node_id: int) -> AsyncIterator[list[int]]:
    target.cluster.pause(node_id)
    await asyncio.sleep(PAUSE_S)
    yield [node_id]
    target.cluster.resume(node_id)


@asynccontextmanager
async def _rolling_restart(target: Target) -> AsyncIterator[list[int]]:
    nodes = sorted(target.cluster.nodes)
    for node_id in nodes:
        await target.cluster.stop(node_id)
        target.cluster.start_node(node_id)
        await target.cluster.wait_until_ready()
        await target.admin.wait_until_in_sync(target.topic)
        await asyncio.sleep(STAGGER_S)
    yield nodes


@asynccontextmanager
async def _wipe_node(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    await until(lambda: _voters_are_logged(target))
    await target.cluster.kill(node_id)
    yield [node_id]
    await come_back_wiped(target, node_id)


async def come_back_wiped(target: Target, node_id: int) -> None:
    """Starts a dead node on an empty disk and makes it a voter anew, as docs/OPERATIONS.md says ("A lost disk")."""
    spec = target.cluster.nodes[node_id]
    old = await _directory_id(target, node_id)
    shutil.rmtree(spec.directory / "data")
    target.cluster.start_node(node_id, accept_empty=True)
    await until(lambda: _has_other_directory(target, node_id, old))
    new = await _directory_id(target, node_id)
    if new is None:
        raise BrokerNotAvailableError(f"node {node_id} follows without a directory id")
    await target.admin.remove_voter(node_id)
    await target.admin.add_voter(node_id, new, spec.peer_address)


async def _voters_are_logged(target: Target) -> bool:
    """Whether the log names the voters: else they have no directory ids, and a wiped one is taken for the old one."""
    return (await target.admin.describe_quorum()).is_dynamic


async def _has_other_directory(target: Target, node_id: int, old: UUID | None) -> bool:
    found = await _directory_id(target, node_id)
    return found is not None and found != old


async def _directory_id(target: Target, node_id: int) -> UUID | None:
    """Returns the directory id of the observer where one follows under this node id, else of the voter."""
    members = [member for member in (await target.admin.describe_quorum()).members if member.node_id == node_id]
    members.sort(key=lambda member: member.is_voter)
    return members[0].directory_id if members else None


PROCESS_FAULTS: Mapping[str, Fault] = {
    "kill-leader": Fault("kill -9 of a broker that leads partitions", _kill_leader),
    "kill-follower": Fault("kill -9 of a broker that leads nothing", _kill_follower),
    "kill-controller": Fault("kill -9 of the active controller, which leads partitions too", _kill_controller),
    "kill-all": Fault("kill -9 of all nodes at once", _kill_all, blocks=True),
    "pause-leader": Fault("SIGSTOP of a leader for longer than its session", _pause_leader),
    "pause-controller": Fault("SIGSTOP of the active controller for longer than its session", _pause_controller),
    "rolling-restart": Fault("every node stopped in order and started again, one after the other", _rolling_restart),
    "wipe-node": Fault("kill -9 of a leader that comes back with an empty disk", _wipe_node),
}
