"""How tasks end, so that nothing of what they did is left in memory.

Why: a task keeps the exception that ended it, the exception its traceback, and the traceback the frames that it passed with
all of their variables.  A frame that has a variable for the task, or for something that leads to it, closes a circle, and
with it whatever was received or waited to be sent stays in memory until the garbage collector looks, which in a broker is
seldom.  So what waits for tasks forgets them before it raises, and a cancelled task is made to forget why it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
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
