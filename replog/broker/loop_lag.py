"""How late the event loop is: how much longer than asked a short sleep takes.

A loop that is late sees everything late: what it takes for the silence of others may be its own.
"""

from __future__ import annotations

import asyncio

from replog.broker.clock import Clock
from replog.waiting.task_ends import end_tasks

CHECK_INTERVAL_MS = 250
KEPT_CHECKS = 8
"""What `worst_ms` looks back on: two seconds."""


class LoopLag:
    """Measures the lag of the loop that it runs on.

    Args:
        clock: The clock of the node.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lags_ms = [0] * KEPT_CHECKS
        self._asleep_since_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="loop-lag")

    async def stop(self) -> None:
        await end_tasks(self._task)

    def worst_ms(self) -> int:
        """Returns the largest lag of the last two seconds; a check that is overdue counts already."""
        overdue_ms = 0
        if self._asleep_since_ms is not None:
            overdue_ms = self._clock.now_ms() - self._asleep_since_ms - CHECK_INTERVAL_MS
        return max(overdue_ms, *self._lags_ms)

    async def _run(self) -> None:
        check = 0
        while True:
            self._asleep_since_ms = self._clock.now_ms()
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            lag_ms = self._clock.now_ms() - self._asleep_since_ms - CHECK_INTERVAL_MS
            self._lags_ms[check % KEPT_CHECKS] = max(0, lag_ms)
            check += 1
