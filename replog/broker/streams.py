"""What every served stream needs: a reader and a writer that end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def read_and_write(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs reader, writer and whatever belongs to them until one ends; what ended it is raised, the others are cancelled."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
