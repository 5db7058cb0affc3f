"""The limit of time that counts turns of the event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from replog.waiting import looks
from replog.waiting.looks import LOOKS, timeout_in_looks


async def test_who_never_comes_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with timeout_in_looks(0.02):
            await asyncio.Event().wait()


async def test_a_loop_that_is_held_up_at_every_turn_gives_up_too() -> None:
    """Goal: the wait is bounded, however late the loop is."""
    turns = 0

    async def be_held_up() -> None:
        nonlocal turns
        async with timeout_in_looks(LOOKS * 0.001):
            while True:
                time.sleep(0.002)  # what holds it up
                turns += 1
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await be_held_up()
    assert LOOKS <= turns < 5 * LOOKS


async def test_what_came_in_time_is_kept_and_no_timer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "LOOKS", 1)
    strange: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strange.append(context))
    async with timeout_in_looks(0.01):
        came = await asyncio.sleep(0, "came")
    await asyncio.sleep(0.02)  # the time of a timer that was left, which would find its limit gone
    assert (came, strange) == ("came", [])


async def test_an_error_of_the_block_is_the_error() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with timeout_in_looks(10):
            raise ValueError("mine")
