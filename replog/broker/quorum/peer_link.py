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
from replog.errors import InconsistentClusterIdError, ReplogError
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import ConnectionLostError, PeerConnection, PeerTransport, Stream
from replog.waiting.task_ends import end_tasks, until_one_ends
from replog_quorum.messages import Request, Response

MAX_QUEUED_REQUESTS = 64
RECONNECT_DELAY_S = 0.05

_log = logging.getLogger(__name__)


class PeerLink:
    """Requests to one peer.

    Args:
        addresses: The addresses where the peer may listen; after a failure the next one is tried.
        on_response: The function that is called with every response of the peer.
        on_failed: The function that is called with the correlation id of a request whose answer will not come, and with
            whether nobody listens there.
        on_failure: The function that is told about a bug; the node stops then.
    """

    def __init__(
        self,
        *,
        peer_id: int,
        addresses: tuple[str, ...],
        transport: PeerTransport,
        hello: Callable[[], Hello],
        request_timeout_s: float,
        on_response: Callable[[Response], None],
        on_failed: Callable[[int, bool], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._peer_id = peer_id
        self._addresses = addresses
        self._address = addresses[0]
        self._transport = transport
        self._hello = hello
        self._request_timeout_s = request_timeout_s
        self._on_response = on_response
        self._on_failed = on_failed
        self._on_failure = on_failure
        self._queue: deque[Request] = deque()
        self._wakeup = asyncio.Event()
        self._moved = asyncio.Event()
        self._in_flight: dict[int, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._last_problem = ""

    def start(self) -> None:
        self._task = watched_task(self._run(), name=f"quorum-link-{self._peer_id}", on_failure=self._on_failure)

    def set_addresses(self, addresses: tuple[str, ...]) -> None:
        """Sets where the peer may listen now; a stream that works goes on, unless its address is not named any more."""
        self._addresses = addresses
        if self._address not in addresses:
            self._address = addresses[0]
            self._moved.set()

    def send(self, request: Request) -> None:
        """Queues a request."""
        if len(self._queue) >= MAX_QUEUED_REQUESTS:
            self._fail(self._queue.popleft().correlation_id)
        self._queue.append(request)
        self._wakeup.set()

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def _run(self) -> None:
        """Connects when there is something to say; every end of a stream fails what was under way."""
        while True:
            await self._wakeup.wait()
            self._moved.clear()
            connection = self._transport.connect(self._address, purpose="quorum", node_id=self._peer_id)
            try:
                await self._serve_until_lost(connection)
            finally:
                await connection.close()

    async def _serve_until_lost(self, connection: PeerConnection) -> None:
        """Keeps one connection as long as its address is the one to use: opening it anew is dear."""
        while True:
            await self._wakeup.wait()
            if self._moved.is_set():
                return
            refused = False
            try:
                await self._serve(connection)
            except ReplogError as error:
                self._note(error)
                refused = isinstance(error, ConnectionLostError) and error.refused
            self._fail_all(refused=refused)
            await asyncio.sleep(RECONNECT_DELAY_S)
            if self._moved.is_set() or self._try_next_address():
                return

    def _try_next_address(self) -> bool:
        """Goes on to the next address; returns whether it is another than the one that has just failed."""
        following = self._addresses.index(self._address) + 1 if self._address in self._addresses else 0
        address = self._addresses[following % len(self._addresses)]
        moves = address != self._address
        self._address = address
        return moves

    async def _serve(self, connection: PeerConnection) -> None:
        stream = await connection.open_quorum(self._hello())
        self._last_problem = ""
        try:
            await until_one_ends(self._receive(stream), self._send(stream), self._watch(), self._watch_address())
        finally:
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
        """Waits until an answer is overdue: a peer that is connected but silent (a paused process) is treated as gone.

        Raises:
            ConnectionLostError: The peer did not answer in time.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._request_timeout_s / 4)
            now = loop.time()
            if any(deadline < now for deadline in self._in_flight.values()):
                raise ConnectionLostError(f"node {self._peer_id} did not answer in {self._request_timeout_s:g} s")

    async def _watch_address(self) -> None:
        await self._moved.wait()
        raise ConnectionLostError(f"node {self._peer_id} listens elsewhere now, at {self._address}")

    def _fail(self, correlation_id: int, *, refused: bool = False) -> None:
        self._on_failed(correlation_id, refused)

    def _fail_all(self, *, refused: bool) -> None:
        lost = [*self._in_flight, *(request.correlation_id for request in self._queue)]
        self._in_flight.clear()
        self._queue.clear()
        self._wakeup.clear()
        for correlation_id in lost:
            self._fail(correlation_id, refused=refused)

    def _note(self, error: ReplogError) -> None:
        """Writes a problem to the log once, not at every attempt."""
        text = str(error)
        if text != self._last_problem:
            level = logging.ERROR if isinstance(error, InconsistentClusterIdError) else logging.INFO
            _log.log(level, "quorum link to node %d at %s: %s", self._peer_id, self._address, text)
            self._last_problem = text
