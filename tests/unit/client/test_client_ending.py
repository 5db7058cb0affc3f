"""Closing a client that is cancelled at any of its waits gives everything back all the same."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeAlias

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, Producer
from replog.errors import BrokerClosedError
from tests.cancelling import WAITS_MAX, cancelled_at_wait

Client: TypeAlias = Admin | Consumer | Producer

CLIENTS = [Admin, Consumer, Producer]


async def in_use(kind: type[Client], cluster: FakeCluster) -> Client:
    """A client with streams and tasks of its own."""
    client = kind(cluster.bootstrap, transport=cluster.transport())
    await client.__aenter__()
    match client:
        case Admin():
            await client.list_topics()
        case Consumer():
            await client.assign_topic("t")
            await client.poll(timeout_ms=10)
        case Producer():
            for partition in range(4):
                await client.send("t", b"x", partition=partition)
    return client


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_close_that_is_cancelled_leaves_nothing_running(kind: type[Client]) -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 4)
    before = asyncio.all_tasks()
    for number in range(1, WAITS_MAX):
        client = await in_use(kind, cluster)
        with contextlib.suppress(BrokerClosedError):  # records that nobody waits for any more
            was_cancelled = await cancelled_at_wait(number, client.close())
            assert asyncio.all_tasks() == before
            await client.close()
        if not was_cancelled:
            break
    assert 1 < number < WAITS_MAX


@pytest.mark.parametrize("kind", CLIENTS)
async def test_entering_that_is_cancelled_leaves_nothing_running(kind: type[Client]) -> None:
    cluster = FakeCluster(2)
    before = asyncio.all_tasks()
    for number in range(1, WAITS_MAX):
        client = kind(cluster.bootstrap, transport=cluster.transport())
        was_cancelled = await cancelled_at_wait(number, client.__aenter__())
        if not was_cancelled:
            await client.close()
        assert asyncio.all_tasks() == before
        if not was_cancelled:
            return
    pytest.fail("it never ends")
