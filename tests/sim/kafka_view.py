"""Where a simulated client of Kafka's protocol finds the leader of its partition: it asks any broker, and believes no older one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from replog.errors import ErrorCode
from replog.testing.simulated_cluster import FIRST_PORT, SimulatedCluster
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.sim.kafka_connection import KafkaConnection, KafkaConnectionLostError, read

METADATA_VERSIONS = (10, 11, 12, 13)
"""From 7 on it tells the epoch of a leader, from 10 on the id of a topic."""

WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the partition, and where it is reached."""

    node_id: int
    epoch: int
    host: str
    port: int
    topic_id: UUID


class KafkaView:
    """What one client knows of the cluster.

    Args:
        host: the name of its machine.
        rng: seeded; the client's own.
    """

    def __init__(self, cluster: SimulatedCluster, host: str, topic: str, rng: Random) -> None:
        self.tcp = cluster.internet.host(host).tcp
        self.topic = topic
        self._rng = rng
        self._brokers = cluster.brokers
        self._version = rng.choice(METADATA_VERSIONS)
        self._known_epoch = -1

    async def ask_any(self, request: Any, answer: type[Any], version: int) -> Any:
        """The answer of any broker; raises `KafkaConnectionLostError`."""
        port = FIRST_PORT + self._rng.choice(self._brokers)
        connection = await KafkaConnection.open(self.tcp, "127.0.0.1", port)
        try:
            return read(await within(connection.ask(request, version), WITHIN_S), answer, version)
        finally:
            connection.close()

    async def leader(self) -> Leader | None:
        """None: there is none, or nobody knows of one that is not older than the one before."""
        request = MetadataRequest(
            [MetadataRequest.MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )
        told = await self.ask_any(request, MetadataResponse, self._version)
        (topic,) = told.topics
        if topic.error_code != ErrorCode.NONE or not topic.partitions:
            return None
        (partition,) = topic.partitions
        brokers = {broker.node_id: broker for broker in told.brokers}
        if partition.error_code != ErrorCode.NONE or partition.leader_epoch < self._known_epoch:
            return None
        self._known_epoch = partition.leader_epoch
        broker = brokers[partition.leader_id]
        return Leader(partition.leader_id, partition.leader_epoch, broker.host, broker.port, topic.topic_id)


async def within(answered: asyncio.Future[bytes], timeout_s: float) -> bytes:
    """The answer; raises `KafkaConnectionLostError` when it does not come in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(answered)
    except TimeoutError:
        raise KafkaConnectionLostError(f"no answer within {timeout_s} s") from None
