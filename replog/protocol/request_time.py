"""The time that requests take of the event loop, and of the threads beside it (`request_percentage`, KIP-124).

A request is a coroutine: between two waits it runs as one step of the loop, and each step is measured.  While it waits, for records or
for other replicas, it takes nothing.  Produces that are appended together share that time by their bytes.  What else is done for several
requests together (an fsync, an answer that is written once for all who ask for the same) is nobody's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_measured: ContextVar[RequestTime | None] = ContextVar("measured", default=None)
"""The request on whose behalf this code runs; None: it is not measured."""


class RequestTime:
    """The time that one request takes.

    Args:
        clock: The clock, in seconds.
    """

    __slots__ = ("_began_s", "_clock", "_taken_s")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._taken_s = 0.0
        self._began_s: float | None = None

    def begin(self) -> None:
        """Begins a step."""
        self._began_s = self._clock()

    def end(self) -> None:
        """Ends a step."""
        if self._began_s is not None:
            self._taken_s += self._clock() - self._began_s
            self._began_s = None

    def add(self, seconds: float) -> None:
        """Counts time that was taken elsewhere."""
        self._taken_s += seconds

    def take(self) -> float:
        """Returns the seconds since the last call, those of the step that runs among them."""
        is_running = self._began_s is not None
        self.end()
        taken_s, self._taken_s = self._taken_s, 0.0
        if is_running:
            self.begin()
        return taken_s


class Measured(Generic[T]):
    """Something to await whose steps are measured.

    Args:
        work: The coroutine.
        request_time: What its time is added to.
    """

    def __init__(self, work: Coroutine[Any, Any, T], request_time: RequestTime) -> None:
        self._work = work
        self._time = request_time

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        _measured.set(self._time)
        try:
            while True:
                self._time.begin()
                try:
                    waits_for = self._work.send(None) if error is None else self._work.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    self._time.end()
                error = None
                try:
                    yield waits_for
                except BaseException as thrown:  # noqa: BLE001 -- a cancellation, which is the coroutine's to take
                    error = thrown
        finally:
            _measured.set(None)


def measured_request() -> RequestTime | None:
    """Returns the time of the request on whose behalf this code runs; None: it is not measured."""
    return _measured.get()


async def in_thread(function: Callable[P, T], /, *args: P.args, **others: P.kwargs) -> T:
    """Calls a function in a thread; its time is the request's on whose behalf it is called."""
    measured = _measured.get()
    if measured is None:
        return await asyncio.to_thread(function, *args, **others)
    taken_s = 0.0

    def timed() -> T:
        nonlocal taken_s
        began_s = time.perf_counter()
        try:
            return function(*args, **others)
        finally:
            taken_s = time.perf_counter() - began_s

    try:
        return await asyncio.to_thread(timed)
    finally:
        measured.add(taken_s)
