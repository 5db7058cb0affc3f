"""A port where nodes meet, on loopback, with a test's handlers behind it and a bound of its own on what it reads."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from replog.access.principal import ANONYMOUS
from replog.rpc.tcp.service import PeerStreams
from replog.rpc.tcp.wire import is_opening
from replog.rpc.transport import PeerHandlers
from replog.tcp.answers import Answer
from replog.tcp.connection import RequestServer
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.port import bind
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore


@dataclass(frozen=True)
class TcpPort:
    """A port that listens; `room` is what large messages share that are being read."""

    port: int
    room: TransferRoom
    listener: Listener

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def listening(handlers: PeerHandlers, *, port: int = 0, room_bytes: int = 1 << 30) -> AsyncIterator[TcpPort]:
    """Listens at `port`, or a free one, until the end of the block; what was read must have been given back by then."""
    bound, room = bind("127.0.0.1", port), TransferRoom(room_bytes)
    service = PeerStreams(handlers, f"127.0.0.1:{bound.port}", room)

    async def answer(frame: memoryview, _address: str) -> Answer | None:
        return (
            Answer(becomes=partial(service.open, frame, ANONYMOUS))
            if is_opening(frame)
            else Answer((struct.pack(">i", 0),))
        )

    listener = Listener(
        RequestServer(answer, lambda _: False, lambda _: False), ListenerLimits, ByteSemaphore(1 << 30), room
    )
    await listener.start(bound)
    try:
        yield TcpPort(bound.port, room, listener)
    finally:
        await listener.stop()
        assert room.held_bytes == 0
