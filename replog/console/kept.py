"""Answers that several readers share: asked for once at a time, kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class KeptAnswer(Generic[T]):
    """One answer: whoever wants it while it is asked for waits for the same question.

    Args:
        ask: The question.
        keep_s: The seconds for which an answer holds; an error is told to those who wait, and not kept.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], keep_s: float) -> None:
        self._ask = ask
        self._keep_s = keep_s
        self._asking: asyncio.Task[T] | None = None
        self._until_s = 0.0

    async def get(self) -> T:
        """Returns the answer, at most `keep_s` old.  Raises: The error of the question."""
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and (loop.time() >= self._until_s or _failed(self._asking))):
            self._asking = asyncio.create_task(self._answered(), name="console-question")
            self._asking.add_done_callback(_failed)  # whoever asked may have gone: nobody else looks at the error
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Ends a question that is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _answered(self) -> T:
        found = await self._ask()
        self._until_s = asyncio.get_running_loop().time() + self._keep_s
        return found


def _failed(task: asyncio.Task[T]) -> bool:
    return task.cancelled() or task.exception() is not None
