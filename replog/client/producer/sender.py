"""The producer's stream to one broker: gathers what is ready for that leader into messages, and deals out the replies.

A message costs about the same whatever is in it, so batching comes from what waits anyway: with few requests in
flight everything goes at once, at low load without any delay; with more in flight only full batches go, and the
others fill up meanwhile.
"""

from __future__ import annotations

import itertools
from typing import Self

from msgspec import Struct

from replog.client.cluster.leader_calls import partition_error
from replog.client.cluster.leader_hints import NamedLeader, named_leader
from replog.client.cluster.session import BrokerSession, Unanswered
from replog.client.cluster.view import ClusterView
from replog.client.producer.batch import UNKNOWN_OFFSET, ProducerBatch
from replog.client.producer.compressor import BatchCompressor
from replog.client.producer.config import ProducerConfig
from replog.client.producer.identity import Identities
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.protocol.seam import Connection
from replog.errors import (
    AuthenticationError,
    ConcurrentTransactionsError,
    ErrorCode,
    NotEnoughReplicasAfterAppendError,
    ReplogError,
    RetriableError,
)
from replog.rpc.messages import Hello, ProducePartition, ProduceRequest, ProduceResponse, ProduceResult
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.rpc.transport import ConnectionLostError, Stream

REQUESTS_MAX = 5
"""Requests in flight at one broker."""

REQUESTS_PARTIAL_MAX = 2
"""With this many in flight, batches that are not full wait for a reply."""

REPLY_GRACE_MS = 1_000
"""The broker itself answers REQUEST_TIMED_OUT after the request's time-out; only a broker that is gone is later."""

_BACKOFF_S_MIN = 0.1
_BACKOFF_S_MAX = 0.5
_ENDING_BACKOFF_S = 0.01
"""The first pause after the answer that the transaction before is being ended, which takes as long as its markers do."""

_BELOW_MIN_ISR = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_ALSO_RETRIABLE = frozenset({ErrorCode.CORRUPT_MESSAGE})  # damaged on the way: the bytes here are good


class SenderSettings(Struct, frozen=True):
    acks: int
    request_timeout_ms: int
    max_request_bytes: int
    fail_below_min_isr: bool = False

    @classmethod
    def of(cls, config: ProducerConfig) -> Self:
        """Returns what senders need of a producer's settings."""
        return cls(config.acks_code, config.request_timeout_ms, config.max_request_bytes, config.fail_below_min_isr)


class _InFlight(Struct):
    sent_s: float
    entries: list[tuple[PartitionQueue, ProducerBatch, int]]  # with the attempt that this is


