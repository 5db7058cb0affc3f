"""Fetch streams of followers: what one may have open is bounded, whatever it does or does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from replog.broker.requests import sessions
from replog.broker.requests.sessions import FetchSession
from replog.errors import BrokerIdNotRegisteredError
from replog.rpc.messages import FetchRequest, FetchResponse


class FakeStream:
    """A client at the other end: sends what it is told to, reads when it is let."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.received = 0
        self.sent: list[Any] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self) -> Any:
        message = await self.incoming.get()
        if isinstance(message, Exception):
            raise message
        self.received += 1
        return message

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message)

    async def close(self) -> None: ...


class FakePath:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.open: list[tuple[Any, Callable[[Any], None]]] = []

    def submit(self, request: Any, answer: Callable[[Any], None]) -> None:
        self.open.append((request, answer))


async def quiet(values: Callable[[], Sequence[object]]) -> int:
    """How many there are once nothing moves any more."""
    seen = -1
    while seen != len(values()):
        seen = len(values())
        for _ in range(20):
            await asyncio.sleep(0)
    return seen


def session(stream: FakeStream, path: Any) -> FetchSession:
    return FetchSession(stream, path, lambda _: None)  # type: ignore[arg-type]


async def test_a_stream_has_a_bounded_number_of_open_fetches() -> None:
    stream, path = FakeStream(), FakePath()
    task = asyncio.create_task(session(stream, path).run())
    for correlation_id in range(40):
        stream.incoming.put_nowait(FetchRequest(correlation_id, 1, 2, 102, 1, 1, 1, ()))
    assert await quiet(lambda: path.open) == sessions.MAX_OPEN_FETCHES
    stream.reads.clear()
    for request, answer in path.open:
        answer(FetchResponse(request.correlation_id, (), ()))
    path.open.clear()
    assert await quiet(lambda: path.open) == 0, "an answer nobody reads is still open"
    stream.reads.set()
    assert await quiet(lambda: path.open) == sessions.MAX_OPEN_FETCHES
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_fetch_that_is_refused_ends_the_stream_before_it_counts() -> None:
    def refuse(_request: FetchRequest) -> None:
        raise BrokerIdNotRegisteredError("broker 2 is not known")

    stream, path = FakeStream(), FakePath()
    stream.incoming.put_nowait(FetchRequest(1, 1, 2, 102, 1, 1, 1, ()))
    with pytest.raises(BrokerIdNotRegisteredError):
        await FetchSession(stream, path, refuse).run()  # type: ignore[arg-type]
    assert not path.open


async def test_requests_that_share_an_answer_hold_one_place() -> None:
    stream, path = FakeStream(), FakeIncrementalPath()
    task = asyncio.create_task(session(stream, path).run())
    for correlation_id in range(40):
        stream.incoming.put_nowait(FetchRequest(correlation_id, 1, 2, 102, 1, 1, 1, (), incremental=True))
    assert await quiet(lambda: path.asked) == 40
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert path.closed_count == 1


class FakeIncrementalPath:
    """Every request but the first is served by the answer to the next."""

    def __init__(self) -> None:
        self.incremental = self
        self.asked: list[FetchRequest] = []
        self.closed_count = 0

    def open(self, answer: object, merged: Callable[[], None]) -> object:
        self.merged = merged
        return self

    def submit_incremental(self, fetch: object, request: FetchRequest) -> None:
        if self.asked:
            self.merged()
        self.asked.append(request)

    def close_incremental(self, fetch: object) -> None:
        self.closed_count += 1
