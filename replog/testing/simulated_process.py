"""What a crash ends: the tasks, callbacks and threads of one simulated process, found by the context they began in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

TASKS_MIN = 64


class MortalTask(Protocol):
    """A task that can end between two steps, without the loop."""

    number: int

    def done(self) -> bool: ...

    def unwind(self) -> None: ...


class ProcessLoop(Protocol):
    """The loop as a process of it knows it."""

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]: ...

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle: ...

    def hand_back(self, handles: deque[asyncio.Handle]) -> None: ...

    def bury(self, tasks: Iterable[MortalTask]) -> None: ...


class SimulatedProcess:
    """What lives and dies together: the tasks, callbacks and threads that began in its context.

    Attributes:
        name: The name for people, and for the trace.
        is_dead: Whether nothing of it runs any more, ever.
        on_kill: Functions called when it dies, for what it holds outside, such as connections.
    """

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.on_kill: list[Callable[[], None]] = []
        self._loop = loop
        self._held: deque[asyncio.Handle] | None = None
        self._tasks: dict[int, MortalTask] = {}
        self._tasks_max = TASKS_MIN
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Creates a task of this process; what it begins belongs to the process too."""
        return self._loop.create_task(coroutine, name=name, context=self._context.copy())

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Runs `callback` as a step of this process."""
        self._loop.call_soon(callback, context=self._context)

    @property
    def is_paused(self) -> bool:
        return self._held is not None

    def pause(self) -> None:
        """Stops it between two steps, as SIGSTOP does: time goes on, its timers fire when it wakes up."""
        if self._held is None:
            self._held = deque()

    def resume(self) -> None:
        """Lets what became due meanwhile run now, in order."""
        held, self._held = self._held, None
        if held and not self.is_dead:
            self._loop.hand_back(held)

    def kill(self) -> None:
        """Ends it between two steps: no handler of an error, no `finally` reaches anything outside it any more."""
        if self.is_dead:
            return
        self.is_dead = True
        self._held = None
        for action in self.on_kill:
            action()
        self._loop.bury(self._tasks.values())
        self._tasks.clear()

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a step may run now; one of a paused process is kept for later."""
        if self.is_dead:
            return False
        if self._held is not None:
            self._held.append(handle)
            return False
        return True

    def adopt(self, task: MortalTask) -> None:
        """Takes in a task; called for each one that begins in the context of the process."""
        if self.is_dead:  # what a handler of the error that killed it still begins
            self._loop.call_soon(self._loop.bury, (task,), context=Context())
            return
        if len(self._tasks) >= self._tasks_max:
            self._tasks = {number: task for number, task in self._tasks.items() if not task.done()}
            self._tasks_max = max(TASKS_MIN, 2 * len(self._tasks))
        self._tasks[task.number] = task


PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("replog_simulated_process", default=None)
"""Whose step is running; None: nobody's, the simulation's own."""
