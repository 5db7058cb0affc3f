"""Tasks that must not die unheard: asyncio keeps what ended a task to itself until somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def watched_task(
    coroutine: Coroutine[Any, Any, None], *, name: str, on_failure: Callable[[BaseException], None]
) -> asyncio.Task[None]:
    """Runs `coroutine` as a task; an exception that leaves it is a bug, which `on_failure` is told.

    Args:
        coroutine: What runs; it handles every error itself that can happen in normal life.
        name: The name of the task.
        on_failure: The function that is called on the loop with the exception; the node stops then.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_failure(error)

    task = asyncio.create_task(coroutine, name=name)
    task.add_done_callback(ended)
    return task


async def finished(work: asyncio.Future[T]) -> T:
    """Returns what work gives that cannot be cancelled; a caller that is cancelled meanwhile is cancelled once it is over.

    Why: a thread cannot be cancelled, nor what a shard is at.  Whoever goes on without it leaves open what it opens, or closes what it uses.

    Args:
        work: The work; its outcome can be asked for afterwards.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
