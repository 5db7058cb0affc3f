"""What tests of the client share beside the fake cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    """Raises `TimeoutError` when it does not come true in time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)
