"""Hands what is committed to the node, in order: a snapshot first, then batch after batch.

A leader's own records are kept from their append to their commit, so that they need not be read back and decoded.  A long
row of batches is handed over in pieces, between which the loop does other things.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from replog.broker.quorum.metadata_log import MetadataLog
from replog.controller.messages import CommittedRecords
from replog.errors import CorruptRecordError, InvariantViolationError
from replog.log.snapshots.files import SnapshotId
from replog.metadata.records import MetadataRecord
from replog.records import BatchHeader, check_crc, decode_batch, scan
from replog.rpc.metadata_records import decode_metadata_record

PIECE_BYTES = 8 << 10
"""Of the log that are handed over at a time, and at least one batch: some milliseconds of work."""

RECORDS_TOGETHER = 1_000
"""Kept records after which the next are handed over later."""

DECODED_TOGETHER = 500
"""Records that are decoded in one go: some milliseconds.  One batch may have ten thousand: a topic that is created."""

KEPT_RECORDS_MAX = 50_000


class LoadedSnapshot(Struct, frozen=True):
    """The state at `end_offset`; `records` can be taken once more with each call of `replay`."""

    snapshot_id: SnapshotId
    replay: Callable[[], Iterator[MetadataRecord]]


class CommitListener(Protocol):
    """Who follows the metadata log; called on the loop, must not block."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Takes a snapshot, which replaces everything before it."""
        ...

    def on_committed(self, batch: CommittedRecords) -> None: ...

    def on_caught_up(self, high_watermark: int) -> None:
        """Learns that all committed batches known so far have been handed over."""
        ...


class _Kept(Struct, frozen=True):
    base_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]
    size_bytes: int
    timestamp_ms: int


class _Reading:
    """A batch that is being decoded, some records at a time."""

    def __init__(self, data: bytes, header: BatchHeader) -> None:
        self.header = header
        if header.is_control:
            check_crc(data, header)  # a wrong attribute would hide records
        self._encoded = iter([]) if header.is_control else iter(decode_batch(data, header.position))
        self._records: list[MetadataRecord] = []

    def read_on(self) -> CommittedRecords | None:
        """Decodes `DECODED_TOGETHER` more; the batch when that were the last ones."""
        some = list(itertools.islice(self._encoded, DECODED_TOGETHER))
        self._records += [decode_metadata_record(record.value, offset=record.offset) for record in some]
        if len(some) == DECODED_TOGETHER:
            return None
        header = self.header
        return CommittedRecords(
            header.base_offset, header.last_offset + 1, header.partition_leader_epoch, tuple(self._records)
        )


