"""An event loop whose time is a number: it never waits, and the same seed runs the same steps in the same order.

Whole nodes run on it as they are.  When nothing is ready, the clock jumps to the next timer; what goes to threads runs
on the loop after a delay drawn from the seed; there are no sockets.  Every task and callback belongs to the process in
whose context it began, so a crash stops exactly those, between two steps of the loop, without one more line of theirs.

::

    loop = VirtualLoop(random.Random(4711))
    process = loop.new_process("node-1")
    loop.run(main())  # main: process.create_task(serve()) ... process.kill()

What makes runs repeatable: one thread; timers in order of time, then of creation; tasks and futures hash by number, so
that sets of them iterate alike under any PYTHONHASHSEED; the garbage collector is off while the loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import itertools
import zlib
from asyncio import base_events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack

from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_process import PROCESS, MortalTask, SimulatedProcess
from replog.testing.virtual_threads import VirtualThreads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 20_000_000
STEP_S = 2e-6
"""What one step costs in virtual time: code that only yields must not stop the clock."""

_CANCELLED_TIMERS_MAX = 100
_BLOCKS_MAX = 100
"""`finally` blocks of one coroutine, one around the other, that wait."""


class SimulationError(Exception):
    """The simulation cannot go on; what it simulates is stuck or never rests."""


class DeadlockError(SimulationError):
    """Somebody waits, nothing is ready, and no timer will ever make it so."""


class TooManyStepsError(SimulationError):
    """The bound of steps is reached: something runs round and round."""


class _VirtualFuture(asyncio.Future[T]):
    """Hashes by number; belongs to the process in which it is made."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        self._number = next(loop.numbers)
        self.process = PROCESS.get()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualTask(asyncio.Task[T]):
    """Hashes by number; belongs to the process in whose context it begins."""

    _log_destroy_pending: bool  # asyncio's

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], *, loop: VirtualLoop, name: str | None, context: Context
    ) -> None:
        self.number = next(loop.numbers)
        self.context = context
        self.coroutine = coroutine
        super().__init__(coroutine, loop=loop, name=name, context=context)
        self.process = context.get(PROCESS)
        if self.process is not None:
            self.process.adopt(self)

    def __hash__(self) -> int:
        return self.number

    def unwind(self) -> None:
        """Ends it now, without the loop: only its `finally` blocks run, as far as they need not wait.

        A block that waits nevertheless is closed where it waits, and so is the next one: what stayed suspended would run
        on whenever the garbage collector finds it, in the middle of something else.

        Raises:
            SimulationError: The coroutine waits again and again.
        """
        self._log_destroy_pending = False
        context = self.context.copy()
        _step_out(context, partial(self.coroutine.throw, asyncio.CancelledError()))  # an end that every handler knows
        _end(context, self.coroutine)


