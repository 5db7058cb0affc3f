"""`Delivery` and `BulkDelivery` where asyncio takes awaitables, futures and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import Producer
from replog.errors import BrokerClosedError, RecordTooLargeError


@asynccontextmanager
async def held_producer() -> AsyncIterator[tuple[Producer, FakeCluster]]:
    """A producer whose acknowledgements are held back until `release_held`."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].hold_replies = True
    async with Producer(cluster.bootstrap, transport=cluster.transport(), delivery_timeout_ms=5_000) as producer:
        try:
            yield producer, cluster
        finally:
            await cluster.nodes[1].release_held()


async def released(cluster: FakeCluster) -> None:
    await until(lambda: bool(cluster.nodes[1].held))
    await cluster.nodes[1].release_held()


async def test_asyncio_wait_takes_deliveries_and_gives_them_back() -> None:
    async with held_producer() as (producer, cluster):
        deliveries: list[Any] = [await producer.send("t", b"a"), await producer.send_many("t", [b"b", b"c"])]
        done, pending = await asyncio.wait(deliveries, timeout=0.01)
        assert (done, pending) == (set(), set(deliveries))
        assert not any(batch.callbacks for batch in producer._accumulator.unresolved()), "nothing is left of the wait"
        await released(cluster)
        done, pending = await asyncio.wait(deliveries, timeout=60)
        assert (done, pending) == (set(deliveries), set())
        assert [delivery.done() for delivery in deliveries] == [True, True]
        assert (await asyncio.wait(deliveries))[0] == done, "once more, when all are done"


async def test_first_completed_and_first_exception() -> None:
    async with held_producer() as (producer, cluster):
        first, second = await producer.send("t", b"a"), await producer.send("t", b"b" * 600_000)
        waiting = asyncio.create_task(asyncio.wait([first, second], return_when=asyncio.FIRST_EXCEPTION))
        await until(lambda: bool(cluster.nodes[1].held))
        batch, _ = second.place
        producer._topics["t"].queues[0].handle_failed(batch, RecordTooLargeError("x"))
        done, _ = await asyncio.wait_for(waiting, 60)
        assert second in done
        assert isinstance(second.exception(), RecordTooLargeError)
        done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert done == {second}


async def test_everything_else_that_waits() -> None:
    async with held_producer() as (producer, cluster):
        delivery = await producer.send("t", b"a")
        bulk = await producer.send_many("t", [b"b"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        async with asyncio.TaskGroup() as tasks:
            told = tasks.create_task(delivery.wait())
            tasks.create_task(released(cluster))
        assert told.result().offset == 0
        assert await asyncio.gather(delivery, delivery) == [told.result()] * 2
        assert [await earliest for earliest in asyncio.as_completed([delivery, bulk])].count(told.result()) == 1
        assert await asyncio.shield(delivery) == await asyncio.ensure_future(delivery) == told.result()


async def test_callbacks_are_called_once_from_the_loop() -> None:
    called: list[object] = []
    async with held_producer() as (producer, cluster):
        delivery = await producer.send("t", b"a")
        for callback in (called.append, called.append, called.clear):
            delivery.add_done_callback(callback)
        assert delivery.remove_done_callback(called.clear) == 1
        assert delivery.remove_done_callback(called.clear) == 0
        await released(cluster)
        await until(lambda: len(called) == 2)
        delivery.add_done_callback(called.append)
        assert called == [delivery] * 2
        await until(lambda: called == [delivery] * 3)


async def test_who_waits_when_the_producer_is_closed_is_told() -> None:
    async with held_producer() as (producer, _):
        delivery = await producer.send("t", b"a")
        waiting = asyncio.create_task(asyncio.wait([delivery]))
        await asyncio.sleep(0)
        await producer.close(timeout_ms=0)
        assert (await waiting)[0] == {delivery}
        assert isinstance(delivery.exception(), BrokerClosedError)
