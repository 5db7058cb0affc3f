"""One whole node with a client of it, on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

from broker_kit import batch, wait_until

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.client.protocol.connection import KafkaConnection, KafkaTransport
from replog.config.server import ServerConfig
from replog.controller.requests import CreateTopics, NewTopic
from replog.errors import ErrorCode, StorageError
from replog.replication.leader import Leader
from replog.rpc.grpc.transport import GrpcConnection, GrpcTransport
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    Hello,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    client_hello,
)
from replog.rpc.metadata_messages import MetadataRequest, TopicInfo
from replog_checkpoints import FileSystem

PATIENCE_S = 60.0
"""How long a test may take on a busy machine, with the node's start: more than any wait within."""


def config(directory: str = "/data", **values: object) -> ServerConfig:
    named = {name.replace("_", "."): value for name, value in values.items()}
    any_port = "127.0.0.1:0"
    return ServerConfig.from_mapping(
        {
            "node.id": 1,
            "log.dirs": [directory],
            "cluster.id": "c",
            "listeners": [any_port],
            "inter.broker.listener": any_port,
            **named,
        }
    )


class Running:
    """A node and a client of it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: KafkaConnection = KafkaTransport().connect(node.address, purpose="test")
        self._peers: list[GrpcConnection] = []

    def peer(self, node_id: int, incarnation_id: UUID, cluster_id: str = "c") -> GrpcConnection:
        """Returns a way to the port where nodes meet, as a node that says it is `node_id`."""
        hello = Hello(cluster_id, node_id, incarnation_id)
        self._peers.append(GrpcTransport().connect(self.node.peer_address, purpose="test", hello=hello))
        return self._peers[-1]

    async def close(self) -> None:
        """Closes what it has opened."""
        for connection in (self.connection, *self._peers):
            await connection.close()

    async def create(self, name: str = "t") -> TopicInfo:
        """Creates a topic that the broker leads: it opens the log a moment after the metadata have it."""
        topic = await self.register(name)
        await wait_until(lambda: self._leads(topic))
        return topic

    async def register(self, name: str = "t") -> TopicInfo:
        """Creates a topic that the metadata have."""
        response = await self.connection.call(CreateTopics((NewTopic(name, 1, 1),)), timeout_ms=60_000)
        assert response.topics[0].error is ErrorCode.NONE, response
        return await self.topic(name)

    def _leads(self, topic: TopicInfo) -> bool:
        replica = self.node.parts.replicas.stepper.replicas.get((topic.topic_id, 0))
        return replica is not None and isinstance(replica.role, Leader)

    async def topic(self, name: str = "t") -> TopicInfo:
        metadata = await self.connection.call(MetadataRequest((name,)), timeout_ms=60_000)
        (found,) = metadata.topics
        return found

    async def produce(self, topic: TopicInfo, *, acks: int = -1, timeout_s: float = PATIENCE_S) -> ProduceResult:
        stream = await self.connection.open_produce(client_hello("c", "test"))
        try:
            partition = ProducePartition(topic.topic_id, 0)
            await stream.send(ProduceRequest(1, 60_000, acks, (partition,), (batch(),)))
            ((response,),) = (await asyncio.wait_for(stream.receive(), timeout_s),)
            return response.results[0]
        finally:
            await stream.close()

    async def fetch(self, topic: TopicInfo) -> int:
        """Bytes from the start."""
        stream = await self.connection.open_fetch(client_hello("c", "test"))
        try:
            partition = FetchPartition(topic.topic_id, 0, 0)
            await stream.send(FetchRequest(1, 60_000, -1, -1, 100, 1, 1 << 20, (partition,)))
            response = await stream.receive()
            assert response.results[0].error is ErrorCode.NONE, response.results
            return len(response.batches[0])
        finally:
            await stream.close()


@contextlib.asynccontextmanager
async def node(fs: FileSystem, configuration: ServerConfig | None = None) -> AsyncIterator[Running]:
    started = await Node.start(configuration or config(), environment=NodeEnvironment(fs=fs))
    async with stopping(started) as it:
        yield it


@contextlib.asynccontextmanager
async def stopping(started: Node) -> AsyncIterator[Running]:
    """Ready, and stopped at the end."""
    it = Running(started)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await started.wait_until_ready()
            yield it
    finally:
        await it.close()
        with contextlib.suppress(StorageError):
            await started.stop()
