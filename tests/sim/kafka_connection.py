"""A client's connection in Kafka's protocol over simulated TCP: requests overlap, answers come in their order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any

from replog.testing.simulated_tcp import SimulatedTcp
from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.primitives import Reader, Writer

CONNECT_S = 1.5
SIZE_BYTES = 4
API_VERSIONS_KEY = 18


class KafkaConnectionLostError(Exception):
    """The connection has ended, or was given up: what became of requests without an answer is not known."""


class KafkaConnection(asyncio.Protocol):
    """One connection.  Requests leave in the order of the calls of `ask`.

    Attributes:
        is_lost: nothing more can be asked.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self._transport: asyncio.Transport | None = None
        self._heard = bytearray()
        self._correlation_id = 0
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()

    @classmethod
    async def open(cls, tcp: SimulatedTcp, host: str, port: int) -> KafkaConnection:
        """Raises `KafkaConnectionLostError` where nobody answers."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return (await tcp.create_connection(cls, host, port))[1]
        except OSError as error:
            raise KafkaConnectionLostError(str(error)) from error

    def ask(self, request: Any, version: int) -> asyncio.Future[bytes]:
        """Sends a request; the future is its answer, to be read with `read`."""
        if self.is_lost or self._transport is None:
            raise KafkaConnectionLostError("the connection has ended")
        self._correlation_id += 1
        writer = Writer()
        header = RequestHeader(request.API_KEY, version, self._correlation_id, "simulated")
        header.write(writer, 2 if version >= request.FLEXIBLE_FROM else 1)
        request.write(writer, version)
        body = writer.joined()
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, answered))
        self._transport.write(struct.pack(">i", len(body)) + body)
        return answered

    def close(self) -> None:
        """Gives up: nobody waits for what was asked."""
        if self._transport is not None:
            self._transport.close()
        self._end("given up")

    # ---- what the transport calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard += data
        while len(self._heard) >= SIZE_BYTES:
            size: int = struct.unpack_from(">i", self._heard)[0]
            if len(self._heard) < SIZE_BYTES + size:
                return
            frame = bytes(self._heard[SIZE_BYTES : SIZE_BYTES + size])
            del self._heard[: SIZE_BYTES + size]
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "closed by the other side")

    def _take(self, frame: bytes) -> None:
        """The answer to the oldest request, as it must be."""
        if self.is_lost:
            return
        correlation_id, answered = self._waiting.popleft()
        if struct.unpack_from(">i", frame)[0] != correlation_id:
            raise AssertionError(f"an answer to another request than {correlation_id}: {frame[:8]!r}")
        if not answered.done():
            answered.set_result(frame)

    def _end(self, reason: str) -> None:
        self.is_lost = True
        for _, answered in self._waiting:
            if not answered.done():
                answered.set_exception(KafkaConnectionLostError(reason))
                answered.exception()  # whoever waits hears of it; nobody need wait
        self._waiting.clear()


def read(frame: bytes, answer: type[Any], version: int) -> Any:
    """The answer in a frame; all of it is read."""
    reader = Reader(memoryview(frame))
    has_tags = version >= answer.FLEXIBLE_FROM and answer.API_KEY != API_VERSIONS_KEY
    ResponseHeader.read(reader, 1 if has_tags else 0)
    response = answer.read(reader, version)
    reader.finish()
    return response
