"""What a fault is, and the cluster it happens to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum

from msgspec import Struct, field

from replog.client import Admin
from replog.cluster import LocalCluster
from replog.errors import BrokerNotAvailableError, ErrorCode, ReplogError
from replog.errors.from_code import error_from_code
from replog.rpc.metadata_messages import PartitionInfo
from replog.testing.history import Anomaly
from replog.testing.machines.network import Network
from replog_chaos.clocks import Clocks
from replog_chaos.cuttable_disk import Disk

SESSION_MS = 9_000
"""`broker.session.timeout.ms` of the cluster: Kafka's default."""

POLL_S = 0.05


class Scene(Enum):
    """What kind of cluster a fault happens to; faults with the same one share a cluster."""

    PLAIN = "plain"
    """Processes on loopback."""
    PROXIED = "proxied"
    """The same, and every byte between two nodes, or a client and a node, goes through `Proxies`."""
    NAMESPACES = "namespaces"
    """Every node in a network namespace of its own (`Namespaces`)."""
    SMALL_DISK = "small disk"
    """Node 1 has a small disk of its own."""
    CUTTABLE_DISK = "cuttable disk"
    """Node 1 has a disk whose power can be cut."""
    CLOCKS = "clocks"
    """The wall clock of every node can be moved.  Records carry the time of their leader (LogAppendTime), so that a clock
    that jumps is seen in the log, and producers are not refused for a clock that differs from their leader's."""


class FaultMissedError(ReplogError):
    """The fault came when what it was meant for was over already, so that the run would show nothing."""


class Target(Struct, frozen=True):
    """The cluster that suffers.

    Attributes:
        cluster: The processes of the nodes.
        admin: The client that is asked who leads what.
        topic: The topic under load; every broker leads some of its partitions.
        bootstrap_servers: The addresses for further clients.
        network: The network between the nodes, where the scene has one.
        disk: The disk of node 1, where the scene has one.
        clocks: The clocks of all nodes, where the scene has them.
        anomalies: The anomalies that faults with a load of their own found; added to the outcome.
    """

    cluster: LocalCluster
    admin: Admin
    topic: str
    bootstrap_servers: str
    network: Network | None = None
    disk: Disk | None = None
    clocks: Clocks | None = None
    anomalies: list[Anomaly] = field(default_factory=list[Anomaly])

    async def controller(self) -> int:
        """Returns the node id of the active controller."""
        return (await self.admin.describe_cluster()).controller_id

    async def partitions(self) -> Sequence[PartitionInfo]:
        """Returns the partitions of the topic under load."""
        return (await self.admin.describe_topics([self.topic]))[self.topic].partitions

    async def leader(self) -> int:
        """Returns the id of a broker that leads a partition and is not the active controller.

        Raises:
            BrokerNotAvailableError: There is none: the leaders have not been balanced again.
        """
        controller_id = await self.controller()
        leaders = [part.leader for part in await self.partitions() if part.leader not in {-1, controller_id}]
        if not leaders:
            raise BrokerNotAvailableError(f"only the active controller leads partitions of {self.topic}")
        return leaders[0]

    async def prefer(self, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Makes the first replica of each partition lead; where they live stays, their order is the given one.

        Raises:
            ReplogError: The order of the replicas of a partition could not be changed.
        """
        for result in await self.admin.reassign_partitions(replicas):
            if result.error is not ErrorCode.NONE:
                raise error_from_code(result.error, result.message)
        await self.admin.elect_leaders(replicas)


class Fault(Struct, frozen=True):
    """Something that goes wrong, and how it is mended.

    Attributes:
        text: The fault in one line, for people.
        happens: The function whose block is the fault: entered it makes it happen and gives the nodes concerned; left
            it mends it, once acknowledgements have come again or cannot come without.
        blocks: Whether nothing can be acknowledged before it is mended.
        scene: The kind of cluster that it happens to.
        missing: The function that says why it cannot happen on this machine; "" where it can.
    """

    text: str
    happens: Callable[[Target], AbstractAsyncContextManager[list[int]]]
    blocks: bool = False
    scene: Scene = Scene.PLAIN
    missing: Callable[[], str] = str


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Asks until the answer is yes; a `ReplogError` counts as no.  Whoever calls it sets the deadline.

    Raises:
        FaultMissedError: The condition raised it.
    """
    while True:
        try:
            if await condition():
                return
        except FaultMissedError:
            raise
        except ReplogError:
            pass
        await asyncio.sleep(POLL_S)
