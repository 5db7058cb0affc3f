"""The lag of the event loop as its own node sees it."""

from __future__ import annotations

import asyncio
import time

from replog.broker.clock import SystemClock
from replog.broker.loop_lag import CHECK_INTERVAL_MS, LoopLag


async def test_a_loop_that_is_held_up_is_seen_at_once_and_afterwards() -> None:
    lag = LoopLag(SystemClock())
    lag.start()
    await asyncio.sleep(0)
    time.sleep((CHECK_INTERVAL_MS + 300) / 1000)
    overdue_ms = lag.worst_ms()
    for _ in range(5):
        await asyncio.sleep(0)  # the check itself comes now
    assert overdue_ms >= 290
    assert lag.worst_ms() >= 290
    await lag.stop()
