"""Brokers as Kafka's clients see them: replog, and Apache Kafka itself."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.model import System
from bench.systems.kafka_cluster import KafkaCluster
from bench.systems.maven import PeerUnavailableError, jars, program
from replog.cluster import LocalCluster

PARTITIONS = 3
TIMEOUT_S = 60.0

T = TypeVar("T")


class ClientPort(System):
    """Some brokers that serve Kafka's clients.

    Args:
        nodes_count: How many there are.
    """

    def __init__(self, nodes_count: int) -> None:
        self._nodes_count = nodes_count
        self._topics_count = 0

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses for Kafka's clients."""

    def create_topic(self) -> str:
        """Makes a topic of PARTITIONS partitions with a replica on every broker, two of which must have what is acknowledged."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        self._topics_count += 1
        name = f"bench-{self._topics_count}"
        config = {"min.insync.replicas": str(min(2, self._nodes_count))}
        topic = NewTopic(name, PARTITIONS, self._nodes_count, config=config)
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})  # it takes what it has asked with it
        (made,) = admin.create_topics([topic]).values()
        made.result(TIMEOUT_S)
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes what `create_topic` made."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        (gone,) = admin.delete_topics([name]).values()
        gone.result(TIMEOUT_S)

    def records_in(self, topic: str) -> int:
        """Returns how many records the partitions of a topic have."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "bench"})
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
                for number in range(PARTITIONS)
            ]
        finally:
            consumer.close()
        return sum(high - low for low, high in ends)

    def missing(self) -> str | None:
        try:
            import confluent_kafka  # noqa: F401 -- whether it is there

            program("java")
            jars("kafka")
        except PeerUnavailableError as error:
            return str(error)
        except ModuleNotFoundError:
            return "confluent-kafka is not installed (replog[test] has it)"
        return None


class ReplogPort(ClientPort):
    """Replog's brokers, at their port for Kafka's clients."""

    name = "replog"

    def __init__(self, nodes_count: int) -> None:
        super().__init__(nodes_count)
        self._runner: asyncio.Runner | None = None
        self._cluster: LocalCluster | None = None

    def start(self, directory: Path) -> None:
        self._runner = asyncio.Runner()
        self._cluster = self._run(LocalCluster.start(directory / "cluster", nodes=self._nodes_count, kafka=True))

    def stop(self) -> None:
        if self._cluster is not None:
            self._run(self._cluster.kill_all())
            self._cluster = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    @property
    def bootstrap_servers(self) -> str:
        return self._started().kafka_bootstrap_servers

    def process_ids(self) -> Sequence[int]:
        return [spec.process.pid for spec in self._started().nodes.values() if spec.process is not None]

    def _started(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._cluster

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            coroutine.close()
            raise RuntimeError(f"{self.name} was not started")
        return self._runner.run(coroutine)


class KafkaPort(ClientPort):
    """Apache Kafka's brokers."""

    name = "kafka"

    def __init__(self, nodes_count: int) -> None:
        super().__init__(nodes_count)
        self._cluster: KafkaCluster | None = None

    def start(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, PARTITIONS, nodes_count=self._nodes_count)
        self._cluster.start()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    @property
    def bootstrap_servers(self) -> str:
        if self._cluster is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._cluster.bootstrap_servers

    def process_ids(self) -> Sequence[int]:
        return self._cluster.process_ids() if self._cluster is not None else []
