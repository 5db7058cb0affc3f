"""Where the controller stands in the metadata log, and the timeline snapshots that let it go back (docs/KAFKA.md 6.2).

Offsets are exclusive ends.  A timeline snapshot at epoch `e` holds the state after everything below offset `e`::

    stable <= committed <= next write
      |          |            `- what this controller has appended, and replayed at once
      |          `- a majority has it
      `- committed and outside of an unfinished transaction: what answers may be made of

A transaction (a change too large for one batch) counts as a whole when its last record commits.  Until then the records
that have committed are kept, because going back to the stable offset forgets them and nobody delivers them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from replog.controller.messages import CommittedRecords, Reply, ReplyError
from replog.errors import InvariantViolationError, NotControllerError, ReplogError, RequestTimedOutError
from replog.metadata.records import BeginTransactionRecord, EndTransactionRecord, MetadataRecord, encoded_bytes_max
from replog.waiting.parked_answers import ParkedAnswers
from replog.waiting.written_batches import WrittenBatches
from replog_timeline import SnapshotRegistry


class DeferredReplies:
    """Holds each answer until its offset commits, its deadline passes or leadership is lost."""

    def __init__(self) -> None:
        self._parked = ParkedAnswers[Reply | ReplyError]()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, end_offset: int, deadline_ms: int, answer: Reply | ReplyError) -> None:
        """Keeps `answer` until everything below `end_offset` has committed.

        Raises:
            InvariantViolationError: The request id waits already.
        """
        self._parked.park(answer.request_id, end_offset, answer, deadline_ms)

    def complete_up_to(self, end_offset: int) -> tuple[Reply | ReplyError, ...]:
        """Takes out and returns the answers whose offset has committed, oldest first."""
        return tuple(self._parked.complete_up_to(end_offset))

    def expire(self, now_ms: int) -> tuple[ReplyError, ...]:
        """Takes out the requests whose deadline has come; returns their time-outs: the changes may still commit."""
        return tuple(
            ReplyError(each.request_id, RequestTimedOutError("the change was not committed in time; it may still be"))
            for each in self._parked.expire(now_ms)
        )

    def fail_all(self) -> tuple[ReplyError, ...]:
        """Fails every request, whether what it changed survives or not: leadership is lost."""
        reason = "leadership was lost before the change committed; it may survive"
        return tuple(ReplyError(each.request_id, NotControllerError(reason)) for each in self._parked.fail_all())

    def fail_beyond(self, end_offset: int, error: ReplogError) -> tuple[ReplyError, ...]:
        """Fails the answers that were made of what was replayed beyond `end_offset` and is taken back."""
        return tuple(ReplyError(each.request_id, error) for each in self._parked.fail_beyond(end_offset))

    def next_deadline_ms(self) -> int | None:
        """Returns the deadline of the request that times out first; None when nothing waits."""
        return self._parked.next_deadline_ms()


class _Transaction(Struct):
    """Records of the log from `start_offset` (its Begin) to `end_offset` (after its End or Abort; None: still open)."""

    start_offset: int
    end_offset: int | None = None


class OffsetControl:
    """Stable and committed end, next write offset, and one snapshot per boundary of a batch from the stable end on.

    Invariants:
        - `stable_end_offset` never decreases and is always a snapshot: there is always a state to go back to;
        - inactive: nothing beyond `committed_end_offset` has been replayed.

    Args:
        registry: The registry of the state that the records change.
        max_records_per_batch: The most records of a batch.
        max_bytes_per_batch: The most bytes of a batch, by `encoded_bytes_max`.
        max_records_per_step: The most records of a batch where the cluster knows transactions.
        knows_transactions: The function that says whether it does.

    Attributes:
        committed_end_offset: The end of what a majority has.
        stable_end_offset: The end of what counts.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        max_records_per_batch: int,
        max_bytes_per_batch: int,
        *,
        max_records_per_step: int,
        knows_transactions: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._max_records_per_batch = max_records_per_batch
        self._max_bytes_per_batch = max_bytes_per_batch
        self._max_records_per_step = min(max_records_per_step, max_records_per_batch)
        self._knows_transactions = knows_transactions
        self._written = WrittenBatches(registry)
        self._transactions: deque[_Transaction] = deque()  # those that are not wholly below the stable end
        self._measured: tuple[Sequence[MetadataRecord], Sequence[int]] = (), ()
        self._unstable: list[CommittedRecords] = []  # committed, but reaching beyond the stable end
        self.committed_end_offset = 0
        self.stable_end_offset = 0
        registry.get_or_create_snapshot(0)

    @property
    def next_write_offset(self) -> int | None:
        """Offset of the next record this controller appends; None when it is not active."""
        return self._written.next_offset

    @property
    def has_pending(self) -> bool:
        """Whether something was replayed that does not count yet."""
        next_offset = self._written.next_offset
        return next_offset is not None and next_offset > self.stable_end_offset

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and neither ended nor been aborted."""
        return bool(self._transactions) and self._transactions[-1].end_offset is None

    # ---- terms ------------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Begins to append behind what is committed."""
        self._written.begin(self.committed_end_offset)

    def deactivate(self) -> Iterator[tuple[int, MetadataRecord]]:
        """Forgets everything that is not committed.

        Returns:
            The records that have committed and were forgotten with the rest, with their offsets: to be replayed at
                once.
        """
        self._written.stop()
        self._transactions.clear()
        self._registry.revert_to_snapshot(self.stable_end_offset)
        return self._records_from(self.stable_end_offset)

    def _records_from(self, start_offset: int) -> Iterator[tuple[int, MetadataRecord]]:
        for batch in self._unstable:
            for offset, record in enumerate(batch.records, batch.base_offset):
                if offset >= start_offset:
                    yield offset, record

    # ---- appends ----------------------------------------------------------------------------------------------------

    def next_write_offset_or_raise(self) -> int:
        """Returns the offset of the next record that this controller appends.

        Raises:
            InvariantViolationError: The controller is not active.
        """
        return self._written.next_offset_or_raise()

    def end_after(self, records: Sequence[MetadataRecord] = ()) -> int:
        """Returns where the log of this controller ends once a change of these records has been appended."""
        marks = 0 if self.is_one_batch(records) else 2
        return self.next_write_offset_or_raise() + len(records) + marks

    def is_one_batch(self, records: Sequence[MetadataRecord]) -> bool:
        """Whether a change fits into one batch, by count and by bytes; if not, it is a transaction of several."""
        fits = len(records) <= self._max_records_per_step or len(records) <= self.records_max
        return fits and self.bytes_max(records) <= self._max_bytes_per_batch

    @property
    def records_max(self) -> int:
        """How many records a batch may have."""
        return self._max_records_per_step if self._knows_transactions() else self._max_records_per_batch

    def needs_steps(self, things_count: int) -> bool:
        """Whether a change that looks at so many things is to be made in several steps, as a transaction."""
        return self._knows_transactions() and things_count >= self._max_records_per_step

    def bytes_max(self, records: Sequence[MetadataRecord]) -> int:
        """Returns a size that all records of a change together do not exceed."""
        return sum(self.sizes_max(records))

    def sizes_max(self, records: Sequence[MetadataRecord]) -> Sequence[int]:
        """Returns for each record of a change a size that it does not exceed."""
        if (
            records is not self._measured[0]
        ):  # asked several times on the way of one change, each of which would be a walk
            self._measured = records, tuple(map(encoded_bytes_max, records))
        return self._measured[1]

    def batches(self, records: tuple[MetadataRecord, ...]) -> list[tuple[MetadataRecord, ...]]:
        """Splits one change into the batches to append: one, or a transaction of several."""
        if self.is_one_batch(records):
            return [records] if records else []
        begin, end = BeginTransactionRecord(f"{len(records)} records"), EndTransactionRecord()
        marked = (begin, *records, end)
        self._measured = marked, (encoded_bytes_max(begin), *self.sizes_max(records), encoded_bytes_max(end))
        return list(self.split(marked))

    def split(self, records: tuple[MetadataRecord, ...]) -> Iterator[tuple[MetadataRecord, ...]]:
        """Yields the records in order, as many in each part as may be; one too large for any batch stands alone."""
        records_max = self.records_max
        start = size_bytes = 0
        for index, record_bytes in enumerate(self.sizes_max(records)):
            is_full = index - start >= records_max
            if is_full or (index > start and size_bytes + record_bytes > self._max_bytes_per_batch):
                yield records[start:index]
                start, size_bytes = index, 0
            size_bytes += record_bytes
        yield records[start:]

    def skip_to(self, next_offset: int) -> None:
        """Moves the end of this controller's log to `next_offset`; from then on the state can go back to it.

        Raises:
            InvariantViolationError: The controller is not active, or the log would shrink.
        """
        self._written.move_to(next_offset)

    def take_back(self, base_offset: int) -> int:
        """Takes the state back to that of everything below `base_offset`: nothing from there on was appended.

        Args:
            base_offset: The offset at which a batch of this controller begins that has not committed.

        Returns:
            The end of what can still count: that offset, or the start of a transaction of which the rest is missing.
        """
        while self._transactions and self._transactions[-1].start_offset >= base_offset:
            self._transactions.pop()
        if self._transactions and (self._transactions[-1].end_offset or 0) > base_offset:
            self._transactions[-1].end_offset = None
        self._written.take_back(base_offset)
        return self._transactions[-1].start_offset if self.in_transaction else base_offset

    # ---- commits ----------------------------------------------------------------------------------------------------

    def commit(self, batch: CommittedRecords) -> None:
        """Takes in that a batch has committed; on a standby its records have just been replayed.

        Raises:
            InvariantViolationError: The batch does not follow the last one, or it ends where no own batch ended.
        """
        self.check_follows(batch.base_offset, batch.end_offset)
        end_offset = batch.end_offset
        is_active = self._written.next_offset is not None
        if is_active:
            self._take_own_ends(end_offset)
        self.committed_end_offset = end_offset
        stable_end_offset = self._stable_end()
        if stable_end_offset < end_offset:
            self._unstable.append(batch)
        else:
            self._unstable.clear()
            if not is_active:
                self._registry.get_or_create_snapshot(end_offset)
        if stable_end_offset != self.stable_end_offset:
            self.stable_end_offset = stable_end_offset
            self._registry.delete_snapshots_up_to(stable_end_offset)

    def check_follows(self, base_offset: int, end_offset: int) -> None:
        """Checks that [base_offset, end_offset) follows what is committed.

        Raises:
            InvariantViolationError: It does not.
        """
        if base_offset != self.committed_end_offset or end_offset < base_offset:
            raise InvariantViolationError(
                f"committed batch [{base_offset}, {end_offset}) does not follow {self.committed_end_offset}"
            )

    def _take_own_ends(self, end_offset: int) -> None:
        own_end = self._written.commit_up_to(end_offset)
        if end_offset != (self.committed_end_offset if own_end is None else own_end):
            raise InvariantViolationError(f"commit at {end_offset} is not the end of a batch of this controller")

    def _stable_end(self) -> int:
        committed = self.committed_end_offset
        while self._transactions:
            first = self._transactions[0]
            if first.end_offset is None or first.end_offset > committed:
                return min(first.start_offset, committed)
            self._transactions.popleft()
        return committed

    # ---- transactions, as they are replayed -------------------------------------------------------------------------

    def replay_begin(self, offset: int) -> None:
        """Begins a transaction: from `offset` on nothing counts.

        Raises:
            InvariantViolationError: It begins inside another transaction.
        """
        if self.in_transaction:
            raise InvariantViolationError(f"a transaction begins at {offset} inside another one")
        self._registry.get_or_create_snapshot(offset)
        self._transactions.append(_Transaction(offset))

    def replay_end(self, offset: int) -> None:
        """Ends the transaction: everything up to `offset` counts once that commits.

        Raises:
            InvariantViolationError: No transaction is open.
        """
        self._open_or_raise(offset).end_offset = offset + 1

    def replay_abort(self, offset: int) -> None:
        """Takes the state back to the Begin: nothing since then ever counts.

        Raises:
            InvariantViolationError: No transaction is open.
        """
        transaction = self._open_or_raise(offset)
        self._registry.revert_to_snapshot(transaction.start_offset)
        transaction.end_offset = offset + 1

    def _open_or_raise(self, offset: int) -> _Transaction:
        if not self.in_transaction:
            raise InvariantViolationError(f"a transaction ends at {offset} that never began")
        return self._transactions[-1]

    # ---- snapshots of the log ---------------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Forgets everything: the records of a snapshot are replayed next."""
        self._registry.reset()
        self._transactions.clear()
        self._unstable.clear()

    def end_load(self, end_offset: int) -> None:
        """Ends the replay of a snapshot: the state is that of everything below `end_offset`.

        Raises:
            InvariantViolationError: The snapshot holds half a transaction.
        """
        if self._transactions:
            raise InvariantViolationError(f"the snapshot at {end_offset} holds marks of a transaction")
        self._registry.get_or_create_snapshot(end_offset)
        self.committed_end_offset = self.stable_end_offset = end_offset
