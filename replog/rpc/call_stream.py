"""Calls over one stream, to the controller or to any node: whatever waits, either way, shares a message.

Why: in Python a message costs more than most requests do.  While one message is on its way the next
fills, so that many callers at a time cost little more than one (natural batching); one caller alone waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct

from replog.errors import MalformedFrameError, ReplogError, ThrottledError
from replog.pb.v1 import controller_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError, Stream
from replog.waiting.task_ends import end_tasks, until_one_ends

MAX_OPEN_CALLS = 10_000
"""Of one connection, on either side.  At the server the reader then stops reading."""

GROUP_BYTES = 4 << 20
"""Bodies that share a message; a larger one goes alone."""


class CallItem(Struct, frozen=True):
    """One request or response, encoded; the response names the request it answers."""

    correlation_id: int
    body: bytes


Items: TypeAlias = Hello | tuple[CallItem, ...]
ItemStream: TypeAlias = Stream[Items, Items]
OpenStream: TypeAlias = Callable[[], Awaitable[ItemStream]]


def encode_items(message: Items) -> bytes:
    """Encodes one message of the stream."""
    out = controller_pb2.ControllerItems()
    if isinstance(message, Hello):
        to_proto(message, out.hello)
    else:
        for item in message:
            out.items.add(correlation_id=item.correlation_id, body=item.body)
    data: bytes = out.SerializeToString()
    return data


def decode_items(data: bytes | memoryview) -> Items:
    """Raises `MalformedFrameError` for bytes that are no message of this stream."""
    message: Any = controller_pb2.ControllerItems()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a group of calls: {error}") from error
    if message.HasField("hello"):
        return from_proto(Hello, message.hello)
    if not message.items:
        raise MalformedFrameError("a group of calls without a call")
    return tuple(CallItem(item.correlation_id, item.body) for item in message.items)


class _Outbox:
    """Items that wait to be sent, in order."""

    def __init__(self) -> None:
        self._items: deque[CallItem] = deque()
        self._wakeup = asyncio.Event()

    def put(self, item: CallItem) -> None:
        self._items.append(item)
        self._wakeup.set()

    async def send_all(self, stream: ItemStream) -> None:
        """Sends one message after the other until the stream ends, each with what is waiting then."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._items:
                await stream.send(self._take())

    def _take(self) -> tuple[CallItem, ...]:
        group = [self._items.popleft()]
        size_bytes = len(group[0].body)
        while self._items and size_bytes + len(self._items[0].body) <= GROUP_BYTES:
            group.append(self._items.popleft())
            size_bytes += len(group[-1].body)
        return tuple(group)


class StreamedCalls:
    """The calling side: one stream, opened when it is needed, and opened anew after it was lost.

    Args:
        address: The address of the other side, for messages.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._last_id = 0
        self._outbox = _Outbox()
        self._task: asyncio.Task[None] | None = None

    async def call(self, body: bytes, open_stream: OpenStream, *, timeout_ms: int) -> bytes:
        """Sends an encoded request; returns the encoded response.

        Args:
            open_stream: The function that opens the stream if there is none.

        Raises:
            ConnectionLostError: The other side cannot be reached, was lost, or did not answer in time.
            ThrottledError: Too many calls are open.
            ReplogError: The other side refused the stream.
        """
        if len(self._waiting) >= MAX_OPEN_CALLS:
            raise ThrottledError(f"{MAX_OPEN_CALLS} calls to {self._address} are open; try again later")
        self._last_id += 1
        correlation_id = self._last_id
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        if self._task is None:
            self._outbox = _Outbox()
            self._task = asyncio.create_task(self._run(self._outbox, open_stream), name=f"calls-{self._address}")
        self._outbox.put(CallItem(correlation_id, body))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise ConnectionLostError(f"{self._address}: no answer in {timeout_ms} ms") from None
        finally:
            self._waiting.pop(correlation_id, None)
            del future  # what it raises has passed here: it must not be found from there

    async def close(self) -> None:
        """Ends the stream; whoever still waits is told."""
        if self._task is not None:
            task, self._task = self._task, None
            await end_tasks(task)
        self._fail(ConnectionLostError(f"the connection to {self._address} was closed"))

    async def _run(self, outbox: _Outbox, open_stream: OpenStream) -> None:
        problem: ReplogError = ConnectionLostError(f"{self._address}: the stream of calls has ended")
        try:
            stream = await open_stream()
            try:
                await self._exchange(stream, outbox)
            finally:
                await stream.close()
        except ReplogError as error:
            problem = error.with_traceback(None)  # or it would lead back here, and to those who wait
        finally:
            if self._task is asyncio.current_task():
                self._task = None
            self._fail(problem)

    async def _exchange(self, stream: ItemStream, outbox: _Outbox) -> None:
        await until_one_ends(outbox.send_all(stream), self._receive(stream))

    async def _receive(self, stream: ItemStream) -> None:
        while True:
            items = await stream.receive()
            if isinstance(items, Hello):
                raise MalformedFrameError(f"{self._address} says hello twice")
            for item in items:
                future = self._waiting.get(item.correlation_id)
                if future is not None and not future.done():
                    future.set_result(item.body)

    def _fail(self, error: ReplogError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


class CallSession:
    """The serving side: each call is answered when it is done, in any order.

    Args:
        answer: The function that makes an encoded response of an encoded request; raises for bugs only.
    """

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._answer = answer
        self._outbox = _Outbox()
        self._open = asyncio.Semaphore(MAX_OPEN_CALLS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, stream: ItemStream) -> None:
        """Takes calls until the stream ends; then those that are not answered are given up."""
        try:
            await until_one_ends(self._outbox.send_all(stream), self._read(stream))
        finally:
            await end_tasks(*self._tasks)

    async def _read(self, stream: ItemStream) -> None:
        while True:
            items = await stream.receive()
            if isinstance(items, Hello):
                raise MalformedFrameError("hello was said before; after it only calls follow")
            for item in items:
                await self._open.acquire()
                task = asyncio.create_task(self._serve_one(item))
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    async def _serve_one(self, item: CallItem) -> None:
        self._outbox.put(CallItem(item.correlation_id, await self._answer(item.body)))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._open.release()
