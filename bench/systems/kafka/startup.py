"""Apache Kafka started from nothing: one process, and three."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.systems.brokers import StartupSystem
from bench.systems.kafka.client_process import ClientProcess, java_command, java_missing
from bench.systems.kafka.cluster import KafkaCluster
from bench.systems.shared_brokers import NODES

TOPIC = "first"
PARTITIONS = 1
POLL_S = 0.02


class KafkaStartup(StartupSystem):
    """Before the clock starts, the folders are formatted and the JVM of the client runs: what they cost is not the nodes'."""

    name = "kafka"

    def __init__(self) -> None:
        self._directory: Path | None = None

    def missing(self) -> str | None:
        return java_missing()

    def start(self, directory: Path) -> None:
        self._directory = directory

    def start_one(self) -> float:
        with self._formatted(1) as (cluster, client):
            started_s = time.perf_counter()
            cluster.start()
            client.ask("create", TOPIC, cluster.node_ids[0], 1)
            client.ask("producer", TOPIC)  # it has sent a record when it answers
            return time.perf_counter() - started_s

    def start_cluster(self, settle_s: float) -> tuple[float, Sequence[int]]:
        with self._formatted(NODES) as (cluster, client):
            started_s = time.perf_counter()
            cluster.start()
            while int(client.ask("brokers")[0]) < NODES:
                time.sleep(POLL_S)
            ready_s = time.perf_counter() - started_s
            time.sleep(settle_s)
            return ready_s, [psutil.Process(pid).memory_info().rss for pid in cluster.process_ids()]

    @contextmanager
    def _formatted(self, nodes_count: int) -> Iterator[tuple[KafkaCluster, ClientProcess]]:
        with tempfile.TemporaryDirectory(dir=self._directory) as name:
            cluster = KafkaCluster(Path(name), PARTITIONS, nodes_count=nodes_count)
            client = ClientProcess(java_command(cluster.bootstrap_servers), Path(name))
            try:
                cluster.format()
                yield cluster, client
            finally:
                cluster.stop()
                client.close()
