"""A transport in memory, between a client and the nodes of a fake cluster: every stream of a node can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from replog.controller.requests import ClientChange
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    ProduceRequest,
    ProduceResponse,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.transport import ConnectionLostError, RequestContext, Stream
from replog.waiting.asks import Asks
from replog.waiting.task_ends import end_tasks

T = TypeVar("T")


class MemoryPipe:
    """Both directions of one stream."""

    def __init__(self) -> None:
        self.to_server: asyncio.Queue[Any] = asyncio.Queue()
        self.to_client: asyncio.Queue[Any] = asyncio.Queue()
        self.is_cut = False
        self.task: asyncio.Task[None] | None = None

    def cut(self) -> None:
        self.is_cut = True
        self.to_server.put_nowait(None)
        self.to_client.put_nowait(None)


class ReachableNode(Protocol):
    """A node behind the transport: what a client sees of a broker, whatever the protocol."""

    is_down: bool
    streams: set[MemoryPipe]

    async def handle_client_call(self, call: IncomingCall[Any], context: RequestContext) -> Any: ...

    async def handle_controller_call(self, call: IncomingCall[ClientChange], context: RequestContext) -> Any: ...

    def check_hello(self, hello: Hello) -> Hello: ...

    def watch_metadata(self, request: WatchRequest, context: RequestContext) -> AsyncIterator[MetadataUpdate]: ...

    def watch_offsets(
        self, request: WatchOffsetsRequest, context: RequestContext
    ) -> AsyncGenerator[tuple[FetchResult, ...]]: ...

    async def handle_produce_stream(
        self, hello: Hello, stream: Stream[Sequence[ProduceResponse], ProduceRequest], context: RequestContext
    ) -> None: ...

    async def handle_fetch_stream(
        self, hello: Hello, stream: Stream[FetchResponse, FetchRequest], context: RequestContext
    ) -> None: ...


class ReachableNodes(Protocol):
    """The nodes of a cluster, and where each is."""

    @property
    def nodes(self) -> Mapping[int, ReachableNode]: ...

    @property
    def addresses(self) -> Mapping[int, str]: ...


class MemoryEnd:
    """One end: what a `Stream` is."""

    def __init__(self, pipe: MemoryPipe, out: asyncio.Queue[Any], into: asyncio.Queue[Any]) -> None:
        self._pipe, self._out, self._in = pipe, out, into

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        if self._pipe.is_cut:
            raise ConnectionLostError("cut")
        self._out.put_nowait(tuple(message) if isinstance(message, list) else message)

    async def receive(self) -> Any:
        message = await self._in.get()
        if message is None or self._pipe.is_cut:
            raise ConnectionLostError("cut")
        return message

    async def close(self) -> None:
        self._pipe.cut()
        if self._pipe.task is not None:
            await end_tasks(self._pipe.task)


class MemoryTransport:
    def __init__(self, cluster: ReachableNodes) -> None:
        self._cluster = cluster
        self.open_connections: set[MemoryConnection] = set()

    def connect(self, address: str, *, purpose: str) -> MemoryConnection:
        by_address = {a: self._cluster.nodes[i] for i, a in self._cluster.addresses.items()}
        connection = MemoryConnection(self, address, by_address.get(address))
        self.open_connections.add(connection)
        return connection


class MemoryConnection:
    def __init__(self, transport: MemoryTransport, address: str, node: ReachableNode | None) -> None:
        self._transport, self._address, self._node = transport, address, node
        self._context = RequestContext("anonymous", "", "memory", "memory")

    @property
    def address(self) -> str:
        return self._address

    def _reach(self) -> ReachableNode:
        if self._node is None or self._node.is_down:
            raise ConnectionLostError(f"{self._address}: connection refused", refused=True)
        return self._node

    async def call(self, request: Asks[T], *, timeout_ms: int, cluster_id: str = "") -> T:
        await asyncio.sleep(0)
        node, call = self._reach(), IncomingCall[Any](request, cluster_id, timeout_ms)
        is_of_controller = isinstance(request, ClientChange)
        handle = node.handle_controller_call if is_of_controller else node.handle_client_call
        answer: T = await handle(call, self._context)
        return answer

    async def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        node = self._reach()
        async for update in node.watch_metadata(request, self._context):
            yield update
        raise ConnectionLostError("the watch ended")

    async def watch_offsets(self, request: WatchOffsetsRequest) -> AsyncIterator[tuple[FetchResult, ...]]:
        async for update in self._reach().watch_offsets(request, self._context):
            self._reach()
            yield update

    async def open_produce(self, hello: Hello) -> MemoryEnd:
        node = self._reach()
        return self._open(node, hello, node.handle_produce_stream)

    async def open_fetch(self, hello: Hello) -> MemoryEnd:
        node = self._reach()
        return self._open(node, hello, node.handle_fetch_stream)

    def _open(self, node: ReachableNode, hello: Hello, handle: Any) -> MemoryEnd:
        node.check_hello(hello)
        pipe = MemoryPipe()
        node.streams.add(pipe)
        server = MemoryEnd(pipe, pipe.to_client, pipe.to_server)

        async def serve() -> None:
            try:
                await handle(hello, server, self._context)
            except* ConnectionLostError:
                pass
            finally:
                node.streams.discard(pipe)
                pipe.cut()

        pipe.task = asyncio.create_task(serve())
        return MemoryEnd(pipe, pipe.to_server, pipe.to_client)

    async def close(self) -> None:
        self._transport.open_connections.discard(self)
