"""Group commit: one fsync at a time per log, in a thread, covering everything appended before it began.

Whoever needs the disk asks; requests that arrive while an fsync runs are served together by the next one.  A failed
fsync is never retried (what it failed to write may be gone from the page cache): the log directory goes offline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from replog.errors import StorageError
from replog.log import Log


class LogFlusher:
    """Flushes the logs of one directory.

    Args:
        executor: threads for fsync.
        on_storage_failure: told once about a failed fsync.
    """

    def __init__(self, executor: ThreadPoolExecutor, on_storage_failure: Callable[[StorageError], None]) -> None:
        self._executor = executor
        self._on_storage_failure = on_storage_failure
        self._running: dict[Log, asyncio.Task[None]] = {}
        self._waiting: dict[Log, list[Callable[[int], None]]] = {}

    def request(self, log: Log, done: Callable[[int], None]) -> None:
        """Asks for an fsync of everything `log` holds now.

        Args:
            log: the log.
            done: called on the loop with the flushed offset (exclusive), unless the fsync fails.
        """
        if log in self._running:
            self._waiting.setdefault(log, []).append(done)
            return
        self._running[log] = asyncio.create_task(self._flush(log, [done]), name="log-flush")

    def is_flushing(self, log: Log) -> bool:
        """Whether an fsync of `log` is under way or waiting."""
        return log in self._running

    async def flush(self, log: Log) -> int:
        """Returns the flushed offset once everything `log` holds now is on disk."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(offset: int) -> None:
            if not future.done():
                future.set_result(offset)

        self.request(log, done)
        return await future

    async def stop(self) -> None:
        """Waits for what runs; starts nothing new."""
        self._waiting.clear()
        for task in list(self._running.values()):
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _flush(self, log: Log, callbacks: list[Callable[[int], None]]) -> None:
        while callbacks:
            try:
                job = log.prepare_flush()
                if job is not None:
                    await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
                    log.complete_flush(job)
            except (OSError, StorageError) as error:
                failure = error if isinstance(error, StorageError) else StorageError(f"fsync failed: {error}")
                self._on_storage_failure(failure)
                break
            for done in callbacks:
                done(log.flushed_offset)
            callbacks = self._waiting.pop(log, [])
        del self._running[log]
