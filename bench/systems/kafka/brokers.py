"""Apache Kafka's nodes, for all systems that use them, and the admin client that creates what they measure with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.model import WrongResultError
from bench.systems.brokers import Killed
from bench.systems.kafka.client_process import ClientProcess, java_command, java_missing
from bench.systems.kafka.cluster import KafkaCluster
from bench.systems.shared_brokers import NODES, SharedBrokers
from bench.systems.tls_door import TlsDoor, create_certificates

DEFAULT_PARTITIONS = 1
IN_SYNC_TIMEOUT_S = 120.0
POLL_S = 0.05


class KafkaBrokers(SharedBrokers):
    """Nodes that are broker and controller in one process, as replog's are.

    Args:
        nodes_count: The number of nodes.
        config: The keys of the nodes, over the defaults.
        over_tls: Whether they serve clients over TLS, too.
    """

    name = "kafka"
    flushing = "log.flush.* unset (no fsync before an acknowledgement)"

    def __init__(
        self, nodes_count: int = NODES, config: Mapping[str, object] | None = None, *, over_tls: bool = False
    ) -> None:
        super().__init__(nodes_count)
        self._over_tls = over_tls
        self._config = config
        self._cluster: KafkaCluster | None = None
        self._admin: ClientProcess | None = None

    def missing(self) -> str | None:
        return java_missing()

    @property
    def cluster(self) -> KafkaCluster:
        if self._cluster is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._cluster

    @property
    def admin(self) -> ClientProcess:
        """The admin client."""
        if self._admin is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._admin

    @property
    def kafka_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def process_ids(self) -> Sequence[int]:
        return self.cluster.process_ids()

    def create_topic(self, partitions: int) -> str:
        nodes = self.cluster.node_ids
        orders = [nodes[number % len(nodes) :] + nodes[: number % len(nodes)] for number in range(partitions)]
        return self._create(orders)

    def create_led_topic(self, killed: Killed) -> tuple[str, int]:
        controller = self.controller_id()
        others = [node_id for node_id in self.cluster.node_ids if node_id != controller]
        victim = controller if killed == "leader and controller" else others[0]
        replicas = [victim, *(node_id for node_id in self.cluster.node_ids if node_id != victim)]
        return self._create([replicas]), victim

    def delete_topic(self, topic: str) -> None:
        self.admin.ask("delete", topic)

    def kill(self, node_id: int) -> None:
        self.cluster.kill(node_id)

    def bring_back(self, node_id: int, topic: str) -> None:
        self.cluster.start_node(node_id)
        self._wait_until("in-sync", topic, count=self.nodes_count)
        self._wait_until("brokers", count=self.nodes_count)

    def controller_id(self) -> int:
        """Asks for the active controller."""
        return int(self.admin.ask("controller")[0])

    def wait_until_serving(self) -> None:
        """Returns when every broker is part of the cluster."""
        self._wait_until("brokers", count=self.nodes_count)

    def _start(self, directory: Path) -> None:
        authority, key_file = create_certificates(directory / "certs") if self._over_tls else (None, None)
        self._cluster = KafkaCluster(
            directory, DEFAULT_PARTITIONS, nodes_count=self.nodes_count, config=self._config, key_file=key_file
        )
        self._tls_door = TlsDoor(self._cluster.tls_servers, authority) if authority is not None else None
        self._cluster.format()
        self._cluster.start()
        self._admin = ClientProcess(java_command(self.kafka_servers), directory)
        self.wait_until_serving()

    def _stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def _create(self, orders: Sequence[Sequence[int]]) -> str:
        topic = self.new_topic_name()
        self.admin.ask("create", topic, ";".join(",".join(map(str, order)) for order in orders), self.min_in_sync)
        self._wait_until("in-sync", topic, count=self.nodes_count)
        return topic

    def _wait_until(self, *question: str, count: int) -> None:
        deadline_s = time.monotonic() + IN_SYNC_TIMEOUT_S
        while int(self.admin.ask(*question)[0]) < count:
            if time.monotonic() > deadline_s:
                raise WrongResultError(
                    f"{self.name}: '{' '.join(question)}' is below {count} for {IN_SYNC_TIMEOUT_S:.0f} s"
                )
            time.sleep(POLL_S)