def _end(context: Context, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Closes a coroutine until it has ended, and before it those that it waits for.

    One that waits again when it is closed from outside would stay suspended, and nobody would know it any more.

    Raises:
        SimulationError: A coroutine waits again and again.
    """
    for _ in range(_BLOCKS_MAX):
        awaited = getattr(coroutine, "cr_await", None)
        if isinstance(awaited, Coroutine):
            _end(context, awaited)
        _step_out(context, coroutine.close)
        if not getattr(coroutine, "cr_suspended", False):  # what ends an async generator has no such state
            return
    raise SimulationError(f"{coroutine!r} cannot be ended: it waits after each end")


def _step_out(context: Context, step: Callable[[], object]) -> None:
    """Runs a step towards the end of a coroutine, whatever it raises: of blocks that wait, or meet what is gone."""
    with contextlib.suppress(BaseException):
        context.run(step)


class VirtualLoop(base_events.BaseEventLoop):
    """See the module.

    Attributes:
        rng: The generator of the loop; how long threads take is drawn from it.
        thread_delay_s: A function that says how long a thread takes to begin, and again to be heard of; may be replaced
            at any time.
        steps: The number of steps so far.
        trace: A checksum of every step's time and of everything `note` was told: equal for equal runs.
        problems: Exceptions that nobody took, in words.
        numbers: The numbers of tasks and futures, in the order in which they are made.
    """

    # what asyncio's own loop calls them
    _ready: deque[asyncio.Handle]
    _scheduled: list[tuple[float, asyncio.TimerHandle]]  # with their times, which compare without a call
    _stopping: bool
    _closed: bool
    _check_closed: Callable[[], None]
    _timer_cancelled_count: int

    def __init__(self, rng: Random, *, steps_max: int = STEPS_MAX) -> None:
        """Creates a loop at time 0.

        Args:
            rng: A seeded generator; the loop is its only user.
            steps_max: The most steps; more are a failure.
        """
        super().__init__()
        self.rng = rng
        self.numbers = itertools.count()
        self.thread_delay_s: Callable[[], float] = lambda: self.rng.uniform(0.00005, 0.001)
        self.steps = 0
        self.trace = 0
        self.problems: list[str] = []
        self._steps_max = steps_max
        self._now = 0.0
        self._thread_depth = 0
        self._dead: list[MortalTask] = []
        self.set_exception_handler(self._note_problem)

    # ---- what a simulation uses ------------------------------------------------------------------------------------

    def new_process(self, name: str) -> SimulatedProcess:
        return SimulatedProcess(self, name)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs `main` to its end, then ends everything that is left and closes the loop.

        Raises:
            DeadlockError: Nothing is ready and no timer runs, but `main` has not ended.
            TooManyStepsError: The loop has taken more than `steps_max` steps.
        """
        was_enabled = gc.isenabled()
        gc.disable()
        asyncio.set_event_loop(None)
        try:
            return self.run_until_complete(self.create_task(main, name="simulation"))
        finally:
            self._bury_all()
            self.close()
            self._dead.clear()
            if was_enabled:
                gc.enable()

    def _bury_all(self) -> None:
        """Unwinds every task, also those that others begin while they are unwound: they find the loop running as before."""
        buried: set[int] = set()
        asyncio._set_running_loop(self)  # noqa: SLF001 -- made for those who write loops
        try:
            while left := [
                task for task in asyncio.all_tasks(self) if isinstance(task, VirtualTask) and task.number not in buried
            ]:
                buried.update(task.number for task in left)
                self.bury(left)
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def note(self, data: bytes) -> None:
        """Makes `data` a part of the trace."""
        self.trace = zlib.crc32(data, self.trace)

    @property
    def now_us(self) -> int:
        """Virtual microseconds."""
        return int(self._now * 1_000_000 + 0.5)

    @property
    def is_in_thread(self) -> bool:
        """Whether what runs now was given to a thread; it may block."""
        return self._thread_depth > 0

    def in_thread(self, function: Callable[[], T]) -> T:
        """Calls `function` as what a thread would run."""
        self._thread_depth += 1
        try:
            return function()
        finally:
            self._thread_depth -= 1

    # ---- for the processes -----------------------------------------------------------------------------------------

    def hand_back(self, handles: deque[asyncio.Handle]) -> None:
        """Makes steps ready that were held back."""
        self._ready.extend(handles)

    def bury(self, tasks: Iterable[MortalTask]) -> None:
        """Unwinds tasks that never run again.  What their `finally` blocks schedule is dropped with them.

        So is what they give to threads, also where the process dies in the middle of a thread's work: done at once, it would
        wait for a lock that this work holds.
        """
        depth, self._thread_depth = self._thread_depth, 0
        for task in sorted(tasks, key=lambda task: task.number):
            if task.done():
                continue
            task.unwind()
            self._dead.append(task)  # freed when the loop ends, so that no finalizer runs in between
        self._thread_depth = depth

    # ---- asyncio's side --------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()  # raises
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()  # raises
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 -- what asyncio's own loop does
        heapq.heappush(self._scheduled, (when, timer))
        return timer

    def get_debug(self) -> bool:
        """Tells that there is no debug mode: what it looks for, blocking calls and other threads, is not there."""
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return _VirtualFuture(loop=self)

    def create_task(  # type: ignore[override]  # newer Pythons have more arguments; none is used here
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_kwargs: Any,
    ) -> asyncio.Task[T]:
        return VirtualTask(coro, loop=self, name=name, context=context or copy_context())

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # the stub types a coroutine
        """Runs `func` a while later, as a thread would; a while after that the future is done.

        The executor is not used, only its bound of threads, if it is one of the simulation's own.
        """
        if isinstance(executor, VirtualThreads):
            return asyncio.wrap_future(executor.submit(func, *args), loop=self)
        return asyncio.wrap_future(VirtualThreads(self, None).submit(func, *args), loop=self)

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        process = PROCESS.get()
        if not self.is_closed() and (process is None or not process.is_dead):
            self.call_soon(self.create_task, agen.aclose())

    def _run_once(self) -> None:
        """Takes one turn: the clock jumps if nothing is ready, then everything that is ready takes a step."""
        self._drop_cancelled_timers()
        ready, timers = self._ready, self._scheduled
        if not ready and not self._stopping:
            if not timers:
                raise DeadlockError(f"nothing is ready and no timer runs, after {self.steps} steps")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[1]
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 -- what asyncio's own loop does
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001 -- a call a step less
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # noqa: SLF001 -- there is no other way to know whose it is
            if process is not None and not process.admits(handle):
                continue
            self.steps += 1
            if self.steps > self._steps_max:
                raise TooManyStepsError(f"{self.steps} steps, at {self._now:.3f} s; the last one: {handle!r}")
            self._now += STEP_S
            self.trace = zlib.crc32(b"%d" % int(self._now * 1_000_000 + 0.5), self.trace)
            handle._run()  # noqa: SLF001 -- what asyncio's own loop does

    def _drop_cancelled_timers(self) -> None:
        timers, count = self._scheduled, self._timer_cancelled_count
        if count > _CANCELLED_TIMERS_MAX and count > len(timers) // 2:
            timers[:] = [entry for entry in timers if not entry[1].cancelled()]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][1].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)

    def _note_problem(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        future, error = context.get("future"), context.get("exception")
        # it is found by anybody, long after its process may have died
        owner = future.process if isinstance(future, _VirtualFuture | VirtualTask) else None
        is_of_dead = any(process is not None and process.is_dead for process in (PROCESS.get(), owner))
        if not is_of_dead and not isinstance(error, PowerCutError):
            self.problems.append(f"{context.get('message')}: {error!r}")
