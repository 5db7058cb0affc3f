"""Nodes that die while a partition moves, or while a topic is deleted and made anew under load.

A second topic with one partition lives on two brokers and is written all the time.  It is moved from the one that leads it
to a third, throttled, so that the move takes some seconds; in the middle of them a process dies.  The partition must
arrive by itself, with everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from replog.client.admin.operations import CLUSTER
from replog.errors import ErrorCode, InvariantViolationError
from replog.errors.from_code import error_from_code
from replog_chaos.fault import Fault, FaultMissedError, Target, until
from replog_chaos.load import Load

RATE_PER_S = 50.0
FILL_RECORDS = 160
FILL_RECORD_BYTES = 50_000
THROTTLE = "leader.replication.throttled.rate"
THROTTLE_BYTES_PER_S = 1_000_000
"""The 8 MB that the partition begins with take 8 s."""

PARTITIONS_COUNT = 3
CONFIGS: Mapping[str, object] = {"min.insync.replicas": 2}

_numbers = itertools.count(1)


class Move(Struct, frozen=True):
    """A partition that moves from `source`, which leads it, to `goal`; `stays` keeps its replica.

    `stays` is the active controller, so that each of the three dies for one reason only.
    """

    topic: str
    source: int
    stays: int
    goal: int

    async def is_under_way(self, target: Target) -> bool:
        return (self.topic, 0) in await target.admin.list_reassignments()

    async def copied_count(self, target: Target) -> int:
        """Returns the log end of the new replica; 0 before it is there."""
        status = await target.admin.describe_node(target.cluster.nodes[self.goal].address)
        ends = [one.log_end_offset for one in status.replicas if (one.topic, one.partition_id) == (self.topic, 0)]
        return ends[0] if ends else 0

    async def has_begun(self, target: Target) -> bool:
        """Whether some of it has been copied, and not all; a broker that is asked may not know yet that it moves.

        Raises:
            FaultMissedError: All of it has arrived already.
        """
        if await self.has_arrived(target):
            raise FaultMissedError(f"{self.topic}-0 had arrived before anything could be broken")
        return await self.is_under_way(target) and await self.copied_count(target) > 0

    async def has_arrived(self, target: Target) -> bool:
        """Whether every replica that it shall have is there and in sync, and no other is left."""
        (partition,) = (await target.admin.describe_topics([self.topic]))[self.topic].partitions
        return set(partition.replicas) == set(partition.isr) == {self.goal, self.stays}


@asynccontextmanager
async def moving(target: Target) -> AsyncIterator[tuple[Move, Load]]:
    """Moves a partition of a topic of its own; the block runs when some of it has arrived, and the load goes on.

    After the block everything is read back and the topic deleted.
    """
    controller_id = await target.controller()
    source, goal, *_ = sorted(set(target.cluster.nodes) - {controller_id})
    move = Move(f"moving-{next(_numbers)}", source, controller_id, goal)
    await target.admin.create_topic(move.topic, assignments=[[move.source, move.stays]])
    load = Load(target.bootstrap_servers, move.topic, 1, RATE_PER_S)
    await load.fill(FILL_RECORDS, FILL_RECORD_BYTES)
    await target.admin.alter_configs(CLUSTER, {THROTTLE: THROTTLE_BYTES_PER_S})
    async with load:
        await load.wait_flowing(asyncio.get_running_loop().time())
        (result,) = await target.admin.reassign_partitions({(move.topic, 0): [move.goal, move.stays]})
        if result.error is not ErrorCode.NONE:
            raise error_from_code(result.error, result.message)
        await until(lambda: move.has_begun(target))
        yield move, load
    await target.admin.alter_configs(CLUSTER, {THROTTLE: None})
    await load.read_back()
    target.anomalies.extend(load.history.check())
    await target.admin.delete_topic(move.topic)


@asynccontextmanager
async def killed_while_moving(target: Target, role: str, *, comes_back: bool = True) -> AsyncIterator[list[int]]:
    """Kills (kill -9) the `source`, the `goal`, or who `stays`, in the middle of a move.

    Args:
        target: The cluster that suffers.
        role: The attribute of `Move` that names the node.
        comes_back: Whether the node starts again after the block; otherwise the partition must arrive without it.

    Raises:
        FaultMissedError: The partition was no longer moving.
    """
    loop = asyncio.get_running_loop()
    async with moving(target) as (move, load):
        node_id: int = getattr(move, role)
        await target.cluster.kill(node_id)
        await until(lambda: _still_moves(target, move))
        await load.wait_flowing(loop.time())
        yield [node_id]
        if comes_back:
            target.cluster.start_node(node_id)
        await until(lambda: move.has_arrived(target))
        await load.wait_flowing(loop.time())


async def _still_moves(target: Target, move: Move) -> bool:
    """Whether the partition still moves, asked after the kill of whoever answers.

    Raises:
        FaultMissedError: The partition had arrived already.
    """
    if await move.has_arrived(target):
        raise FaultMissedError(f"{move.topic}-0 had arrived when the node died")
    return await move.is_under_way(target)


@asynccontextmanager
async def _kill_source(target: Target) -> AsyncIterator[list[int]]:
    async with killed_while_moving(target, "source") as nodes:
        yield nodes


@asynccontextmanager
async def _kill_goal(target: Target) -> AsyncIterator[list[int]]:
    async with killed_while_moving(target, "goal") as nodes:
        yield nodes


@asynccontextmanager
async def _kill_controller(target: Target) -> AsyncIterator[list[int]]:
    async with killed_while_moving(target, "stays") as nodes:
        yield nodes


@asynccontextmanager
async def _recreate_topic(target: Target) -> AsyncIterator[list[int]]:
    """Deletes a topic and creates it anew; a broker comes back with folders of the old one, named as the new one's."""
    loop = asyncio.get_running_loop()
    name = f"recreated-{next(_numbers)}"
    node_id = await target.leader()
    old = await target.admin.create_topic(name, PARTITIONS_COUNT, 3, CONFIGS)
    async with Load(target.bootstrap_servers, name, PARTITIONS_COUNT, RATE_PER_S) as load:
        await load.wait_flowing(loop.time())
        await target.cluster.kill(node_id)
        await load.wait_flowing(loop.time())
        await target.admin.delete_topic(name)
        if load.bury(f"{name} (deleted)") == 0:
            raise FaultMissedError(f"nothing was acknowledged in {name} before it was deleted")
        new = await target.admin.create_topic(name, PARTITIONS_COUNT, 3, CONFIGS)
        if new.topic_id == old.topic_id:
            raise InvariantViolationError(f"{name} was created anew with the topic id of the deleted one")
        await load.wait_flowing(loop.time())
        yield [node_id]
        target.cluster.start_node(node_id)
        await target.admin.wait_until_in_sync(name)
        await load.wait_flowing(loop.time())
    await load.read_back()
    target.anomalies.extend(load.history.check())
    await target.admin.delete_topic(name)


REASSIGN_FAULTS: Mapping[str, Fault] = {
    "recreate-topic": Fault(
        "a second topic deleted and created anew under its own load, while one of its brokers is dead", _recreate_topic
    ),
    "reassign-kill-source": Fault("kill -9 of the leader that a partition moves away from", _kill_source),
    "reassign-kill-target": Fault("kill -9 of the broker that a partition moves to", _kill_goal),
    "reassign-kill-controller": Fault(
        "kill -9 of the active controller, which keeps a replica, while a partition moves", _kill_controller
    ),
}
