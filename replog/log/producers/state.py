"""Producer state: recognises a batch that an idempotent producer sends again (docs/KAFKA.md 1.9, 4.1).

Why: a producer that got no answer retries, and the first try may be in the log.  Its batches carry (producer id, epoch,
first sequence); the last five of each producer are remembered, because at most five are unacknowledged at a time.

Worked example, producer 7, epoch 0, batches of one record::

    sequences 0 1 2 in the log
    1 again   -> duplicate of the batch at its offset; nothing is written
    3         -> accepted
    5         -> OutOfOrderSequenceError: 4 is missing
    epoch 1, sequence 0  -> accepted, the old epoch is fenced
    epoch 0, anything    -> InvalidProducerEpochError

A producer with a transaction open writes nothing outside of it.  Its first batch needs a guard (`guards`), which is the caller's
duty; nothing behind the first sequence that a guard knows is appended before that.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from replog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from replog.log.producers.guards import TransactionGuards
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.log.producers.undecided import UndecidedTransactions
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import BatchHeader

BATCHES_KEPT: Final = 5
NONE: Final = -1
_SEQUENCE_MODULUS: Final = 2**31


class ProducedBatch(Struct, frozen=True):
    """One batch of a producer that is in the log.  Offsets and sequences are inclusive; `timestamp` is its largest."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class TransactionMarker(Struct, frozen=True):
    """The end of a transaction, from a control batch at `offset`."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    timestamp: int
    offset: int
    is_commit: bool


class ProducerEntry:
    """The state of one producer.

    Attributes:
        producer_epoch: Its current epoch; batches of lower ones are refused.
        batches: The last batches of this epoch, at most five, oldest first.
        timestamp: Largest timestamp of its last batch or marker, ms.
        coordinator_epoch: Coordinator epoch of the last transaction marker, -1 none.
        current_transaction_first_offset: First offset of the open transaction, -1 none.
        last_seen_ms: Wall time of the last append, for forgetting idle producers.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_seen_ms",
        "producer_epoch",
        "timestamp",
    )

    def __init__(self, producer_epoch: int, now_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_KEPT)
        self.timestamp = NONE
        self.coordinator_epoch = NONE
        self.current_transaction_first_offset = NONE
        self.last_seen_ms = now_ms

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record of this epoch, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NONE

    def raise_epoch(self, producer_epoch: int) -> None:
        """Takes a higher epoch, with which a newer incarnation of the producer begins with no batches."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()


class ProducerStateManager:
    """The producers of one log.

    Invariants:
        - the state is that of the log up to its end: `update` is called for every batch appended, in order.

    Attributes:
        guards: The questions to coordinators whose batches are not in the log yet.
    """

    __slots__ = ("_producers", "_undecided", "guards")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._undecided = UndecidedTransactions()
        self.guards = TransactionGuards()

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id -> first offset of its open transaction, the earliest first.  Read only."""
        return self._undecided.open_transactions

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """Producer id -> its state.  Read only."""
        return self._producers

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Checks whether a data batch may be appended.  A batch of a coordinator has no sequence, and none is checked.

        Returns:
            The batch in the log that this one repeats, or None: append it.

        Raises:
            InvalidProducerEpochError: A newer incarnation of the producer has written.
            OutOfOrderSequenceError: A batch before this one is missing, or it is older than the five remembered.
            InvalidTxnStateError: The producer has a transaction open, and this batch is not part of it.
        """
        entry = self._producers.get(header.producer_id)
        if header.base_sequence >= 0:
            repeated = None if entry is None else _repeated(header, entry)
            if repeated is not None:
                return repeated
            if self.guards:
                self._check_guarded(header, entry)
        if entry is None:
            return None
        if header.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, epoch {entry.producer_epoch} "
                "has written since: this one is a zombie and must stop"
            )
        if header.base_sequence >= 0:
            _check_sequence(header, entry)
        if entry.current_transaction_first_offset != NONE and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has a transaction open from offset {entry.current_transaction_first_offset} "
                "on, and this batch is not part of it: end the transaction first"
            )
        return None

    def _check_guarded(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        """Checks a batch against the guard of its producer.

        Raises:
            OutOfOrderSequenceError: A batch before this one waits, or is to be sent again.
        """
        guard = self.guards.get(header.producer_id)
        if guard is None or header.producer_epoch != guard.producer_epoch:
            return
        lowest = guard.lowest_sequence
        if guard.bumps_epochs and (entry is None or not entry.batches):
            lowest = 0  # its epoch is of this transaction alone: it begins here
        if header.base_sequence > lowest:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
                f"{lowest} is to be appended first; the producer must not skip it"
            )

    def check_marker(self, marker: TransactionMarker, *, bumps_epochs: bool = False) -> None:
        """Checks whether the end of a transaction may be appended.  One that is there already is harmless.

        Args:
            marker: The marker.
            bumps_epochs: Whether its epoch has to be higher than that of the transaction's records
                (`transaction.version` 2).

        Raises:
            InvalidProducerEpochError: A newer incarnation of the producer has written, or this marker is of an earlier
                transaction than the one that is open.
            TransactionCoordinatorFencedError: A later coordinator has written a marker of the producer.
        """
        entry = self._producers.get(marker.producer_id)
        if entry is None:
            return
        is_open = entry.current_transaction_first_offset != NONE
        if marker.producer_epoch < entry.producer_epoch or (
            bumps_epochs and is_open and marker.producer_epoch == entry.producer_epoch
        ):
            raise InvalidProducerEpochError(
                f"a marker of producer {marker.producer_id} has epoch {marker.producer_epoch}, and its records have epoch "
                f"{entry.producer_epoch}: it is of an earlier transaction"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker of producer {marker.producer_id} comes from a coordinator of epoch {marker.coordinator_epoch}, "
                f"and one of epoch {entry.coordinator_epoch} has written since: this one must stop"
            )

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of a producer is open in the log, with this epoch."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.current_transaction_first_offset != NONE
            and entry.producer_epoch == producer_epoch
        )

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Notes a data batch that is in the log at `base_offset`; its sequence is not checked here."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif header.producer_epoch != entry.producer_epoch:
            entry.raise_epoch(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        if header.producer_epoch == entry.producer_epoch and header.base_sequence >= 0:
            entry.batches.append(
                ProducedBatch(
                    header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp
                )
            )
        entry.timestamp = header.max_timestamp
        entry.last_seen_ms = now_ms
        if header.is_transactional:
            self.guards.drop(header.producer_id)
            if entry.current_transaction_first_offset == NONE:
                entry.current_transaction_first_offset = base_offset
                self._undecided.begin(header.producer_id, base_offset)

    def update_marker(self, marker: TransactionMarker, now_ms: int) -> AbortedTransaction | None:
        """Notes the end of a transaction.

        Returns:
            The entry for the transaction index; None: the transaction was committed, or there was none.
        """
        entry = self._producers.get(marker.producer_id)
        if entry is None:
            entry = self._producers[marker.producer_id] = ProducerEntry(marker.producer_epoch, now_ms)
        entry.raise_epoch(marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.timestamp = marker.timestamp
        entry.current_transaction_first_offset = NONE
        entry.last_seen_ms = now_ms
        self.guards.note_marker(marker.producer_id, marker.producer_epoch)
        first_offset = self._undecided.end(marker.producer_id, marker.offset)
        if first_offset is None or marker.is_commit:
            return None
        first_open_offset = self._undecided.first_open_offset
        last_stable_offset = marker.offset + 1 if first_open_offset is None else first_open_offset
        return AbortedTransaction(marker.producer_id, first_offset, marker.offset, last_stable_offset)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Returns where the earliest transaction begins that is open, or whose end is not below the high watermark.

        None: there is no such transaction.

        Transactions that ended before a snapshot which the state came from count as ended (docs/KAFKA.md 4.1).
        """
        return self._undecided.first_unstable_offset(high_watermark)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers without an open transaction that have not written for `expiration_ms`.

        Time is when the broker saw them (or opened the log), not the time in their records: a producer of old events
        would lose its protection at once otherwise.
        """
        for producer_id, entry in list(self._producers.items()):
            if entry.current_transaction_first_offset == NONE and now_ms - entry.last_seen_ms >= expiration_ms:
                del self._producers[producer_id]
        self.guards.expire(now_ms, expiration_ms)

    def forget_batches_below(self, offset: int) -> None:
        """Forgets the batches below an offset, which another topic had: sequences begin anew; epochs stay."""
        for entry in self._producers.values():
            while entry.batches and entry.batches[0].base_offset < offset:
                entry.batches.popleft()

    def saved(self, producer_id: int) -> ProducerEntry | None:
        """Copies the state of one producer, for `restore`; None: it is unknown."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        saved = copy.copy(entry)
        saved.batches = entry.batches.copy()
        return saved

    def restore(self, saved: Mapping[int, ProducerEntry | None], end_offset: int) -> None:
        """Takes back every change to these producers since they were saved, when the log ended at `end_offset`."""
        firsts: dict[int, int | None] = {}
        for producer_id, entry in saved.items():
            firsts[producer_id] = None
            if entry is None:
                self._producers.pop(producer_id, None)
                continue
            self._producers[producer_id] = entry
            if entry.current_transaction_first_offset != NONE:
                firsts[producer_id] = entry.current_transaction_first_offset
        self._undecided.put_back(firsts, end_offset)

    def clear(self) -> None:
        """Forgets everything."""
        self.load_snapshot((), 0)

    def to_snapshot(self) -> list[ProducerSnapshotEntry]:
        """Returns the state as a snapshot file holds it: of each producer the last batch only."""
        return [_snapshot_entry(producer_id, entry) for producer_id, entry in self._producers.items()]

    def load_snapshot(self, entries: Iterable[ProducerSnapshotEntry], now_ms: int) -> None:
        """Replaces the state by a snapshot's."""
        self._producers = {entry.producer_id: _entry_from_snapshot(entry, now_ms) for entry in entries}
        self._undecided = UndecidedTransactions(
            (producer_id, entry.current_transaction_first_offset)
            for producer_id, entry in self._producers.items()
            if entry.current_transaction_first_offset != NONE
        )
        self.guards.clear()

    def deepen(self, tail: Iterable[BatchHeader]) -> None:
        """Fills in the batches before the last one, which snapshots leave out.

        Args:
            tail: Headers from the end of the log, in order, ending where the state ends.
        """
        found: dict[int, deque[ProducedBatch]] = {}
        for header in tail:
            entry = self._producers.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                continue
            found.setdefault(header.producer_id, deque(maxlen=BATCHES_KEPT)).append(
                ProducedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
        for producer_id, batches in found.items():
            entry = self._producers[producer_id]
            same_end = bool(entry.batches) and batches[-1].last_offset == entry.batches[-1].last_offset
            if same_end and len(batches) >= len(entry.batches):
                entry.batches = batches


def _repeated(header: BatchHeader, entry: ProducerEntry) -> ProducedBatch | None:
    """Returns the one of the producer's last batches in the log that a batch repeats; None: it repeats none."""
    if header.producer_epoch == entry.producer_epoch:
        for batch in entry.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
    return None


def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> None:
    """Checks that a batch is the next one of its producer.

    Raises:
        OutOfOrderSequenceError: It is not.
    """
    is_same_epoch = header.producer_epoch == entry.producer_epoch
    expected = (entry.last_sequence + 1) % _SEQUENCE_MODULUS if is_same_epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
            f"{expected} is next: batches between were lost or never sent; the producer must not skip them"
        )


def _snapshot_entry(producer_id: int, entry: ProducerEntry) -> ProducerSnapshotEntry:
    last = entry.batches[-1] if entry.batches else None
    return ProducerSnapshotEntry(
        producer_id,
        entry.producer_epoch,
        last.last_sequence if last else NONE,
        last.last_offset if last else NONE,
        last.last_offset - last.base_offset if last else 0,
        entry.timestamp,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )


def _entry_from_snapshot(snapshot: ProducerSnapshotEntry, now_ms: int) -> ProducerEntry:
    entry = ProducerEntry(snapshot.producer_epoch, now_ms)
    entry.timestamp = snapshot.timestamp
    entry.coordinator_epoch = snapshot.coordinator_epoch
    entry.current_transaction_first_offset = snapshot.current_transaction_first_offset
    if snapshot.last_offset >= 0:
        entry.batches.append(
            ProducedBatch(
                (snapshot.last_sequence - snapshot.offset_delta) % _SEQUENCE_MODULUS,
                snapshot.last_sequence,
                snapshot.last_offset - snapshot.offset_delta,
                snapshot.last_offset,
                snapshot.timestamp,
            )
        )
    return entry
