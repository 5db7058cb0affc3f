"""Links between nodes, and between nodes and clients, that can be cut one by one and one way only.

What is common to the two ways of doing it: user-space proxies (`proxy`), which need no privilege, and network namespaces
(`namespaces`), where packets are lost as on a real network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from replog.cluster import LocalCluster, NodePlace
from replog.cluster.node_spec import ConfigValue

CLIENT = 0
"""Instead of a node id: everything that is no node."""

Link = tuple[int, int]
"""From who sends to who receives."""


class Network(ABC):
    """All links of a cluster; use it as an async context manager around the cluster.

    Args:
        node_ids: The nodes of the cluster.
    """

    def __init__(self, node_ids: Iterable[int]) -> None:
        self.node_ids = tuple(node_ids)
        self._cut: set[Link] = set()

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Makes the network, with all links whole."""

    @abstractmethod
    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Removes all of the network."""

    @abstractmethod
    def node_config(self) -> dict[int, dict[str, ConfigValue]]:
        """Returns the configuration keys of each node, for `LocalCluster.start`."""

    def places(self) -> Mapping[int, NodePlace]:
        """Returns where the processes run, for `LocalCluster.start`; empty for the usual places."""
        return {}

    @abstractmethod
    def connect(self, cluster: LocalCluster) -> str:
        """Takes in the cluster when its processes have started; returns the bootstrap servers of its clients."""

    @abstractmethod
    def address_aside(self, node_id: int) -> str:
        """Returns the address that reaches a node whatever is cut; only once connected."""

    def cut(self, *links: Link) -> None:
        """Cuts links: nothing that is sent on them arrives from now on."""
        new = [link for link in links if link not in self._cut]
        self._cut.update(new)
        self._on_cut(new)

    def isolate(self, node_id: int, *, outgoing: bool = True, incoming: bool = True, clients: bool = True) -> None:
        """Cuts a node off from all others.

        Args:
            node_id: The node that is cut off.
            outgoing: Whether what it sends no longer arrives.
            incoming: Whether what is sent to it no longer arrives.
            clients: Whether it is cut off from clients too.
        """
        others = [other for other in (CLIENT, *self.node_ids) if other != node_id and (clients or other != CLIENT)]
        links = [(node_id, other) for other in others] if outgoing else []
        if incoming:
            links += [(other, node_id) for other in others]
        self.cut(*links)

    def mend(self) -> None:
        """Makes all links whole again."""
        mended = sorted(self._cut)
        self._cut.clear()
        self._on_mend(mended)

    @abstractmethod
    def _on_cut(self, links: Collection[Link]) -> None:
        """Cuts these links, which are not cut yet."""

    @abstractmethod
    def _on_mend(self, links: Collection[Link]) -> None:
        """Makes these links whole, which are cut."""
