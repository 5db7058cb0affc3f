"""The consumer's stream to one leader: asks for what is wanted next, before it is wanted.

Each partition is in at most one request; a stream may have a few requests in flight, so that a partition whose buffer
was just emptied does not wait behind the long poll of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from msgspec import Struct

from replog.client.cluster.leader_calls import partition_error
from replog.client.cluster.leader_hints import NamedLeader, named_leader
from replog.client.cluster.session import BrokerSession, Unanswered
from replog.client.cluster.view import ClusterView
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.protocol.seam import Connection
from replog.errors import AuthenticationError, ErrorCode, ReplogError, RetriableError
from replog.errors.choices import INT32_MAX, require_at_least
from replog.records import Buffer
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
)
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.rpc.transport import Stream

WAIT_MS_MAX = 2**30 - 1
"""Of each of the two times that a fetch request says the sum of: 12 days."""

USUAL_WAIT_MS = 500
"""How long a fetch may be held back like any other request; what it may be longer is no sign of a broker that has died."""

REQUESTS_MAX = 4
"""Fetch requests in flight at one broker."""


class FetchSettings(Struct, frozen=True):
    """Settings of a `Consumer`; each is a keyword of its constructor."""

    max_wait_ms: int = USUAL_WAIT_MS
    """How long a broker may hold a request back for `min_bytes`."""
    min_bytes: int = 1
    """What a broker waits for before it answers."""
    max_bytes: int = 4 * 1024 * 1024
    """Bound of one reply (one batch more where a single batch is larger)."""
    max_partition_bytes: int = 1024 * 1024
    """The same for one partition; also how much of it is fetched ahead."""
    buffer_memory_bytes: int = 32 * 1024 * 1024
    """Bound of what is fetched ahead in all, shared evenly by the leaders."""
    request_timeout_ms: int = 30_000
    """A broker that is silent for longer, on top of `max_wait_ms`, is taken for lost."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("fetch.max.wait.ms", self.max_wait_ms, 0, WAIT_MS_MAX),
            ("fetch.min.bytes", self.min_bytes, 0, INT32_MAX),
            ("fetch.max.bytes", self.max_bytes, 1, INT32_MAX),
            ("max.partition.fetch.bytes", self.max_partition_bytes, 1, INT32_MAX),
            ("buffer.memory.bytes", self.buffer_memory_bytes, 1, None),
            ("request.timeout.ms", self.request_timeout_ms, 1, WAIT_MS_MAX),
        ):
            require_at_least(name, value, low, high)


class _InFlight(Struct):
    sent_s: float
    reserved_bytes: int
    entries: list[tuple[PartitionFetch, int]]  # with the token that the reply must find


