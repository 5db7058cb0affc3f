"""Bytes that many hold: the bound, the line, and who leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from replog.errors import BrokerClosedError
from replog.waiting.byte_semaphore import ByteSemaphore


async def in_line(*acquisitions: Coroutine[None, None, None]) -> list[asyncio.Task[None]]:
    """Tasks that have run as far as they can."""
    tasks = [asyncio.create_task(each) for each in acquisitions]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_it_is_a_bound() -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(60)
    first, second = await in_line(memory.acquire(40), memory.acquire(40))
    assert (first.done(), second.done(), memory.held_bytes) == (True, False, 100)
    memory.release(60)
    await asyncio.wait_for(second, 60)
    assert memory.held_bytes == 80


async def test_more_than_everything_passes_alone() -> None:
    memory = ByteSemaphore(100)
    assert memory.has_room(500)
    await asyncio.wait_for(memory.acquire(500), 60)
    (small,) = await in_line(memory.acquire(1))
    assert not small.done()
    memory.release(500)
    await asyncio.wait_for(small, 60)


async def test_large_ones_are_not_overtaken_by_small_ones_that_come_later() -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(60)
    large, *small = await in_line(memory.acquire(80), *(memory.acquire(30) for _ in range(3)))
    assert not memory.has_room(1)
    assert not any(task.done() for task in small), "there would be room, but the large one came first"
    memory.release(60)
    await asyncio.wait_for(large, 60)
    memory.release(80)
    await asyncio.wait_for(asyncio.gather(*small), 60)


async def test_who_was_let_in_and_has_not_run_yet_is_not_overtaken() -> None:
    memory, turns = ByteSemaphore(100), list[str]()
    await memory.acquire(100)

    async def want(name: str) -> None:
        await memory.acquire(10)
        turns.append(name)

    (first,) = await in_line(want("first"))
    memory.release(100)
    assert not memory.has_room(10), "the first one has room and has not run"
    second = want("second")
    assert second.send(None) is not None, "it runs up to its wait here and now, before the first one does"
    await first
    with pytest.raises(StopIteration):
        second.send(None)
    assert turns == ["first", "second"]


@pytest.mark.parametrize("is_let_in", [False, True])
async def test_who_is_cancelled_in_the_line_holds_nothing(is_let_in: bool) -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(100)
    large, small = await in_line(memory.acquire(100), memory.acquire(10))
    memory.release(100 if is_let_in else 50)
    large.cancel()
    await asyncio.wait_for(small, 60)
    with pytest.raises(asyncio.CancelledError):
        await large
    assert memory.held_bytes == (10 if is_let_in else 60)
    assert memory.has_room(1)


async def test_cancelled_before_it_begins() -> None:
    memory = ByteSemaphore(100)
    task = asyncio.create_task(memory.acquire(10))
    task.cancel()
    await asyncio.wait([task])
    assert memory.held_bytes == 0


async def test_cancelled_in_the_middle_of_the_line() -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(100)
    first, second, third = await in_line(memory.acquire(60), memory.acquire(60), memory.acquire(40))
    second.cancel()
    await asyncio.wait([second])
    assert not first.done()
    assert not third.done()
    memory.release(100)
    await asyncio.wait_for(asyncio.gather(first, third), 60)
    assert memory.held_bytes == 100


async def test_a_coroutine_that_is_closed_leaves_the_line() -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(100)
    waiting = memory.acquire(50)
    waiting.send(None)
    (behind,) = await in_line(memory.acquire(100))
    waiting.close()
    memory.release(100)
    await asyncio.wait_for(behind, 60)


async def test_the_end_of_the_line() -> None:
    memory = ByteSemaphore(100)
    await memory.acquire(100)
    waiting = await in_line(memory.acquire(10), memory.acquire(10))
    waiting[0].cancel()
    memory.close(BrokerClosedError("closed"))
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, BrokerClosedError]
    memory.release(100)
    assert (memory.held_bytes, memory.has_room(100)) == (0, True)
