"""What Ctrl-C does to a command: its coroutine is cancelled once, and the process ends within a second whatever happens.

Why a handler of our own: a thread that waits for a name server, a terminal or a disk cannot be cancelled, and both the loop
and the interpreter wait for such threads when they end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

from replog.cli.errors import INTERRUPTED

T = TypeVar("T")

GRACE_S = 0.8
"""What `finally` blocks may take after Ctrl-C."""

_SHOW_CURSOR = "\x1b[?25h"


class Interrupt:
    """Ctrl-C while one coroutine runs: the first cancels it, a second ends the process.

    Attributes:
        came: Whether there was a Ctrl-C.

    Args:
        grace_s: The seconds after Ctrl-C until the process ends although the coroutine has not; None: never.
    """

    def __init__(self, grace_s: float | None) -> None:
        self.came = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer = None if grace_s is None else threading.Timer(grace_s, end_now)

    @contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Takes over SIGINT for the length of a block; only in the main thread, elsewhere nothing is changed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._loop = loop
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._stop_timer()

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits the work in the task that Ctrl-C cancels.

        Raises:
            asyncio.CancelledError: Ctrl-C came, perhaps before the work began.
        """
        self._task = asyncio.current_task()
        if self.came:
            work.close()
            raise asyncio.CancelledError
        return await work

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            end_now()
        self.came = True
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def end_now() -> NoReturn:
    """Ends the process without waiting for anything, as after Ctrl-C."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())  # what shows progress had hidden it
    os._exit(INTERRUPTED)
