"""Applications that never wait: heartbeats and commits run all the same, and nobody reads on who may have been put out."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from embedded_group_kit import PATIENCE_S, Heard, Line, Rig, read, until

from replog.client import Consumer
from replog.client.consumer.group_reading import _clock_of
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.errors import UnknownMemberIdError
from replog.testing.virtual_loop import VirtualLoop

Reads = Callable[[Consumer], Awaitable[object]]
DOORS: Sequence[Any] = [
    pytest.param(lambda consumer: consumer.getone(), id="one"),
    pytest.param(lambda consumer: consumer.poll(1), id="poll"),
]


def work_for(patch: pytest.MonkeyPatch, consumer: Consumer, seconds: float) -> None:
    """Lets each look at the clock find that an application has worked for so long, and kept the loop from running."""
    clock = itertools.count(asyncio.get_running_loop().time() + seconds, seconds)
    patch.setattr(consumer._group, "_now_s", lambda: next(clock), raising=False)


@pytest.mark.parametrize("read_one", DOORS)
async def test_commits_go_out_beside_a_loop_that_never_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, read_one: Reads
) -> None:
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 1)
        line = Line(consumer, monkeypatch)
        await until(lambda: all(state.chunks_count > 0 for state in consumer._reader.states.values()))
        commit = asyncio.create_task(consumer.commit())
        work_for(monkeypatch, consumer, 0.1)
        for _ in range(30):
            await read_one(consumer)  # of what is fetched already
        assert line.commits_count > 0
        await commit


async def test_batches_are_handed_out_between_heartbeats_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        await consumer.fetch_batches()
        consumer.seek(("t", 0), 0)
        await until(lambda: consumer._reader.backlog.has_chunks)
        work_for(monkeypatch, consumer, 0.1)
        ran: list[int] = []
        asyncio.get_running_loop().call_soon(ran.append, 1)
        await consumer.fetch_batches()
        assert ran == [1]


async def test_who_could_not_speak_for_a_session_hears_first_that_its_partitions_are_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Heard()
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"], listener=listener)
        await read(consumer, 5)
        assert consumer._group is not None
        member = consumer._group.member
        call, now_ms = member._coordinator.call, member._now_ms

        async def refuse(request: Any, *rest: Any) -> Any:
            if isinstance(request, ConsumerHeartbeat) and request.member_epoch > 0:
                monkeypatch.undo()
                raise UnknownMemberIdError("who?")
            return await call(request, *rest)

        monkeypatch.setattr(member._coordinator, "call", refuse)
        monkeypatch.setattr(member, "_now_ms", lambda: now_ms() + 60_000)
        work_for(monkeypatch, consumer, 60)
        async with asyncio.timeout(PATIENCE_S):
            await consumer.getone()  # there are records of before
        assert listener.heard[:2] == [("assigned", 4), ("lost", 4)]
        assert ["was put out: others read" in line for line in caplog.messages].count(True) == 1


async def test_a_loop_without_async_asks_first_too_when_the_process_has_stood_still(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands out what it has polled before, in a thread of its own."""
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 5)
        group = consumer._group
        assert group is not None
        assert group.is_free_to_go_on()
        now_ms = group.member._now_ms
        monkeypatch.setattr(group.member, "_now_ms", lambda: now_ms() + 60_000)
        work_for(monkeypatch, consumer, 60)
        assert not group.is_free_to_go_on()
        monkeypatch.undo()


async def test_the_clock_of_a_turn_goes_on_while_the_loop_does_not() -> None:
    """uvloop's tells when it ran last; one that is simulated is not the process's."""
    assert _clock_of(asyncio.get_running_loop()) is time.monotonic
    assert _clock_of(cast("asyncio.AbstractEventLoop", SimpleNamespace(time=lambda: 0.0))) is time.monotonic
    simulated = VirtualLoop(random.Random(1))
    assert _clock_of(simulated) == simulated.time
    simulated.close()
