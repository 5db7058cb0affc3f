"""A server that says what it serves, as a broker does, and then does what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Any, NamedTuple

from replog.client.protocol.link import BrokerEnd
from replog.tcp.dialing import create_connection
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.primitives import Writer

METADATA = MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[])
METADATA_KEY = MetadataRequest.API_KEY
FLEXIBLE, FIXED = 9, 8
"""Versions of Metadata whose headers have tagged fields, and have none."""

WAIT_S = 60


class Request(NamedTuple):
    """A request, as it came."""

    key: int
    version: int
    correlation_id: int
    frame: bytes


class Peer:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self) -> Request:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        return Request(key, version, correlation_id, frame)

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def frame(self, data: bytes) -> None:
        self.raw(struct.pack(">i", len(data)) + data)

    def answer(self, request: Request, message: Any, *, correlation_id: int | None = None) -> None:
        self.frame(answer_frame(request, message, correlation_id))


Script = Callable[[Peer, Request], Awaitable[None]]


def answer_frame(request: Request, message: Any, correlation_id: int | None = None) -> bytes:
    """The answer to a request, without its size."""
    writer = Writer()
    message.write(writer, request.version)
    has_tags = request.version >= message.FLEXIBLE_FROM and request.key != ApiVersionsRequest.API_KEY
    head = struct.pack(">i", request.correlation_id if correlation_id is None else correlation_id)
    return head + (b"\0" if has_tags else b"") + writer.joined()


class ScriptedServer:
    """Answers what it serves, and hands every other request of a connection to a script.

    Attributes:
        port: Where it listens.
        peers: The connections that are open.
        opened: How many there were.
        requests: What came, but for the questions what it serves.
    """

    def __init__(
        self,
        script: Script,
        versions: Mapping[int, int] | None = None,
        opening: Script | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._script = script
        self._versions = {METADATA_KEY: FLEXIBLE} if versions is None else dict(versions)
        self._opening = opening or self._tell
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: set[Peer] = set()
        self.opened = 0
        self.requests: list[Request] = []
        self.port = 0

    @property
    def endpoint(self) -> BrokerEnd:
        return BrokerEnd(f"127.0.0.1:{self.port}", "tester", create_connection, 20.0)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Ends all connections."""
        for peer in self.peers:
            peer.writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), Peer(reader, writer)
        assert task is not None
        self._tasks.add(task)
        self.peers.add(peer)
        self.opened += 1
        try:
            while True:
                request = await peer.request()
                if request.key == ApiVersionsRequest.API_KEY:
                    await self._opening(peer, request)
                else:
                    self.requests.append(request)
                    await self._script(peer, request)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.peers.discard(peer)
            self._tasks.discard(task)
            writer.close()

    async def _tell(self, peer: Peer, request: Request) -> None:
        keys = [ApiVersionsResponse.ApiVersion(key, 0, newest) for key, newest in self._versions.items()]
        peer.answer(request, ApiVersionsResponse(api_keys=keys))


async def answering(peer: Peer, request: Request) -> None:
    """A script: a cluster without topics."""
    peer.answer(request, METADATA)


async def silent(_peer: Peer, _request: Request) -> None:
    """A script: nothing is ever answered."""


@contextlib.asynccontextmanager
async def scripted(
    script: Script = answering,
    versions: Mapping[int, int] | None = None,
    opening: Script | None = None,
    tls: SSLContext | None = None,
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(script, versions, opening, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)
