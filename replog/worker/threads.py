"""Threads for handlers that block.

A thread cannot be cancelled, and Python waits at its end for those of its own pools.  These are daemons: a handler that hangs
does not keep a process from ending when its time is over.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

_Work: TypeAlias = tuple[asyncio.AbstractEventLoop, "asyncio.Future[object]", Callable[[], object]]


class DaemonThreads:
    """At most so many threads, each started when the others are busy.

    Args:
        threads_max: The most threads.
    """

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._threads_count = 0
        self._busy_count = 0
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    async def run(self, work: Callable[[], object]) -> object:
        """Carries out `work` in a thread; returns and raises what it does.  One that is cancelled leaves it to run."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        if self._busy_count >= self._threads_count and self._threads_count < self._threads_max:
            threading.Thread(target=self._serve, name="replog-worker", daemon=True).start()
            self._threads_count += 1  # behind the start, which fails where there can be no more threads
        self._busy_count += 1
        done.add_done_callback(self._note_end)
        self._waiting.put((loop, done, work))
        return await done

    def close(self) -> None:
        """Lets the threads end when they have nothing to do."""
        for _ in range(self._threads_count):
            self._waiting.put(None)

    def _note_end(self, _: asyncio.Future[object]) -> None:
        self._busy_count -= 1

    def _serve(self) -> None:
        while (given := self._waiting.get()) is not None:
            loop, done, work = given
            found, error = None, None
            try:
                found = work()
            except BaseException as raised:  # noqa: BLE001 -- it is raised where the work is awaited
                error = raised
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_tell, done, found, error)
            del given, done, work, found, error


def _tell(done: asyncio.Future[object], found: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(found)
    elif isinstance(error, StopIteration):  # a future does not take it
        done.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        done.set_exception(error)
