"""A listener whose requests are answered when a test says so, and its clients."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from replog.tcp.answers import Answer
from replog.tcp.connection import ConnectionLimits, RequestServer
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.port import bind
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore

OVERLAPPING, ALONE = 0, 1
LIMITS = ConnectionLimits()
HOST = "127.0.0.77"
"""Where none of the clients of other tests looks for a broker of its own, whose port may have been this one."""


def request(number: int, *, kind: int = OVERLAPPING, size: int = 12) -> bytes:
    """A frame: its kind, its number, and filling up to `size` bytes."""
    return struct.pack(">ihi", size, kind, number).ljust(4 + size, b".")


def answer(number: int, size: int = 0) -> Answer:
    return Answer((struct.pack(">ii", 4 + size, number), bytes(size)))


@dataclass
class Script:
    """Answers when it is told to; what it was asked is in `begun`."""

    begun: list[int] = field(default_factory=list)
    gates: dict[int, asyncio.Future[Answer | None]] = field(default_factory=dict)
    is_open: bool = False
    answer_size: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, frame: memoryview, _client: object) -> Answer | None:
        number: int = struct.unpack_from(">hi", frame)[1]
        self.begun.append(number)
        self.news.set()
        if self.is_open:
            return answer(number, self.answer_size)
        self.gates[number] = asyncio.get_running_loop().create_future()
        return await self.gates[number]

    def finish(self, *numbers: int) -> None:
        for number in numbers:
            self.gates[number].set_result(answer(number))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answers(self, count: int) -> list[int]:
        numbers = []
        async with asyncio.timeout(60):
            for _ in range(count):
                size, number = struct.unpack(">ii", await self.reader.readexactly(8))
                await self.reader.readexactly(size - 4)
                numbers.append(number)
        return numbers

    async def until_ended(self) -> bytes:
        """What comes until the broker ends the connection."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@dataclass
class Served:
    listener: Listener
    port: int
    script: Script
    request_bytes: ByteSemaphore
    clients: list[Client]

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection(HOST, self.port))
        self.clients.append(client)
        return client


def is_overlapping(frame: memoryview) -> bool:
    """Whether a request of these tests is as a produce: it may overlap others, and brings records."""
    return frame[1] == OVERLAPPING


@asynccontextmanager
async def serving(
    *,
    limits: ConnectionLimits = LIMITS,
    bytes_max: int = 1 << 30,
    reading_bytes_max: int = 1 << 30,
    serve: Callable[[memoryview, object], Awaitable[Answer | None]] | None = None,
    **others: Any,
) -> AsyncIterator[Served]:
    script, request_bytes, reading_room = Script(), ByteSemaphore(bytes_max), TransferRoom(reading_bytes_max)
    server = RequestServer(serve or script.serve, is_overlapping, is_overlapping)
    found_limits = ListenerLimits(connection=limits, **others)
    listener = Listener(server, lambda: found_limits, request_bytes, reading_room)
    bound = bind(HOST, 0)
    port = bound.port
    await listener.start(bound)
    found = Served(listener, port, script, request_bytes, [])
    try:
        yield found
    finally:
        await listener.stop()
        for client in found.clients:
            client.writer.close()
        assert len(listener) == 0
        assert (request_bytes.held_bytes, reading_room.held_bytes) == (0, 0)
