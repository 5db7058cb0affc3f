"""Threads that are none: what is submitted runs on the virtual loop, a while later, a bounded number at a time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")


class ThreadLoop(Protocol):
    """The loop as its threads know it."""

    thread_delay_s: Callable[[], float]

    @property
    def is_in_thread(self) -> bool: ...

    def in_thread(self, function: Callable[[], T]) -> T: ...

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle: ...


class _Job(Struct, eq=False):
    """`timer`: runs until the job begins."""

    future: concurrent.futures.Future[Any]
    work: Callable[[], Any]
    context: Context
    timer: asyncio.TimerHandle | None = None


class VirtualThreads(concurrent.futures.Executor):
    """An executor on a virtual loop.

    What is submitted from within a thread runs at once: a thread may wait for others, and here they are done already.

    Args:
        loop: The loop that runs everything.
        threads_max: The most jobs at a time; None: any number.
    """

    def __init__(self, loop: ThreadLoop, threads_max: int | None) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._waiting: deque[_Job] = deque()
        self._beginning: deque[_Job] = deque()
        self._running = 0
        self._is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        job = _Job(future, lambda: fn(*args, **kwargs), copy_context())
        if self._loop.is_in_thread:
            self._run(job)()
            return future
        self._waiting.append(job)
        self._start_waiting()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more work.  With `wait`, what has not begun runs now: the caller stands still until it has."""
        self._is_shut_down = True
        if cancel_futures:
            for job in self._waiting:
                job.future.cancel()
            self._waiting.clear()
        while wait and (self._beginning or self._waiting):
            job = (self._beginning or self._waiting).popleft()
            if job.timer is not None:
                job.timer.cancel()
                self._running -= 1
            self._run(job)()

    def _start_waiting(self) -> None:
        while self._waiting and (self._threads_max is None or self._running < self._threads_max):
            job = self._waiting.popleft()
            self._running += 1
            self._beginning.append(job)
            job.timer = self._loop.call_later(self._loop.thread_delay_s(), self._begin, job, context=job.context)

    def _begin(self, job: _Job) -> None:
        """Runs the work here; that it is done is known later."""
        self._beginning.remove(job)
        self._loop.call_later(self._loop.thread_delay_s(), self._end, self._run(job))

    def _end(self, tell: Callable[[], None]) -> None:
        self._running -= 1
        tell()
        self._start_waiting()

    def _run(self, job: _Job) -> Callable[[], None]:
        """Runs the work; returns what tells its outcome."""
        future = job.future
        if not future.set_running_or_notify_cancel():
            return lambda: None
        try:
            result = self._loop.in_thread(job.work)
        except BaseException as error:  # noqa: BLE001 -- it belongs to whoever waits
            failure = error
            return lambda: future.set_exception(failure)
        return lambda: future.set_result(result)
