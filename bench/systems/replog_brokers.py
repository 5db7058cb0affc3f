"""replog's nodes, for all systems that use them: processes of `LocalCluster`, and the event loop of our clients."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.model import WrongResultError
from bench.systems.brokers import Killed
from bench.systems.reconfigured import restart_with
from bench.systems.shared_brokers import NODES, SharedBrokers
from bench.systems.tls_door import TlsDoor, create_certificates
from replog.client import Admin
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue
from replog.cluster.processes import KeptPorts

TOPIC_CONFIGS = {"min.insync.replicas": 2}

T = TypeVar("T")


def precise_runner() -> asyncio.Runner:
    """An event loop whose timers are exact to microseconds.

    The default on Linux waits with epoll, in whole milliseconds: a sender at a fixed rate would be late by half of
    one on average, and a latency would have that in it.
    """
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))


class ReplogBrokers(SharedBrokers):
    """Processes of one `LocalCluster`, which serve Kafka's clients too.

    Args:
        cluster_class: Another one may start the processes in another way, under a profiler for instance.
        nodes_count: The number of nodes.
        config: The keys of the nodes, over the defaults.
        roles: The roles of each node that is not broker and controller.
        over_tls: Whether they serve clients over TLS, too.
    """

    name = "replog"
    flushing = "flush.policy=auto (no fsync before an acknowledgement with acks=1 or two replicas in sync)"

    def __init__(
        self,
        cluster_class: type[LocalCluster] = LocalCluster,
        *,
        nodes_count: int = NODES,
        config: Mapping[str, ConfigValue] | None = None,
        roles: Mapping[int, Sequence[str]] | None = None,
        over_tls: bool = False,
    ) -> None:
        super().__init__(nodes_count)
        self._cluster_class = cluster_class
        self._config = config
        self._roles = roles
        self._over_tls = over_tls
        self._ports = KeptPorts()
        self._runner: asyncio.Runner | None = None
        self._cluster: LocalCluster | None = None

    @property
    def cluster(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._cluster

    @property
    def runner(self) -> asyncio.Runner:
        if self._runner is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._runner

    @property
    def kafka_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a piece of client code; clients live on from one to the next, for the loop is the same."""
        if self._runner is None:
            coroutine.close()
            raise RuntimeError(f"{self.name} was not started")
        return self._runner.run(coroutine)

    def process_ids(self) -> Sequence[int]:
        return [spec.process.pid for spec in self.cluster.nodes.values() if spec.process is not None]

    def create_topic(self, partitions: int) -> str:
        topic = self.new_topic_name()

        async def create() -> None:
            async with Admin(self.cluster.bootstrap_servers) as admin:
                configs = {"min.insync.replicas": self.min_in_sync}
                await admin.create_topic(topic, partitions, self.replicas_count, configs)
                await admin.wait_until_in_sync(topic)

        self.run(create())
        return topic

    def create_led_topic(self, killed: Killed) -> tuple[str, int]:
        return self.run(self._create_led_topic(killed))

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            async with Admin(self.cluster.bootstrap_servers) as admin:
                await admin.delete_topic(topic)

        self.run(delete())

    def kill(self, node_id: int) -> None:
        self.run(self.cluster.kill(node_id))

    def bring_back(self, node_id: int, topic: str) -> None:
        async def bring() -> None:
            self.cluster.start_node(node_id)
            await self.cluster.wait_until_ready()
            async with Admin(self.cluster.bootstrap_servers) as admin:
                await admin.wait_until_in_sync(topic)

        self.run(bring())

    def _start(self, directory: Path) -> None:
        self._runner = precise_runner()
        self._cluster = self.run(self._start_cluster(directory / "cluster"))

    def _stop(self) -> None:
        if self._cluster is not None:
            self.run(self._cluster.kill_all())
            self._cluster = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        self._ports.release()

    async def _start_cluster(self, directory: Path) -> LocalCluster:
        cluster = await self._cluster_class.start(
            directory, nodes=self.nodes_count, config=self._config, roles=self._roles
        )
        if self._over_tls:
            authority, key_file = create_certificates(directory.with_name("certs"))
            ports = dict(zip(cluster.nodes, self._ports.take(len(cluster.nodes)), strict=True))
            self._tls_door = TlsDoor(",".join(f"127.0.0.1:{port}" for port in ports.values()), authority)
            await restart_with(
                cluster,
                lambda spec: {
                    "listeners": [spec.address, f"SSL://127.0.0.1:{ports[spec.node_id]}"],
                    "ssl.keystore.location": str(key_file),
                },
            )
        return cluster

    async def _create_led_topic(self, killed: Killed) -> tuple[str, int]:
        async with Admin(self.cluster.bootstrap_servers) as admin:
            controller = (await admin.describe_cluster()).controller_id
            others = [node_id for node_id in self.cluster.nodes if node_id != controller]
            victim = controller if killed == "leader and controller" else others[0]
            replicas = [victim, *(node_id for node_id in self.cluster.nodes if node_id != victim)]
            topic = self.new_topic_name()
            info = await admin.create_topic(topic, configs=TOPIC_CONFIGS, assignments=[replicas])
            await admin.wait_until_in_sync(topic)
        leader = info.partitions[0].leader
        if leader != victim:
            raise WrongResultError(f"node {leader} leads a partition whose first replica is node {victim}")
        return topic, victim
