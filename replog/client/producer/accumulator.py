"""All batches of one producer: their memory, their deadlines, and the settings they share.

Memory is charged per record when it is appended and given back when its batch is resolved.  A sender of records that
finds no room waits its turn, first come, first served: that is the producer's backpressure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from msgspec import Struct

from replog.client.home_loop import HomeLoop
from replog.client.producer.batch import ProducerBatch
from replog.client.producer.config import ProducerConfig
from replog.client.types import TopicPartition
from replog.errors import ReplogError
from replog.records import ByteMeter, Codec
from replog.records.header import TRANSACTIONAL_BIT
from replog.waiting.byte_semaphore import ByteSemaphore

RECENT_FAILURES_MAX = 64
"""How many failed batches `flush` remembers to report; the first one matters."""


class _Memory(ByteSemaphore):
    """Bounds the memory of a producer.  Open batches count their bytes in the meter as they grow; what is held is read from there."""

    def __init__(self, limit_bytes: int, meter: ByteMeter) -> None:
        self._meter = meter
        super().__init__(limit_bytes)

    @property
    def held_bytes(self) -> int:
        return self._meter.held_bytes

    @held_bytes.setter
    def held_bytes(self, held_bytes: int) -> None:
        self._meter.held_bytes = held_bytes


BUSY_LINGER_S = 0.01
"""How long a batch waits at most while the caller goes on sending; without the wait it would leave in pieces."""

BUSY_BYTES = 16 * 1024
"""A batch with fewer bytes waits for the same share of `BUSY_LINGER_S` as it has of these: a single record leaves almost at once."""


class AccumulatorSettings(Struct, frozen=True):
    batch_size_bytes: int
    """A batch is closed at this size, or the topic's `max.message.bytes`; a record that is larger gets one of its own."""
    linger_ms: float
    """How long a batch that is not full waits for more records."""
    buffer_memory_bytes: int
    """Bound of all records that are not acknowledged yet."""
    delivery_timeout_ms: int
    """From `send` to the acknowledgement; then the records fail."""
    max_in_flight: int
    """Unresolved batches per partition, 1 to 5."""
    is_idempotent: bool
    is_compressing: bool = False
    """Whether batches are compressed before they are sent."""
    is_transactional: bool = False
    """Whether batches are part of transactions."""

    @classmethod
    def of(cls, config: ProducerConfig) -> Self:
        """Returns what the accumulator needs of a producer's settings."""
        return cls(
            batch_size_bytes=min(config.batch_size_bytes, config.max_request_bytes),
            linger_ms=config.linger_ms,
            buffer_memory_bytes=config.buffer_memory_bytes,
            delivery_timeout_ms=config.delivery_timeout_ms,
            max_in_flight=config.max_in_flight,
            is_idempotent=config.is_idempotent,
            is_compressing=config.codec is not Codec.NONE,
            is_transactional=config.transactional_id is not None,
        )


class BatchOwner(Protocol):
    """Fills batches, and is told when one ends otherwise than by an answer."""

    def expire(self, batch: ProducerBatch) -> None:
        """Fails `batch`, whose delivery time-out is over."""

    def fail_all(self, error: ReplogError) -> None:
        """Fails all its batches."""


