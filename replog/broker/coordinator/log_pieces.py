"""Reads the log of a led partition for its shard, in pieces that are short enough to be replayed in one step.

What is in the page cache is read at once, the rest by the threads for cold reads.  Batches are decoded whole, and what a
piece has no room for is kept for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.coordinator.runtime.messages import LogRead, ReadFailed, ReadLog
from replog.coordinator.runtime.transactions import (
    EndMarker,
    LogEntry,
    LoggedMarker,
    TransactionalRecord,
    TransactionWriter,
)
from replog.errors import (
    BrokerClosedError,
    CorruptRecordError,
    DiskFullError,
    OffsetOutOfRangeError,
    ReplogError,
    StorageError,
)
from replog.log import ReadJob
from replog.records import (
    BatchHeader,
    ControlRecordType,
    Record,
    control_record_type,
    decode_batch,
    decode_coordinator_epoch,
    decode_records,
    scan,
)

PIECE_RECORDS: Final = 500
"""Records of one piece: some milliseconds."""

PIECE_BYTES: Final = 128 << 10
"""Bytes of keys and values of one piece, unless one record has more: a member of 10,000 topics has a quarter of a megabyte in each of
its records, which take ten milliseconds."""

READ_BYTES: Final = 64 << 10
"""Bytes that are read and decoded at a time, unless one batch has more."""

Told = LogRead | ReadFailed


class LogPieces:
    """Reads one log for one leadership.  Runs on the replica driver.

    Args:
        stepper: The stepper of this broker's replicas.
        replica: The replica that leads.
    """

    def __init__(self, stepper: ReplicaStepper, replica: Replica) -> None:
        self._stepper = stepper
        self._replica = replica
        self._rest: Iterator[LogEntry] = iter(())
        self._first: LogEntry | None = None  # of the rest
        self._rest_end_offset = -1

    def read(self, asked: ReadLog, done: Callable[[Told | None], None]) -> None:
        """Reads a piece.

        Args:
            asked: The piece that the shard has asked for.
            done: The function that is called with the answer, now or when the disk has brought it; with None where the disk
                has no time or no descriptor for it just now.
        """
        if self._first is not None:
            done(self._taken(asked))
            return
        try:
            data = self._replica.log.read_cached(
                asked.offset, max_bytes=READ_BYTES, end_offset=asked.end_offset, min_one_batch=True
            )
            if data is None:
                self._read_cold(asked, done)
                return
        except ReplogError as error:
            done(self._failed(asked, error))
            return
        done(self._decoded(asked, data))

    def _read_cold(self, asked: ReadLog, done: Callable[[Told | None], None]) -> None:
        if self._stepper.cold_reads.is_full:
            done(None)
            return
        log = self._replica.log
        job = log.prepare_read(asked.offset, max_bytes=READ_BYTES, end_offset=asked.end_offset, min_one_batch=True)
        self._stepper.cold_reads.start(log, job, lambda job: done(self._completed(asked, job)))

    def _completed(self, asked: ReadLog, job: ReadJob) -> Told | None:
        try:
            data = self._replica.log.complete_read(job)
        except ReplogError as error:
            return self._failed(asked, error)
        return None if data is None else self._decoded(asked, data)

    def _failed(self, asked: ReadLog, error: ReplogError) -> Told | None:
        """Returns what the shard is told of an error; None where the read is to be tried again, or nobody waits for it."""
        if isinstance(error, OffsetOutOfRangeError):  # records were deleted while the log was being read
            start_offset = self._replica.log.log_start_offset
            if asked.offset < start_offset:
                return LogRead(asked.epoch, asked.offset, (), min(start_offset, asked.end_offset))
        if isinstance(error, DiskFullError):
            return None
        if isinstance(error, StorageError):
            self._stepper.trouble.storage_failed(self._replica, error)  # which ends the leadership
        return None if isinstance(error, BrokerClosedError) else ReadFailed(asked.epoch, error)

    # ---- records ------------------------------------------------------------------------------------------------------

    def _decoded(self, asked: ReadLog, data: bytes) -> Told | None:
        if not data:  # compaction has left nothing up to the end
            return LogRead(asked.epoch, asked.offset, (), asked.end_offset)
        try:
            found, next_offset = log_entries(data, asked.offset, asked.end_offset)
        except CorruptRecordError as error:
            return self._failed(asked, self._replica.log.located(data, error))
        except ReplogError as error:
            return self._failed(asked, error)
        self._rest = iter(found)
        self._first = next(self._rest, None)
        self._rest_end_offset = min(next_offset, asked.end_offset)
        return self._taken(asked)

    def _taken(self, asked: ReadLog) -> LogRead:
        """Returns the next piece of what has been decoded."""
        piece: list[LogEntry] = []
        left = PIECE_BYTES
        while self._first is not None and len(piece) < PIECE_RECORDS and left > 0:
            piece.append(self._first)
            left -= _bytes_of(self._first)
            self._first = next(self._rest, None)
        next_offset = self._rest_end_offset if self._first is None else self._first[0]
        return LogRead(asked.epoch, asked.offset, tuple(piece), next_offset)


def _bytes_of(entry: LogEntry) -> int:
    """Returns the bytes of the key and the value of a record; 0 of a marker."""
    if isinstance(entry, LoggedMarker):
        return 0
    key, value = entry[1]
    return len(key) + len(value or b"")


def log_entries(data: bytes, start_offset: int, end_offset: int) -> tuple[Sequence[LogEntry], int]:
    """Returns the records and markers of whole batches, and where the next batch begins.

    Records of transactions are among them, whatever has become of those: the markers say it.

    Args:
        data: The batches.
        start_offset: The first offset that is wanted.
        end_offset: The end (exclusive) of the offsets that are wanted.

    Raises:
        ReplogError: The batches cannot be read.
    """
    found: list[LogEntry] = []
    next_offset = start_offset
    for header in scan(data):
        next_offset = header.next_offset
        try:
            found += _entries(header, memoryview(data)[header.position : header.end_position], start_offset, end_offset)
        except CorruptRecordError as error:  # which counts from the batch
            raise CorruptRecordError("", header.position, error.reason) from error
    return found, next_offset


def _entries(header: BatchHeader, batch: memoryview, start_offset: int, end_offset: int) -> Iterator[LogEntry]:
    if header.is_control:
        wanted = (each for each in decode_batch(batch) if start_offset <= each.offset < end_offset)
        return (LoggedMarker(each.offset, found) for each in wanted if (found := _marker(header, each)) is not None)
    decoded = decode_records(batch, start_offset=start_offset, end_offset=end_offset)
    if header.is_transactional:
        writer = TransactionWriter(header.producer_id, header.producer_epoch)
        return (TransactionalRecord(each.offset, (each.key or b"", each.value), writer) for each in decoded)
    return ((each.offset, (each.key or b"", each.value)) for each in decoded)


def _marker(header: BatchHeader, record: Record) -> EndMarker | None:
    """Returns the end of a transaction; None for control records of other kinds."""
    kind = control_record_type(record)
    if kind not in {ControlRecordType.COMMIT, ControlRecordType.ABORT}:
        return None
    is_commit = kind is ControlRecordType.COMMIT
    return EndMarker(header.producer_id, header.producer_epoch, decode_coordinator_epoch(record), is_commit)
