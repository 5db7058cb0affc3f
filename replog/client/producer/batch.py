"""One batch of the producer, from its first record to its acknowledgement, and the handles users wait on.

There is one future per batch, not per record: a future costs more than encoding a record.  A `Delivery` is a batch and
a place in it; the offset is worked out when somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec import Struct

from replog.client.home_loop import require_loop
from replog.client.types import DeliveredRange, RecordMetadata, TopicPartition
from replog.errors import ReplogError, raised_anew
from replog.records import HEADER_BYTES, BatchBuilder, ByteMeter, RecordPlace, with_producer

T = TypeVar("T")

UNKNOWN_OFFSET = -1
_UNKNOWN_EPOCH = 2**31
"""Above every leader epoch: no leader refuses what was sent to it."""


class ProducerIdentity(Struct, frozen=True):
    """What idempotence hangs on: the broker drops a batch it has seen under this id and sequence."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool = False


class ProducerBatch:
    """Records for one partition that are sent, retried and acknowledged together.

    Invariants:
        - once encoded, the bytes change only by `renumber`, and that only when it is certain that no copy of them is in
          the log or ever will be;
        - with compression the records are what `begin_compression` gave away, and nothing is added to them;
        - `future` is resolved exactly once, and then the bytes are let go.

    Attributes:
        is_partial: Whether it was closed to be compressed while there was room in it.
        is_compressing: Whether a thread has its records, to give them back compressed.
        compressed: The batch without a producer, compressed where that makes it smaller; None: it was not compressed yet.
        attempt: How often the bytes were sent; a reply to an earlier attempt is dropped.
        in_flight: Whether they were sent, and neither answered nor given up.
        must_renumber: Whether they go again under another identity, see `partition_queue`.
        was_seen: Whether somebody asked for the outcome, so that `flush` need not report an error again.
        callbacks: The functions to call once the outcome is known, by the `BatchOutcome` that they get.
    """

    __slots__ = (
        "_charged_bytes",
        "_leader_epoch",
        "_records_count",
        "_unanswered_epoch",
        "_waiters",
        "append_time_ms",
        "attempt",
        "base_offset",
        "base_sequence",
        "builder",
        "callbacks",
        "compressed",
        "created_s",
        "deadline_s",
        "error",
        "future",
        "identity",
        "in_flight",
        "is_compressing",
        "is_partial",
        "must_renumber",
        "payload",
        "topic_partition",
        "was_seen",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        future: asyncio.Future[None],
        *,
        meter: ByteMeter,
        max_bytes: int,
        created_s: float,
        deadline_s: float,
        attributes: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.future = future
        self.builder = BatchBuilder(max_bytes=max_bytes, attributes=attributes, meter=meter)
        self.created_s = created_s
        self.deadline_s = deadline_s
        self._charged_bytes = 0  # these two: set once the builder is emptied
        self._records_count = 0
        self.is_compressing = False
        self.is_partial = False
        self.compressed: bytes | None = None
        self.payload: bytes | None = None
        self.identity: ProducerIdentity | None = None
        self.base_sequence = -1
        self.attempt = 0
        self.in_flight = False
        self.must_renumber = False
        self.base_offset = UNKNOWN_OFFSET
        self.append_time_ms = -1
        self.error: ReplogError | None = None
        self.was_seen = False
        self._leader_epoch = _UNKNOWN_EPOCH  # of the leader that it was sent to last
        self._unanswered_epoch = -1  # the highest of those that were given up without an answer
        self._waiters: list[asyncio.Future[None]] = []
        self.callbacks: dict[BatchOutcome[Any], list[tuple[Callable[[Any], object], Context | None]]] = {}

    @property
    def is_done(self) -> bool:
        return self.future.done()

    @property
    def records_count(self) -> int:
        return self._records_count or self.builder.records_count

    @property
    def charged_bytes(self) -> int:
        """The bytes of its records as they count in the producer's memory, uncompressed."""
        return self._charged_bytes or self.builder.size_bytes - HEADER_BYTES

    @property
    def size_bytes(self) -> int:
        """Size on the wire: exact once compressed or encoded, the uncompressed size before."""
        encoded = self.compressed if self.payload is None else self.payload
        return self.builder.size_bytes if encoded is None else len(encoded)

    def begin_compression(self) -> bytes:
        """Returns the batch, uncompressed and without a producer; it takes no more records."""
        self.is_compressing = True
        self._seal()
        return self.builder.build()

    def encode(self, identity: ProducerIdentity | None, base_sequence: int) -> None:
        """Makes the bytes, once; `identity` None is a producer without idempotence."""
        self.identity = identity
        self.base_sequence = base_sequence
        if self.compressed is not None:
            self.payload, self.compressed = _stamped(self.compressed, identity, base_sequence), None
            return
        self._seal()
        if identity is None:
            self.payload = self.builder.build()
        else:
            self.payload = self.builder.build(identity.producer_id, identity.producer_epoch, base_sequence)

    def _seal(self) -> None:
        """Keeps what the builder knows, which is emptied next."""
        self._charged_bytes, self._records_count = self.charged_bytes, self.records_count

    def renumber(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Puts the same records under another identity; see the invariants."""
        self.payload = _stamped(self.payload or b"", identity, base_sequence)
        self.identity = identity
        self.base_sequence = base_sequence
        self.must_renumber = False
        self._unanswered_epoch = -1

    def begin_attempt(self, leader_epoch: int | None) -> None:
        """Notes that the bytes are on their way to the leader of that epoch; None: it is not known which."""
        self.attempt += 1
        self.in_flight = True
        self._leader_epoch = _UNKNOWN_EPOCH if leader_epoch is None else leader_epoch

    def give_up_attempt(self) -> None:
        """Stops waiting for the answer; the bytes may arrive all the same."""
        self.in_flight = False
        self._unanswered_epoch = max(self._unanswered_epoch, self._leader_epoch)

    @property
    def may_still_arrive(self) -> bool:
        """Whether the leader that has answered last might yet get a copy, and take it, that was sent before."""
        return self._unanswered_epoch >= self._leader_epoch

    def resolve(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._let_go()
        self.future.set_result(None)
        self._wake_waiters()

    def fail(self, error: ReplogError) -> None:
        self.error = error
        self._let_go()
        self.future.set_exception(error)
        self.future.exception()  # looked at: an error nobody awaits is reported by flush, not by the loop's logger
        self._wake_waiters()

    def _let_go(self) -> None:
        self.in_flight = False
        self._seal()
        self.payload = self.compressed = None
        del self.builder

    async def wait(self) -> None:
        """Returns when the records are acknowledged; raises what kept them from it."""
        self.was_seen = True
        await self.settled()
        self.raise_failure()

    async def settled(self) -> None:
        """Returns when the outcome is known, whatever it is.  Raises: As `require_here`."""
        if not self.future.done():
            self.require_here()
            # one for each caller: its cancellation must not cancel the batch for the others, and a shield costs twice as much
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def require_here(self) -> None:
        """Refuses a wait that would not end.

        Raises:
            InvalidRequestError: The producer belongs to another event loop, where the outcome will be known.
            BrokerClosedError: This is a copy in a forked process; the parent will know it.
        """
        require_loop(self.future.get_loop())

    def raise_failure(self) -> None:
        """Returns if the records are acknowledged.

        Raises:
            ReplogError: What kept them from it.
            asyncio.InvalidStateError: The outcome is not known yet.
        """
        if self.error is not None:
            raise raised_anew(self.error)
        self.future.result()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        called, self.callbacks = self.callbacks, {}
        for outcome, entries in called.items():
            for callback, context in entries:
                outcome.add_done_callback(callback, context=context)


def _stamped(batch: bytes, identity: ProducerIdentity | None, base_sequence: int) -> bytes:
    if identity is None:
        return batch
    producer_id, epoch = identity.producer_id, identity.producer_epoch
    return with_producer(batch, producer_id, epoch, base_sequence, is_transactional=identity.is_transactional)


if TYPE_CHECKING:
    _Future = asyncio.Future  # type checkers let only futures into `asyncio.wait`
else:

    class _Future(Generic[T]):
        __slots__ = ()


class BatchOutcome(_Future[T]):
    """What can be waited for like a future: `await`, `asyncio.wait`, `gather`, `wait_for`, `shield`, `as_completed`.

    To type checkers it is a future; what only the maker of a future does (`set_result`, ...) it does not have.  It cannot be
    cancelled: the cancellation of a task that waits leaves the records on their way.  A task takes a coroutine, and gets one from
    `wait`: `task_group.create_task(delivery.wait())`.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        return self._next_batch() is None

    def result(self) -> T:
        """Returns the outcome.

        Raises:
            asyncio.InvalidStateError: The outcome is not `done()` yet.
            ReplogError: A record was not acknowledged.
        """
        raise NotImplementedError

    def _next_batch(self) -> ProducerBatch | None:
        """Returns a batch whose outcome is not known yet; None: all are known."""
        raise NotImplementedError

    async def wait(self) -> T:
        """Returns what `result` does, once it is known."""
        while (batch := self._next_batch()) is not None:
            await batch.settled()
        return self.result()

    def __await__(self) -> Generator[object, None, T]:
        return self.wait().__await__()

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 -- as futures have it
        """Refuses to cancel, and says so: the records are on their way."""
        return False

    def cancelled(self) -> bool:
        """Whether it was cancelled: never."""
        return False

    def exception(self) -> ReplogError | None:
        """Returns what `result` would raise, or None.

        Raises:
            asyncio.InvalidStateError: The outcome is not `done()` yet.
        """
        try:
            self.result()
        except ReplogError as error:
            return error
        return None

    def add_done_callback(self, callback: Callable[[Self], object], *, context: Context | None = None) -> None:
        """Calls `callback` with this, from the loop, once it is done.

        Raises:
            InvalidRequestError, BrokerClosedError: As `ProducerBatch.require_here`.
        """
        batch = self._next_batch()
        if batch is None:
            asyncio.get_running_loop().call_soon(callback, self, context=context)
        else:
            batch.require_here()
            batch.callbacks.setdefault(self, []).append((callback, context))

    def remove_done_callback(self, callback: Callable[[Self], object]) -> int:
        """Takes a callback back; returns how many there were."""
        batch = self._next_batch()
        if batch is None or self not in batch.callbacks:
            return 0
        kept = [entry for entry in batch.callbacks[self] if entry[0] != callback]
        removed_count = len(batch.callbacks[self]) - len(kept)
        batch.callbacks[self] = kept
        if not kept:
            del batch.callbacks[self]
        return removed_count


class Delivery(BatchOutcome[RecordMetadata], RecordPlace):  # type: ignore[misc]  # no future but to type checkers
    """The outcome of one record, to be awaited (or not: `flush` waits for all of them).

    `await delivery` gives its `RecordMetadata` or raises what kept the record from being acknowledged.
    """

    __slots__ = ()

    _batch: ProducerBatch

    def __init__(self, batch: ProducerBatch, relative_offset: int, timestamp_ms: int) -> None:
        RecordPlace.__init__(self, batch, relative_offset, timestamp_ms)  # nothing else: an `Appender` leaves this out

    @property
    def place(self) -> tuple[ProducerBatch, int]:
        """The record's batch, and where in it the record stands."""
        return self._batch, self._relative_offset

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        return self._batch.is_done

    def _next_batch(self) -> ProducerBatch | None:
        self._batch.was_seen = True
        return None if self._batch.is_done else self._batch

    def result(self) -> RecordMetadata:
        """Returns where the record stands; see the base class."""
        batch = self._batch
        batch.was_seen = True
        batch.raise_failure()
        offset = batch.base_offset + self._relative_offset if batch.base_offset >= 0 else UNKNOWN_OFFSET
        timestamp = batch.append_time_ms if batch.append_time_ms >= 0 else self._timestamp_ms
        return RecordMetadata(*batch.topic_partition, offset, timestamp)


class BulkDelivery(BatchOutcome[Sequence[DeliveredRange]]):
    """The outcome of one `send_many`: awaited once for all its records.

    `await bulk` gives the ranges of offsets they got, or raises the first error; some of the records may be
    acknowledged then (see `acknowledged_count`).
    """

    __slots__ = ("_parts", "_settled_count", "records_count")

    def __init__(self) -> None:
        self._parts: list[tuple[ProducerBatch, int, int]] = []  # batch, first relative offset, count
        self._settled_count = 0  # parts at the front that are done
        self.records_count = 0

    def add(self, batch: ProducerBatch, first: int, count: int) -> None:
        self._parts.append((batch, first, count))
        self.records_count += count

    async def wait(self) -> Sequence[DeliveredRange]:
        """Waits for the ranges and returns them, or raises the first error as soon as it is known."""
        for batch, _, _ in self._parts:
            batch.was_seen = True
        for batch, _, _ in self._parts:
            await batch.wait()
        return self.result()

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return self._skip_settled() == len(self._parts)

    def _next_batch(self) -> ProducerBatch | None:
        if not self._settled_count:
            for batch, _, _ in self._parts:
                batch.was_seen = True
        settled_count = self._skip_settled()
        return None if settled_count == len(self._parts) else self._parts[settled_count][0]

    def _skip_settled(self) -> int:
        while self._settled_count < len(self._parts) and self._parts[self._settled_count][0].is_done:
            self._settled_count += 1
        return self._settled_count

    def result(self) -> Sequence[DeliveredRange]:
        """Returns the ranges; see the base class."""
        for batch, _, _ in self._parts:
            batch.was_seen = True
            batch.future.result()
        return [
            DeliveredRange(
                *batch.topic_partition,
                batch.base_offset + first if batch.base_offset >= 0 else UNKNOWN_OFFSET,
                count,
            )
            for batch, first, count in self._parts
        ]

    @property
    def acknowledged_count(self) -> int:
        """The number of records that are acknowledged so far."""
        return sum(count for batch, _, count in self._parts if batch.is_done and batch.error is None)
