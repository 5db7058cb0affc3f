"""Group commit between threads: whoever needs the disk shares an fsync with everybody who came while the last one ran.

    thread A   append ---- fsync ------------- done
    thread B      append ..waits.............. fsync ------ done
    thread C          append ..waits.......... (B's covers it) done

No thread of its own: the first one that finds no fsync running does it for all.  A failed fsync is never tried again: the log
refuses everything from then on, and every waiting thread is told.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from replog.errors import InvariantViolationError
from replog.log import FlushJob, Log


class GroupFlush:
    """The fsyncs of one log.

    Invariants:
        - at most one fsync runs at a time;
        - `on_progress` is called with the mutex held, after every fsync, failed ones included.

    Args:
        log: The log that is flushed.
        mutex: The lock that guards the log.
        on_progress: Told that the flushed offset may have moved, or the log may have failed.
    """

    def __init__(self, log: Log, mutex: threading.Lock, on_progress: Callable[[], None]) -> None:
        self._log = log
        self._mutex = mutex
        self._on_progress = on_progress
        self._ended = threading.Condition(mutex)
        self._is_running = False

    def flush_to(self, end_offset: int) -> None:
        """Returns when everything below `end_offset` is on the disk.  The mutex must not be held.

        Raises:
            StorageError: It is not, and never will be counted: an fsync failed.
            BrokerClosedError: The log was closed before its turn came, without having been flushed.
        """
        with self._mutex:
            while self._is_running and self._log.flushed_offset < end_offset:
                self._ended.wait()
            if self._log.flushed_offset >= end_offset:
                return
            job = self._log.prepare_flush()
            if job is None:
                return
            self._is_running = True
        self._run(job)

    def wait_until_idle(self) -> None:
        """Returns when no fsync is running.  The mutex must be held; it is given up meanwhile."""
        while self._is_running:
            self._ended.wait()

    def _run(self, job: FlushJob) -> None:
        is_known = False
        try:
            with contextlib.suppress(OSError):  # `complete_flush` raises what it means
                job.run()
            is_known = True
        finally:
            with self._mutex:
                self._is_running = False
                self._ended.notify_all()
                try:
                    if is_known:
                        self._log.complete_flush(job)
                    else:  # interrupted (Ctrl-C): nothing is flushed by this one, the next one covers it
                        with contextlib.suppress(InvariantViolationError):
                            self._log.complete_flush(job)
                finally:
                    self._on_progress()