class CommittedLog:
    """The committed part of a metadata log, as far as it has been handed over.

    Invariants:
        - every offset below `applied` has been handed over, in a snapshot or in a batch, and none twice.

    Attributes:
        applied: The end (exclusive) of what has been handed over.
        applied_timestamp_ms: The largest timestamp in what has been handed over.
        applied_bytes: The bytes of the records handed over, about, since this object was made.
    """

    def __init__(self, log: MetadataLog, listener: CommitListener) -> None:
        self._log = log
        self._listener = listener
        self._high_watermark = -1
        self._kept: deque[_Kept] = deque()
        self._kept_count = 0
        self._reading: _Reading | None = None
        self.applied = log.log_start_offset
        self.applied_timestamp_ms = -1
        self.applied_bytes = 0

    @property
    def is_behind(self) -> bool:
        """Whether something committed has not been handed over."""
        return self.applied < self._high_watermark

    def load(self, snapshot_id: SnapshotId) -> None:
        """Starts from a snapshot."""
        self.forget_kept()
        self._reading = None
        self.applied = snapshot_id.end_offset
        self._high_watermark = max(self._high_watermark, snapshot_id.end_offset)
        self.applied_timestamp_ms = self._log.snapshots.context(snapshot_id).last_contained_timestamp_ms
        self._listener.on_snapshot(LoadedSnapshot(snapshot_id, lambda: self._records_of(snapshot_id)))

    def keep(
        self, base_offset: int, epoch: int, records: Sequence[MetadataRecord], *, size_bytes: int, timestamp_ms: int
    ) -> None:
        """Keeps records of this node's own that are being appended, until they commit.

        Where all that are kept would be too many, all are dropped and will be read back from the log.
        """
        if self._kept_count + len(records) > KEPT_RECORDS_MAX:
            self.forget_kept()
            return
        self._kept.append(_Kept(base_offset, epoch, tuple(records), size_bytes, timestamp_ms))
        self._kept_count += len(records)

    def forget_kept(self) -> None:
        """Drops all kept records, which may not commit, or not be the next ones: what commits is read from the log."""
        self._kept.clear()
        self._kept_count = 0

    def advance(self, high_watermark: int) -> None:
        """Notes that everything below `high_watermark` is committed, and hands over the next piece."""
        self._high_watermark = high_watermark
        self.hand_over()

    def hand_over(self) -> None:
        """Hands over the next piece, if there is one; tells the listener when nothing is left.

        Raises:
            CorruptRecordError: A batch is damaged.
            InvariantViolationError: Committed records are missing from the log, or contradict what came before.
        """
        if self.is_behind and not self._hand_over_kept():
            self._hand_over_read()
        if not self.is_behind:
            self._listener.on_caught_up(self._high_watermark)

    def _hand_over_kept(self) -> bool:
        """Hands over kept records that are committed, if they are the next ones, as many as make a piece; returns whether they were."""
        while self._kept and self._kept[0].base_offset < self.applied:
            self._take_kept()
        count = 0
        while (
            count < RECORDS_TOGETHER and self._kept and self._kept[0].base_offset == self.applied < self._high_watermark
        ):
            kept = self._take_kept()
            end_offset = kept.base_offset + len(kept.records)
            if end_offset > self._high_watermark:
                raise InvariantViolationError(
                    f"the high watermark {self._high_watermark} lies within the records [{kept.base_offset}, {end_offset})"
                )
            self.applied_bytes += kept.size_bytes
            self.applied_timestamp_ms = max(self.applied_timestamp_ms, kept.timestamp_ms)
            self._hand(CommittedRecords(kept.base_offset, end_offset, kept.epoch, kept.records))
            count += len(kept.records)
        return count > 0

    def _take_kept(self) -> _Kept:
        kept = self._kept.popleft()
        self._kept_count -= len(kept.records)
        return kept

    def _hand_over_read(self) -> None:
        """Reads a piece of the log and hands its batches over; a large one over several calls, whole at the last."""
        if self._reading is not None and self._reading.header.base_offset == self.applied:
            self._read_on(self._reading)
            return
        data = self._log.read(self.applied, max_bytes=PIECE_BYTES, end_offset=self._high_watermark)
        if not data:
            raise InvariantViolationError(f"committed metadata at {self.applied} is missing from the log")
        for header in scan(data):
            if header.last_offset < self.applied:
                continue
            try:
                reading = _Reading(data, header)
            except CorruptRecordError as error:
                raise self._log.log.located(data, error) from error
            if not self._read_on(reading):
                return

    def _read_on(self, reading: _Reading) -> bool:
        """Hands a batch over if all its records are decoded then; whether they are."""
        batch = reading.read_on()
        self._reading = reading if batch is None else None
        if batch is not None:
            header = reading.header
            self.applied_bytes += header.size_bytes
            self.applied_timestamp_ms = max(self.applied_timestamp_ms, header.max_timestamp)
            self._hand(batch)
        return batch is not None

    def _hand(self, batch: CommittedRecords) -> None:
        self.applied = batch.end_offset
        self._listener.on_committed(batch)

    def _records_of(self, snapshot_id: SnapshotId) -> Iterator[MetadataRecord]:
        for offset, value in self._log.snapshot_values(snapshot_id):
            yield decode_metadata_record(value, offset=offset)
