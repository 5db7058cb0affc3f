"""The dirty window of a local log: bytes go to the disk in a steady stream while appends go on (`replog.log.dirty_window`).

The maintenance thread does the work when an append wakes it; without that thread whoever filled the window does it.  When
the disk is slower than the writers, appends wait until the window is smaller.  It never acknowledges anything.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from replog.errors import BrokerClosedError, StorageError
from replog.local.waiting import Watchers
from replog.log import Log, WriteBackJob


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
