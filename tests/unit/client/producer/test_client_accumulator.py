"""Memory, deadlines, and the cost of the path that every record takes."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import pytest

from replog.client.producer.accumulator import Accumulator, AccumulatorSettings
from replog.client.producer.partition_queue import PartitionQueue
from replog.errors import BrokerClosedError, RequestTimedOutError


def make(*, buffer_memory_bytes: int = 1000, delivery_timeout_ms: int = 60_000) -> tuple[Accumulator, PartitionQueue]:
    settings = AccumulatorSettings(
        batch_size_bytes=128 * 1024,
        linger_ms=0,
        buffer_memory_bytes=buffer_memory_bytes,
        delivery_timeout_ms=delivery_timeout_ms,
        max_in_flight=1,
        is_idempotent=False,
    )
    accumulator = Accumulator(settings)
    return accumulator, PartitionQueue(accumulator, "t", UUID(int=1), 0)


async def test_records_wait_for_room_in_turn() -> None:
    accumulator, queue = make()
    batch, _ = queue.append(0, None, b"x" * 800, (), 900)
    turns: list[str] = []

    async def want(name: str, size_bytes: int) -> None:
        await accumulator.memory.acquire(size_bytes)
        turns.append(name)
        accumulator.memory.release(size_bytes)

    waiting = [asyncio.create_task(want("large", 800)), asyncio.create_task(want("small", 50))]
    await asyncio.sleep(0)
    assert not accumulator.memory.has_room(10), "others wait already"
    queue.handle_failed(batch, BrokerClosedError("x"))
    await asyncio.gather(*waiting)
    assert turns == ["large", "small"]
    assert accumulator.memory.held_bytes == 0


async def test_a_cancelled_waiter_lets_the_next_one_in() -> None:
    accumulator, queue = make()
    queue.append(0, None, b"x" * 500, (), 600)
    large = asyncio.create_task(accumulator.memory.acquire(900))
    small = asyncio.create_task(accumulator.memory.acquire(100))
    await asyncio.sleep(0)
    large.cancel()
    await asyncio.wait({large, small}, timeout=60)
    assert small.done()
    accumulator.close(BrokerClosedError("closed"))


async def test_room_that_was_given_to_somebody_is_given_to_nobody_else() -> None:
    accumulator, queue = make()
    batch, _ = queue.append(0, None, b"x" * 900, (), 1000)
    first, second = (asyncio.create_task(accumulator.memory.acquire(600)) for _ in range(2))
    await asyncio.sleep(0)
    queue.handle_failed(batch, BrokerClosedError("x"))
    assert not accumulator.memory.has_room(500), "although nobody has appended yet"
    await asyncio.wait({first}, timeout=60)
    assert not second.done()
    accumulator.memory.release(600)
    await asyncio.wait_for(second, 60)


async def test_who_is_let_in_and_cancelled_at_once_keeps_nothing() -> None:
    accumulator, queue = make()
    batch, _ = queue.append(0, None, b"x" * 900, (), 1000)
    first, second = (asyncio.create_task(accumulator.memory.acquire(600)) for _ in range(2))
    await asyncio.sleep(0)
    queue.handle_failed(batch, BrokerClosedError("x"))
    first.cancel()
    await asyncio.wait_for(second, 60)
    assert first.cancelled()


async def test_a_record_larger_than_all_memory_goes_alone() -> None:
    accumulator, _ = make(buffer_memory_bytes=100)
    assert accumulator.memory.has_room(5000)


async def test_the_delivery_timeout_fails_the_batch_and_names_the_cause() -> None:
    accumulator, queue = make(delivery_timeout_ms=20)
    batch, _ = queue.append(0, None, b"x", (), 100)
    with pytest.raises(RequestTimedOutError, match=r"t-0: 1 records .*20 ms.*never sent.*no leader"):
        await batch.wait()
    assert accumulator.memory.held_bytes == 0
    assert not queue.has_work


async def test_close_fails_what_is_left_and_who_waits() -> None:
    accumulator, queue = make()
    batch, _ = queue.append(0, None, b"x", (), 1000)
    waiter = asyncio.create_task(accumulator.memory.acquire(500))
    await asyncio.sleep(0)
    accumulator.close(BrokerClosedError("closed"))
    with pytest.raises(BrokerClosedError):
        await batch.wait()
    await asyncio.wait({waiter}, timeout=60)
    assert waiter.done()


async def test_only_failures_that_nobody_asked_about_are_reported() -> None:
    accumulator, queue = make()
    batch, _ = queue.append(0, None, b"x", (), 100)
    queue.handle_failed(batch, BrokerClosedError("first"))
    assert str(accumulator.unseen_failure()) == "first"
    assert accumulator.unseen_failure() is None
    batch, _ = queue.append(0, None, b"x", (), 100)
    queue.handle_failed(batch, BrokerClosedError("second"))
    with pytest.raises(BrokerClosedError):
        await batch.wait()
    assert accumulator.unseen_failure() is None


async def test_appending_is_cheap() -> None:
    """The goal is 200,000 records of 100 B a second on one core; far below it something is badly wrong."""
    accumulator, queue = make(buffer_memory_bytes=1 << 30)
    value = b"v" * 100
    rates = []
    for _ in range(5):  # of which the best counts: a neighbour's garbage may be collected meanwhile
        begin = time.process_time()
        for _ in range(4_000):
            queue.append(1_700_000_000_000, None, value, (), 197)
        rates.append(4_000 / (time.process_time() - begin))
    assert max(rates) > 50_000
    accumulator.close(BrokerClosedError("closed"))
