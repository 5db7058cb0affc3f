"""No test of a client may leave a task behind; an `Admin` of brokers that answer as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from fake_cluster import FakeCluster, FakeNode

from replog.client import Admin
from replog.client.protocol.questions.group_members import FindCoordinator


@pytest_asyncio.fixture(autouse=True)
async def no_task_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # what was cancelled may need some turns, those of a server some time
        _, left = await asyncio.wait(left, timeout=60)
    assert not left, left


Answer = Callable[[int, Any], Any]
"""What a broker answers to a request: a message, or an error to raise."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], Admin]:
    """An `Admin` of three brokers, with topic "t" of two partitions, that answer so, or as usual where it is None; broker 2 coordinates everything."""
    usual = FakeNode.handle_client_call

    def make(answer: Answer) -> Admin:
        async def handle(self: FakeNode, call: Any, context: Any) -> Any:
            found = answer(self.node_id, call.request)
            if found is None and isinstance(call.request, FindCoordinator):
                found = 2
            if isinstance(found, Exception):
                raise found
            return await usual(self, call, context) if found is None else found

        monkeypatch.setattr(FakeNode, "handle_client_call", handle)
        cluster = FakeCluster(3)
        cluster.create_topic("t", 2)
        return Admin(cluster.bootstrap, transport=cluster.transport())

    return make
