"""Clients that nobody closed say so, as forgotten files do."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, Producer, SyncConsumer, SyncProducer
from replog.client.producer import producer as producer_module
from replog.client.sync.producer import flush_at_exit


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


def test_a_producer_that_was_forgotten_tells_how_many_records_it_has_lost() -> None:
    """By the loop's exception handler: where logging is not set up, its own one is seen on stderr."""
    told: list[str] = []

    async def forget() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        cluster = FakeCluster()
        cluster.create_topic("t", 2)
        producer = Producer(cluster.bootstrap, transport=cluster.transport())
        for number in range(1_000):
            await producer.send("t", b"v", partition=number % 2)

    def forget_and_collect() -> None:
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match="was never closed"):
        forget_and_collect()
    (text,) = told
    assert text.startswith(
        "1,000 records of a producer were not acknowledged before it ended, and may be lost: t-0, t-1."
    )


@pytest.mark.parametrize("end", ["close", "flush"])
def test_a_producer_whose_records_were_waited_for_tells_nothing(end: str) -> None:
    told: list[str] = []

    async def send() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        cluster = FakeCluster()
        cluster.create_topic("t")
        producer = Producer(cluster.bootstrap, transport=cluster.transport())
        await producer.send("t", b"v")
        await getattr(producer, end)()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the one that is only flushed
        asyncio.run(send())
        gc.collect()
    assert told == []


async def test_what_an_exception_leaves_behind_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(producer_module, "ABORT_FLUSH_MS", 0)
    cluster = FakeCluster()
    cluster.create_topic("t")

    async def fail() -> None:
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            await producer.send("t", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert "1 records of a producer were not acknowledged" in caplog.text
    assert "t-0. The producer was left by ZeroDivisionError()" in caplog.text


def test_a_producer_without_async_is_flushed_at_the_end_of_the_process() -> None:
    cluster = FakeCluster()
    transport: Any = cluster.transport()
    with SyncProducer(cluster.bootstrap, transport=transport, linger_ms=60_000) as producer:
        producer._run(_created(cluster))
        delivery = producer.send("t", b"v")
        flush_at_exit()
        assert delivery.done()
    flush_at_exit()  # with nothing left to flush


def _created(cluster: FakeCluster) -> Callable[[], Coroutine[Any, Any, None]]:
    async def create() -> None:
        cluster.create_topic("t")

    return create
