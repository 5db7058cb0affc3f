"""`replog.open_log_async`: a log is opened in a thread, and closed where nobody waits for it any more."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from replog.errors import InvariantViolationError
from replog.local.aio import AsyncLocalLog
from replog.local.local_log import LocalLog
from replog.local.opening import open_log


class _Opening:
    """What `open_log_async` returns: awaited, or entered by `async with`, it opens the log in a thread."""

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = settings
        self._opened: AsyncLocalLog | None = None

    def __await__(self) -> Any:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncLocalLog:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> AsyncLocalLog:
        handover = _Handover()
        try:
            await asyncio.to_thread(lambda: handover.give(open_log(self._path, **self._settings)))
        except asyncio.CancelledError:
            handover.abandon()
            raise
        return AsyncLocalLog(handover.take(), owns_log=True)


class _Handover:
    """A log on its way from the thread that opens it, which cannot be stopped, to the task that waits for it.

    Why it does without the loop: a loop that ends cancels whatever would have closed a log that nobody waits for.

    Invariants:
        - a log that is given and not taken is closed, whichever of thread and task comes last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._log: LocalLog | None = None

    def give(self, log: LocalLog) -> None:
        """Hands the open log over, in the thread that opened it; closes it where nobody will take it."""
        with self._lock:
            self._log = log
            is_abandoned = self._is_abandoned
        if is_abandoned:
            log.close()

    def take(self) -> LocalLog:
        """Returns the log, in the loop, once `give` has returned."""
        if self._log is None:
            raise InvariantViolationError("a log was taken before it was given")
        return self._log

    def abandon(self) -> None:
        """Notes, in the loop, that nobody will take the log; closes it if it has been given."""
        with self._lock:
            self._is_abandoned = True
            log = self._log
        if log is not None:
            log.close()


def open_log_async(path: str | os.PathLike[str], **settings: Any) -> _Opening:
    """Opens a log for asyncio, as `open_log` does: it is opened, recovered and closed in threads.

    ::

        async with replog.open_log_async("orders") as log:
            offset = await log.append(b"two coffees")
            async for record in log.tail(offset):
                ...

    Args:
        path, settings: Those of `open_log`, but for `read_only` (`open_log` itself does; nothing there waits).

    Returns:
        Something to `await` (then close the log yourself) or to enter by `async with`.

    Raises:
        TypeError: `read_only` is set.
        ReplogError: The errors of `open_log`, when awaited.
    """
    if settings.get("read_only"):
        raise TypeError("a read-only log has no async side: use open_log(path, read_only=True)")
    return _Opening(path, settings)
