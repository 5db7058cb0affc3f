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
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # what was cancelled may need some turns, those of a server some time
        _, left = await asyncio.wait(left, timeout=60)
    assert not left, left
