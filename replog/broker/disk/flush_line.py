"""Whose turn it is with the disk, where more logs are to be flushed than threads flush at a time.

The metadata log goes first: in the order of asking it would wait for thousands of fsyncs behind one request about thousands
of partitions, and its voters elect another leader when it takes too long.
"""

from __future__ import annotations

import asyncio
from collections import deque


class FlushLine:
    """Lets in some at a time.  On one event loop.

    Args:
        at_once: The number of those that may be in.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._first: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def enter(self, *, is_first: bool) -> bool:
        """Waits for a turn; `leave` ends it.

        Args:
            is_first: Whether it goes before all that are not.

        Returns:
            Whether it had to wait.
        """
        if self._free:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._first if is_first else self._others).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return True

    def leave(self) -> None:
        """Ends a turn, and gives it to the next one."""
        while self._first or self._others:
            turn = self._next()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> asyncio.Future[None]:
        return self._first.popleft() if self._first else self._others.popleft()
