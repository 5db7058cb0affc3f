"""One partition's batches in a producer: what may be sent next, and what a reply means.

No clock, no I/O: times come as arguments, so every rule here is tested without a network.

A batch waits in `open` (being filled) or `closed` (full), gets its sequence when it is first sent, and then stands in
the *window* until it and all before it are resolved.  The window is never longer than what a broker remembers of a
producer (five batches), so that a batch sent again is always recognised.

Order is kept by three rules:

- while a batch of the window waits to be sent again, nothing new is sent, and it goes only when no later one is in
  flight;
- a batch whose fate is unknown keeps its bytes: sent again it is either appended or recognised, never doubled;
- until the broker has acknowledged a first batch of an identity, only one is in flight: a broker that has never heard
  of a producer takes any sequence, and would take the second batch for the first.

A message costs the brokers milliseconds, whatever is in it, so what goes in pieces costs them a multiple.  A batch that is
not full goes at once while nobody is in the middle of sending.  While somebody is, it waits for the answer to the one before
it, if there is one, or else up to `BUSY_LINGER_S`, the longer the more is in it; full it goes at once.

A batch that failed for good leaves a *gap*: what was sent after it may be refused.  What is new goes on in the next epoch
of the producer id (KIP-360; in a transaction nothing goes on: it can only be aborted), so that the broker refuses bytes of the old epoch that are still on the way, in a connection
that was given up, once it has a batch of the new one.  Until then it would take them, so the batches behind the gap are
decided first.  Each goes again as it is, one at a time; it is acknowledged if the broker has it, else it is "out of order":

====================================== ===========================================================================
out of order behind a gap, and         what becomes of the batch
====================================== ===========================================================================
every time it was sent it was answered it is not in the log and never will be: encoded anew in the new epoch, and so is
                                       what comes after it, which could only have been appended behind it
not answered, in an older leader epoch the same: a leader refuses what was meant for the leader epochs before its own
not answered, in this leader epoch     copies may still arrive and be appended: it fails, its outcome is unknown
====================================== ===========================================================================

So nothing that may be in the log is sent under another identity, and a batch that is certainly not there does not fail
because of another.  After the last epoch (2^15 - 1) a new producer id is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from replog.client.cluster.addresses import LeaderAddress
from replog.client.producer.accumulator import Accumulator
from replog.client.producer.batch import ProducerBatch, ProducerIdentity
from replog.client.types import TopicPartition
from replog.errors import AuthenticationError, OutOfOrderSequenceError, ReplogError, RequestTimedOutError, raised_anew
from replog.records import (
    HEADER_BYTES,
    Buffer,
    Header,
    OpenBatches,
    RecordInput,
    RowSource,
    batch_bytes_bound,
    extend_rows,
)

SEQUENCE_MODULUS = 2**31
PRODUCER_EPOCH_MAX = 2**15 - 1


class PartitionQueue:
    """Invariants:
        - where batches are compressed, only one that is compressed is sent, and `_closed` holds those that are being;
        - `window` is in order of sequence, its first batch is unresolved, its length is at most `max_in_flight`;
        - at most one batch is in flight while there is a gap, or the identity is not established, or there is none.

    Args:
        open_batches: Where the open batches of the topic stand, which has a place for this partition's; None: nowhere.
        on_ready: A function that is told when something may have to be sent although no record has come: a batch was closed, or was lost to
            its delivery time-out.

    Attributes:
        leader: The broker to send to; None while there is nobody.
        identity: What new batches are encoded with; None without idempotence, or until one has been given.
        spent_identity: The last one whose epochs are used up; None: none is.
        last_error: The last cause of a retry, for the text of a later time-out.
        below_min_isr: The error with which the leader has refused a batch since the last acknowledgement for want of in-sync replicas.
        batch_bytes_max: The size at which a batch is closed; a record that is larger gets a batch of its own.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        topic: str,
        topic_id: UUID,
        partition_id: int,
        *,
        open_batches: OpenBatches | None = None,
        on_ready: Callable[[PartitionQueue], None] = lambda _queue: None,
    ) -> None:
        self.topic_partition = TopicPartition(topic, partition_id)
        self.topic = topic
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.leader: LeaderAddress | None = None
        self.identity: ProducerIdentity | None = None
        self.spent_identity: ProducerIdentity | None = None
        self.window: list[ProducerBatch] = []
        self.last_error: ReplogError | None = None
        self.below_min_isr: ReplogError | None = None
        self.backoff_until_s = 0.0
        self.failures_count = 0
        self.batch_bytes_max = accumulator.settings.batch_size_bytes
        self._accumulator = accumulator
        self._open_batches = open_batches
        self._on_ready = on_ready
        self._open: ProducerBatch | None = None
        self._closed: deque[ProducerBatch] = deque()
        self._numbered: ProducerIdentity | None = None  # what the next sequence is of
        self._next_sequence = 0
        self._is_established = False
        self._has_gap = False

    def __str__(self) -> str:
        return str(self.topic_partition)

    # ---- filling ---------------------------------------------------------------------------------------------------

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header], size_bytes: int
    ) -> tuple[ProducerBatch, int]:
        """Adds a record to the open batch, or to a new one when it does not fit; returns where it stands."""
        batch = self._open
        relative_offset = None
        if batch is not None:
            relative_offset = batch.builder.append(timestamp_ms, key, value, headers)
        if batch is None or relative_offset is None:
            batch = self._accumulator.new_batch(self.topic_partition, max(self.batch_bytes_max, size_bytes))
            relative_offset = batch.builder.append(timestamp_ms, key, value, headers)
            if relative_offset is None:
                raise _does_not_fit(size_bytes)
            self._go_on_with(batch, size_bytes)
        return batch, relative_offset

    def close_if_full(self, size_bytes: int) -> None:
        """Closes the open batch if `size_bytes` may not fit into it."""
        if self._open is not None and self._open.size_bytes + size_bytes > self.batch_bytes_max:
            self._closed.append(self._open)
            self._set_open(None)
            self._on_ready(self)

    def _go_on_with(self, batch: ProducerBatch, size_bytes: int) -> None:
        """Makes `batch`, which has one record of at most `size_bytes`, the open one."""
        if self._open is not None:
            self._closed.append(self._open)
        self._accumulator.opened(batch, self)
        if size_bytes > self.batch_bytes_max:
            self._closed.append(batch)  # for itself: a record beside it must not fail with one that is too large
            self._set_open(None)
        else:
            self._set_open(batch)

    def _set_open(self, batch: ProducerBatch | None) -> None:
        """Sets the batch to which records are added, also those that do not come by way of this queue."""
        self._open = batch
        if self._open_batches is not None:
            self._open_batches.put(self.partition_id, batch, None if batch is None else batch.builder)

    def extend(self, records: Sequence[RecordInput]) -> Iterator[tuple[ProducerBatch, int, int]]:
        """Appends `records`, none of which is larger than a batch may be, while the caller iterates; see `append`.

        Returns:
            The runs that they make: batch, relative offset of the first, count.
        """
        start = 0
        while start < len(records):
            batch, first = self._open, 0
            if batch is not None:
                first = batch.records_count
                batch.builder.extend(records[start:] if start else records)
            if batch is None or batch.records_count == first:
                time_ms, key, value, headers = records[start]
                batch, first = self.append(time_ms, key, value, headers, batch_bytes_bound(key, value, headers))
            yield batch, first, batch.records_count - first
            start += batch.records_count - first

    def extend_rows(self, source: RowSource, rows: Buffer) -> Iterator[tuple[ProducerBatch, int, int]]:
        """Appends rows of columns while the caller iterates; see `extend`.

        Args:
            source: The columns.
            rows: The numbers of the rows, int32.
        """
        numbers = memoryview(rows).cast("B")
        done, count = 0, len(numbers) // 4
        while done < count:
            batch, added = self._open, 0
            if batch is not None:
                first = batch.records_count
                added = extend_rows(batch.builder, source, numbers, done)
            if batch is None or not added:
                batch, first, added = self._new_batch_of(source, numbers[4 * done : 4 * done + 4]), 0, 1
            yield batch, first, added
            done += added

    def _new_batch_of(self, source: RowSource, row: memoryview) -> ProducerBatch:
        """Opens a batch with one row."""
        number = int.from_bytes(row, "little")
        size_bytes = HEADER_BYTES + source.within(number, 0)[1]
        batch = self._accumulator.new_batch(self.topic_partition, max(self.batch_bytes_max, size_bytes))
        if not extend_rows(batch.builder, source, row, 0):
            raise _does_not_fit(size_bytes)
        self._go_on_with(batch, size_bytes)
        return batch

    # ---- choosing --------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether something is not sent yet, or waits to be sent again."""
        return self._open is not None or bool(self._closed) or any(not (b.in_flight or b.is_done) for b in self.window)

    @property
    def needs_identity(self) -> bool:
        """Whether a batch would be sent if there were a producer id."""
        if not self._accumulator.is_idempotent or self.identity is not None:
            return False
        if not self.window:
            return self._open is not None or bool(self._closed)
        return self.window[0].must_renumber

    def sendable(self, now_s: float, *, allow_partial: bool) -> ProducerBatch | None:
        """Returns the batch to send next, or None; changes nothing.

        Args:
            now_s: The time by the loop's clock, seconds.
            allow_partial: Whether a batch that could still take records may go.
        """
        if now_s < self.backoff_until_s:
            return None
        for i, batch in enumerate(self.window):
            if not batch.in_flight and not batch.is_done:
                return self._resendable(i)
        if len(self.window) >= self._in_flight_max() or (self._accumulator.is_idempotent and self.identity is None):
            return None
        unsent = self._next_unsent(now_s, allow_partial=allow_partial)
        is_plain = unsent is not None and unsent.compressed is None
        return None if is_plain and self._accumulator.is_compressing else unsent

    def compressible(self, now_s: float, *, allow_partial: bool) -> ProducerBatch | None:
        """Returns the batch to compress next, or None; changes nothing.

        That is the first one that is not sent: also while it could not be sent, if it is full; else as soon as it could.

        Args:
            now_s, allow_partial: As for `sendable`.
        """
        if not self._closed and len(self.window) >= self._in_flight_max():
            return None
        batch = self._next_unsent(now_s, allow_partial=allow_partial)
        return None if batch is None or batch.is_compressing or batch.compressed is not None else batch

    def begin_compression(self, batch: ProducerBatch) -> bytes:
        """Returns the records of `batch`, which `compressible` gave, uncompressed; it takes no more of them."""
        if batch is self._open:
            self._closed.append(batch)
            self._set_open(None)
            batch.is_partial = True
        return batch.begin_compression()

    def handle_compressed(self, batch: ProducerBatch, compressed: bytes) -> None:
        """Takes in what became of the bytes that `begin_compression` gave away: the batch may be sent."""
        batch.is_compressing = False
        batch.compressed = compressed

    def _next_unsent(self, now_s: float, *, allow_partial: bool) -> ProducerBatch | None:
        if self._closed:
            first = self._closed[0]
            return None if first.is_partial and len(self._closed) == 1 and not allow_partial else first
        if self._accumulator.is_busy and self.window and not self._accumulator.is_flushing:
            return None
        return self._open if allow_partial and now_s >= self.lingers_until_s() else None

    def _resendable(self, i: int) -> ProducerBatch | None:
        batch = self.window[i]
        if any(later.in_flight for later in self.window[i + 1 :]):
            return None
        if self._in_flight_max() == 1 and any(earlier.in_flight for earlier in self.window[:i]):
            return None
        return None if batch.must_renumber and self.identity is None else batch

    def _in_flight_max(self) -> int:
        if self._has_gap or (self._accumulator.is_idempotent and not self._is_established):
            return 1
        return self._accumulator.max_in_flight

    def lingers_until_s(self) -> float:
        """Returns when the open batch may go although it is not full; 0 when there is none, or somebody flushes."""
        return 0.0 if self._open is None else self._accumulator.lingers_until_s(self._open)

    # ---- sending and replies ---------------------------------------------------------------------------------------

    def mark_sent(self, batch: ProducerBatch) -> None:
        """Notes that `batch`, which `sendable` gave, is on its way.

        Encodes it when this is the first time, or when it goes again under another identity.
        """
        if batch.attempt == 0:
            if batch is self._open:
                self._set_open(None)
            else:
                self._closed.popleft()
            batch.encode(self.identity, self._take_sequences(batch))
            self.window.append(batch)
        elif batch.must_renumber and self.identity is not None:
            batch.renumber(self.identity, self._take_sequences(batch))
        batch.begin_attempt(None if self.leader is None else self.leader.leader_epoch)

    def handle_acknowledged(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        self.failures_count = 0
        self.below_min_isr = None
        self._is_established = self._is_established or batch.identity == self.identity
        self._accumulator.resolve(batch, base_offset, append_time_ms)
        self._trim()

    def handle_retriable(self, batch: ProducerBatch, error: ReplogError, *, backoff_until_s: float) -> None:
        """Marks the batch to be sent again as it is, from `backoff_until_s` on: so the leader has answered."""
        batch.in_flight = False
        self.last_error = error
        self.backoff_until_s = max(self.backoff_until_s, backoff_until_s)

    def handle_lost(self, batch: ProducerBatch, error: ReplogError) -> None:
        """Marks the batch to be sent again: no answer will come, and what was sent may still arrive."""
        batch.give_up_attempt()
        self.last_error = error

    def handle_out_of_order(self, batch: ProducerBatch, error: ReplogError, *, backoff_until_s: float) -> None:
        """Decides about a batch that the broker did not append, for it does not follow the last one the broker has.

        With an earlier batch unresolved that is expected: both go again.  Behind a gap of our making the table above
        says what becomes of it.  Otherwise what the broker has is not what it acknowledged.
        """
        batch.in_flight = False
        if batch is not self.window[0]:
            self.handle_retriable(batch, error, backoff_until_s=backoff_until_s)
        elif batch.identity == self.identity:
            self._fail_window(self._lost_order(batch, error))
        elif batch.may_still_arrive:
            self._accumulator.fail(batch, self._unknown_outcome(batch, error))
            self._trim()
        else:
            self._renumber_from(batch)

    def handle_failed(self, batch: ProducerBatch, error: ReplogError) -> None:
        """Fails the batch, which will not be sent again; later ones will (see the module's text on gaps)."""
        was_sent = batch.attempt > 0
        if not was_sent:
            self._drop_unsent(batch)
        self._accumulator.fail(batch, error)
        if was_sent and batch.identity == self.identity:
            self._open_gap()
        self._trim()

    def expire(self, batch: ProducerBatch) -> None:
        """Fails `batch`, whose delivery time-out is over."""
        self.handle_failed(batch, self._expired_error(batch))
        self._on_ready(self)

    def refuse(self, error: AuthenticationError) -> None:
        """Fails all that is unresolved: its broker does not let this client in.  What is appended later is sent."""
        for batch in list(self._unresolved()):
            told = raised_anew(error)
            if batch.attempt:
                told = type(error)(
                    f"{error}. {self}: {batch.records_count} records were sent before, and may be in the log"
                )
            self.handle_failed(batch, told)

    def fail_all(self, error: ReplogError) -> None:
        """Fails all that is unresolved: nothing of this partition is sent any more (topic deleted, producer closed)."""
        for batch in list(self._unresolved()):
            self._accumulator.fail(batch, error)
        self._set_open(None)
        self._closed.clear()
        self.window.clear()

    def take_back(self, error: ReplogError) -> None:
        """Marks what is in flight to be sent again: the leader changed or was lost, and its fate is unknown."""
        self.last_error = error
        for batch in self.window:
            if batch.in_flight:
                batch.give_up_attempt()

    def _take_sequences(self, batch: ProducerBatch) -> int:
        if self.identity is None:
            return -1
        sequence = self._next_sequence
        self._next_sequence = (sequence + batch.records_count) % SEQUENCE_MODULUS
        return sequence

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Sets the producer id and epoch of this partition's next batches; their sequences start at 0, or go on where they are known."""
        self.identity = identity
        if identity != self._numbered:
            self._numbered = identity
            self._next_sequence = 0
            self._is_established = False

    def end_transaction(self, error: ReplogError) -> None:
        """Lets what comes next wait for an identity of the next transaction; fails what is unresolved of this one."""
        self.fail_all(error)
        self.identity = None
        self._has_gap = False
        self.backoff_until_s = 0.0
        self.failures_count = 0

    def fail_waiting(self, error: ReplogError) -> None:
        """Fails all that is not in flight; nothing of it is sent any more."""
        flying = [batch for batch in self.window if batch.in_flight]
        for batch in [each for each in self._unresolved() if not each.in_flight]:
            self._accumulator.fail(batch, error)
        self._set_open(None)
        self._closed.clear()
        self.window[:] = flying

    def _open_gap(self) -> None:
        """Gives what is new the next epoch; after the last one, lets it wait for another producer id."""
        if self.identity is None:
            return
        self._has_gap = True
        if self._accumulator.is_transactional:  # its epochs are the coordinator's to give
            self.identity = None
        elif self.identity.producer_epoch < PRODUCER_EPOCH_MAX:
            self.set_identity(ProducerIdentity(self.identity.producer_id, self.identity.producer_epoch + 1))
        else:
            self.spent_identity, self.identity = self.identity, None

    def _renumber_from(self, batch: ProducerBatch) -> None:
        """Marks `batch`, and what else is unresolved under its identity, to be encoded anew.

        `batch` is not in the log and never will be; then nothing is or will be that has its identity and comes later.
        """
        for later in self.window:
            if later.identity == batch.identity and not later.is_done:
                later.must_renumber = True

    def _trim(self) -> None:
        while self.window and self.window[0].is_done:
            del self.window[0]
        if self._has_gap and all(batch.identity == self.identity for batch in self.window):
            self._has_gap = False

    def _fail_window(self, error: ReplogError) -> None:
        for batch in self.window:
            if not batch.is_done:
                self._accumulator.fail(batch, error)
        self._open_gap()
        self._trim()

    def _lost_order(self, batch: ProducerBatch, error: ReplogError) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"{self}: the broker refuses sequence {batch.base_sequence} of producer {batch.identity.producer_id if batch.identity else -1}, although "
            f"everything before it was acknowledged ({error}). Acknowledged records may be missing in the log (an "
            "unclean leader election), or the broker has forgotten this producer. The batches in flight have failed; "
            "what is sent from now on uses a new producer epoch."
        )

    def _unknown_outcome(self, batch: ProducerBatch, error: ReplogError) -> RequestTimedOutError:
        unknown = RequestTimedOutError(
            f"{self}: {batch.records_count} records may or may not be in the log: a connection was lost before it was said "
            "whether they were appended, and a batch before them has failed, so that they might be there twice if they were "
            "sent again now. Read the end of the partition before you send them again."
        )
        unknown.__cause__ = error
        return unknown

    def _expired_error(self, batch: ProducerBatch) -> RequestTimedOutError:
        last = self.last_error
        cause = self.below_min_isr or last  # that the leader has gone silent since then explains less
        state = "may or may not be in the log" if batch.attempt else "were never sent"
        reason = f"{type(cause).__name__}: {cause}" if cause else self._no_cause(batch)
        if last is not None and last is not cause:
            reason += f" (then {type(last).__name__}: {last})"
        error = RequestTimedOutError(
            f"{self}: {batch.records_count} records were not acknowledged within delivery.timeout.ms "
            f"({self._accumulator.settings.delivery_timeout_ms} ms); they {state}. Last cause: {reason}"
        )
        error.__cause__ = cause
        return error

    def _no_cause(self, batch: ProducerBatch) -> str:
        if self.leader is None:
            return "the partition has no leader"
        if self.needs_identity:
            return "no producer id could be had from the controller"
        if batch.is_compressing:
            return "its compression has not ended"
        return "no answer from the leader"

    def _drop_unsent(self, batch: ProducerBatch) -> None:
        if batch is self._open:
            self._set_open(None)
        else:
            self._closed.remove(batch)

    def _unresolved(self) -> Iterator[ProducerBatch]:
        yield from (batch for batch in self.window if not batch.is_done)
        yield from self._closed
        if self._open is not None:
            yield self._open


def _does_not_fit(size_bytes: int) -> OverflowError:
    return OverflowError(f"a record of {size_bytes} bytes does not fit into a batch made for it")
