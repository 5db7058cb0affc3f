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
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from replog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import BatchHeader

BATCHES_KEPT: Final = 5
_ENDED_MAX: Final = 1000
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
    """

    __slots__ = ("_ended", "_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._ended: list[tuple[int, int]] = []  # (first offset, offset of the marker), by marker

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """Producer id -> its state.  Read only."""
        return self._producers

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Checks whether a client's batch may be appended.

        Returns:
            The batch in the log that this one repeats, or None: append it.

        Raises:
            InvalidProducerEpochError: A newer incarnation of the producer has written.
            OutOfOrderSequenceError: A batch before this one is missing, or it is older than the five remembered.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch == entry.producer_epoch:
            for batch in entry.batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                    return batch
            expected = (entry.last_sequence + 1) % _SEQUENCE_MODULUS
        elif header.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, epoch {entry.producer_epoch} "
                "has written since: this one is a zombie and must stop"
            )
        else:
            expected = 0
        if header.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
                f"{expected} is next: batches between were lost or never sent; the producer must not skip them"
            )
        return None

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
        if header.is_transactional and entry.current_transaction_first_offset == NONE:
            entry.current_transaction_first_offset = base_offset
            self._open[header.producer_id] = base_offset

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
        first_offset = self._open.pop(marker.producer_id, None)
        if first_offset is None:
            return None
        self._note_ended(first_offset, marker.offset)
        if marker.is_commit:
            return None
        last_stable_offset = min(self._open.values(), default=marker.offset + 1)
        return AbortedTransaction(marker.producer_id, first_offset, marker.offset, last_stable_offset)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Returns where the earliest transaction begins that is open, or whose end is not below the high watermark.

        None: there is no such transaction.

        Transactions that ended before a snapshot which the state came from count as ended (docs/KAFKA.md 4.1).
        """
        while self._ended and self._ended[0][1] < high_watermark:
            del self._ended[0]
        firsts = [*self._open.values(), *(first_offset for first_offset, _ in self._ended)]
        return min(firsts, default=None)

    def is_in_open_transaction(self, producer_id: int, offset: int) -> bool:
        """Whether a record that a producer wrote at an offset belongs to a transaction that has not ended."""
        first_offset = self._open.get(producer_id)
        return first_offset is not None and offset >= first_offset

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers without an open transaction that have not written for `expiration_ms`.

        Time is when the broker saw them (or opened the log), not the time in their records: a producer of old events
        would lose its protection at once otherwise.
        """
        for producer_id, entry in list(self._producers.items()):
            if entry.current_transaction_first_offset == NONE and now_ms - entry.last_seen_ms >= expiration_ms:
                del self._producers[producer_id]

    def saved(self, producer_id: int) -> ProducerEntry | None:
        """Copies the state of one producer, for `restore`; None: it is unknown."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        saved = copy.copy(entry)
        saved.batches = entry.batches.copy()
        return saved

    def restore(self, saved: Mapping[int, ProducerEntry | None]) -> None:
        """Takes back every change to these producers since they were saved."""
        for producer_id, entry in saved.items():
            self._open.pop(producer_id, None)
            if entry is None:
                self._producers.pop(producer_id, None)
                continue
            self._producers[producer_id] = entry
            if entry.current_transaction_first_offset != NONE:
                self._open[producer_id] = entry.current_transaction_first_offset

    def clear(self) -> None:
        """Forgets everything."""
        self.load_snapshot((), 0)

    def to_snapshot(self) -> list[ProducerSnapshotEntry]:
        """Returns the state as a snapshot file holds it: of each producer the last batch only."""
        return [_snapshot_entry(producer_id, entry) for producer_id, entry in self._producers.items()]

    def load_snapshot(self, entries: Iterable[ProducerSnapshotEntry], now_ms: int) -> None:
        """Replaces the state by a snapshot's."""
        self._producers = {entry.producer_id: _entry_from_snapshot(entry, now_ms) for entry in entries}
        self._open = {
            producer_id: entry.current_transaction_first_offset
            for producer_id, entry in self._producers.items()
            if entry.current_transaction_first_offset != NONE
        }
        self._ended = []

    def _note_ended(self, first_offset: int, marker_offset: int) -> None:
        """Remembers a transaction that has ended, of a bounded number.

        If very many were not asked for, the oldest two become one, which errs on the safe side.
        """
        self._ended.append((first_offset, marker_offset))
        if len(self._ended) > _ENDED_MAX:
            (first, _), (second, last) = self._ended[:2]
            self._ended[:2] = [(min(first, second), last)]

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
