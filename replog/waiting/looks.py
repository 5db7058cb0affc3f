"""A limit of time by how often the event loop came to look, for waiting on another process.

Why: a loop that was held up (a computation of the application between two awaits, a machine with too much to do) has not looked at
what arrived meanwhile.  By the clock the other side is late when the loop goes on, and a live broker counts as dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

LOOKS: Final = 8
"""Looks within a limit: a loop that is held up once, however long, uses up one of them."""


@asynccontextmanager
async def timeout_in_looks(limit_s: float) -> AsyncIterator[None]:
    """Ends its block with TimeoutError as `asyncio.timeout` does, after `LOOKS` turns of the loop that spread over the limit.

    Args:
        limit_s: The time that it takes where the loop is on time, in seconds.
    """
    loop = asyncio.get_running_loop()
    looks = 0
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as timeout:

        def look() -> None:
            nonlocal looks, timer
            looks += 1
            if looks < LOOKS:
                timer = loop.call_later(limit_s / LOOKS, look)
            else:
                timeout.reschedule(loop.time())

        timer = loop.call_later(limit_s / LOOKS, look)
        try:
            yield
        finally:
            timer.cancel()
