"""Whole nodes, as shipped, in one thread of virtual time: their disks lose power, their links fail, their clocks jump.

::

    loop = VirtualLoop(random.Random(4711))
    cluster = SimulatedCluster(loop, random.Random(4712), controllers=(1, 2, 3), brokers=(4, 5))


    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        cluster.crash(1)  # power cut between two steps; `start` brings back what the disk kept
        ...


    loop.run(main())

A crash runs no line of the node's code: its tasks, callbacks and threads are gone, its connections break, and its disk
holds what a power cut leaves.  A node that ends by itself is told to the observer; a cluster without disk faults has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

from msgspec.structs import force_setattr

from replog.client.protocol.seam import Connection
from replog.config.server import ServerConfig
from replog.metadata.records import NO_LEADER
from replog.rpc.tcp.wire import StreamKind
from replog.testing.simulated_network import NetworkConditions, SimulatedNetwork
from replog.testing.simulated_node import ClusterObserver, ObservedNode, SimulatedNode
from replog.testing.simulated_transport import SimulatedClientTransport, SimulatedHost, SimulatedInternet
from replog.testing.virtual_loop import VirtualLoop
from replog.waiting.asks import Asks

T = TypeVar("T")

CLUSTER_ID = "simulated-cluster-0000"
FIRST_PORT = 9_000
FIRST_PEER_PORT = 19_000
LOG_DIRECTORY = "/data"
POLL_S = 0.01


class SimulatedCluster:
    """Nodes and what is between them.

    Args:
        loop: The loop of everything.
        rng: A seeded generator; faults of disks, ids and delays come from it.
        controllers: The ids of the voters.
        brokers: The ids of the brokers; a node in both has both roles.
        settings: The settings of every node, by Kafka's dotted names.
        small: The settings by attribute of `ServerConfig`, past the checks: what nobody may configure, such as
            segments of a kilobyte, makes rare things common.
        observer: The observer that is told what the nodes learn.
        client_seed: The seed of what clients draw.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        rng: Random,
        *,
        controllers: Sequence[int],
        brokers: Sequence[int] = (),
        settings: Mapping[str, object] | None = None,
        small: Mapping[str, int] | None = None,
        observer: ClusterObserver | None = None,
        conditions: NetworkConditions | None = None,
        client_seed: int = 0,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.observer = observer or ClusterObserver()
        self.network = SimulatedNetwork(loop, Random(rng.getrandbits(64)), conditions)  # noqa: S311 -- repeatable
        self.internet = SimulatedInternet(self.network, client_seed)
        self.controllers = tuple(controllers)
        self.brokers = tuple(brokers)
        ids = sorted({*controllers, *brokers})
        self.nodes = {node_id: self._new_node(node_id, settings or {}) for node_id in ids}
        for node in self.nodes.values():
            for name, value in (small or {}).items():
                force_setattr(node.config, name, value)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        self.nodes[node_id].start()

    def crash(self, node_id: int, *, power_cut: bool = True) -> None:
        self.nodes[node_id].crash(power_cut=power_cut)

    async def stop(self, node_id: int) -> None:
        await self.nodes[node_id].stop()

    def pause(self, node_id: int) -> None:
        """Stops a process as SIGSTOP does, until it is resumed."""
        process = self.nodes[node_id].process
        if process is not None:
            process.pause()

    def resume(self, node_id: int) -> None:
        process = self.nodes[node_id].process
        if process is not None:
            process.resume()

    @property
    def running(self) -> list[ObservedNode]:
        """The nodes that listen, by id."""
        return [node.node for node in self.nodes.values() if node.node is not None]

    # ---- links -------------------------------------------------------------------------------------------------------

    def cut(self, source_id: int, target_id: int) -> None:
        """Cuts the links from one node to another, in this direction only."""
        self.network.cut(self.nodes[source_id].host.name, self.nodes[target_id].host.name)

    def isolate(self, node_id: int, *, incoming: bool = True, outgoing: bool = True) -> None:
        """Cuts the links of a node to and from all others."""
        for other_id in self.nodes:
            if other_id != node_id and outgoing:
                self.cut(node_id, other_id)
            if other_id != node_id and incoming:
                self.cut(other_id, node_id)

    def cut_metadata(self, node_id: int) -> None:
        """Lets no metadata reach a node, and nothing of the quorum leave it; records, heartbeats and requests pass."""
        name = self.nodes[node_id].host.name
        for other_id, other in self.nodes.items():
            if other_id != node_id:
                self.network.cut(name, other.host.name, StreamKind.QUORUM)
                self.network.cut(other.host.name, name, StreamKind.QUORUM)

    def cut_client(self, name: str, node_id: int) -> None:
        """Cuts both ways between what runs on the host `name` and a node."""
        node = self.nodes[node_id].host.name
        self.network.cut(name, node)
        self.network.cut(node, name)

    def mend_all(self) -> None:
        self.network.mend_all()

    # ---- looking in --------------------------------------------------------------------------------------------------

    def leader(self) -> ObservedNode | None:
        """Returns the controller that every running node takes for the leader; None while they do not agree on one."""
        known = {node.quorum_status.leader_id for node in self.running}
        leader_id = known.pop() if len(known) == 1 else None
        return None if leader_id is None else self.nodes[leader_id].node

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """Returns who leads a partition, by the newest metadata of any running node; None: nobody, or no partition."""
        image = max((node.image for node in self.running), key=lambda image: image.end_offset, default=None)
        found = None if image is None else image.topics_by_name.get(topic)
        registration = None if found is None else found.partitions.get(partition)
        return None if registration is None or registration.leader == NO_LEADER else registration.leader

    def is_settled(self) -> bool:
        """Whether every node runs, all follow one leader, have the same metadata, and every broker is unfenced in it.

        What counts is the process that runs: a broker may still be unfenced in the name of one that was killed.
        """
        running = self.running
        if len(running) < len(self.nodes) or self.leader() is None:
            return False
        image = running[0].image
        if any(node.image.end_offset != image.end_offset for node in running):
            return False
        found = {b.broker_id: b.incarnation_id for b in image.brokers.values() if b.is_active}
        return all(found.get(node.config.node_id) == node.incarnation_id for node in running if node.config.is_broker)

    async def wait_until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Raises `TimeoutError` when it does not come true within so much virtual time."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 -- in virtual time looking again costs nothing
                await asyncio.sleep(POLL_S)

    # ---- clients -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> list[str]:
        """Of all nodes that are brokers, for `Producer`, `Consumer` and `Admin`."""
        return [self.nodes[node_id].address for node_id in sorted(self.brokers)]

    def transport(self, name: str) -> SimulatedClientTransport:
        """Returns the transport of a client on a host of this name.

        `Producer(cluster.bootstrap_servers, transport=cluster.transport("app"))` is an example.
        """
        return self.internet.host(name).client_transport()

    def client(self, name: str) -> SimulatedClient:
        return SimulatedClient(self, self.internet.host(name))

    def _new_node(self, node_id: int, settings: Mapping[str, object]) -> SimulatedNode:
        config = self._config(node_id, settings)
        return SimulatedNode(self.internet.host(f"node-{node_id}"), config, self.loop, self.rng, self.observer)

    def _config(self, node_id: int, settings: Mapping[str, object]) -> ServerConfig:
        roles = (["controller"] if node_id in self.controllers else []) + (
            ["broker"] if node_id in self.brokers else []
        )
        return ServerConfig.from_mapping(
            {
                "node.id": node_id,
                "cluster.id": CLUSTER_ID,
                "log.dirs": [LOG_DIRECTORY],
                "listeners": [f"127.0.0.1:{FIRST_PORT + node_id}"],
                "inter.broker.listener": _peer_address(node_id),
                "process.roles": roles,
                "controller.quorum.voters": [f"{voter}@{_peer_address(voter)}" for voter in self.controllers],
                **settings,
            }
        )


class SimulatedClient:
    """Somebody outside who talks to nodes; it does not crash.

    Args:
        host: The host where it runs; links to it can be cut by name.
    """

    def __init__(self, cluster: SimulatedCluster, host: SimulatedHost) -> None:
        self.host = host
        self._cluster = cluster
        self._transport = host.client_transport()
        self._connections: dict[int, Connection] = {}

    def connection(self, node_id: int) -> Connection:
        """Returns the connection to one node, whatever runs there."""
        if node_id not in self._connections:
            address = self._cluster.nodes[node_id].address
            self._connections[node_id] = self._transport.connect(address, purpose="client")
        return self._connections[node_id]

    async def ask(self, node_id: int, request: Asks[T], *, timeout_ms: int = 5_000) -> T:
        """Sends a controller request through the handlers of a node, which passes it on where it must."""
        return await self.connection(node_id).call(request, timeout_ms=timeout_ms)


def _peer_address(node_id: int) -> str:
    return f"127.0.0.1:{FIRST_PEER_PORT + node_id}"
