"""What can happen to a cluster of real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from replog.client import Admin
from replog.cluster import LocalCluster
from replog.errors import BrokerNotAvailableError

SESSION_MS = 9_000
"""`broker.session.timeout.ms` of the cluster: Kafka's default."""

PAUSE_S = 1.3 * SESSION_MS / 1000
STAGGER_S = 1.0
"""Between two nodes of a rolling restart."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that suffers.

    Attributes:
        cluster: its processes.
        admin: to look who leads what.
        topic: under load; every broker leads some of its partitions.
    """

    cluster: LocalCluster
    admin: Admin
    topic: str

    async def controller(self) -> int:
        """The active controller."""
        return (await self.admin.describe_cluster()).controller_id

    async def leader(self) -> int:
        """A broker that leads a partition and is not the active controller.

        Raises:
            BrokerNotAvailableError: there is none: the leaders have not been balanced again.
        """
        controller_id = await self.controller()
        topic = (await self.admin.describe_topics([self.topic]))[self.topic]
        leaders = [partition.leader for partition in topic.partitions if partition.leader not in {-1, controller_id}]
        if not leaders:
            raise BrokerNotAvailableError(f"only the active controller leads partitions of {self.topic}")
        return leaders[0]


Inject = Callable[[Target], Awaitable[list[int]]]
Heal = Callable[[Target, list[int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, and how it is mended.

    Attributes:
        text: one line for people.
        inject: makes it happen; returns the nodes concerned.
        heal: mends it, once acknowledgements have come again or cannot come without.
        blocks: nothing can be acknowledged before it is mended.
    """

    text: str
    inject: Inject
    heal: Heal
    blocks: bool = False


async def _kill_leader(target: Target) -> list[int]:
    return await _kill(target, await target.leader())


async def _kill_controller(target: Target) -> list[int]:
    return await _kill(target, await target.controller())


async def _kill(target: Target, node_id: int) -> list[int]:
    await target.cluster.kill(node_id)
    return [node_id]


async def _kill_all(target: Target) -> list[int]:
    nodes = sorted(target.cluster.nodes)
    await asyncio.gather(*(target.cluster.kill(node_id) for node_id in nodes))
    return nodes


async def _start(target: Target, nodes: list[int]) -> None:
    for node_id in nodes:
        target.cluster.start_node(node_id)


async def _pause_leader(target: Target) -> list[int]:
    return await _pause(target, await target.leader())


async def _pause_controller(target: Target) -> list[int]:
    return await _pause(target, await target.controller())


async def _pause(target: Target, node_id: int) -> list[int]:
    target.cluster.pause(node_id)
    await asyncio.sleep(PAUSE_S)
    return [node_id]


async def _resume(target: Target, nodes: list[int]) -> None:
    for node_id in nodes:
        target.cluster.resume(node_id)


async def _rolling_restart(target: Target) -> list[int]:
    nodes = sorted(target.cluster.nodes)
    for node_id in nodes:
        await target.cluster.stop(node_id)
        target.cluster.start_node(node_id)
        await target.cluster.wait_until_ready()
        await target.admin.wait_until_in_sync(target.topic)
        await asyncio.sleep(STAGGER_S)
    return nodes


async def _nothing(_target: Target, _nodes: list[int]) -> None:
    return


FAULTS: Mapping[str, Fault] = {
    "kill-leader": Fault("kill -9 of a broker that leads partitions", _kill_leader, _start),
    "kill-controller": Fault("kill -9 of the active controller, which leads partitions too", _kill_controller, _start),
    "kill-all": Fault("kill -9 of all nodes at once", _kill_all, _start, blocks=True),
    "pause-leader": Fault("SIGSTOP of a leader for longer than its session", _pause_leader, _resume),
    "pause-controller": Fault(
        "SIGSTOP of the active controller for longer than its session", _pause_controller, _resume
    ),
    "rolling-restart": Fault(
        "every node stopped in order and started again, one after the other", _rolling_restart, _nothing
    ),
}
"""By the names that `--faults` takes."""
