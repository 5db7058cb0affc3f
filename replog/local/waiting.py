"""Who waits for new records: threads by a lock of their own each, event loops by a callback.

Why no condition: who waits on one gives up the log's mutex and takes it again at the end.  A Ctrl-C that comes while it is
being taken again leaves it to others, and the `with` around then gives up what somebody else holds.  Here a thread waits
without the mutex, and an interrupt has nothing to put right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchers:
    """Everybody to be told when the high watermark moves, the log fails or is closed.

    All methods but `wait` are called with the mutex of the log held.
    """

    def __init__(self) -> None:
        self._waiters: set[threading.Lock] = set()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def waiters_count(self) -> int:
        """How many threads wait."""
        return len(self._waiters)

    def notify(self) -> None:
        """Tells everybody that something moved."""
        self.tell_threads()
        self.call_back()

    def tell_threads(self) -> None:
        """Lets every thread that waits look again, once the mutex is free."""
        for waiter in tuple(self._waiters):
            if waiter.locked():
                waiter.release()
            else:  # told before, and an interrupt kept its thread from taking it out
                self._waiters.discard(waiter)

    def call_back(self) -> None:
        """Calls the callbacks here and now: they only wake a loop."""
        for callback in self._callbacks:
            callback()

    def register(self) -> threading.Lock:
        """Returns a lock that is held until the next notification: to be waited for once the mutex has been given up."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.add(waiter)
        return waiter

    def wait(self, waiter: threading.Lock, timeout_s: float | None) -> None:
        """Returns at that notification, or after `timeout_s` seconds; None = whenever it comes.  Without the mutex."""
        try:
            waiter.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._waiters.discard(waiter)

    def add(self, callback: Callable[[], None]) -> None:
        """Calls `callback` at every notification, in the thread that caused it, with the mutex held."""
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        """Undoes `add`."""
        self._callbacks.remove(callback)
