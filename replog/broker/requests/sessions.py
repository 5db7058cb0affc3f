"""One session per data stream: reads requests, hands them to their path, writes answers.

Bounds: the requests of a stream that are not answered hold byte credits of the stream and of the broker; when they are
used up, the reader stops reading and TCP pushes back on the client.  A part of the stream's credit is held until the
answer has left, so a client that never reads its answers is not read from either.  Answers that are ready together
leave in one message.  What is read for a consumer holds its share of the memory for that until it has left
(`replog.waiting.unread_answers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from replog.broker.requests.fetch_path import Withdraw
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.errors import MalformedFrameError, ThrottledError
from replog.rpc.messages import CONSUMER_REPLICA_ID, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from replog.rpc.task_ends import until_one_ends
from replog.rpc.transport import Stream
from replog.waiting.byte_semaphore import ByteSemaphore
from replog.waiting.unread_answers import UnreadAnswer, UnreadAnswers

STREAM_CREDIT_BYTES = 16 << 20
REQUEST_OVERHEAD_BYTES = 1 << 10
"""What a request counts beyond its records, so that empty requests are bounded too."""

MAX_OPEN_FETCHES = 4

T = TypeVar("T")


class Produces(Protocol):
    """Where produce requests go: the path, or what measures it."""

    def submit(self, request: ProduceRequest, answer: Callable[[ProduceResponse], None]) -> None: ...


class OpensIncremental(Protocol):
    """Where a stream opens its incremental fetch."""

    def open(self, answer: Callable[[FetchResponse], None], merged: Callable[[], None]) -> IncrementalFetch: ...


class Fetches(Protocol):
    """Where fetch requests go: the path, or what measures it."""

    @property
    def incremental(self) -> OpensIncremental: ...

    def submit(
        self, request: FetchRequest, answer: Callable[[FetchResponse], None], unread: UnreadAnswer | None = None
    ) -> Withdraw: ...

    def submit_incremental(self, fetch: IncrementalFetch, request: FetchRequest) -> None: ...

    def close_incremental(self, fetch: IncrementalFetch) -> None: ...


class _Outbox(Generic[T]):
    """Answers on their way out; `write` sends all that are ready at once.

    It does not know its session: who waits for an answer refers to it, and may do so for long after the stream has ended.
    """

    def __init__(self) -> None:
        self._ready: list[T] = []
        self._wakeup = asyncio.Event()

    def put(self, answer: T) -> None:
        self._ready.append(answer)
        self._wakeup.set()

    async def write(self, send: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._ready:
                await send(self._take())

    def _take(self) -> Sequence[T]:
        ready, self._ready = self._ready, []
        return ready


class ProduceSession:
    """Serves one produce stream."""

    def __init__(
        self, stream: Stream[Sequence[ProduceResponse], ProduceRequest], path: Produces, broker_credits: ByteSemaphore
    ) -> None:
        self._stream = stream
        self._path = path
        self._stream_credits = ByteSemaphore(STREAM_CREDIT_BYTES)
        self._broker_credits = broker_credits
        self._outbox: _Outbox[ProduceResponse] = _Outbox()

    async def run(self) -> None:
        """Serves the stream until it ends."""
        await until_one_ends(self._read(), self._outbox.write(self._send))

    async def _read(self) -> None:
        while True:
            request = await self._stream.receive()
            size = REQUEST_OVERHEAD_BYTES + sum(map(len, request.batches))
            await self._stream_credits.acquire(size)
            await self._broker_credits.acquire(size)
            self._path.submit(request, self._answer(request, size))

    def _answer(self, request: ProduceRequest, size: int) -> Callable[[ProduceResponse], None]:
        def answer(response: ProduceResponse) -> None:
            self._broker_credits.release(size)
            if request.acks == 0:  # nobody reads an answer
                self._stream_credits.release(size)
                return
            self._stream_credits.release(size - REQUEST_OVERHEAD_BYTES)  # the rest when the answer has left
            self._outbox.put(response)

        return answer

    async def _send(self, responses: Sequence[ProduceResponse]) -> None:
        await self._stream.send(responses)
        self._stream_credits.release(len(responses) * REQUEST_OVERHEAD_BYTES)


class _Fetched(NamedTuple):
    """An answer on its way; a follower's has no share."""

    response: FetchResponse
    unread: UnreadAnswer | None = None


class FetchSession:
    """Serves one fetch stream of a follower or a consumer.

    Args:
        stream: The stream.
        path: The path that its requests take.
        unread: The answers that the consumers of this broker have not read.
        check: The function that raises where a request may not be served; None: all may.
    """

    def __init__(
        self,
        stream: Stream[FetchResponse, FetchRequest],
        path: Fetches,
        unread: UnreadAnswers,
        check: Callable[[FetchRequest], None] | None = None,
    ) -> None:
        self._check = check
        self._stream = stream
        self._path = path
        self._unread = unread
        self._open = asyncio.Semaphore(MAX_OPEN_FETCHES)
        self._outbox: _Outbox[_Fetched] = _Outbox()
        self._incremental: IncrementalFetch | None = None
        self._waiting: dict[UnreadAnswer, Withdraw] = {}
        self._given_up = asyncio.Event()

    async def run(self) -> None:
        """Serves the stream until it ends."""
        try:
            await until_one_ends(self._read(), self._outbox.write(self._send), self._until_given_up())
        finally:
            if self._incremental is not None:
                self._path.close_incremental(self._incremental)
            for unread, withdraw in self._waiting.items():
                withdraw()
                unread.close()

    async def _read(self) -> None:
        while True:
            await self._open.acquire()
            request = await self._stream.receive()
            if self._check is not None:
                self._check(request)
            if request.incremental:
                self._submit_incremental(request)
            elif request.replica_id == CONSUMER_REPLICA_ID:
                self._submit(request)
            else:
                self._path.submit(request, _put(self._outbox, None))

    def _submit(self, request: FetchRequest) -> None:
        unread = self._unread.open()
        self._waiting[unread] = self._path.submit(request, _put(self._outbox, unread), unread)

    def _submit_incremental(self, request: FetchRequest) -> None:
        if request.replica_id == CONSUMER_REPLICA_ID:
            raise MalformedFrameError(
                "only followers fetch incrementally: a consumer says in each request what it wants"
            )
        if self._incremental is None:
            self._incremental = self._path.incremental.open(_put(self._outbox, None), self._open.release)
        self._path.submit_incremental(self._incremental, request)

    async def _send(self, answers: Sequence[_Fetched]) -> None:
        for response, unread in answers:
            if unread is not None:
                unread.on_give_up = self._given_up.set
            await self._stream.send(response)
            if unread is not None:
                del self._waiting[unread]
                unread.close()
            self._open.release()

    async def _until_given_up(self) -> None:
        await self._given_up.wait()
        raise ThrottledError(
            "an answer was not read for long, and others wait for its memory (queued.max.response.bytes); fetch again"
        )


def _put(outbox: _Outbox[_Fetched], unread: UnreadAnswer | None) -> Callable[[FetchResponse], None]:
    return lambda response: outbox.put(_Fetched(response, unread))
