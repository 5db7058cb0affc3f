"""Group commit between threads: whoever needs the disk shares an fsync with everybody who came while the last one ran.

    thread A   append ---- fsync ------------- done
    thread B      append ..waits.............. fsync ------ done
    thread C          append ..waits.......... (B's covers it) done

No thread of its own: the first one that finds no fsync running does it for all.  A failed fsync is never tried again: the log
refuses everything from then on, and every waiting thread is told.

Why a lock for each turn, and neither a condition nor a flag: a Ctrl-C may come at any step.  Who waits on a condition of the
mutex would then give up what somebody else holds, and a flag would stay set.  A lock that a `with` holds is given up whatever
happens, and who waits for it does not hold the mutex.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from replog.errors import InvariantViolationError, ReplogError
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
        self._turn: threading.Lock | None = None  # held while the fsync of its thread runs
        self._job: FlushJob | None = None  # of that turn, or left behind by one that was interrupted

    def flush_to(self, end_offset: int) -> None:
        """Returns when everything below `end_offset` is on the disk.  The mutex must not be held.

        Raises:
            StorageError: It is not, and never will be counted: an fsync failed.
            BrokerClosedError: The log was closed before its turn came, without having been flushed.
        """
        turn = threading.Lock()
        while True:
            with turn:
                running = self._begin(turn, end_offset)
                if running is turn:
                    self._run()
            if running is turn or running is None:
                return
            _wait_for(running)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Calls `action` with the mutex held, at a moment when no fsync runs.  The mutex must not be held."""
        while True:
            with self._mutex:
                running = self._running()
                if running is None:
                    self._drop_left_behind()
                    action()
                    return
            _wait_for(running)

    def _begin(self, turn: threading.Lock, end_offset: int) -> threading.Lock | None:
        """Returns the turn that runs: `turn` itself, with a job, or another one; None: nothing is left to do."""
        with self._mutex:
            if self._log.flushed_offset < end_offset:
                running = self._running()
                if running is not None:
                    return running
                self._drop_left_behind()
                self._job = self._log.prepare_flush()
                if self._job is not None:
                    self._turn = turn
                    return turn
            self._on_progress()  # the thread that flushed it may have been interrupted before it said so
            return None

    def _running(self) -> threading.Lock | None:
        return self._turn if self._turn is not None and self._turn.locked() else None

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # `complete_flush` raises what it means
                if self._job is not None:
                    self._job.run()
        finally:
            with self._mutex:
                self._turn = None
                self._complete()

    def _complete(self) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        try:
            with contextlib.suppress(InvariantViolationError):  # interrupted: the next one covers what it should have
                self._log.complete_flush(job)
        finally:
            self._on_progress()

    def _drop_left_behind(self) -> None:
        """Takes the job of a thread that was interrupted before it could; an error in it comes again in the next one."""
        with contextlib.suppress(ReplogError):
            self._complete()


def _wait_for(turn: threading.Lock) -> None:
    with turn:
        pass
