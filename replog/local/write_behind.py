"""The dirty window of a local log: bytes go to the disk in a steady stream while appends go on (`replog.log.dirty_window`).

The maintenance thread does the work when an append wakes it; without that thread whoever filled the window does it.  When
the disk is slower than the writers, appends wait until the window is smaller.  It never acknowledges anything.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from replog.errors import BrokerClosedError, StorageError
from replog.log import Log, WriteBackJob


class Watchers:
    """Everybody to be told when the high watermark moves, the log fails or is closed.

    Why no condition: who waits on one gives up the log's mutex and takes it again at the end.  A Ctrl-C that comes while it is
    being taken again leaves it to others, and the `with` around then gives up what somebody else holds.  Here a thread waits
    without the mutex, and an interrupt has nothing to put right.

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


class WriteBehind:
    """Writes the dirty window of one log back.

    Args:
        log: The log; a `dirty_window_bytes` of 0 in its settings switches all of this off.
        mutex: The lock that guards the log.
        on_progress: Called with the mutex held after every job: the log may have failed.
        wake: Makes another thread call `run`; None: there is none.
    """

    def __init__(
        self, log: Log, mutex: threading.Lock, on_progress: Callable[[], None], wake: Callable[[], None] | None
    ) -> None:
        self._log = log
        self._mutex = mutex
        self._on_progress = on_progress
        self._wake = wake
        self._window_bytes = log.config.dirty_window_bytes
        self._waiting = Watchers()
        self._turn = threading.Lock()  # held by the thread whose job runs; no flag, for an interrupt would leave it set
        self._job: WriteBackJob | None = None  # of that thread, or left behind by one that was interrupted

    def wait_for_room(self) -> None:
        """Waits before an append while the disk is far behind, without the mutex."""
        while self._wake is not None:
            with self._mutex:
                if not self._log.is_behind_write_back or self._log.failed:
                    return
                waiter = self._waiting.register()
            self._wake()
            self._waiting.wait(waiter, 1.0)

    def note_append(self) -> None:
        """Writes a window that an append has filled back; another thread does it if there is one.  Without the mutex."""
        if self._log.dirty_bytes >= self._window_bytes:
            if self._wake is not None:
                self._wake()
            else:
                self.run()

    def run(self) -> None:
        """Writes back until less than a window is dirty.  An error is kept by the log: the next append raises it."""
        with self._turn:
            while self._prepare():
                self._run()

    def end(self) -> None:
        """Takes what a thread that was interrupted has left behind: the log is about to be closed."""
        with self._turn, self._mutex:
            self._complete()

    def _prepare(self) -> bool:
        with self._mutex:
            self._complete()
            self._job = self._log.prepare_write_back()
        return self._job is not None

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # the log has noted it
                if self._job is not None:
                    self._job.run()
        finally:
            with self._mutex:
                self._complete()

    def _complete(self) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        try:
            with contextlib.suppress(StorageError, BrokerClosedError):
                self._log.complete_write_back(job)
        finally:
            self._waiting.notify()
            self._on_progress()
