"""One node's way to another node of the quorum: a stream of its own, requests out, responses in.

Metadata traffic never waits behind data: the connection belongs to the quorum alone.  The queue is bounded; when the
peer is slow or gone, the oldest waiting request is dropped and reported as failed, the core decides what to do next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from replog.broker.tasks import watched_task
from replog.errors import ReplogError
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Connection, ConnectionLostError, Stream, Transport
from replog_quorum.messages import Request, Response

MAX_QUEUED_REQUESTS = 64
RECONNECT_DELAY_S = 0.05

_log = logging.getLogger(__name__)


class PeerLink:
    """Requests to one peer.

    Args:
        on_response: called with every response of the peer.
        on_failed: called with the correlation id of a request whose answer will not come.
        on_failure: told about a bug; the node stops.
    """

    def __init__(
        self,
        *,
        peer_id: int,
        address: str,
        transport: Transport,
        hello: Callable[[], Hello],
        request_timeout_s: float,
        on_response: Callable[[Response], None],
        on_failed: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._peer_id = peer_id
        self._address = address
        self._transport = transport
        self._hello = hello
        self._request_timeout_s = request_timeout_s
        self._on_response = on_response
        self._on_failed = on_failed
        self._on_failure = on_failure
        self._queue: deque[Request] = deque()
        self._wakeup = asyncio.Event()
        self._in_flight: dict[int, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._last_problem = ""

    def start(self) -> None:
        self._task = watched_task(self._run(), name=f"quorum-link-{self._peer_id}", on_failure=self._on_failure)

    def send(self, request: Request) -> None:
        if len(self._queue) >= MAX_QUEUED_REQUESTS:
            self._on_failed(self._queue.popleft().correlation_id)
        self._queue.append(request)
        self._wakeup.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Connects when there is something to say; every end of a stream fails what was under way."""
        connection = self._transport.connect(self._address, purpose="quorum")
        try:
            while True:
                await self._wakeup.wait()
                try:
                    await self._serve(connection)
                except ReplogError as error:
                    self._note(error)
                self._fail_all()
                await asyncio.sleep(RECONNECT_DELAY_S)
        finally:
            await connection.close()

    async def _serve(self, connection: Connection) -> None:
        stream = await connection.open_quorum(self._hello())
        self._last_problem = ""
        receiver = asyncio.create_task(self._receive(stream), name=f"quorum-link-{self._peer_id}-receive")
        sender = asyncio.create_task(self._send(stream), name=f"quorum-link-{self._peer_id}-send")
        watchdog = asyncio.create_task(self._watch(), name=f"quorum-link-{self._peer_id}-watch")
        tasks = (receiver, sender, watchdog)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await stream.close()

    async def _send(self, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._queue:
                request = self._queue.popleft()
                self._in_flight[request.correlation_id] = loop.time() + self._request_timeout_s
                await stream.send(request)
            self._wakeup.clear()
            await self._wakeup.wait()

    async def _receive(self, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        while True:
            message = await stream.receive()
            if not isinstance(message, Response):
                raise ConnectionLostError(f"node {self._peer_id} sent {type(message).__name__} on a request stream")
            if self._in_flight.pop(message.correlation_id, None) is not None:
                self._on_response(message)

    async def _watch(self) -> None:
        """A peer that is connected but silent (a paused process) is treated as gone."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._request_timeout_s / 4)
            now = loop.time()
            if any(deadline < now for deadline in self._in_flight.values()):
                raise ConnectionLostError(f"node {self._peer_id} did not answer in {self._request_timeout_s:g} s")

    def _fail_all(self) -> None:
        lost = [*self._in_flight, *(request.correlation_id for request in self._queue)]
        self._in_flight.clear()
        self._queue.clear()
        self._wakeup.clear()
        for correlation_id in lost:
            self._on_failed(correlation_id)

    def _note(self, error: ReplogError) -> None:
        """Logs a problem once, not at every attempt."""
        text = str(error)
        if text != self._last_problem:
            _log.info("quorum link to node %d at %s: %s", self._peer_id, self._address, text)
            self._last_problem = text
