"""Cancels a coroutine at each of its waits in turn: what Ctrl-C or a time-out does to a caller at the worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

WAITS_MAX = 100
"""More waits than any call under test has: a loop over them ends."""


class _CountedWaits:
    """Awaits a coroutine, and has the current task cancelled while it waits for the n-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], number: int) -> None:
        self._coroutine = coroutine
        self._number = number

    def __await__(self) -> Generator[Any, Any, bool]:
        """Returns whether the coroutine ended before its n-th wait."""
        steps = self._coroutine.__await__()
        task = asyncio.current_task()
        assert task is not None
        thrown: BaseException | None = None
        while True:
            try:
                waited_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration:
                return self._number > 0
            self._number -= 1
            if self._number == 0:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited_for
                thrown = None
            except BaseException as error:  # noqa: BLE001 -- the coroutine takes it, as if it were awaited directly
                thrown = error


async def cancelled_at_wait(number: int, coroutine: Coroutine[Any, Any, object]) -> bool:
    """Runs `coroutine` in a task that is cancelled during its wait `number`, counted from 1.

    Returns:
        False: it ended before that wait, so that there is none to cancel it at.
    """

    async def run() -> bool:
        return await _CountedWaits(coroutine, number)

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if task.cancelled():
        return True
    return not task.result()
