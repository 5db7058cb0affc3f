"""The memory for large frames on their way, in or out: taken when one begins, shared by all connections of a port.

A client that announces 64 MiB and sends a byte a second, or asks for as much and does not read it, would keep that memory from all
others for a minute.  So while others wait, a frame has half a second, then `FINISH_S` seconds, and its share that has moved must
keep up with the share of these seconds that is over:

| while others wait, a frame                       | what happens                                                   |
|--------------------------------------------------|----------------------------------------------------------------|
| keeps up                                         | nothing                                                        |
| is behind                                        | its connection ends; the log says why, and the others go on    |

Only large frames wait here.  Small ones share a buffer or leave at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from replog.waiting.byte_semaphore import ByteSemaphore

GRACE_S = 0.5
"""How long a frame need not move at first."""

FINISH_S = 5.0
"""The time after that within which a frame has to move while others wait."""

LOOK_S = 0.25
"""How often frames are looked at while another one waits."""


class Transfer(Protocol):
    """A large frame of which a part has moved."""

    @property
    def moved_bytes(self) -> int:
        """How much of it has come, or left."""
        ...

    def give_way(self) -> None:
        """Ends the connection, which gives its room back."""
        ...


class _Begun(Struct):
    """A frame on its way.  `since_s`: when it got its room."""

    size_bytes: int
    since_s: float


class TransferRoom:
    """The room.  Of one event loop.

    Args:
        limit_bytes: The bytes of large frames that are held together; one frame alone may be larger.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._bytes = ByteSemaphore(limit_bytes)
        self._begun: dict[Transfer, _Begun] = {}
        self._waiting_count = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """The bytes that are held now."""
        return self._bytes.held_bytes

    def take_at_once(self, transfer: Transfer, size_bytes: int) -> bool:
        """Takes room for a frame if there is some and no earlier frame waits; returns whether it did."""
        if not self._bytes.has_room(size_bytes):
            return False
        self._bytes.held_bytes += size_bytes
        self._begin(transfer, size_bytes)
        return True

    async def take(self, transfer: Transfer, size_bytes: int) -> None:
        """Takes room for a frame, after all earlier ones.  A caller that is cancelled holds nothing."""
        self._waiting_count += 1
        self._look_later()
        try:
            await self._bytes.acquire(size_bytes)
        finally:
            self._waiting_count -= 1
        self._begin(transfer, size_bytes)

    def ended(self, transfer: Transfer) -> None:
        """Notes that all of a frame has moved, or nothing more will; its room is held until `give_back`."""
        self._begun.pop(transfer, None)

    def give_back(self, size_bytes: int) -> None:
        """Gives room back."""
        self._bytes.release(size_bytes)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _begin(self, transfer: Transfer, size_bytes: int) -> None:
        self._begun[transfer] = _Begun(size_bytes, asyncio.get_running_loop().time())

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting_count:
            return
        now_s = asyncio.get_running_loop().time()
        for transfer, begun in list(self._begun.items()):
            due_part = (now_s - begun.since_s - GRACE_S) / FINISH_S
            if transfer.moved_bytes < due_part * begun.size_bytes:
                transfer.give_way()
        self._look_later()
