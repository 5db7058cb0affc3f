"""Reads that wait for the disk, in threads: a few at a time, the others in a queue.

Why: records that are not in the page cache take from 0.1 ms to a second, and the driver must not wait; but a consumer that
reads a day back must not take every thread and the whole disk from the others either.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from replog.errors import ReplogError
from replog.log import Log, ReadJob

COLD_READS_MAX = 4
"""How many wait for the disk at a time."""

COLD_READS_WAITING_MAX = 10_000
"""How many more wait in the queue."""

Done = Callable[[ReadJob], None]


class ColdReads:
    """Runs read jobs, in threads of its own: they must not keep an fsync waiting.

    Invariants:
        - `done` is called once for each job, on the owner's task; it completes the job;
        - after `stop` every job has been completed and no `done` is called.

    Args:
        submit: The function that queues work for the owner of the logs.
    """

    def __init__(self, submit: Callable[[Callable[[], None]], None]) -> None:
        self._executor = ThreadPoolExecutor(COLD_READS_MAX, "replog-cold-read")
        self._submit = submit
        self._queue: deque[tuple[Log, ReadJob, Done]] = deque()
        self._open: dict[ReadJob, Log] = {}  # every job that `done` was not called for
        self._running: set[asyncio.Future[None]] = set()
        self._closed = False

    @property
    def is_full(self) -> bool:
        """Whether no more jobs are taken."""
        return self._closed or len(self._queue) >= COLD_READS_WAITING_MAX

    def start(self, log: Log, job: ReadJob, done: Done) -> None:
        """Runs `job` of `log` now or when its turn comes."""
        self._open[job] = log
        self._queue.append((log, job, done))
        self._start_next()

    async def stop(self) -> None:
        """Waits for the jobs that run, and lets go of all files.

        The owner's task must do nothing any more.
        """
        self._closed = True
        self._queue.clear()
        if self._running:
            await asyncio.wait(list(self._running))
        jobs, self._open = self._open, {}
        for job, log in jobs.items():
            with contextlib.suppress(ReplogError):  # nobody waits for the answer any more
                log.complete_read(job)
        self._executor.shutdown()

    def _start_next(self) -> None:
        while self._queue and len(self._running) < COLD_READS_MAX:
            _, job, done = self._queue.popleft()
            future = asyncio.get_running_loop().run_in_executor(self._executor, job.run)
            self._running.add(future)
            future.add_done_callback(partial(self._ended, job, done))

    def _ended(self, job: ReadJob, done: Done, future: asyncio.Future[None]) -> None:
        self._running.discard(future)
        if self._closed:
            return
        self._submit(lambda: self._complete(job, done))
        self._start_next()

    def _complete(self, job: ReadJob, done: Done) -> None:
        if self._open.pop(job, None) is not None:
            done(job)
