"""Gathers what a leader appends into batches (docs/KAFKA.md 5.7).

Each append gets its offsets at once and goes into one batch as a whole, so that a log never holds half of it; several
appends share a batch as long as they fit.  Pure: the host writes what it drains.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from replog_quorum.errors import (
    AccumulatorFullError,
    AppendTooLargeError,
    QuorumConfigError,
    QuorumInvariantError,
    StaleAppendError,
)


class PendingBatch(Struct, frozen=True):
    """Values for consecutive offsets from `base_offset`; `created_ms` is the time of the first append in it."""

    base_offset: int
    values: tuple[bytes, ...]
    created_ms: int


class _OpenBatch(Struct):
    base_offset: int
    created_ms: int
    values: list[bytes] = field(default_factory=list[bytes])
    size_bytes: int = 0


class BatchAccumulator:
    """Appends of one epoch on their way into the log.

    Invariants:
        - the values of one append stand in one batch, at consecutive offsets;
        - drained batches follow one another without a gap, except for offsets skipped by `skip_to`.
    """

    def __init__(self, *, linger_ms: int = 0, max_batch_bytes: int = 8 << 20, max_batches: int = 10) -> None:
        """Creates an accumulator that is closed until `open`.

        Args:
            linger_ms: The time that a batch which is not full waits for more; 0: it may be drained at once.
            max_batch_bytes: The most bytes of one batch's values; the record format adds some bytes to each.
            max_batches: The most batches that wait; the last of them may still grow.

        Raises:
            QuorumConfigError: A bound is below 1, or the linger is negative.
        """
        for name, value, lowest in (
            ("linger_ms", linger_ms, 0),
            ("max_batch_bytes", max_batch_bytes, 1),
            ("max_batches", max_batches, 1),
        ):
            if value < lowest:
                raise QuorumConfigError(name, value, f"must be at least {lowest}")
        self._linger_ms = linger_ms
        self._max_batch_bytes = max_batch_bytes
        self._max_batches = max_batches
        self._epoch: int | None = None
        self._next_offset = 0
        self._batches: list[_OpenBatch] = []

    @property
    def epoch(self) -> int | None:
        """Of the leadership that appends; None while closed."""
        return self._epoch

    @property
    def next_offset(self) -> int:
        """Of the next value."""
        return self._next_offset

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._batches

    def open(self, epoch: int, next_offset: int) -> None:
        """Begins to take what a leadership appends, at `next_offset`.

        Raises:
            QuorumInvariantError: Another leadership has not been closed.
        """
        if self._epoch is not None:
            raise QuorumInvariantError(f"epoch {epoch} appends while epoch {self._epoch} does")
        self._epoch = epoch
        self._next_offset = next_offset

    def close(self) -> None:
        """Ends the leadership; drops what was not drained."""
        self._epoch = None
        self._batches.clear()

    def append(self, epoch: int, values: Sequence[bytes], now_ms: int) -> int:
        """Takes values that belong into one batch; returns the offset of the first.

        Raises:
            StaleAppendError: Another epoch appends, or none.
            AppendTooLargeError: They do not fit into a batch, or there are none.
            AccumulatorFullError: Too many batches wait; drain first.
        """
        if epoch != self._epoch:
            raise StaleAppendError(epoch, self._epoch)
        size_bytes = sum(map(len, values))
        if not values or size_bytes > self._max_batch_bytes:
            raise AppendTooLargeError(len(values), size_bytes, self._max_batch_bytes)
        batch = self._batch_for(size_bytes, now_ms)
        batch.values += values
        batch.size_bytes += size_bytes
        base_offset = self._next_offset
        self._next_offset += len(values)
        return base_offset

    def skip_to(self, next_offset: int) -> None:
        """Skips offsets up to `next_offset`: the log has got records of others there.

        Raises:
            QuorumInvariantError: Values wait that were given these offsets, or the offset lies behind.
        """
        if self._batches or next_offset < self._next_offset:
            raise QuorumInvariantError(
                f"offsets below {next_offset} are taken by others, the next one was {self._next_offset} "
                f"with {len(self._batches)} batches waiting"
            )
        self._next_offset = next_offset

    def next_deadline_ms(self) -> int | None:
        """Returns when `drain` has something to give, perhaps in the past; None when nothing waits."""
        if not self._batches:
            return None
        return self._batches[0].created_ms + (self._linger_ms if len(self._batches) == 1 else 0)

    def drain(self, now_ms: int) -> tuple[PendingBatch, ...]:
        """Takes everything out, once the first batch is full or has lingered; nothing before."""
        deadline_ms = self.next_deadline_ms()
        return () if deadline_ms is None or now_ms < deadline_ms else self.drain_all(now_ms)

    def drain_all(self, now_ms: int) -> tuple[PendingBatch, ...]:  # noqa: ARG002 -- as `drain` has it
        """Takes everything out, whatever the linger says."""
        taken, self._batches = self._batches, []
        return tuple(PendingBatch(batch.base_offset, tuple(batch.values), batch.created_ms) for batch in taken)

    def _batch_for(self, size_bytes: int, now_ms: int) -> _OpenBatch:
        if self._batches and self._batches[-1].size_bytes + size_bytes <= self._max_batch_bytes:
            return self._batches[-1]
        if len(self._batches) >= self._max_batches:
            raise AccumulatorFullError(self._max_batches)
        self._batches.append(_OpenBatch(self._next_offset, now_ms))
        return self._batches[-1]
