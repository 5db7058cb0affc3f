"""Data streams: what a client may have open is bounded, whatever it does or does not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from broker_kit import wait_until

from replog.broker.requests import sessions
from replog.broker.requests.sessions import REQUEST_OVERHEAD_BYTES, FetchSession, ProduceSession
from replog.errors import MalformedFrameError, ThrottledError
from replog.rpc.messages import FetchRequest, FetchResponse, ProducePartition, ProduceRequest, ProduceResponse
from replog.rpc.transport import ConnectionLostError
from replog.waiting.byte_semaphore import ByteSemaphore
from replog.waiting.unread_answers import UnreadAnswer, UnreadAnswers

LIMIT = 10 * REQUEST_OVERHEAD_BYTES


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
        self.withdrawn: list[Any] = []
        self.unread: UnreadAnswer | None = None

    def submit(
        self, request: Any, answer: Callable[[Any], None], unread: UnreadAnswer | None = None
    ) -> Callable[[], None]:
        self.open.append((request, answer))
        self.unread = unread
        return lambda: self.withdrawn.append(request)

    def answer(self, count: int = 1) -> None:
        for _ in range(count):
            request, answer = self.open.pop(0)
            answer(ProduceResponse(request.correlation_id, ()))


class Session:
    def __init__(self, broker_credits: ByteSemaphore) -> None:
        self.stream, self.path = FakeStream(), FakePath()
        self.session = ProduceSession(self.stream, self.path, broker_credits)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.session.run())

    def send(self, count: int, *, acks: int = -1, size: int = 0) -> None:
        for correlation_id in range(count):
            partition = ProducePartition(UUID(int=1), 0)
            self.stream.incoming.put_nowait(ProduceRequest(correlation_id, 1, acks, (partition,), (bytes(size),)))

    @property
    def answered(self) -> list[int]:
        return [response.correlation_id for message in self.stream.sent for response in message]


@contextlib.asynccontextmanager
async def produce_session(broker_credits: ByteSemaphore | None = None) -> AsyncIterator[Session]:
    it = Session(broker_credits or ByteSemaphore(1 << 30))
    try:
        yield it
    finally:
        it.task.cancel()
        await asyncio.gather(it.task, return_exceptions=True)


@pytest.fixture(autouse=True)
def small_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "STREAM_CREDIT_BYTES", LIMIT)


async def quiet(values: Callable[[], Sequence[object]]) -> int:
    """How many there are once nothing moves any more."""
    seen = -1
    while seen != len(values()):
        seen = len(values())
        for _ in range(20):
            await asyncio.sleep(0)
    return seen


# ---- produce -----------------------------------------------------------------------------------------------------------


async def test_unanswered_requests_stop_the_reader() -> None:
    async with produce_session() as it:
        it.send(30)
        assert await quiet(lambda: it.path.open) == 10
        it.path.answer(3)
        assert await quiet(lambda: it.path.open) == 10
        assert it.answered == [0, 1, 2]


async def test_the_bytes_of_records_count() -> None:
    async with produce_session() as it:
        it.send(30, size=4 * REQUEST_OVERHEAD_BYTES)
        assert await quiet(lambda: it.path.open) == 2


async def test_all_streams_share_the_brokers_credits() -> None:
    shared = ByteSemaphore(12 * REQUEST_OVERHEAD_BYTES)
    async with produce_session(shared) as one, produce_session(shared) as two:
        one.send(30)
        assert await quiet(lambda: one.path.open) == 10
        two.send(30)
        assert await quiet(lambda: two.path.open) == 2
        one.path.answer(10)
        assert await quiet(lambda: [*one.path.open, *two.path.open]) == 12


async def test_answers_that_are_ready_together_leave_together() -> None:
    async with produce_session() as it:
        it.send(5)
        await wait_until(lambda: len(it.path.open) == 5)
        it.path.answer(5)
        await wait_until(lambda: it.stream.sent)
        assert [len(message) for message in it.stream.sent] == [5]


async def test_acks_0_gets_no_answer() -> None:
    async with produce_session() as it:
        it.send(25, acks=0)
        for _ in range(25):
            await wait_until(lambda: it.path.open)
            it.path.answer()
        assert it.stream.sent == []


@pytest.mark.parametrize("acks", [1, -1, 2, -2])
async def test_any_other_acks_gets_one_even_if_there_is_no_such_acks(acks: int) -> None:
    async with produce_session() as it:
        it.send(1, acks=acks)
        await wait_until(lambda: it.path.open)
        it.path.answer()
        await wait_until(lambda: it.answered == [0])


async def test_a_client_that_reads_no_answers_is_not_read_from() -> None:
    """Otherwise the answers would pile up for as long as it goes on to send."""
    async with produce_session() as it:
        it.stream.reads.clear()
        it.send(100)
        for _ in range(100):
            await quiet(lambda: it.path.open)
            if not it.path.open:
                break
            it.path.answer(len(it.path.open))
        assert it.stream.received <= 11  # one more is held back before it is submitted
        it.stream.reads.set()
        await quiet(lambda: it.stream.sent)
        while it.path.open:
            it.path.answer(len(it.path.open))
            await quiet(lambda: it.stream.sent)
        assert it.answered == list(range(100))


async def test_the_end_of_a_stream_ends_its_session() -> None:
    async with produce_session() as it:
        it.stream.incoming.put_nowait(ConnectionLostError("gone"))
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(it.task, 60)


async def test_what_a_dead_session_held_comes_back_to_the_broker() -> None:
    shared = ByteSemaphore(2 * REQUEST_OVERHEAD_BYTES)
    async with produce_session(shared) as dead, produce_session(shared) as alive:
        dead.send(2)
        await wait_until(lambda: len(dead.path.open) == 2)
        dead.stream.incoming.put_nowait(ConnectionLostError("gone"))
        await asyncio.wait([dead.task])
        alive.send(1)
        dead.path.answer(2)
        await wait_until(lambda: alive.path.open)
        assert isinstance(dead.task.exception(), ConnectionLostError)


# ---- fetch ---------------------------------------------------------------------------------------------------------------


async def test_a_stream_has_a_bounded_number_of_open_fetches() -> None:
    stream, path = FakeStream(), FakePath()
    task = asyncio.create_task(FetchSession(stream, path, UnreadAnswers(1)).run())  # type: ignore[arg-type]
    for correlation_id in range(40):
        stream.incoming.put_nowait(FetchRequest(correlation_id, 1, -1, -1, 1, 1, 1, ()))
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


@contextlib.asynccontextmanager
async def consuming(
    replica_id: int = -1,
) -> AsyncIterator[tuple[FakeStream, FakePath, UnreadAnswers, asyncio.Task[None]]]:
    """A fetch stream with one request that its path has; its answer would have 10 bytes."""
    stream, path, budget = FakeStream(), FakePath(), UnreadAnswers(100)
    stream.reads.clear()
    task = asyncio.create_task(FetchSession(stream, path, budget).run())  # type: ignore[arg-type]
    stream.incoming.put_nowait(FetchRequest(1, 1, replica_id, -1, 1, 1, 1, ()))
    await wait_until(lambda: path.open)
    if path.unread is not None:
        path.unread.hold(10, 0)
    try:
        yield stream, path, budget, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert budget.held_bytes == 0


async def test_an_answer_holds_its_room_until_it_has_left() -> None:
    async with consuming() as (stream, path, budget, _):
        path.open[0][1](FetchResponse(1, (), ()))
        assert path.unread is not None
        await wait_until(lambda: path.unread is not None and path.unread.on_give_up)
        assert budget.held_bytes == 10
        stream.reads.set()
        await wait_until(lambda: not budget.held_bytes)
        assert len(stream.sent) == 1


async def test_the_end_of_a_stream_withdraws_its_requests_and_gives_their_room_back() -> None:
    async with consuming() as (stream, path, budget, task):
        stream.incoming.put_nowait(ConnectionLostError("gone"))
        await asyncio.wait([task])
        assert ([request.correlation_id for request in path.withdrawn], budget.held_bytes) == ([1], 0)


async def test_a_stream_whose_answer_is_given_up_ends_and_says_why() -> None:
    async with consuming() as (_, path, budget, task):
        path.open[0][1](FetchResponse(1, (), ()))
        assert path.unread is not None
        await wait_until(lambda: path.unread is not None and path.unread.on_give_up)
        budget.end_oldest(now_ms=100, unread_ms=100)
        with pytest.raises(ThrottledError, match=r"queued\.max\.response\.bytes"):
            await asyncio.wait_for(task, 60)


async def test_the_answers_of_followers_have_no_part_in_the_room_for_those_of_consumers() -> None:
    async with consuming(replica_id=2) as (_, path, _, _):
        assert path.unread is None


async def test_a_consumer_that_fetches_as_followers_do_is_refused() -> None:
    """Trap: its answers would have no bound."""
    stream = FakeStream()
    stream.incoming.put_nowait(FetchRequest(1, 1, -1, -1, 1, 1, 1, (), incremental=True))
    with pytest.raises(MalformedFrameError, match="only followers"):
        await FetchSession(stream, FakeIncrementalPath(), UnreadAnswers(1)).run()  # type: ignore[arg-type]


async def test_requests_that_share_an_answer_hold_one_place() -> None:
    stream, path = FakeStream(), FakeIncrementalPath()
    task = asyncio.create_task(FetchSession(stream, path, UnreadAnswers(1)).run())  # type: ignore[arg-type]
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