class Accumulator:
    """Invariants:
        - `memory` holds the sum of `charged_bytes` over the unresolved batches, and what senders have reserved.

    Args:
        settings: The settings that all batches share.
        home: The loop of the producer, looked at for each new batch; None: whichever runs.

    Attributes:
        is_busy: Whether a caller is in the middle of sending: it has let the loop run, and goes on in its next turn.
        meter: What counts the bytes of all batches, and what is reserved, for `memory`.
        on_failed: The function that hears why a batch has failed.
        memory: Where a sender reserves room: by `acquire`, and by `release` without awaiting anything in between, once the
            record is appended, and counted by its batch, or never will be.  The wait ends: every batch is acknowledged or
            fails at its delivery time-out, and gives its memory back.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        home: HomeLoop | None = None,
    ) -> None:
        self.settings = settings
        self.meter = ByteMeter()
        self.memory = _Memory(settings.buffer_memory_bytes, self.meter)
        self.flushing_count = 0
        self.is_busy = False
        self.linger_s = settings.linger_ms / 1000
        self.is_idempotent = settings.is_idempotent
        self.is_compressing = settings.is_compressing
        self.is_transactional = settings.is_transactional
        self.on_failed: Callable[[ReplogError], None] = _hear_nothing
        self.max_in_flight = settings.max_in_flight
        self._home = home
        self._unresolved: dict[ProducerBatch, BatchOwner] = {}  # in order of creation, hence of deadline
        self._failed: deque[ProducerBatch] = deque(maxlen=RECENT_FAILURES_MAX)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_flushing(self) -> bool:
        return self.flushing_count > 0

    def lingers_until_s(self, batch: ProducerBatch) -> float:
        """Returns when a batch that is not full may go, seconds of the loop's time; 0 while somebody flushes."""
        if self.is_flushing:
            return 0.0
        linger_s = self.linger_s
        if self.is_busy:
            linger_s = max(linger_s, BUSY_LINGER_S * min(1.0, batch.charged_bytes / BUSY_BYTES))
        return batch.created_s + linger_s

    # ---- batches ---------------------------------------------------------------------------------------------------

    def new_batch(self, topic_partition: TopicPartition, max_bytes: int) -> ProducerBatch:
        """Makes an empty batch that has room for `max_bytes`; it counts once it is `opened`.

        Raises:
            InvalidRequestError: The producer belongs to another event loop.
        """
        if self._home is not None:
            self._home.enter()
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        return ProducerBatch(
            topic_partition,
            loop.create_future(),
            meter=self.meter,
            max_bytes=max_bytes,
            created_s=now_s,
            deadline_s=now_s + self.settings.delivery_timeout_ms / 1000,
            attributes=TRANSACTIONAL_BIT if self.is_transactional else 0,
        )

    def opened(self, batch: ProducerBatch, owner: BatchOwner) -> None:
        """Takes in `batch`, which has its first record: it counts from now on, and `owner` lets it expire at its deadline."""
        self._unresolved[batch] = owner
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(batch.deadline_s, self._expire)

    def resolve(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        """Ends the batch as acknowledged, and gives its memory back."""
        self._release(batch)
        batch.resolve(base_offset, append_time_ms)

    def fail(self, batch: ProducerBatch, error: ReplogError) -> None:
        """Ends the batch with `error`, and gives its memory back: it will never be acknowledged."""
        self._release(batch)
        batch.fail(error)
        self._failed.append(batch)
        self.on_failed(error)

    def _release(self, batch: ProducerBatch) -> None:
        del self._unresolved[batch]
        self.memory.release(batch.charged_bytes)

    def _expire(self) -> None:
        """Lets expire what is past its deadline, and sets the timer for the next."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for batch, owner in list(self._unresolved.items()):
            if batch.deadline_s > now_s:
                self._timer = loop.call_at(batch.deadline_s, self._expire)
                return
            if batch in self._unresolved:
                owner.expire(batch)

    # ---- the end of things -----------------------------------------------------------------------------------------

    def unresolved(self) -> list[ProducerBatch]:
        """Returns the batches that are neither acknowledged nor failed, oldest first."""
        return list(self._unresolved)

    def unseen_failure(self) -> ReplogError | None:
        """Returns the first failure since the last call that nobody has asked about through its delivery, if any."""
        failures = [batch.error for batch in self._failed if not batch.was_seen]
        self._failed.clear()
        return failures[0] if failures else None

    def unheard(self) -> list[ProducerBatch]:
        """Returns the batches that were not acknowledged without anybody having heard of it, of those that failed the last."""
        return [*self._unresolved, *(batch for batch in self._failed if not batch.was_seen)]

    def close(self, error: ReplogError) -> None:
        """Fails whatever is left, and everybody who waits for room."""
        if self._timer is not None:
            self._timer.cancel()
        for owner in list(self._unresolved.values()):
            owner.fail_all(error)
        self.memory.close(error)


def _hear_nothing(_error: ReplogError) -> None:
    """Ignores a failure: where there are no transactions, a failed batch is its own."""
