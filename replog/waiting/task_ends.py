"""How tasks end, so that nothing of what they did is left in memory.

Why: a task keeps the exception that ended it, the exception its traceback, and the traceback the frames that it passed with
all of their variables.  A frame that has a variable for the task, or for something that leads to it, closes a circle, and
with it whatever was received or waited to be sent stays in memory until the garbage collector looks, which in a broker is
seldom.  So what waits for tasks forgets them before it raises, and a cancelled task is made to forget why it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeAlias

Part: TypeAlias = Coroutine[Any, Any, None] | asyncio.Future[Any]


async def until_one_ends(*parts: Part) -> None:
    """Runs all parts, such as reader and writer of a stream, until one ends; the others are cancelled.

    Args:
        parts: The coroutines, which become tasks, and futures.

    Raises what ended the part that ended; of several the first one in order.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    del parts
    errors: list[BaseException] = []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        errors += _first_error(tasks)
    finally:
        await end_tasks(*tasks)
        tasks.clear()
    if errors:
        raise errors.pop()


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancels tasks and waits until they have ended, however they do.

    Args:
        tasks: The tasks that are to end; None is passed over.
    """
    found = [task for task in tasks if task is not None]
    if not found:
        return
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)
    for task in found:
        _error_of(task)


def _first_error(tasks: Sequence[asyncio.Future[Any]]) -> Iterator[BaseException]:
    """Yields what ended the first task that has ended with an error; nothing where none has."""
    for task in tasks:
        error = _error_of(task) if task.done() else None
        if error is not None:
            yield error
            return


def _error_of(task: asyncio.Future[Any]) -> BaseException | None:
    """Returns what ended a task that has ended; a cancelled one does not keep that any longer."""
    try:
        return task.exception()
    except asyncio.CancelledError as error:
        return error.with_traceback(None)


class Ending:
    """Gives back what its owner holds: tasks, streams, connections, files.

    Why a task of its own: `close` is often cancelled, by Ctrl-C or a time-out around it.  A release that ends at the await
    where the cancellation arrives leaves streams open and tasks running, and a second `close` finds the owner closed.

    Args:
        release: A coroutine function that gives everything back; it is called once.
    """

    def __init__(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._release = release
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Begins the release, unless it has begun, and returns when everything is given back.

        A caller that is cancelled is cancelled after the release; one that is cancelled again, at once.
        """
        if self._task is None:
            loop = asyncio.get_running_loop()  # before the coroutine is made: without a loop it would never be awaited
            self._task = loop.create_task(self._release(), name="replog-ending")
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await asyncio.wait([self._task])
            raise