class ConsumerFetcher(BrokerSession[FetchRequest, FetchResponse]):
    """Fetches for the partitions that one broker leads.

    Args:
        share_bytes: What returns how many bytes this fetcher may hold now: buffered and reserved for replies under way.
        on_chunk: What gets each fetched chunk, in order per partition.
        on_trouble: What is called when reading a partition waits for a decision: the user's call must look.
        on_refused: What is called with a partition that this broker refused; returns whether another is asked instead.

    Attributes:
        loss: Why the stream could not be opened or ended; None once the broker has answered since.
    """

    def __init__(
        self,
        view: ClusterView,
        broker_id: int,
        address: str,
        settings: FetchSettings,
        *,
        share_bytes: Callable[[], int],
        on_chunk: Callable[[FetchedChunk], None],
        on_trouble: Callable[[], None],
        on_refused: Callable[[PartitionFetch], bool],
    ) -> None:
        super().__init__(view, broker_id, address)
        self._settings = settings
        self._share_bytes = share_bytes
        self._on_chunk = on_chunk
        self._on_trouble = on_trouble
        self._on_refused = on_refused
        self._partitions: dict[PartitionFetch, None] = {}  # in order of their turn
        self._in_flight: dict[int, _InFlight] = {}
        self._held_bytes = 0
        self.loss: ReplogError | None = None
        self._correlation_ids = itertools.count(1)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is read from this broker."""
        return not self._partitions

    def add(self, state: PartitionFetch) -> None:
        self._partitions[state] = None
        self.wake()

    def remove(self, state: PartitionFetch) -> None:
        self._partitions.pop(state, None)

    def release(self, chunk: FetchedChunk) -> None:
        """Makes room for more: `chunk` came from here and is handed out or dropped."""
        self._held_bytes -= len(chunk.data)
        self.wake()

    # ---- asking ----------------------------------------------------------------------------------------------------

    async def _open(self, connection: Connection, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return await connection.open_fetch(hello)

    def _has_work(self) -> bool:
        return bool(self._partitions)

    def _next_message(self) -> FetchRequest | None:
        room_bytes = self._share_bytes() - self._held_bytes
        if len(self._in_flight) >= REQUESTS_MAX or (room_bytes <= 0 and self._held_bytes):
            return None
        wanted = self._wanted()
        if not wanted:
            return None
        if len(wanted) > MAX_PARTITIONS:
            wanted = wanted[:MAX_PARTITIONS]
            for state in wanted:  # to the end of the line: the others come first next time
                del self._partitions[state]
                self._partitions[state] = None
            self.wake()
        max_bytes = max(1, min(self._settings.max_bytes, room_bytes, len(wanted) * self._settings.max_partition_bytes))
        correlation_id = next(self._correlation_ids)
        for state in wanted:
            state.is_in_flight = True
        entries = [(state, state.token) for state in wanted]
        self._in_flight[correlation_id] = _InFlight(self._loop.time(), max_bytes, entries)
        self._held_bytes += max_bytes
        return FetchRequest(
            correlation_id,
            timeout_ms=self._settings.max_wait_ms + self._settings.request_timeout_ms,
            replica_id=CONSUMER_REPLICA_ID,
            broker_epoch=-1,
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=max_bytes,
            partitions=tuple(self._question(state) for state in wanted),
        )

    def _wanted(self) -> list[PartitionFetch]:
        now_s = self._loop.time()
        wanted = []
        for state in self._partitions:
            if state.can_fetch(now_s, buffered_bytes_max=self._settings.max_partition_bytes):
                wanted.append(state)
            elif state.backoff_until_s > now_s and not state.is_in_flight:
                self.wake_at(state.backoff_until_s)
        return wanted

    def _question(self, state: PartitionFetch) -> FetchPartition:
        return FetchPartition(
            state.topic_id,
            state.partition.partition,
            state.fetch_offset,
            leader_epoch=state.leader.leader_epoch if state.leader is not None else -1,
            last_fetched_epoch=state.last_epoch,
            max_bytes=self._settings.max_partition_bytes,
            topic=state.partition.topic,
        )

    def _handle_sent(self, message: FetchRequest) -> None:
        pass

    # ---- replies ---------------------------------------------------------------------------------------------------

    def _handle_received(self, message: FetchResponse) -> None:
        self.loss = None
        request = self._in_flight.pop(message.correlation_id, None)
        if request is None:
            return
        self._held_bytes -= request.reserved_bytes
        waiting = {
            (state.topic_id, state.partition.partition): state
            for state, token in request.entries
            if state.token == token
        }
        for state in waiting.values():
            state.is_in_flight = False
        named: list[NamedLeader] = []
        for result, data in zip(message.results, message.batches, strict=True):
            state_or_none = waiting.pop((result.topic_id, result.partition_id), None)
            if state_or_none is not None and result.fetch_offset == state_or_none.fetch_offset:
                self._handle_result(state_or_none, result, data)
                if result.leader_id >= 0:
                    named.append(named_leader(state_or_none.partition.topic, result, message.leaders))
        for state in waiting.values():  # of which there is nothing new
            state.confirm()
        if named:  # last: it moves the partitions
            self._view.hear_of_leaders(named)

    def _handle_result(self, state: PartitionFetch, result: FetchResult, data: Buffer) -> None:
        if result.error is not ErrorCode.NONE:
            self._handle_error(state, result)
            return
        if result.diverging is not None:
            state.part(result.diverging)
            if state.diverging is None:
                self.wake()
            else:
                self._on_trouble()
            return
        try:
            chunk = state.accept(result, data, self)
        except ReplogError as error:
            self._stop_reading(state, error)
            return
        if chunk is not None:
            self._held_bytes += len(chunk.data)
            self._partitions.pop(state, None)
            self._partitions[state] = None  # to the end of the line
            self._on_chunk(chunk)

    def _handle_error(self, state: PartitionFetch, result: FetchResult) -> None:
        if self._on_refused(state):
            return  # whatever it is, the leader knows better
        error = partition_error(result.error, result.message, state.partition)
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.follow_log_start(result) or state.forget_told():
                self.wake()
                return
            state.out_of_range = result
            self._on_trouble()
        elif isinstance(error, RetriableError):
            state.back_off(self._loop.time())
            self._view.request_refresh()
        else:
            self._stop_reading(state, error)

    def _stop_reading(self, state: PartitionFetch, error: ReplogError) -> None:
        state.error = error.with_traceback(None)  # the frames that it passed have the records
        self._on_trouble()

    def _handle_lost(self, error: ReplogError) -> None:
        self.loss = error
        requests = list(self._in_flight.values())
        self._in_flight.clear()
        for request in requests:
            self._held_bytes -= request.reserved_bytes
            for state, token in request.entries:
                if state.token == token:
                    state.forget_request()
        if isinstance(error, AuthenticationError):
            self._on_trouble()

    def _oldest_request(self) -> Unanswered | None:
        for request in self._in_flight.values():
            held_back_ms = max(0, self._settings.max_wait_ms - USUAL_WAIT_MS)
            limit_ms = self._settings.max_wait_ms + self._settings.request_timeout_ms
            return Unanswered(request.sent_s, request.sent_s + limit_ms / 1000, held_back_ms / 1000)
        return None
