"""One node asked directly, by the messages of the protocol: what it answers, not what a careful client makes of it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from uuid import UUID

from cluster_kit import PATIENCE_S, Cluster

from replog.client.protocol.connection import KafkaTransport
from replog.records import decode_batch, encode_batch, scan
from replog.rpc.messages import (
    ACKS_ALL,
    CONSUMER_REPLICA_ID,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from replog.rpc.transport import Stream

T0_MS = 1_700_000_000_000


def hello_to(cluster: Cluster, cluster_id: str = "") -> Hello:
    """What a client says first; `cluster_id`: another than the cluster's."""
    return Hello(cluster_id or cluster.local.cluster_id, node_id=-1, incarnation_id=UUID(int=0), client_id="raw")


class RawClient:
    """Streams to one node for one partition, opened at the start of the block and kept.

    `address`: where the node is reached by another one than its own.
    """

    def __init__(
        self, cluster: Cluster, node_id: int, topic_id: UUID, partition: int = 0, *, address: str = ""
    ) -> None:
        self._cluster = cluster
        self._connection = KafkaTransport().connect(address or cluster.address(node_id), purpose="raw")
        self._connection._endpoint = self._connection._endpoint._replace(
            open_timeout_s=PATIENCE_S
        )  # a busy node is waited for: there is no other to ask
        self._place = (topic_id, partition)
        self._correlation_id = 0
        self._told: FetchResult | None = None

    async def __aenter__(self) -> Self:
        hello = hello_to(self._cluster)
        self._produce: Stream[ProduceRequest, tuple[ProduceResponse, ...]] = await self._connection.open_produce(hello)
        self._fetch: Stream[FetchRequest, FetchResponse] = await self._connection.open_fetch(hello)
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._produce.close()
        await self._fetch.close()
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    # ---- whole calls -----------------------------------------------------------------------------------------------

    async def produce(self, *values: bytes, acks: int = ACKS_ALL, timeout_ms: int = 5_000) -> ProduceResult:
        await self.send_produce(*values, acks=acks, timeout_ms=timeout_ms)
        return await self.receive_produce()

    async def fetch(self, offset: int, *, max_wait_ms: int = 0) -> tuple[FetchResult, list[bytes]]:
        await self.send_fetch(offset, max_wait_ms=max_wait_ms)
        return await self.receive_fetch()

    async def latest(self, *, timeout_ms: int = 30_000) -> ListOffsetsResult:
        request = ListOffsetsRequest((ListOffsetsPartition(*self._place, LATEST_TIMESTAMP),))
        response = await self._connection.call(request, timeout_ms=timeout_ms)
        assert isinstance(response, ListOffsetsResponse)
        return response.results[0]

    # ---- halves, for requests that wait in the node's socket ---------------------------------------------------------

    async def send_produce(self, *values: bytes, acks: int, timeout_ms: int = 5_000) -> None:
        self._correlation_id += 1
        batch = encode_batch([(T0_MS, None, value, ()) for value in values])
        partitions = (ProducePartition(*self._place),)
        await self._produce.send(ProduceRequest(self._correlation_id, timeout_ms, acks, partitions, (batch,)))

    async def receive_produce(self) -> ProduceResult:
        async with asyncio.timeout(PATIENCE_S):
            (response,) = await self._produce.receive()
        return response.results[0]

    async def send_fetch(self, offset: int, *, max_wait_ms: int) -> None:
        self._correlation_id += 1
        request = FetchRequest(
            correlation_id=self._correlation_id,
            timeout_ms=30_000,
            replica_id=CONSUMER_REPLICA_ID,
            broker_epoch=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            partitions=(FetchPartition(*self._place, offset),),
        )
        await self._fetch.send(request)

    async def receive_fetch(self) -> tuple[FetchResult, list[bytes]]:
        """Returns what is new; what was told last where nothing is, for the stream is a fetch session."""
        async with asyncio.timeout(PATIENCE_S):
            response = await self._fetch.receive()
        if not response.results:
            assert self._told is not None
            return self._told, []
        self._told = response.results[0]
        data = response.batches[0]
        values = [record.value or b"" for header in scan(data) for record in decode_batch(data, header.position)]
        return response.results[0], values
