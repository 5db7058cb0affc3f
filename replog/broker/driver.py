"""The driver: the one task that runs core code of a room (architecture rules 1 and 2).

Handlers and timers never call a core: they submit work, the driver runs it in order.  Work that arrives together is run
together and followed by one `after_drain`, which is where natural batching happens: many appends, one answer to a
waiting fetch.  An exception that is not ours is a bug; it ends the node instead of being answered and forgotten.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from replog.broker.clock import Clock
from replog.errors import BrokerClosedError, ReplogError

T = TypeVar("T")

Work = Callable[[], None]


class Driver:
    """Runs submitted work in order, and `tick` when a deadline is due.

    Args:
        name: for the task and for messages.
        clock: deadlines are monotonic ms of this clock.
        tick: called when `next_deadline_ms` is reached.
        next_deadline_ms: the next time something is due; None for never.
        after_drain: called after each run of waiting work.
        on_failure: told about a bug; the node stops.
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
        self._task: asyncio.Task[None] | None = None
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

        Raises:
            BrokerClosedError: the node is stopping.
        """
        if self._closed:
            raise BrokerClosedError("the node is stopping")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work() -> None:
            if future.done():
                return
            try:
                future.set_result(function())
            except ReplogError as error:
                future.set_exception(error)

        self.submit(work)
        return await future

    async def stop(self) -> None:
        self._closed = True
        self._inbox.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                await self._wait()
                self._drain()
                deadline = self._next_deadline_ms()
                if deadline is not None and deadline <= self._clock.now_ms():
                    self._tick()
                if self._after_drain is not None:
                    self._after_drain()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the node must not go on with half a step done
            self._closed = True
            self._on_failure(error)

    def _drain(self) -> None:
        inbox = self._inbox
        for _ in range(len(inbox)):
            inbox.popleft()()

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
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._wakeup.wait()
        except TimeoutError:
            return
