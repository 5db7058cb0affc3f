"""Clients that nobody closed say so, as forgotten files do."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, Producer, SyncConsumer


@pytest.mark.parametrize("cls", [Admin, Consumer, Producer])
def test_an_async_client(cls: type[Any]) -> None:
    async def forget() -> None:
        cluster = FakeCluster()
        await cls(cluster.bootstrap, transport=cluster.transport()).__aenter__()

    def forget_and_collect() -> None:
        asyncio.run(forget())
        gc.collect()

    gc.collect()
    with pytest.warns(ResourceWarning, match="was never closed; use `async with`"):
        forget_and_collect()


def test_a_client_without_async() -> None:
    cluster = FakeCluster()
    transport: Any = cluster.transport()
    forgotten = [SyncConsumer(cluster.bootstrap, transport=transport).__enter__()]
    thread, client, place = forgotten[0]._thread, forgotten[0]._client, forgotten[0]._place
    with pytest.warns(ResourceWarning, match="a SyncConsumer was never closed"):
        forgotten.clear()
    assert thread is not None
    thread.run(client.close)
    thread.release(place)
