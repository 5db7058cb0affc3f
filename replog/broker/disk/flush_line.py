"""The line in which logs wait for an fsync, where more of them are to be flushed than threads flush at a time.

The metadata log goes first: behind one request about thousands of partitions it would wait for thousands of fsyncs, and its
voters elect another leader when it takes too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

SHORT: Final = 50
"""The line is short while so many logs wait at most: then more may be added to it."""


class FlushLine:
    """Gives turns to logs, a number of them at a time.  On one event loop.

    Args:
        at_once: The number of turns at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._on_short: list[Callable[[], None]] = []

    def when_short(self, go_on: Callable[[], None]) -> None:
        """Calls a function once no more than `SHORT` logs wait: at once where that is so."""
        if len(self._waiting) <= SHORT:
            go_on()
        else:
            self._on_short.append(go_on)

    async def enter(self, *, is_first: bool) -> bool:
        """Waits for a turn; `leave` ends it.

        Args:
            is_first: Whether it goes before all that wait.

        Returns:
            Whether it had to wait.
        """
        if self._free:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return True

    def leave(self) -> None:
        """Ends a turn, and gives it to the next one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if len(self._waiting) == SHORT:
                self._tell_short()
            if not turn.done():  # else whoever waited was cancelled
                turn.set_result(None)
                return
        self._free += 1

    def _tell_short(self) -> None:
        told, self._on_short = self._on_short, []
        for go_on in told:
            go_on()
