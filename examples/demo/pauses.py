"""How long nothing was acknowledged, and since when it goes on: measured where a user would feel it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Acknowledgements:
    """Counts acknowledgements and remembers the longest time without one.

    Args:
        clock: The clock, in seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self.longest_pause_s = 0.0
        self._clock = clock
        self._last_s: float | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def add(self, count: int) -> None:
        now_s = self._clock()
        if self._last_s is not None:
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s
        self.count += count
        due = [waiter for waiter in self._waiters if waiter[0] <= self.count]
        for waiter in due:
            self._waiters.remove(waiter)
            if not waiter[1].done():
                waiter[1].set_result(None)

    async def reached(self, count: int) -> None:
        """Returns when at least `count` are acknowledged."""
        if self.count >= count:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((count, future))
        await future
