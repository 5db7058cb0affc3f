"""What systems of one scenario have in common: nodes on this machine, started once for all of them.

Several clients of the same brokers are several systems, and all of them are measured in turn; brokers of their own would
only take the cores from one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bench.systems.brokers import Killed
from bench.systems.tls_door import TlsDoor

NODES = 3


class SharedBrokers(ABC):
    """Nodes that are started by the system that starts first and stopped by the one that stops last.

    Args:
        nodes_count: The number of nodes.
    """

    name: str
    flushing: str
    """What of a record is on the disk when it is acknowledged."""

    def __init__(self, nodes_count: int = NODES) -> None:
        self.nodes_count = nodes_count
        self._users_count = 0
        self._topics_count = 0
        self._tls_door: TlsDoor | None = None

    @property
    def tls_door(self) -> TlsDoor:
        """Where clients are served over TLS, of brokers that were told to, once they run."""
        if self._tls_door is None:
            raise RuntimeError(f"{self.name} does not serve clients over TLS")
        return self._tls_door

    @property
    def replicas_count(self) -> int:
        """The replicas of a topic."""
        return min(NODES, self.nodes_count)

    @property
    def min_in_sync(self) -> int:
        """The replicas that must have what is acknowledged."""
        return min(2, self.nodes_count)

    def missing(self) -> str | None:
        """Says why they cannot run here, None where they can."""
        return None

    def start(self, directory: Path) -> None:
        """Starts them for the first who asks; `directory` is empty and outlives all who use them."""
        self._users_count += 1
        if self._users_count == 1:
            self._start(directory)

    def stop(self) -> None:
        """Ends them when nobody uses them any more."""
        self._users_count -= 1
        if self._users_count == 0:
            self._stop()

    def new_topic_name(self) -> str:
        """Returns a name that no topic had."""
        self._topics_count += 1
        return f"bench-{self._topics_count}"

    def durability(self, acks: str = "all") -> str:
        """Says what an acknowledgement of theirs means."""
        return f"acks={acks}, {self.replicas_count} replicas, min.insync.replicas={self.min_in_sync}, {self.flushing}"

    @abstractmethod
    def _start(self, directory: Path) -> None: ...

    @abstractmethod
    def _stop(self) -> None: ...

    @property
    @abstractmethod
    def kafka_servers(self) -> str:
        """The addresses for Kafka's clients."""

    @abstractmethod
    def process_ids(self) -> Sequence[int]: ...

    @abstractmethod
    def create_topic(self, partitions: int) -> str:
        """Makes a topic whose replicas are all in sync; returns its name."""

    @abstractmethod
    def create_led_topic(self, killed: Killed) -> tuple[str, int]:
        """Makes a topic of one partition; returns its name and its leader, which is the active controller or is not."""

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def kill(self, node_id: int) -> None:
        """Ends a node with SIGKILL."""

    @abstractmethod
    def bring_back(self, node_id: int, topic: str) -> None:
        """Starts a killed node again; returns when it is in sync."""
