"""A weighted semaphore over bytes, first come, first served: it shares a bounded memory among tasks that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteSemaphore:
    """A bounded amount of bytes that is held by many.  Of one event loop.

    A request for more than the whole amount is admitted when nothing else is held, so it cannot wait for ever.  A merely
    large request cannot either, since no later one overtakes it.

    Args:
        limit_bytes: The most bytes that may be held at a time.

    Attributes:
        held_bytes: The bytes that are held now.  A caller that adds to it without waiting asks `has_room` in the same step.

    Invariants:
        - it passes the limit by one acquisition at most;
        - the first waiter does not fit into what is free, or an admitted waiter has not resumed yet;
        - a waiter that was admitted but has not resumed keeps its place.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._entering_count = 0  # admitted, but not resumed yet

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` may be held at once: there is room, and no earlier caller waits."""
        held_bytes = self.held_bytes
        return (
            (not held_bytes or held_bytes + size_bytes <= self._limit_bytes)
            and not self._waiters
            and not self._entering_count
        )

    async def acquire(self, size_bytes: int) -> None:
        """Returns when `size_bytes` are held, after all earlier callers.

        A caller that is cancelled, or gets the error of `close`, holds nothing.
        """
        if self.has_room(size_bytes):
            self.held_bytes += size_bytes
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size_bytes, waiter))
        try:
            await waiter
        except BaseException:
            self._leave(size_bytes, waiter)
            raise
        self._entering_count -= 1
        self._admit()  # callers that came before this one resumed

    def release(self, size_bytes: int) -> None:
        """Gives back held bytes, and admits the waiters that fit now."""
        self.held_bytes -= size_bytes
        if self._waiters:
            self._admit()

    def close(self, error: BaseException) -> None:
        """Ends the wait of every waiter with `error`."""
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()

    def _admit(self) -> None:
        """Admits the first waiters that fit.  Their bytes count as held from now on, so no other caller takes them."""
        while self._waiters:
            size_bytes, waiter = self._waiters[0]
            if not waiter.done():
                if self.held_bytes and self.held_bytes + size_bytes > self._limit_bytes:
                    return
                self.held_bytes += size_bytes
                self._entering_count += 1
                waiter.set_result(None)
            self._waiters.popleft()

    def _leave(self, size_bytes: int, waiter: asyncio.Future[None]) -> None:
        """Removes a waiter that has given up: smaller ones behind it may fit now."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._entering_count -= 1  # admitted and cancelled in the same turn of the loop
            self.release(size_bytes)
            return
        if not waiter.done():  # its coroutine was closed
            self._waiters.remove((size_bytes, waiter))
        self._admit()
