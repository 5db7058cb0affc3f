"""Appending: as the leader, who gives offsets, and as a follower, who takes what the leader stored.

Order inside one append: the epoch is durable in the cache, then the bytes are written, then index, producer and log end
offset move.  A crash in between leaves an epoch without records (cut on open) or a batch above the recovery point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from replog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvariantViolationError,
    RecordTooLargeError,
)
from replog.log.log_flushing import LogFlushing
from replog.log.producer_files import apply_batch, write_snapshot
from replog.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from replog.records import BatchHeader, Buffer, check_crc, parse_header, restamped_prefix, scan

_STAMPED_BYTES: Final = 16  # base offset, length, leader epoch: what the leader writes anew


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """What an append did.

    Attributes:
        base_offset: of the first record.
        last_offset: of the last one, inclusive.
        max_timestamp: largest record timestamp, ms; -1 none.
        duplicate: nothing was written; the offsets are those of the batch that this one repeats.
        log_start_offset: of the log.
        size_bytes: written to the log; 0 for a duplicate.
    """

    base_offset: int
    last_offset: int
    max_timestamp: int
    duplicate: bool
    log_start_offset: int
    size_bytes: int


class LogAppending(LogFlushing):
    """The part of a log that grows."""

    __slots__ = ()

    def append_as_leader(
        self, batch: Buffer, *, leader_epoch: int, now_ms: int, header: BatchHeader | None = None
    ) -> AppendInfo:
        """Appends one batch, giving it the next offsets and the leader's epoch.

        Args:
            batch: exactly one batch that passed `validate_produced`, or one of our own; not changed, not kept.
            leader_epoch: of this leader, at least the last one.
            now_ms: wall time.
            header: of `batch`, when the caller has it already.

        Returns:
            Where it is, or where the batch is that it repeats.

        Raises:
            OutOfOrderSequenceError, InvalidProducerEpochError: see `ProducerStateManager.check`.
            RecordTooLargeError: larger than a segment.
            StorageError: the disk failed, now or earlier.
        """
        self._check_available()
        if header is None:
            header = parse_header(batch)
        size_bytes = header.size_bytes
        if size_bytes != len(batch):
            raise InvalidRecordError(f"{len(batch)} bytes are not one batch of {size_bytes} bytes")
        if header.producer_id >= 0 and not header.is_control:
            original = self._producers.check(header)
            if original is not None:
                return AppendInfo(
                    original.base_offset,
                    original.last_offset,
                    original.timestamp,
                    duplicate=True,
                    log_start_offset=self._log_start_offset,
                    size_bytes=0,
                )
        if leader_epoch != self._last_epoch:
            self.assign_epoch_start(leader_epoch)
        if size_bytes > self._config.segment_bytes:
            raise RecordTooLargeError(
                f"batch of {size_bytes} bytes, segment.bytes is {self._config.segment_bytes}: send smaller batches"
            )
        base_offset = self._log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self._segment_for(base_offset, size_bytes, last_offset, header.max_timestamp, now_ms)
        try:
            prefix = restamped_prefix(batch, 0, base_offset, leader_epoch)
            segment.write((prefix, memoryview(batch)[_STAMPED_BYTES:]))
        except OSError as error:
            self._fail("an append failed", error)
        segment.note_batch(size_bytes, last_offset, header.max_timestamp)
        if header.producer_id >= 0:
            apply_batch(self._producers, header, batch, base_offset, now_ms)
        self._touched = True
        self._wall_ms = now_ms
        self._log_end_offset = last_offset + 1
        return AppendInfo(
            base_offset,
            last_offset,
            header.max_timestamp,
            duplicate=False,
            log_start_offset=self._log_start_offset,
            size_bytes=size_bytes,
        )

    def append_as_follower(self, batches: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Appends batches exactly as the leader stored them.

        Args:
            batches: whole batches; a torn last one is dropped.  Not changed, not kept.
            now_ms: wall time.
            leader_epoch: epoch of the leader they were fetched from: a batch of a higher one is left out with everything
                after it (kafka-reference 4.1).

        Returns:
            None when nothing was appended.

        Raises:
            CorruptRecordError: a checksum, offset or epoch cannot be right; nothing was appended, fetch again.
            StorageError: the disk failed, now or earlier.
        """
        self._check_available()
        headers = self._check_replicated(batches, leader_epoch)
        if not headers:
            return None
        self._assign_epochs(_epoch_starts(headers))
        try:
            self._write_replicated(batches, headers, now_ms)
        except OSError as error:
            self._fail("an append failed", error)
        return AppendInfo(
            headers[0].base_offset,
            headers[-1].last_offset,
            max(header.max_timestamp for header in headers),
            duplicate=False,
            log_start_offset=self._log_start_offset,
            size_bytes=headers[-1].end_position - headers[0].position,
        )

    def assign_epoch_start(self, epoch: int) -> None:
        """A leader begins: `epoch` starts at the log end.  Durable when it returns.

        Raises:
            InvariantViolationError: a later epoch has written here.
        """
        self._check_available()
        if self._last_epoch is not None and epoch < self._last_epoch:
            raise InvariantViolationError(
                f"{self._topic_partition}: leader epoch {epoch} after epoch {self._last_epoch} in the same log"
            )
        self._assign_epochs([(epoch, self._log_end_offset)])

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is empty."""
        self._check_available()
        if self._segments.active.size_bytes:
            self._roll(self._log_end_offset, now_ms)

    def maybe_roll(self, now_ms: int) -> None:
        """Begins a new segment when the active one is due by size or age, without waiting for the next append."""
        self._check_available()
        if self._segments.active.should_roll(self._config, 0, self._log_end_offset, now_ms, now_ms):
            self.roll(now_ms)

    def _segment_for(
        self, base_offset: int, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment:
        segment = self._segments.active
        if segment.should_roll(self._config, batch_bytes, last_offset, max_timestamp, now_ms):
            self._roll_before(base_offset, last_offset, now_ms)
            segment = self._segments.active
        return segment

    def _roll_before(self, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Begins a new segment at the log end, so that recovery can tell a hole from a gap.

        Only a gap too wide for relative offsets moves the base up; what is before it is flushed first.
        """
        if last_offset - self._log_end_offset <= RELATIVE_OFFSET_MAX:
            self._roll(self._log_end_offset, now_ms)
            return
        self.flush()
        self._roll(base_offset, now_ms)

    def _check_replicated(self, batches: Buffer, leader_epoch: int | None) -> list[BatchHeader]:
        expected_offset = self._log_end_offset
        epoch = self._epochs.epoch_for_offset(expected_offset - 1)
        headers: list[BatchHeader] = []
        for header in scan(batches):
            batch_epoch = header.partition_leader_epoch
            if leader_epoch is not None and batch_epoch > leader_epoch:
                break
            check_crc(batches, header)
            if header.base_offset < expected_offset:
                reason = f"{self._topic_partition}: offset {header.base_offset} where {expected_offset} was expected"
                raise CorruptRecordError("", header.position, reason)
            if epoch is not None and 0 <= batch_epoch < epoch:
                reason = f"{self._topic_partition}: leader epoch {batch_epoch} after epoch {epoch}"
                raise CorruptRecordError("", header.position, reason)
            epoch, expected_offset = batch_epoch, header.next_offset
            headers.append(header)
        return headers

    def _write_replicated(self, batches: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """One write for all batches where they fit into the segment, else one for each."""
        view = memoryview(batches)
        size_bytes = headers[-1].end_position - headers[0].position
        max_timestamp = max(header.max_timestamp for header in headers)
        rolls = self._segments.active.should_roll(
            self._config, size_bytes, headers[-1].last_offset, max_timestamp, now_ms
        )
        self._wall_ms = now_ms
        groups: Sequence[Sequence[BatchHeader]]
        groups = [[header] for header in headers] if rolls or size_bytes > self._config.segment_bytes else [headers]
        for group in groups:
            first, last = group[0], group[-1]
            bytes_in_group = last.end_position - first.position
            segment = self._segment_for(
                first.base_offset, bytes_in_group, last.last_offset, max(h.max_timestamp for h in group), now_ms
            )
            segment.write((view[first.position : last.end_position],))
            self._touched = True
            for header in group:
                segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
                if header.producer_id >= 0:
                    batch = view[header.position : header.end_position]
                    apply_batch(self._producers, header, batch, header.base_offset, now_ms)
            self._log_end_offset = last.next_offset

    def _assign_epochs(self, starts: Sequence[tuple[int, int]]) -> None:
        if len(starts) == 1 and starts[0][0] == self._last_epoch:
            return
        try:
            self._epochs.assign_all(starts)
        except OSError as error:
            self._fail("the leader-epoch checkpoint cannot be written", error)
        self._last_epoch = self._epochs.latest_epoch

    def _roll(self, base_offset: int, now_ms: int) -> None:
        sealed = self._segments.active
        self._producers.expire(now_ms, self._config.producer_id_expiration_ms)
        try:
            self._unsynced += sealed.write_indexes()
            sealed.drop_indexes()
            self._unsynced.append(write_snapshot(self._fs, self._directory, base_offset, self._producers))
            self._segments.append(LogSegment.create(self._fs, self._directory, base_offset, self._config, now_ms))
        except OSError as error:
            self._fail("a new segment cannot be created", error)
        self._directory_changes += 1
        self._touched = True


def _epoch_starts(headers: Sequence[BatchHeader]) -> list[tuple[int, int]]:
    """(epoch, base offset) of the first batch of each epoch; batches from before leader epochs have none."""
    starts: dict[int, int] = {}
    for header in headers:
        if header.partition_leader_epoch >= 0:
            starts.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(starts.items())
