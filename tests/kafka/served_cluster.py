"""Replog brokers in processes of their own that serve Kafka's clients, and what tests ask of them by our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from replog.client import Admin, Consumer
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue

T = TypeVar("T")

READ_TIMEOUT_S = 60

QUICK: Mapping[str, ConfigValue] = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1_000,
    "controller.quorum.request.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 300,
    "log.retention.ms": -1,
}
"""Failures are noticed within two seconds, groups begin at once, members hear of news soon, and records of 1970 stay."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, outside of any loop."""
    return asyncio.run(coroutine)


@dataclass(slots=True)
class ServedCluster:
    """Running nodes, numbered from 1.

    Attributes:
        local: The processes.
    """

    local: LocalCluster

    @property
    def bootstrap_servers(self) -> str:
        """host:port of all nodes, for clients."""
        return self.local.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> UUID:
        """Creates a topic with a replica on each node; returns its id."""

        async def create() -> UUID:
            async with Admin(self.local.bootstrap_servers) as admin:
                return (await admin.create_topic(name, partitions, len(self.local.nodes), configs or {})).topic_id

        return run(create())

    def leader(self, topic: str) -> int:
        """The node that leads partition 0 of a topic."""

        async def leader() -> int:
            async with Admin(self.local.bootstrap_servers) as admin:
                return (await admin.describe_topics([topic]))[topic].partitions[0].leader

        return run(leader())

    def kill(self, node_id: int) -> None:
        """Ends a node by SIGKILL."""
        run(self.local.kill(node_id))

    def restart(self, node_id: int) -> None:
        """Starts a node that was killed, and waits until all of them are ready."""

        async def restart() -> None:
            self.local.start_node(node_id)
            await self.local.wait_until_ready()

        run(restart())

    def read_all(self, topic: str) -> list[tuple[int, bytes | None]]:
        """Offset and value of all records of partition 0, read by our own client."""
        place = (topic, 0)

        async def reading() -> list[tuple[int, bytes | None]]:
            found: list[tuple[int, bytes | None]] = []
            async with asyncio.timeout(READ_TIMEOUT_S), Consumer(self.local.bootstrap_servers) as consumer:
                await consumer.assign([place])
                end = (await consumer.end_offsets([place]))[place]
                while consumer.position(place) < end:
                    found += [(record.offset, record.value) for record in await consumer.poll()]
            return found

        return run(reading())

    def log_text(self, node_id: int = 1) -> str:
        """What a node has printed."""
        return self.local.nodes[node_id].log_file.read_text(encoding="utf-8", errors="replace")

    def process_id(self, node_id: int = 1) -> int:
        """The process id of a node that runs."""
        process = self.local.nodes[node_id].child
        assert process is not None
        assert process.poll() is None, f"node {node_id} has ended:\n{self.log_text(node_id)[-4000:]}"
        return process.pid


@contextmanager
def served_cluster(folder: Path, nodes: int = 1, **config: ConfigValue) -> Iterator[ServedCluster]:
    """Runs nodes for as long as the block; keys over `QUICK` are given with underscores for dots."""
    keys = {name.replace("_", "."): value for name, value in config.items()}
    local = run(LocalCluster.start(folder, nodes=nodes, config={**QUICK, **keys}))
    try:
        yield ServedCluster(local)
    finally:
        run(local.kill_all())
