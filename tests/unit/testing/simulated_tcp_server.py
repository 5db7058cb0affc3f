"""A process that listens and a caller over simulated TCP, and protocols that keep what they hear."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from replog.testing.simulated_network import NetworkConditions, SimulatedNetwork
from replog.testing.simulated_process import SimulatedProcess
from replog.testing.simulated_tcp import SimulatedPort
from replog.testing.simulated_transport import SimulatedInternet
from replog.testing.virtual_loop import VirtualLoop

HOST, PORT = "10.0.0.1", 9092


class Ear(asyncio.Protocol):
    """Keeps what it hears."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.heard = bytearray()
        self.pieces = 0
        self.is_made = False
        self.has_ended = False
        self.is_paused = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.is_made = True

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.pieces += 1

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @property
    def ending(self) -> type[Exception] | None:
        """What ended it; `RuntimeError`: nothing yet."""
        return RuntimeError if not self.lost else None if self.lost[0] is None else type(self.lost[0])


class BufferedEar(asyncio.BufferedProtocol):
    """The same, into a buffer of a few bytes."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._buffer = bytearray(7)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._buffer[:nbytes]


class World:
    """A server process that listens and a caller, on machines of their own."""

    def __init__(self, loop: VirtualLoop, conditions: NetworkConditions | None, seed: int) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, random.Random(seed), conditions)
        internet = SimulatedInternet(self.network)
        self.caller, self.host = internet.host("caller"), internet.host("server")
        self.process: SimulatedProcess = loop.new_process("server")
        self.process.on_kill.append(self.host.tcp.lose_process)
        self.served: list[Any] = []
        self.port: SimulatedPort | None = None
        self.factory: Callable[[], asyncio.BaseProtocol] = Ear

    async def serve(self) -> None:
        def accept() -> asyncio.BaseProtocol:
            self.served.append(self.factory())
            return self.served[-1]

        async def listen() -> None:
            self.port = self.host.tcp.bind(HOST, PORT)
            await self.port.listen(accept)

        await self.process.create_task(listen())

    async def connect(self) -> Ear:
        return (await self.caller.tcp.create_connection(Ear, HOST, PORT))[1]

    async def pair(self) -> tuple[Ear, Any]:
        client = await self.connect()
        await self.until(lambda: self.served)
        return client, self.served[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    def crash(self, *, power_cut: bool) -> None:
        self.host.is_off = power_cut
        self.process.kill()


def run(
    test: Callable[[World], Awaitable[None]],
    *,
    serve: bool = True,
    conditions: NetworkConditions | None = None,
    seed: int = 5,
) -> VirtualLoop:
    loop = VirtualLoop(random.Random(4), steps_max=200_000)

    async def main() -> None:
        world = World(loop, conditions, seed)
        if serve:
            await world.serve()
        await test(world)

    loop.run(main())
    assert loop.problems == []
    return loop
