"""The end of something that is closed by `await`: begun once, and finished even if its callers are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Ending:
    """Gives back what its owner holds: tasks, streams, connections, files.

    Why a task of its own: `close` is often cancelled, by Ctrl-C or a time-out around it.  A release that ends at the await
    where the cancellation arrives leaves streams open and tasks running, and a second `close` finds the owner closed.

    Args:
        release: A coroutine function that gives everything back; it is called once.
    """

    def __init__(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._release = release
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Begins the release, unless it has begun, and returns when everything is given back.

        A caller that is cancelled is cancelled after the release; one that is cancelled again, at once.
        """
        if self._task is None:
            loop = asyncio.get_running_loop()  # before the coroutine is made: without a loop it would never be awaited
            self._task = loop.create_task(self._release(), name="replog-ending")
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await asyncio.wait([self._task])
            raise
