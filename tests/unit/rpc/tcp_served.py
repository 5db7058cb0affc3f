"""A test's handlers behind a port where nodes meet, and one connection to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from rpc_handlers import Handlers
from tcp_port import TcpPort, listening

from replog.rpc.tcp.transport import TcpPeerTransport


class Served:
    """A port with handlers behind it, and one connection to it."""

    def __init__(self, handlers: Handlers, port: TcpPort) -> None:
        self.handlers = handlers
        self.address, self.port = port.address, port.port
        self.room, self.listener = port.room, port.listener
        self.connection = TcpPeerTransport().connect(port.address, purpose="data")


@contextlib.asynccontextmanager
async def serving(
    handlers: Handlers | None = None, *, port: int = 0, room_bytes: int = 1 << 30
) -> AsyncIterator[Served]:
    handlers = handlers or Handlers()
    async with listening(handlers, port=port, room_bytes=room_bytes) as opened_port:
        served = Served(handlers, opened_port)
        try:
            yield served
        finally:
            await served.connection.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
