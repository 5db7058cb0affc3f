"""The nodes of a local cluster as this command knows them, and as others have written them meanwhile.

Several commands work on one cluster: each holds the lock of the directory while it starts or forgets a node, and first learns
what stands in the file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replog.cluster import cluster_file
from replog.cluster.node_spec import NodeSpec
from replog.errors import ConfigError


class KnownNodes:
    """The nodes of one cluster.

    Args:
        directory: The directory of the cluster.
        cluster_id: The cluster; the file of another one in its place is left alone.
        nodes: The nodes by their numbers, as far as they are known.

    Attributes:
        nodes: The nodes as they are known now; always the same mapping.
    """

    def __init__(self, directory: Path, cluster_id: str, nodes: Mapping[int, NodeSpec]) -> None:
        self.nodes = dict(nodes)
        self._directory = directory
        self._cluster_id = cluster_id

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Lets no other command start or forget nodes meanwhile; what they have written before is known in the block.

        The lock cannot be taken twice: nothing in the block takes it again, and nothing there waits for a node.

        Yields:
            Whether the file is there; else somebody has removed the cluster, and perhaps made another one in its place, whose
            file must stay.
        """
        with cluster_file.locked(self._directory):
            written = self._written()
            if known := {number: self._known(found) for number, found in written.items()}:
                self.nodes.clear()  # whoever has the mapping in hand finds the nodes of now in it
                self.nodes.update(known)
            yield bool(written)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Lets no other command start or forget nodes meanwhile, as `alone`, where the file is there.

        Raises:
            ConfigError: The cluster is not in its directory any more.
        """
        with self.alone() as is_there:
            if not is_there:
                raise ConfigError(
                    "directory",
                    str(self._directory),
                    f"cluster {self._cluster_id} is not in {self._directory} any more: it was removed, or another one was made "
                    "there. `replog cluster start` makes a new one in an empty directory",
                )
            yield

    def catch_up(self) -> None:
        """Learns what other commands have written of the nodes, and first waits for one that is writing."""
        with self.alone():
            pass

    def node(self, node_id: int) -> NodeSpec:
        """Returns a node as it is known here.

        Raises:
            ConfigError: There is no such node; another command may have removed it.
        """
        if node_id not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise ConfigError(
                "node_id", node_id, f"there is no node {node_id} in {self._directory} now; its nodes are {known}"
            )
        return self.nodes[node_id]

    def node_now(self, node_id: int) -> NodeSpec:
        """Returns a node with the process that other commands have given it."""
        with contextlib.suppress(OSError):  # where the directory cannot be read, those that are known are told
            self.catch_up()
        return self.node(node_id)

    def _known(self, found: NodeSpec) -> NodeSpec:
        """Returns the node that the file tells of as it is known here; a process of it that runs stays."""
        spec = self.nodes.get(found.node_id, found)
        if spec.port != found.port:  # removed, and another one added
            return found
        if spec.process != found.process and not spec.is_alive:
            if spec.child is not None:
                spec.child.poll()  # takes its exit status, which nobody else asks for any more
            spec.process, spec.child = found.process, None
        spec.has_data = spec.has_data or found.has_data
        return spec

    def _written(self) -> dict[int, NodeSpec]:
        """Returns the nodes in the file; none where there is no file, or it is not this cluster's."""
        try:
            state = json.loads((self._directory / cluster_file.NAME).read_text(encoding="utf-8"))
            of_this = state["nodes"] if state["cluster_id"] == self._cluster_id else ()
            return {entry["node_id"]: NodeSpec.from_state(entry, self._directory) for entry in of_this}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def make_room(self) -> None:
        """Takes the room that writing one more process needs; the caller holds the lock of the directory.

        Raises:
            OSError: There is no room for it.
        """
        cluster_file.make_room(self._directory, self._state())

    def write(self) -> None:
        """Writes the file; the caller holds the lock of the directory."""
        for spec in self.nodes.values():
            with contextlib.suppress(ConfigError):  # whoever starts the node tells what is wrong with its file
                spec.has_data = spec.has_data or not spec.missing_data()
        cluster_file.write(self._directory, self._state())

    def _state(self) -> dict[str, Any]:
        return {"cluster_id": self._cluster_id, "nodes": [spec.to_state() for spec in self.nodes.values()]}
