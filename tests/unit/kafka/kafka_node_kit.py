"""A node that serves Kafka's clients, and one connection to it that sends whatever it is given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

from replog.access.principal import ANONYMOUS, ClientIdentity
from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.config.server import ServerConfig
from replog.controller.requests import ConfigEntry, CreateTopics, NewTopic
from replog.errors import ErrorCode
from replog.protocol.handlers.node import KafkaNode
from replog.records import encode_batch
from replog.testing import SimulatedFileSystem
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Writer
from tests.envelopes import sender
from tests.kafka.raw_client import RawClient

PRODUCE_VERSION = 12  # the last one with names
TIMEOUT_S = 20


class Served:
    """A node, and clients of it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._clients: list[RawClient] = []

    @property
    def kafka(self) -> KafkaNode:
        """The node as the handlers see it."""
        return self.node.parts.requests.kafka_node

    async def client(self) -> RawClient:
        """One more connection."""
        async with asyncio.timeout(TIMEOUT_S):
            while (client := await self._connected()) is None:
                await asyncio.sleep(0.01)
        self._clients.append(client)
        return client

    async def _connected(self) -> RawClient | None:
        """A connection; None while the port is closed, which opens behind the node's readiness."""
        assert self.node.address is not None
        try:
            return await asyncio.to_thread(RawClient, self.node.address)
        except ConnectionRefusedError:
            return None

    async def ask(self, request: Any, version: int, answer: type[Any], client: RawClient | None = None) -> Any:
        """The answer to a request, over the first connection unless another one is given."""
        if client is None:
            client = self._clients[0] if self._clients else await self.client()
        return await asyncio.to_thread(client.ask, request, version, answer)

    async def create(self, name: str = "t", partitions: int = 1, **configs: str) -> UUID:
        """Makes a topic; returns its id."""
        entries = tuple(ConfigEntry(key.replace("_", "."), value) for key, value in configs.items())
        asked = CreateTopics((NewTopic(name, partitions, 1, configs=entries),))
        made = await self.kafka.change(asked, 5000, sender(ClientIdentity(ANONYMOUS, "127.0.0.1")))
        assert made.topics[0].error is ErrorCode.NONE, made
        await self.until(lambda: name in self.kafka.image.topics_by_name)
        topic_id = self.kafka.image.topics_by_name[name].topic_id
        replicas = self.node.parts.replicas.stepper.replicas
        await self.until(lambda: all((topic_id, number) in replicas for number in range(partitions)))
        return topic_id

    async def produce(self, *batches: bytes, topic: str = "t", partition: int = 0) -> int:
        """Appends batches one by one; returns the offset of the last of them."""
        offset = -1
        for batch in batches:
            data = ProduceRequest.PartitionProduceData(partition, batch)
            request = ProduceRequest(
                acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(topic, partition_data=[data])]
            )
            answer = await self.ask(request, PRODUCE_VERSION, ProduceResponse)
            (told,) = answer.responses[0].partition_responses
            assert told.error_code == ErrorCode.NONE, told
            offset = told.base_offset
        return offset

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits for something of the node."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)

    def waiting_fetches(self) -> int:
        """How many fetches wait for records."""
        return self.node.parts.requests.fetch_path.waiting_count

    def close(self) -> None:
        for client in self._clients:
            client.connection.close()


def frame(request: Any, version: int, cluster_id: str = "") -> memoryview:
    """A request as it comes, without its size."""
    is_flexible = version >= request.FLEXIBLE_FROM
    writer = Writer()
    RequestHeader(request.API_KEY, version, 1, "c", cluster_id or None).write(writer, 2 if is_flexible else 1)
    request.write(writer, version)
    return memoryview(writer.joined())


def batch(*values: bytes, timestamp_ms: int = 1, **others: Any) -> bytes:
    """One batch of records."""
    return encode_batch([(timestamp_ms, None, value, ()) for value in values or (b"v",)], **others)


@contextlib.asynccontextmanager
async def serving(fs: SimulatedFileSystem | None = None, **keys: object) -> AsyncIterator[Served]:
    """A node on a disk in memory, ready; its keys with `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in keys.items()}
    config = ServerConfig.from_mapping(
        {
            "node.id": 1,
            "log.dirs": ["/data"],
            "cluster.id": "c",
            "listeners": ["127.0.0.1:0"],
            **named,
        }
    )
    node = await Node.start(config, environment=NodeEnvironment(fs=fs or SimulatedFileSystem()))
    served = Served(node)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await node.wait_until_ready()
        yield served
    finally:
        served.close()
        await node.stop()
