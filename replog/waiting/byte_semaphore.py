"""A weighted semaphore over bytes, first come, first served: how a bounded memory is shared by those who wait for it."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteSemaphore:
    """A bounded amount of bytes that is held by many.  Of one event loop.

    More than the whole amount is let through when nothing else is held, so that it cannot wait for ever; nor can what is
    merely large, for nobody overtakes it.

    Args:
        limit_bytes: The most bytes that may be held at a time.

    Attributes:
        held_bytes: The bytes that are held now.  Who adds to it without waiting asks `has_room` in the same step.

    Invariants:
        - it passes the limit by one acquisition at most;
        - who stands first in the line does not fit into what is free, or stands behind somebody who has not run yet;
        - who was let in and has not run yet is overtaken by nobody.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._entering_count = 0  # let in, and not run since

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` may be held at once: there is room, and nobody came earlier."""
        held_bytes = self.held_bytes
        return (
            (not held_bytes or held_bytes + size_bytes <= self._limit_bytes)
            and not self._waiters
            and not self._entering_count
        )

    async def acquire(self, size_bytes: int) -> None:
        """Returns when `size_bytes` are held, behind those who came earlier.

        Who is cancelled, or told the error of `close`, holds nothing.
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
        self._admit()  # whoever came while this one had not run yet

    def release(self, size_bytes: int) -> None:
        """Gives back what is held; whoever fits now is let in."""
        self.held_bytes -= size_bytes
        if self._waiters:
            self._admit()

    def close(self, error: BaseException) -> None:
        """Ends the line: everybody in it is told `error`."""
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()

    def _admit(self) -> None:
        """Lets in those at the head of the line; what they get is held from here on, so that nobody takes it meanwhile."""
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
        """Takes somebody who does not wait any more out of the line: it may have stood in the way of smaller ones."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._entering_count -= 1  # let in and cancelled in the same turn of the loop
            self.release(size_bytes)
            return
        if not waiter.done():  # its coroutine was closed
            self._waiters.remove((size_bytes, waiter))
        self._admit()
