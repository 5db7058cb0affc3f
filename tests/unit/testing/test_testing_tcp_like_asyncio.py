"""The same scenarios over sockets of this machine and over simulated TCP: protocols see the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from replog.testing.simulated_network import SimulatedNetwork
from replog.testing.simulated_transport import SimulatedInternet
from replog.testing.virtual_loop import VirtualLoop

BYTES = bytes(range(256)) * 1_000


class Peer(asyncio.Protocol):
    """Notes what it is told."""

    transport: asyncio.Transport

    def __init__(self, *, stays: bool = False) -> None:
        self.told: list[object] = []
        self.heard = b""
        self.reads_once = False
        self.news = asyncio.Event()
        self._stays = stays

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if self.reads_once:
            self.transport.pause_reading()
        self.news.set()

    def eof_received(self) -> bool:
        self._note("end")
        return self._stays

    def connection_lost(self, exc: Exception | None) -> None:
        self._note("lost" if exc is None else type(exc).__name__)

    def _note(self, what: object) -> None:
        self.told.append(what)
        self.news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def until_told(self, what: object) -> None:
        await self.until(lambda: what in self.told)


Scenario: TypeAlias = Callable[[Peer, Peer], Awaitable[None]]


async def whole(client: Peer, server: Peer) -> None:
    client.transport.write(BYTES)
    client.transport.write(b"x")
    await server.until(lambda: len(server.heard) == len(BYTES) + 1)
    server.transport.write(b"answer")
    await client.until(lambda: client.heard == b"answer")


async def closed_behind_what_was_written(client: Peer, server: Peer) -> None:
    client.transport.write(BYTES)
    client.transport.close()
    client.transport.close()
    await server.until_told("lost")
    assert len(server.heard) == len(BYTES)
    await client.until_told("lost")


async def half_closed(client: Peer, server: Peer) -> None:
    client.transport.write(b"question")
    client.transport.write_eof()
    await server.until_told("end")
    assert "lost" not in client.told


async def aborted(client: Peer, server: Peer) -> None:
    client.transport.abort()
    client.transport.write(b"nobody")
    await server.until_told("lost")
    await client.until_told("lost")


async def aborted_with_unread_bytes(client: Peer, server: Peer) -> None:
    client.reads_once = True
    server.transport.write(BYTES)
    await client.until(lambda: client.heard)
    client.transport.write(b"the rest has come by now")
    await server.until(lambda: server.heard)
    client.transport.abort()
    await server.until_told("ConnectionResetError")


SCENARIOS = (whole, closed_behind_what_was_written, half_closed, aborted, aborted_with_unread_bytes)


def over_sockets(scenario: Scenario) -> tuple[list[object], list[object]]:
    async def main() -> tuple[list[object], list[object]]:
        loop, server = asyncio.get_running_loop(), Peer()
        listening = await loop.create_server(lambda: server, "127.0.0.1", 0)
        address = listening.sockets[0].getsockname()
        client = (await loop.create_connection(Peer, *address))[1]
        return await told(client, server, scenario, listening)

    return asyncio.run(main())


def over_simulated_tcp(scenario: Scenario) -> tuple[list[object], list[object]]:
    loop = VirtualLoop(random.Random(1))

    async def main() -> tuple[list[object], list[object]]:
        internet, server = SimulatedInternet(SimulatedNetwork(loop, random.Random(2))), Peer()
        listening = internet.host("server").tcp.bind("10.0.0.1", 9092)
        await listening.listen(lambda: server)
        client = (await internet.host("client").tcp.create_connection(Peer, "10.0.0.1", 9092))[1]
        return await told(client, server, scenario, listening)

    return loop.run(main())


async def told(client: Peer, server: Peer, scenario: Scenario, listening: Any) -> tuple[list[object], list[object]]:
    await server.until_told("made")
    try:
        await scenario(client, server)
        return list(client.told), list(server.told)
    finally:
        for peer in (client, server):
            peer.transport.abort()
            await peer.until(lambda peer=peer: "lost" in str(peer.told) or "Error" in str(peer.told))
        listening.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_protocols_are_told_the_same(scenario: Scenario) -> None:
    assert over_simulated_tcp(scenario) == over_sockets(scenario)
