"""No test of a client may leave a task behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio


@pytest_asyncio.fixture(autouse=True)
async def no_task_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    for _ in range(5):
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before - {asyncio.current_task()} if not task.done()]
    assert not left, left
