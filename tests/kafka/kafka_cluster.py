"""Two brokers of Apache Kafka, one of them with the controller: leaders move, as they cannot on a lone node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_install import KafkaInstall
from kafka_node import KafkaNode


@dataclass(slots=True)
class KafkaCluster:
    """Running nodes, numbered from 1; that of number 1 has the controller, and is not to be killed."""

    nodes: Mapping[int, KafkaNode]

    @property
    def servers(self) -> str:
        """host:port of all nodes, for clients."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())


@contextmanager
def kafka_cluster(kafka: KafkaInstall, folder: Path, **settings: object) -> Iterator[KafkaCluster]:
    """Runs the nodes for as long as the block; settings are given with underscores for dots."""
    keys = {name.replace("_", "."): value for name, value in settings.items()}
    first = KafkaNode(kafka, folder / "1", keys)
    nodes = {1: first, 2: KafkaNode(kafka, folder / "2", keys, node_id=2, controller=first.controller)}
    try:
        for node in nodes.values():
            node.begin()
        for node in nodes.values():
            node.wait_until_listening()
        yield KafkaCluster(nodes)
    finally:
        for node in nodes.values():
            node.give_up()
