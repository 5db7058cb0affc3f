"""Reads the log of a led partition for its shard, in pieces that are short enough to be replayed in one step.

What is in the page cache is read at once, the rest by the threads for cold reads.  Batches are decoded whole, and what a
piece has no room for is kept for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.coordinator.records import EncodedRecord
from replog.coordinator.runtime.messages import LogRead, ReadFailed, ReadLog
from replog.errors import (
    BrokerClosedError,
    CorruptRecordError,
    DiskFullError,
    OffsetOutOfRangeError,
    ReplogError,
    StorageError,
)
from replog.log import Log, ReadJob
from replog.records import BatchHeader, check_crc, decode_records, scan
from replog.records.header import CONTROL_BIT, TRANSACTIONAL_BIT

PIECE_RECORDS: Final = 500
"""Records of one piece: some milliseconds."""

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
        self._rest: Iterator[tuple[int, EncodedRecord]] = iter(())
        self._first: tuple[int, EncodedRecord] | None = None  # of the rest
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
            found, next_offset = committed_records(self._replica.log, data, asked.offset, asked.end_offset)
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
        piece = [] if self._first is None else [self._first, *islice(self._rest, PIECE_RECORDS - 1)]
        self._first = next(self._rest, None)
        next_offset = self._rest_end_offset if self._first is None else self._first[0]
        return LogRead(asked.epoch, asked.offset, tuple(piece), next_offset)


def committed_records(
    log: Log, data: bytes, start_offset: int, end_offset: int
) -> tuple[Sequence[tuple[int, EncodedRecord]], int]:
    """Returns the records of whole batches, and where the next batch begins.

    Left out are control records, and those of transactions that were aborted or have not ended.

    Args:
        log: The log that they are of.
        data: The batches.
        start_offset: The first offset that is wanted.
        end_offset: The end (exclusive) of the offsets that are wanted.

    Raises:
        ReplogError: The batches, or what the log knows of transactions, cannot be read.
    """
    found: list[tuple[int, EncodedRecord]] = []
    next_offset = start_offset
    for header in scan(data):
        next_offset = header.next_offset
        if header.attributes & CONTROL_BIT or _is_undone(log, header):
            check_crc(data, header)  # a wrong attribute, or producer, would hide records
            continue
        batch = memoryview(data)[header.position : header.end_position]
        try:
            decoded = decode_records(batch, start_offset=start_offset, end_offset=end_offset)
        except CorruptRecordError as error:  # which counts from the batch
            raise CorruptRecordError("", header.position, error.reason) from error
        found += [(each.offset, (each.key or b"", each.value)) for each in decoded]
    return found, next_offset


def _is_undone(log: Log, header: BatchHeader) -> bool:
    """Whether a batch belongs to a transaction that was aborted, or that has not ended.

    The last stable offset does not say it: behind the first transaction that is open are others that have ended.
    """
    if not header.attributes & TRANSACTIONAL_BIT:
        return False
    if log.producers.is_in_open_transaction(header.producer_id, header.base_offset):
        return True
    return any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in log.aborted_transactions(header.base_offset, header.next_offset)
    )
