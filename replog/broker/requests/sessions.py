"""One session per fetch stream of a follower: reads requests, hands them to their path, writes answers.

Answers that are ready together leave in one turn.  A follower has at most `MAX_OPEN_FETCHES` requests without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from replog.broker.requests.fetch_path import Withdraw
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.replication.fetch_positions import FetchPositions
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from replog.rpc.transport import Stream
from replog.waiting.task_ends import until_one_ends
from replog.waiting.unread_answers import UnreadAnswer

MAX_OPEN_FETCHES = 4


class Produces(Protocol):
    """The target of produce requests: the path, or the object that measures it."""

    def submit(
        self,
        request: ProduceRequest,
        answer: Callable[[ProduceResponse], None],
        caller: object = None,
        add_time: Callable[[float], None] | None = None,
    ) -> None: ...


class OpensIncremental(Protocol):
    """The object at which a stream opens its incremental fetch."""

    def open(self, answer: Callable[[FetchResponse], None], merged: Callable[[], None]) -> IncrementalFetch: ...


class Fetches(Protocol):
    """The target of fetch requests: the path, or the object that measures it."""

    @property
    def incremental(self) -> OpensIncremental: ...

    def submit(
        self,
        request: FetchRequest,
        answer: Callable[[FetchResponse], None],
        unread: UnreadAnswer | None = None,
        session: FetchPositions[FetchPartition] | None = None,
    ) -> Withdraw: ...

    def submit_incremental(self, fetch: IncrementalFetch, request: FetchRequest) -> None: ...

    def close_incremental(self, fetch: IncrementalFetch) -> None: ...


class _Outbox:
    """Answers on their way out; `write` sends all that are ready at once.

    It does not know its session: requests that wait refer to it, perhaps long after the stream has ended.
    """

    def __init__(self) -> None:
        self._ready: list[FetchResponse] = []
        self._wakeup = asyncio.Event()

    def put(self, answer: FetchResponse) -> None:
        self._ready.append(answer)
        self._wakeup.set()

    async def write(self, send: Callable[[Sequence[FetchResponse]], Awaitable[None]]) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._ready:
                await send(self._take())

    def _take(self) -> Sequence[FetchResponse]:
        ready, self._ready = self._ready, []
        return ready


class FetchSession:
    """Serves one fetch stream of a follower.

    Args:
        stream: The stream.
        path: The path that its requests take.
        check: The function that raises where a request may not be served.
    """

    def __init__(
        self, stream: Stream[FetchResponse, FetchRequest], path: Fetches, check: Callable[[FetchRequest], None]
    ) -> None:
        self._check = check
        self._stream = stream
        self._path = path
        self._open = asyncio.Semaphore(MAX_OPEN_FETCHES)
        self._outbox = _Outbox()
        self._incremental: IncrementalFetch | None = None

    async def run(self) -> None:
        """Serves the stream until it ends."""
        try:
            await until_one_ends(self._read(), self._outbox.write(self._send))
        finally:
            if self._incremental is not None:
                self._path.close_incremental(self._incremental)

    async def _read(self) -> None:
        while True:
            await self._open.acquire()
            request = await self._stream.receive()
            self._check(request)
            if request.incremental:
                self._submit_incremental(request)
            else:
                self._path.submit(request, self._outbox.put)

    def _submit_incremental(self, request: FetchRequest) -> None:
        if self._incremental is None:
            self._incremental = self._path.incremental.open(self._outbox.put, self._open.release)
        self._path.submit_incremental(self._incremental, request)

    async def _send(self, answers: Sequence[FetchResponse]) -> None:
        for response in answers:
            await self._stream.send(response)
            self._open.release()
