"""What a request takes of the loop and of threads is measured; what it waits is not."""

from __future__ import annotations

import asyncio

import pytest
from kafka_node_kit import batch, serving

from replog.broker.requests.open_produces import OpenProduce, share_time
from replog.protocol.client_quotas import ClientQuotas
from replog.protocol.request_time import Measured, RequestTime, in_thread
from replog.rpc.messages import ProduceRequest


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_steps_count_and_waits_do_not() -> None:
    clock = Clock()
    taken = RequestTime(clock)
    looks: list[float] = []

    async def request() -> str:
        clock.now_s += 1
        waits = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(pass_by, waits)
        await waits
        clock.now_s += 2
        looks.append(taken.take())
        clock.now_s += 4
        return "answer"

    def pass_by(waits: asyncio.Future[None]) -> None:
        clock.now_s += 100
        waits.set_result(None)

    assert await Measured(request(), taken) == "answer"
    assert (looks, taken.take(), taken.take()) == ([3], 4, 0)


async def test_a_cancellation_reaches_the_request_and_is_measured_too() -> None:
    clock = Clock()
    taken = RequestTime(clock)

    async def request() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.now_s += 5

    async def measured() -> None:
        await Measured(request(), taken)

    task = asyncio.create_task(measured())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken.take() == 5


async def test_time_in_a_thread_is_the_requests() -> None:
    taken = RequestTime(Clock())

    async def request() -> int:
        return await in_thread(sum, range(100_000))

    assert await Measured(request(), taken) == 4_999_950_000
    assert taken.take() > 0
    assert await in_thread(sum, (1, 2)) == 3


def test_produces_that_are_appended_together_share_the_time_by_their_bytes() -> None:
    told: list[tuple[str, float]] = []

    def opened(name: str, *sizes: int) -> OpenProduce:
        request = ProduceRequest(1, 1, 0, (), tuple(bytes(size) for size in sizes))
        return OpenProduce(request, lambda _: None, add_time=lambda seconds: told.append((name, seconds)))

    unasked = OpenProduce(ProduceRequest(1, 1, 0, (), (bytes(99),)), lambda _: None)
    share_time([(opened("a", 99, 100_000), range(1)), (unasked, range(1)), (opened("b", 99, 100), range(2))], 0.8)
    assert [name for name, _ in told] == ["a", "b"]
    assert [seconds for _, seconds in told] == pytest.approx([0.2, 0.4])


async def test_what_a_produce_takes_of_the_loop_is_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    monkeypatch.setattr(RequestTime, "add", lambda _self, seconds: taken.append(seconds))
    async with serving() as it:
        await it.create()
        await it.produce(batch(b"before"))
        assert taken == []
        known = it.kafka.image
        monkeypatch.setattr(ClientQuotas, "is_set", lambda _self, _key: True)
        await it.produce(batch(b"behind"))
        assert known is it.kafka.image
    assert len(taken) == 1
    assert taken[0] > 0
