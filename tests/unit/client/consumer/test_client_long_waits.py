"""A consumer whose fetches may be held back for long: a broker that does so is not suspected of having died."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from replog.client import Admin, Consumer
from replog.client.cluster.view import ClusterView
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.virtual_loop import VirtualLoop

TOPIC = "orders"
SILENCE_S = 8


async def refreshes_while_nothing_comes(cluster: SimulatedCluster, refreshes: list[None], wait_ms: int) -> int:
    """Returns how often a consumer asks for newer metadata while its topic is silent."""
    async with Consumer(
        cluster.bootstrap_servers, fetch_max_wait_ms=wait_ms, transport=cluster.transport(f"reader-{wait_ms}")
    ) as consumer:
        await consumer.assign_topic(TOPIC)
        assert await consumer.poll(timeout_ms=1_000) == []
        before = len(refreshes)
        assert await consumer.poll(timeout_ms=SILENCE_S * 1_000) == []
        return len(refreshes) - before


def test_a_fetch_that_is_held_back_as_it_asked_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a wait of ten seconds asked for metadata every second, each time over a new connection."""
    refreshes: list[None] = []
    monkeypatch.setattr(ClusterView, "request_refresh", lambda _: refreshes.append(None))
    loop = VirtualLoop(Random(1))
    cluster = SimulatedCluster(loop, Random(2), controllers=(1,), brokers=(1,))

    async def run() -> list[int]:
        cluster.start(1)
        await cluster.wait_until(cluster.is_settled)
        async with Admin(cluster.bootstrap_servers, transport=cluster.transport("admin")) as admin:
            await admin.create_topic(TOPIC, 1, 1)
        return [await refreshes_while_nothing_comes(cluster, refreshes, wait_ms) for wait_ms in (500, 20_000)]

    assert loop.run(asyncio.wait_for(run(), 600)) == [0, 0]
