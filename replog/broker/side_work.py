"""Work whose length a client decides, in threads beside the event loop: little of it at a time, the rest waits in line.

Why: a batch of 32 KB may decompress to 32 MiB of records of 7 bytes.  Whoever looks into it on the loop keeps everybody waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from replog.errors import BrokerClosedError

T = TypeVar("T")


class SideWork:
    """One kind of such work.  Of one event loop.

    Args:
        name: The name of the threads.
        threads_max: How many work at a time; they are made when they are needed.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._executor = ThreadPoolExecutor(threads_max, name)
        self._turns = asyncio.Semaphore(threads_max)
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Calls `function` in a thread when its turn comes, and returns what it returns or raises.

        Who is cancelled in the line leaves it; later, the thread works on, and nobody hears of it.

        Raises:
            BrokerClosedError: The node is stopping.
        """
        await self._turns.acquire()
        if self._closed:
            self._turns.release()
            raise BrokerClosedError("the node is stopping")
        future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        self._running.add(future)
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    async def stop(self) -> None:
        """Waits for what runs; who stands in line is told that the node is stopping."""
        self._closed = True
        if self._running:
            await asyncio.wait(list(self._running))
        self._executor.shutdown()

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        self._turns.release()
        if not future.cancelled():
            future.exception()  # where nobody waits any more, nobody asks for it
