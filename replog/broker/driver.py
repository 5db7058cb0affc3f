"""The driver: the one task that runs core code of a room (docs/ARCHITECTURE.md, Overview).

Handlers and timers never call a core: they submit work, the driver runs it in order.  Work that arrives together is run
together and followed by one `after_drain`, which is where natural batching happens: many appends, one answer to a
waiting fetch.  An exception that is not ours is a bug; it ends the node instead of being answered and forgotten.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from replog.broker.clock import Clock
from replog.errors import BrokerClosedError, ReplogError, StorageError
from replog.waiting.task_ends import end_tasks

T = TypeVar("T")

RUN_MS = 10
"""How long a run takes up more work, in milliseconds; then other tasks of the loop have their turn."""

Work = Callable[[], None]


class Driver:
    """Runs submitted work in order, and `tick` when a deadline is due.

    Args:
        name: The name of the task.
        clock: The clock whose monotonic milliseconds the deadlines are.
        tick: The function that is called when `next_deadline_ms` is reached.
        next_deadline_ms: The function that says when something is due next; None for never.
        after_drain: The function that is called after each run of waiting work.
        on_failure: The function that is told about a bug; the node stops then.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        tick: Callable[[], None],
        next_deadline_ms: Callable[[], int | None],
        on_failure: Callable[[BaseException], None],
        after_drain: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._tick = tick
        self._next_deadline_ms = next_deadline_ms
        self._after_drain = after_drain
        self._on_failure = on_failure
        self._inbox: deque[Work] = deque()
        self._wakeup = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Future[Any]] = set()
        self._closed = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)

    def submit(self, work: Work) -> None:
        """Queues `work`.  After `stop` it is dropped: nobody waits for it any more."""
        if self._closed:
            return
        self._inbox.append(work)
        self._wakeup.set()

    def wake(self) -> None:
        """Looks at the deadlines again: they may have changed."""
        self._wakeup.set()

    async def call(self, function: Callable[[], T]) -> T:
        """Runs `function` on the driver and returns what it returns or raises.

        A `StorageError` goes to the caller and ends the driver as well: whoever asked, the disk has failed.

        Raises:
            BrokerClosedError: The node is stopping, or stopped before `function` was run.
        """
        if self._closed:
            raise BrokerClosedError("the node is stopping")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.add(future)
        self.submit(partial(_run_call, function, future))
        try:
            return await future
        finally:
            self._calls.discard(future)
            del future  # what it raises has passed here: it must not be found from there

    def halt(self) -> None:
        """Runs nothing from now on, not even what waits; whoever waits for a `call` gets an error."""
        self._closed = True
        self._inbox.clear()
        self._wakeup.set()
        if self._alarm is not None:
            self._alarm.cancel()
        for future in self._calls:
            if not future.done():
                future.set_exception(BrokerClosedError("the node is stopping"))

    async def stop(self) -> None:
        self.halt()
        await end_tasks(self._task)

    async def _run(self) -> None:
        try:
            while not self._closed:
                await self._wait()
                self._run_waiting()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the node must not go on with half a step done
            self.halt()
            self._on_failure(error)

    def _run_waiting(self) -> None:
        """Runs what waits, then `tick` where it is due, then `after_drain`; nothing more once the driver is halted."""
        self._drain()
        deadline = self._next_deadline_ms()
        if deadline is not None and deadline <= self._clock.now_ms() and not self._closed:
            self._tick()
        if self._after_drain is not None and not self._closed:
            self._after_drain()

    def _drain(self) -> None:
        inbox, now_ms = self._inbox, self._clock.now_ms
        until_ms = now_ms() + RUN_MS
        for _ in range(len(inbox)):
            if inbox:  # empty: the work before this one halted the driver
                inbox.popleft()()
            if now_ms() >= until_ms:
                break

    async def _wait(self) -> None:
        if self._inbox:
            await asyncio.sleep(0)  # let readers hand over what they have; that is the batch
            return
        self._wakeup.clear()
        deadline = self._next_deadline_ms()
        if deadline is None:
            await self._wakeup.wait()
            return
        delay_ms = deadline - self._clock.now_ms()
        if delay_ms <= 0:
            await asyncio.sleep(0)
            return
        self._set_alarm(asyncio.get_running_loop().time() + delay_ms / 1000)
        await self._wakeup.wait()

    def _set_alarm(self, when_s: float) -> None:
        """Wakes the driver at `when_s` of the loop's time, or before: deadlines mostly move away, and an alarm that rings
        too early costs less than one that is set anew each time."""
        if self._alarm is not None:
            if self._alarm.when() <= when_s:
                return
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(when_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wakeup.set()


def _run_call(function: Callable[[], T], future: asyncio.Future[T]) -> None:
    try:
        if not future.done():
            future.set_result(function())
    except ReplogError as error:
        future.set_exception(error)
        if isinstance(error, StorageError):
            raise
    finally:
        del future, function  # as in `call`
