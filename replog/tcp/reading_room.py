"""The memory for large frames that are being read: taken when a frame is announced, shared by all connections of a port.

Whoever announces 64 MiB and sends a byte a second would keep that memory from everybody for a minute.  So a frame that is read
while others wait for its memory has `FINISH_S` seconds, and half a second before they count, and each part of it has its part of them:

| while others wait, a frame                    | what happens                                                   |
|-----------------------------------------------|----------------------------------------------------------------|
| has come, for whatever part of the time is over | nothing                                                      |
| is behind                                     | its connection ends; the log says why, and those who wait go on |

Nobody waits here for anything but large frames: small ones share a buffer, and what is whole waits for the memory of requests.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from replog.byte_semaphore import ByteSemaphore

GRACE_S = 0.5
"""How long nothing has to come of a frame."""

FINISH_S = 5.0
"""Within what time behind that a frame has come while others wait."""

LOOK_S = 0.25
"""How often frames are looked at while somebody waits."""

GAVE_WAY = "a large request came too slowly while others waited for the memory that it held"


class IncomingFrame(Protocol):
    """A connection with a large frame of which a part has come."""

    @property
    def come_bytes(self) -> int:
        """How much of the frame has come."""
        ...

    def give_way(self, reason: str) -> None:
        """Ends the connection, which gives its room back."""
        ...


class _Reading(Struct):
    """A frame that is being read.  `since_s`: when it got its room."""

    size_bytes: int
    since_s: float


class ReadingRoom:
    """The room.  Of one event loop.

    Args:
        limit_bytes: The bytes of large frames that are held together; one frame alone may be larger.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._bytes = ByteSemaphore(limit_bytes)
        self._reading: dict[IncomingFrame, _Reading] = {}
        self._waiting_count = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """The bytes that are held now."""
        return self._bytes.held_bytes

    def take_at_once(self, frame: IncomingFrame, size_bytes: int) -> bool:
        """Takes room for a frame where there is some and nobody came earlier; returns whether it did."""
        if not self._bytes.has_room(size_bytes):
            return False
        self._bytes.held_bytes += size_bytes
        self._began(frame, size_bytes)
        return True

    async def take(self, frame: IncomingFrame, size_bytes: int) -> None:
        """Takes room for a frame, behind those who came earlier.  Who is cancelled holds nothing."""
        self._waiting_count += 1
        self._look_later()
        try:
            await self._bytes.acquire(size_bytes)
        finally:
            self._waiting_count -= 1
        self._began(frame, size_bytes)

    def ended(self, frame: IncomingFrame) -> None:
        """Notes that all of a frame has come, or nothing more will; its room is held until `give_back`."""
        self._reading.pop(frame, None)

    def give_back(self, size_bytes: int) -> None:
        """Gives room back."""
        self._bytes.release(size_bytes)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _began(self, frame: IncomingFrame, size_bytes: int) -> None:
        self._reading[frame] = _Reading(size_bytes, asyncio.get_running_loop().time())

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting_count:
            return
        now_s = asyncio.get_running_loop().time()
        for frame, reading in list(self._reading.items()):
            due_part = (now_s - reading.since_s - GRACE_S) / FINISH_S
            if frame.come_bytes < due_part * reading.size_bytes:
                frame.give_way(GAVE_WAY)
        self._look_later()