class BrokerSender(BrokerSession[ProduceRequest, tuple[ProduceResponse, ...]]):
    """Sends for the partitions that one broker leads.

    Args:
        compressor: What compresses batches before they are sent; None: nothing does.
        identities: What is told of a partition that waits for a producer id.

    Invariants:
        - a message has at most one batch per partition;
        - `pending` holds every partition of this leader that has something to send, oldest turn first.
    """

    def __init__(
        self,
        view: ClusterView,
        broker_id: int,
        address: str,
        settings: SenderSettings,
        *,
        compressor: BatchCompressor | None = None,
        identities: Identities,
    ) -> None:
        super().__init__(view, broker_id, address)
        self._settings = settings
        self._compressor = compressor
        self._identities = identities
        self._pending: dict[PartitionQueue, None] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._correlation_ids = itertools.count(1)

    def add(self, queue: PartitionQueue) -> None:
        """Puts `queue`, which has something to send, in line."""
        self._pending[queue] = None
        self.wake()

    def remove(self, queue: PartitionQueue) -> None:
        """Forgets `queue`, which is led elsewhere now; what it has in flight here is taken back by the caller."""
        self._pending.pop(queue, None)

    # ---- sending ---------------------------------------------------------------------------------------------------

    async def _open(self, connection: Connection, hello: Hello) -> Stream[ProduceRequest, tuple[ProduceResponse, ...]]:
        return await connection.open_produce(hello)

    def _has_work(self) -> bool:
        return bool(self._pending)

    def _next_message(self) -> ProduceRequest | None:
        if len(self._in_flight) >= REQUESTS_MAX:
            return None
        batches = self._gather(allow_partial=len(self._in_flight) < REQUESTS_PARTIAL_MAX)
        if not batches:
            return None
        correlation_id = next(self._correlation_ids)
        for queue, batch in batches:
            queue.mark_sent(batch)
        entries = [(queue, batch, batch.attempt) for queue, batch in batches]
        self._in_flight[correlation_id] = _InFlight(self._loop.time(), entries)
        return ProduceRequest(
            correlation_id,
            self._settings.request_timeout_ms,
            self._settings.acks,
            tuple(_destination(queue) for queue, _ in batches),
            tuple(batch.payload or b"" for _, batch in batches),
            self._identities.transaction,
        )

    def _gather(self, *, allow_partial: bool) -> list[tuple[PartitionQueue, ProducerBatch]]:
        now_s = self._loop.time()
        size_bytes = 0
        batches: list[tuple[PartitionQueue, ProducerBatch]] = []
        for queue in list(self._pending):
            if queue.needs_identity:
                self._identities.give(queue)
            self._compress_ahead(queue, now_s, allow_partial=allow_partial)
            batch = queue.sendable(now_s, allow_partial=allow_partial)
            if batch is None:
                self._postpone(queue, now_s)
                continue
            is_full = len(batches) == MAX_PARTITIONS
            if is_full or (batches and size_bytes + batch.size_bytes > self._settings.max_request_bytes):
                self.wake()
                break
            size_bytes += batch.size_bytes
            batches.append((queue, batch))
            del self._pending[queue]
            self._pending[queue] = None  # to the end of the line: it may have more
        return batches

    def _compress_ahead(self, queue: PartitionQueue, now_s: float, *, allow_partial: bool) -> None:
        """Begins to compress the next batch while others are on their way; it comes back by `add`."""
        if self._compressor is None:
            return
        plain = queue.compressible(now_s, allow_partial=allow_partial)
        if plain is not None:
            self._compressor.begin(queue, plain)

    def _postpone(self, queue: PartitionQueue, now_s: float) -> None:
        if not queue.has_work:
            del self._pending[queue]
            return
        wait_until_s = max(queue.backoff_until_s, queue.lingers_until_s())
        if wait_until_s > now_s:
            self.wake_at(wait_until_s)

    def _handle_sent(self, message: ProduceRequest) -> None:
        if self._settings.acks == 0:
            request = self._in_flight.pop(message.correlation_id, None)
            for queue, batch, attempt in request.entries if request is not None else ():
                if _is_current(batch, attempt):
                    queue.handle_acknowledged(batch, UNKNOWN_OFFSET, -1)

    # ---- replies ---------------------------------------------------------------------------------------------------

    def _handle_received(self, message: tuple[ProduceResponse, ...]) -> None:
        for response in message:
            request = self._in_flight.pop(response.correlation_id, None)
            if request is not None:
                self._handle_response(request, response)

    def _handle_response(self, request: _InFlight, response: ProduceResponse) -> None:
        results = {(result.topic_id, result.partition_id): result for result in response.results}
        named: list[NamedLeader] = []
        for queue, batch, attempt in request.entries:
            result = results.get((queue.topic_id, queue.partition_id))
            if not _is_current(batch, attempt):
                continue
            if result is None:
                batch.give_up_attempt()
                self._retry_later(queue, batch, ConnectionLostError(f"{self.address} left {queue} out of its answer"))
            else:
                self._handle_result(queue, batch, result)
                if result.leader_id >= 0:
                    named.append(named_leader(queue.topic, result, response.leaders))
            if queue.has_work:
                self._pending[queue] = None
        if named:  # last: it moves the queues
            self._view.hear_of_leaders(named)

    def _handle_result(self, queue: PartitionQueue, batch: ProducerBatch, result: ProduceResult) -> None:
        if result.error in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            queue.handle_acknowledged(batch, result.base_offset, result.append_time_ms)
            return
        error = partition_error(result.error, result.message, queue.topic_partition)
        if result.error in _BELOW_MIN_ISR:
            queue.below_min_isr = error
            if self._settings.fail_below_min_isr:
                queue.handle_failed(batch, _below_min_isr_error(batch, error))
                return
        if result.error in _OUT_OF_ORDER:
            queue.handle_out_of_order(batch, error, backoff_until_s=self._loop.time() + _BACKOFF_S_MIN)
        elif isinstance(error, RetriableError) or result.error in _ALSO_RETRIABLE:
            self._retry_later(queue, batch, error)
        else:
            queue.handle_failed(batch, error)

    def _retry_later(self, queue: PartitionQueue, batch: ProducerBatch, error: ReplogError) -> None:
        is_ending = isinstance(error, ConcurrentTransactionsError)
        least_s = _ENDING_BACKOFF_S if is_ending else _BACKOFF_S_MIN
        pause_s = min(_BACKOFF_S_MAX, least_s * 2 ** min(queue.failures_count, 8))
        queue.failures_count += 1
        queue.handle_retriable(batch, error, backoff_until_s=self._loop.time() + pause_s)
        if not is_ending:
            self._view.request_refresh()

    def _handle_lost(self, error: ReplogError) -> None:
        requests = list(self._in_flight.values())
        self._in_flight.clear()
        for queue in self._pending:
            queue.last_error = error
        for request in requests:
            for queue, batch, attempt in request.entries:
                if _is_current(batch, attempt):
                    queue.handle_lost(batch, error)
                    self._pending[queue] = None
        if isinstance(error, AuthenticationError):  # the same settings never succeed
            refused, self._pending = self._pending, {}
            for queue in refused:
                queue.refuse(error)

    def _oldest_request(self) -> Unanswered | None:
        for request in self._in_flight.values():
            limit_ms = self._settings.request_timeout_ms + REPLY_GRACE_MS
            return Unanswered(request.sent_s, request.sent_s + limit_ms / 1000)
        return None


def _is_current(batch: ProducerBatch, attempt: int) -> bool:
    """Whether this reply is about what the batch waits for: not resolved, not taken back, not sent again since."""
    return batch.in_flight and batch.attempt == attempt and not batch.is_done


def _below_min_isr_error(batch: ProducerBatch, error: ReplogError) -> ReplogError:
    """Returns the error as it is when the batch was sent once, and refused; one sent before may be in the log."""
    if batch.attempt == 1:
        return error
    unknown = NotEnoughReplicasAfterAppendError(
        f"{batch.topic_partition}: {batch.records_count} records were sent before and may be in the log, and may still become visible. "
        f"Last answer: {error}"
    )
    unknown.__cause__ = error
    return unknown


def _destination(queue: PartitionQueue) -> ProducePartition:
    epoch = queue.leader.leader_epoch if queue.leader is not None else -1
    return ProducePartition(queue.topic_id, queue.partition_id, epoch, queue.topic)
