"""Who waits for new records: threads by a condition, event loops by a callback."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchers:
    """Everybody to be told when the high watermark moves, the log fails or is closed.

    Args:
        mutex: of the log; every method is called with it held.
    """

    def __init__(self, mutex: threading.Lock) -> None:
        self._moved = threading.Condition(mutex)
        self._threads_count = 0
        self._callbacks: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Something moved.  Callbacks are called here and now: they only wake a loop."""
        if self._threads_count:
            self._moved.notify_all()
        for callback in self._callbacks:
            callback()

    def wait(self, timeout_s: float | None) -> None:
        """Waits for a notification; the mutex is given up meanwhile.  Returns early at times, as conditions do."""
        self._threads_count += 1
        try:
            self._moved.wait(timeout_s)
        finally:
            self._threads_count -= 1

    def add(self, callback: Callable[[], None]) -> None:
        """Calls `callback` at every notification, in the thread that caused it, with the mutex held."""
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        """Undoes `add`."""
        self._callbacks.remove(callback)
