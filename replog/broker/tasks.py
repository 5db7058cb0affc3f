"""Tasks that must not die unheard: asyncio keeps what ended a task to itself until somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


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
