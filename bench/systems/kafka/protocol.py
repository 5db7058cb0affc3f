"""Connections in Kafka's protocol, without a client around them: what is measured is what the brokers do."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, NamedTuple

from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.primitives import Reader, Writer

_size = struct.Struct(">i")


class _Asked(NamedTuple):
    """A request whose answer is to come."""

    answer: type[Any]
    version: int
    future: asyncio.Future[Any]


class ProtocolConnection(asyncio.Protocol):
    """One connection; answers come in the order of the requests.  Made by `connect`."""

    def __init__(self) -> None:
        self._asked: deque[_Asked] = deque()
        self._arrived = bytearray()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    @classmethod
    async def connect(cls, address: str) -> ProtocolConnection:
        """Connects to a host:port."""
        host, _, port = address.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers whoever asked."""
        self._arrived += data
        while len(self._arrived) >= _size.size:
            end = _size.size + _size.unpack_from(self._arrived)[0]
            if len(self._arrived) < end:
                return
            frame = bytes(self._arrived[_size.size : end])
            del self._arrived[:end]
            asked = self._asked.popleft()
            if not asked.future.done():
                asked.future.set_result(_read(frame, asked))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Fails what waits."""
        self._transport = None
        while self._asked:
            asked = self._asked.popleft()
            if not asked.future.done():
                asked.future.set_exception(ConnectionResetError("the broker closed the connection"))

    def ask(self, request: Any, version: int, answer: type[Any]) -> asyncio.Future[Any]:
        """Sends a request.

        Args:
            request: The request.
            version: The version in which it and its answer are written.
            answer: The class of the answer.

        Returns:
            The answer that is to come.
        """
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._correlation_id += 1
        writer = Writer()
        header = RequestHeader(request.API_KEY, version, self._correlation_id, "bench")
        header.write(writer, 2 if version >= request.FLEXIBLE_FROM else 1)
        request.write(writer, version)
        body = writer.joined()
        self._transport.write(_size.pack(len(body)) + body)
        asked = _Asked(answer, version, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        return asked.future

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()


def _read(frame: bytes, asked: _Asked) -> Any:
    reader = Reader(memoryview(frame))
    ResponseHeader.read(reader, 1 if asked.version >= asked.answer.FLEXIBLE_FROM else 0)
    return asked.answer.read(reader, asked.version)
