"""The dirty windows of this broker's logs: at most one write-back at a time for each log, in a thread.

Why beside the flusher: a write-back promises nothing, so nobody waits for it but producers that are several windows ahead
of the disk; but its error is a failed fsync all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from replog.errors import BrokerClosedError, ReplogError, StorageError
from replog.log import Log, WriteBackJob

THREADS = 2

Submit = Callable[[Callable[[], None]], None]


class WriteBacks:
    """Keeps the dirty windows of logs small, in threads of its own: they must not keep an fsync waiting.

    Invariants:
        - every job is completed once, on the driver, or in `stop` when the driver runs nothing any more.

    Args:
        submit: The function that queues work for the owner of the logs.
        on_failure: The function that is told on the owner's task about a write-back that failed: the log has failed.
    """

    def __init__(self, submit: Submit, on_failure: Callable[[Log, StorageError], None]) -> None:
        self._executor = ThreadPoolExecutor(THREADS, "replog-write-back")
        self._submit = submit
        self._on_failure = on_failure
        self._running: dict[Log, tuple[WriteBackJob, asyncio.Future[None]]] = {}
        self._closed = False

    def after_append(self, log: Log, done: Callable[[], None]) -> None:
        """Starts a write-back where one is due and none runs.

        `done` is called on the owner's task when a part is written or never will be.
        """
        if self._closed or log in self._running:
            return
        job = log.prepare_write_back()
        if job is None:
            return
        future = asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        self._running[log] = (job, future)
        future.add_done_callback(lambda _: self._submit(lambda: self._complete(log, job, done)))

    async def stop(self) -> None:
        """Waits for the write-backs that run, and lets go of their files.

        The owner's task must do nothing any more.
        """
        self._closed = True
        running, self._running = self._running, {}
        if running:
            await asyncio.wait([future for _, future in running.values()])
        for log, (job, future) in running.items():
            _take_error(future)
            with contextlib.suppress(ReplogError):  # a failed log says so when it is closed
                log.complete_write_back(job)
        self._executor.shutdown()

    def _complete(self, log: Log, job: WriteBackJob, done: Callable[[], None]) -> None:
        running = self._running.pop(log, None)
        if running is None:  # `stop` has taken it
            return
        _take_error(running[1])
        try:
            log.complete_write_back(job)
        except BrokerClosedError:
            pass  # the log was deleted meanwhile; who was held back must be told
        except StorageError as error:
            self._on_failure(log, error)
        done()
        self.after_append(log, done)


def _take_error(future: asyncio.Future[None]) -> None:
    """Takes the error out of an ended write-back, so that asyncio does not log it; `complete_write_back` raises it."""
    if not future.cancelled():
        future.exception()
