"""Group commit: one fsync at a time per log, in a thread, covering everything appended before it began.

Whoever needs the disk asks; requests that arrive while an fsync runs are served together by the next one.  A failed
fsync is never retried (what it failed to write may be gone from the page cache): the log directory goes offline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from replog.errors import BrokerClosedError, DiskFullError, StorageError
from replog.log import Log

SHORT: Final = 50
"""The line is short while so many logs wait at most: then more may be added to it."""


class FlushLine:
    """Gives turns to logs, a number of them at a time.  On one event loop.

    The metadata log goes first: behind one request about thousands of partitions it would wait for thousands of fsyncs, and its
    voters elect another leader when it takes too long.

    Args:
        at_once: The number of turns at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._on_short: list[Callable[[], None]] = []

    def when_short(self, go_on: Callable[[], None]) -> None:
        """Calls a function once no more than `SHORT` logs wait: at once where that is so."""
        if len(self._waiting) <= SHORT:
            go_on()
        else:
            self._on_short.append(go_on)

    async def enter(self, *, is_first: bool) -> bool:
        """Waits for a turn; `leave` ends it.

        Args:
            is_first: Whether it goes before all that wait.

        Returns:
            Whether it had to wait.
        """
        if self._free:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return True

    def leave(self) -> None:
        """Ends a turn, and gives it to the next one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if len(self._waiting) == SHORT:
                self._tell_short()
            if not turn.done():  # else whoever waited was cancelled
                turn.set_result(None)
                return
        self._free += 1

    def _tell_short(self) -> None:
        told, self._on_short = self._on_short, []
        for go_on in told:
            go_on()


RETRY_S: Final = 0.2
"""How long a flush waits before it tries again to open what it needs."""

_log = logging.getLogger(__name__)


class LogFlusher:
    """Flushes logs.

    Invariants:
        - one fsync at a time per log; whoever asks while it runs is served by the next one;
        - a log whose fsync failed is not flushed any more, and none of its callbacks is called.

    Args:
        executor: The threads for fsync.
        at_once: The number of logs that are flushed at a time.
        on_failure: The function that is told once about a bug.
        on_log_failure: The function that is told about a log whose fsync failed; what else is on its disk may be no
            better.
        on_flush_seconds: The function that is told how long each fsync took, in the thread that did it; None where
            nobody wants to know.
    """

    def __init__(
        self,
        executor: Executor,
        at_once: int,
        on_failure: Callable[[BaseException], None],
        on_log_failure: Callable[[Log, StorageError], None],
        on_flush_seconds: Callable[[float], object] | None = None,
    ) -> None:
        self._executor = executor
        self._line = FlushLine(at_once)
        self._on_failure = on_failure
        self._on_log_failure = on_log_failure
        self._running: dict[Log, asyncio.Task[None]] = {}
        self._waiting: dict[Log, list[Callable[[int], None]]] = {}
        self._closed = False
        self._failed = False
        self._on_flush_seconds = on_flush_seconds

    def request(self, log: Log, done: Callable[[int], None], *, is_first: bool = False) -> None:
        """Asks for an fsync of everything `log` holds now; does nothing after a failure or `stop`.

        Args:
            log: The log to be flushed.
            done: The function that is called on the loop with the flushed offset (exclusive), unless the fsync fails or
                the log is closed.
            is_first: Whether the log is flushed before all others that wait.
        """
        if self._closed or log.failed:
            return
        if log in self._running:
            self._waiting.setdefault(log, []).append(done)
            return
        self._running[log] = asyncio.create_task(self._flush(log, [done], is_first=is_first), name="log-flush")

    def when_few_wait(self, go_on: Callable[[], None]) -> None:
        """Calls a function once few logs wait for an fsync: at once where that is so."""
        self._line.when_short(go_on)

    def is_flushing(self, log: Log) -> bool:
        """Whether an fsync of `log` is under way or waiting."""
        return log in self._running

    async def flush(self, log: Log) -> int:
        """Waits until everything `log` holds now is on disk, and returns the flushed offset.

        Raises:
            StorageError: It is not on disk: an fsync failed, the log was closed, or the node is stopping.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(offset: int) -> None:
            if not future.done():
                future.set_result(offset)

        def ended(_task: asyncio.Task[None]) -> None:
            if not future.done():
                future.set_exception(StorageError(f"{log.topic_partition} was not flushed"))

        self.request(log, done)
        task = self._running.get(log)
        if task is None:
            raise StorageError(
                f"{log.topic_partition} was not flushed: an fsync failed before, or the node is stopping"
            )
        task.add_done_callback(ended)
        return await future

    async def stop(self) -> None:
        """Waits for the fsyncs that run, and starts none any more."""
        self._closed = True
        self._waiting.clear()
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def _flush(self, log: Log, callbacks: list[Callable[[int], None]], *, is_first: bool) -> None:
        try:
            while callbacks:
                if not await self._flush_now(log, callbacks, is_first=is_first):
                    return
                for done in callbacks:
                    done(log.flushed_offset)
                callbacks = self._waiting.pop(log, [])
        except BrokerClosedError:
            pass  # the log was deleted meanwhile: nobody waits for it any more
        except StorageError as error:
            self._on_log_failure(log, error)
        except Exception as error:  # noqa: BLE001 -- a bug: nothing counts any more
            self._closed = True
            if not self._failed:
                self._failed = True
                self._on_failure(error)
        finally:
            self._waiting.pop(log, None)
            del self._running[log]

    async def _flush_now(self, log: Log, callbacks: list[Callable[[int], None]], *, is_first: bool) -> bool:
        """Makes everything durable; where no file can be opened, tries again until one can or the flusher is stopped.

        Args:
            log: The log.
            callbacks: The functions to be called; those of requests that come while the log waits for its turn are added.
            is_first: Whether the log is flushed before all others that wait.

        Returns:
            Whether everything is durable.
        """
        is_told = False
        while True:
            had_to_wait = await self._line.enter(is_first=is_first)
            try:
                if had_to_wait:
                    callbacks += self._waiting.pop(log, [])
                job = log.prepare_flush()
                if job is not None:
                    with contextlib.suppress(OSError):  # `complete_flush` raises what it means
                        await asyncio.get_running_loop().run_in_executor(self._executor, self._timed(job.run))
                    log.complete_flush(job)
            except DiskFullError as error:
                if self._closed:
                    return False
                if not is_told:
                    _log.warning("%s: nothing of it counts as flushed until then: %s", log.topic_partition, error)
                is_told = True
            else:
                return True
            finally:
                self._line.leave()
            await asyncio.sleep(RETRY_S)

    def _timed(self, run: Callable[[], None]) -> Callable[[], None]:
        observe = self._on_flush_seconds
        if observe is None:
            return run

        def timed() -> None:
            began_s = time.perf_counter()
            try:
                run()
            finally:
                observe(time.perf_counter() - began_s)

        return timed
