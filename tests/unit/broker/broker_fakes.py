"""A network of nobody: connections and streams that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError


class FakeStream:
    """One stream: what was sent, and what will be received (an exception is raised)."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.accepts = asyncio.Event()
        self.accepts.set()
        self.closed = False

    async def send(self, message: Any) -> None:
        await self.accepts.wait()
        self.sent.append(message)

    async def receive(self) -> Any:
        message = await self.incoming.get()
        if isinstance(message, BaseException):
            raise message
        return message

    async def close(self) -> None:
        self.closed = True


class FakeConnection:
    """Streams are opened by `open_stream`, controller calls answered by `answer`; either may raise."""

    def __init__(self, network: FakeNetwork, address: str) -> None:
        self.address = address
        self.closed = False
        self._network = network

    async def open_quorum(self, hello: Hello) -> FakeStream:
        return self._open()

    async def open_fetch(self, hello: Hello) -> FakeStream:
        return self._open()

    def _open(self) -> FakeStream:
        if self._network.refuses is not None:
            self._network.attempts += 1
            raise self._network.refuses
        self._network.attempts += 1
        stream = FakeStream()
        self._network.streams.append(stream)
        return stream

    async def controller_call(
        self,
        request: Any,
        *,
        timeout_ms: int,
        cluster_id: str,
    ) -> Any:
        self._network.calls.append((self.address, request, timeout_ms, cluster_id))
        outcome = self._network.answer(self.address, request)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def close(self) -> None:
        self.closed = True


class FakeNetwork:
    """The transport; remembers everything."""

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.streams: list[FakeStream] = []
        self.attempts = 0
        self.refuses: Exception | None = None
        self.calls: list[tuple[str, Any, int, str, bool, str]] = []
        self.answer: Callable[[str, Any], Any] = lambda address, _: ConnectionLostError(f"nobody at {address}")

    def connect(
        self, address: str, *, purpose: str, hello: Hello | None = None, node_id: int | None = None
    ) -> FakeConnection:
        connection = FakeConnection(self, address)
        self.connections.append(connection)
        return connection
