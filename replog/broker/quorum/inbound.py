"""Requests of other nodes of the quorum, and the way back of their answers.

Every stream has a bounded queue of answers of its own: a peer that does not read holds up nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from replog.errors import MalformedFrameError
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream
from replog.waiting.task_ends import until_one_ends
from replog_quorum.messages import Request, Response

MAX_WAITING_RESPONSES = 256
MAX_OPEN_REQUESTS = 4096


class _InboundStream:
    """Answers to one node that asks us: a bounded queue and the task that writes it."""

    def __init__(self, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[Response] = asyncio.Queue(MAX_WAITING_RESPONSES)

    def offer(self, response: Response) -> None:
        if not self._queue.full():  # a peer that does not read its answers gets none; it will ask again
            self._queue.put_nowait(response)

    async def write(self) -> None:
        while True:
            await self._stream.send(await self._queue.get())


class InboundRequests:
    """All streams on which other nodes ask this one.

    Args:
        on_request: The function that is called with the asking node's id and its request.
    """

    def __init__(self, on_request: Callable[[int, Request], None]) -> None:
        self._on_request = on_request
        self._open: dict[tuple[int, int], _InboundStream] = {}

    async def serve(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        """Takes requests until the stream ends."""
        inbound = _InboundStream(stream)
        try:
            await until_one_ends(self._read(hello, stream, inbound), inbound.write())
        finally:
            self._open = {key: value for key, value in self._open.items() if value is not inbound}

    def answer(self, node_id: int, response: Response) -> None:
        """Sends an answer back on the stream of its request; nothing happens when that has ended."""
        inbound = self._open.pop((node_id, response.correlation_id), None)
        if inbound is not None:
            inbound.offer(response)

    async def _read(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame], inbound: _InboundStream) -> None:
        while True:
            message = await stream.receive()
            if not isinstance(message, Request):
                raise MalformedFrameError(f"node {hello.node_id} sent {type(message).__name__} as a request")
            if len(self._open) >= MAX_OPEN_REQUESTS:
                self._open.pop(next(iter(self._open)))
            self._open[hello.node_id, message.correlation_id] = inbound
            self._on_request(hello.node_id, message)
