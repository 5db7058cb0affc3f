"""The state of a local cluster: asked from its processes, said in one sentence, shown on one screen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from replog.cli.common import counted, json_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.client import Admin
    from replog.cluster import LocalCluster, NodeSpec
    from replog.rpc.metadata_messages import ClusterMetadata, TopicInfo
    from replog.rpc.node_messages import DescribeNodeResponse

ASK_TIMEOUT_MS = 3_000


class NodeStatus(Struct, frozen=True):
    """One node.

    Attributes:
        pid: Its process; None: it does not run.
        description: What it says about itself; None: it does not answer.
    """

    node_id: int
    address: str
    pid: int | None
    description: DescribeNodeResponse | None = None

    @property
    def state(self) -> str:
        if self.pid is None:
            return "stopped"
        return "no answer" if self.description is None else self.description.state


class ClusterStatus(Struct, frozen=True):
    """All nodes, and the metadata of whichever answered (None: nobody did)."""

    directory: str
    cluster_id: str
    nodes: tuple[NodeStatus, ...]
    metadata: ClusterMetadata | None

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, for `--bootstrap-servers`."""
        return ",".join(node.address for node in self.nodes)

    @property
    def controller_id(self) -> int:
        return -1 if self.metadata is None else self.metadata.controller_id

    def partitions_led(self, node_id: int) -> int:
        return sum(p.leader == node_id for topic in self._topics for p in topic.partitions)

    def partitions_held(self, node_id: int) -> int:
        return sum(node_id in p.replicas for topic in self._topics for p in topic.partitions)

    @property
    def _topics(self) -> tuple[TopicInfo, ...]:
        return () if self.metadata is None else self.metadata.topics

    def sentence(self) -> str:
        """Says how the cluster is, in plain words."""
        running = [node for node in self.nodes if node.pid is not None]
        if not running:
            return f"The cluster is stopped: none of its {counted(len(self.nodes), 'node')} runs."
        nodes = f"{len(running)} of {counted(len(self.nodes), 'node')} {'runs' if len(running) == 1 else 'run'}"
        if len(running) == len(self.nodes):
            nodes = f"All {counted(len(self.nodes), 'node')} run" if len(self.nodes) > 1 else "The node runs"
        if self.metadata is None:
            return f"{nodes}, and none of them answers."
        controller = f"node {self.controller_id} is the controller" if self.controller_id >= 0 else "no controller"
        return f"{nodes}; {controller}; {self._partitions_sentence()}."

    def _partitions_sentence(self) -> str:
        partitions = [p for topic in self._topics for p in topic.partitions]
        if not partitions:
            return "no topics yet"
        leaderless = sum(p.leader < 0 for p in partitions)
        behind = sum(len(p.isr) < len(p.replicas) for p in partitions)
        text = f"{counted(len(partitions), 'partition')} in {counted(len(self._topics), 'topic')}"
        if not leaderless and not behind:
            return f"{text}, all in sync"
        without = f", {leaderless:,} without a leader" if leaderless else ""
        return f"{text}, {behind:,} under-replicated{without}"


async def cluster_status(cluster: LocalCluster) -> ClusterStatus:
    """Asks every live node, at the same time; a dead or silent one is an answer, never an error."""
    from replog.client import Admin

    alive = [spec for spec in cluster.nodes.values() if spec.is_alive]
    metadata, nodes = None, tuple(map(_without_answer, cluster.nodes.values()))
    if alive:
        servers = ",".join(spec.address for spec in alive)
        async with Admin(servers, timeout_ms=ASK_TIMEOUT_MS, security=cluster.security) as admin:
            asking = asyncio.gather(*(_describe(admin, spec) for spec in cluster.nodes.values()))
            metadata = await _metadata(admin)
            nodes = tuple(await asking)
    return ClusterStatus(str(cluster.directory), cluster.cluster_id, nodes, metadata)


async def _metadata(admin: Admin) -> ClusterMetadata | None:
    from replog.errors import ReplogError

    try:
        return await admin.describe_cluster()
    except ReplogError:
        return None


async def _describe(admin: Admin, spec: NodeSpec) -> NodeStatus:
    from replog.errors import ReplogError

    found = _without_answer(spec)
    if found.pid is None:
        return found
    try:
        description = await admin.describe_node(spec.address, timeout_ms=ASK_TIMEOUT_MS)
    except ReplogError:
        return found
    return replace(found, description=description)


def _without_answer(spec: NodeSpec) -> NodeStatus:
    pid = spec.process.pid if spec.process is not None and spec.is_alive else None
    return NodeStatus(spec.node_id, spec.address, pid)


def render(status: ClusterStatus) -> RenderableType:
    """Renders the sentence, a line for each node, and where the cluster is."""
    from rich.console import Group
    from rich.text import Text

    from replog.cli.terminal.grid import Grid

    headers = [">node", "state", "role", ">pid", "address", ">leads", ">holds", ">memory"]
    rows = [_row(status, node) for node in status.nodes]
    table = Grid(headers, rows)
    where = f"\n{status.directory}, cluster id {status.cluster_id}"
    return Group(status.sentence(), "", table, Text(where))


def _row(status: ClusterStatus, node: NodeStatus) -> list[str]:
    description = node.description
    role = "-" if description is None else description.quorum_role.lower()
    return [
        str(node.node_id),
        node.state,
        "controller" if node.node_id == status.controller_id else role,
        str(node.pid or "-"),
        node.address,
        str(status.partitions_led(node.node_id)),
        str(status.partitions_held(node.node_id)),
        "-" if description is None else f"{description.rss_bytes / 1e6:.0f} MB",
    ]


def as_json_line(status: ClusterStatus) -> str:
    """Returns the state with its sentence as one line of JSON, for scripts."""
    return json_line(
        status,
        sentence=status.sentence(),
        bootstrap_servers=status.bootstrap_servers,
    )
