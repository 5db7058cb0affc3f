"""Appending as a follower, which takes batches exactly as the leader stored them.

Order inside one append: the epochs are durable in the cache, then the bytes are written, then index, producer and log end
offset move.  A crash in between leaves an epoch without records (cut on open) or a batch above the recovery point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from replog.errors import CorruptRecordError, DiskFullError, InvalidRecordError
from replog.log.active_segment import ActiveSegment
from replog.log.append_group import AppendInfo
from replog.log.disk_space import disk_full, is_disk_full
from replog.log.producers.files import apply_batch, parse_marker
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH
from replog.log.state import LogState
from replog.log.truncator import Truncator
from replog.records import BatchHeader, Buffer, check_crc, describe_epoch, scan


class MisfitRecordsError(CorruptRecordError):
    """The first batch that came from a leader is whole, and cannot stand behind the last one here."""

    def __init__(self, reason: str) -> None:
        super().__init__("", 0, reason)


class FollowerAppender:
    """Appends batches that were fetched from a leader.

    Args:
        state: The state of the log.
        active: The active segment of the log.
        truncator: The truncator, which empties the log if its first batch begins below its start.
    """

    __slots__ = ("_active", "_state", "_truncator")

    def __init__(self, state: LogState, active: ActiveSegment, truncator: Truncator) -> None:
        self._state = state
        self._active = active
        self._truncator = truncator

    def append(self, batches: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Appends batches exactly as the leader stored them.

        An empty log takes a first batch that begins below its start, too (KAFKA.md 4.5): records were deleted up to
        a place inside of it.  The log's start stays there.

        Args:
            batches: Whole batches; a torn last one is dropped.  Not changed, not kept.
            now_ms: Wall time.
            leader_epoch: The epoch of the leader they were fetched from: a batch of a higher one is left out with
                everything after it (docs/KAFKA.md 4.1).

        Returns:
            None when nothing was appended.

        Raises:
            MisfitRecordsError: The first batch overlaps the last one here, or is of an earlier epoch; nothing was
                appended.  Where it comes again, the two logs are not of one partition.
            CorruptRecordError: A checksum, offset or epoch cannot be right; nothing was appended, fetch again.
            DiskFullError: There is no room; the first batches may have been appended, see the log end.
            StorageError: The disk failed, now or earlier.
        """
        state = self._state
        state.guard.check()
        begin = self._begin_of_straddling(batches)
        headers = self._check(batches, leader_epoch, state.log_end_offset if begin is None else begin)
        if not headers:
            return None
        if state.admission is not None:
            state.admission(headers[-1].end_position - headers[0].position)
        if begin is None:
            return self._append(batches, headers, now_ms)
        return self._append_from(begin, batches, headers, now_ms)

    def _append_from(self, begin: int, batches: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> AppendInfo:
        """Appends to an empty log from `begin` on, which lies below its start; the start stays.

        If no batch finds room the log ends where it ended before: the high watermark that a follower knows must not lie above
        its end.
        """
        state = self._state
        log_start_offset = state.log_start_offset
        try:
            self._truncator.truncate_fully_and_start_at(begin)
            info = self._append(batches, headers, now_ms)
        except DiskFullError:
            with contextlib.suppress(DiskFullError):
                self._restore_start(begin, log_start_offset)
            raise
        state.raise_log_start(min(log_start_offset, state.log_end_offset))
        return info._replace(log_start_offset=state.log_start_offset)

    def _restore_start(self, begin: int, log_start_offset: int) -> None:
        if self._state.log_end_offset == begin:
            self._truncator.truncate_fully_and_start_at(log_start_offset)
        else:  # nothing was cut, or the first batches were appended
            self._state.raise_log_start(log_start_offset)

    def _begin_of_straddling(self, batches: Buffer) -> int | None:
        """Returns where the first batch begins, if this log is empty and stands inside of it."""
        log_end_offset = self._state.log_end_offset
        if self._state.log_start_offset < log_end_offset:
            return None
        for first in scan(batches):
            return first.base_offset if first.base_offset < log_end_offset <= first.last_offset else None
        return None

    def _append(self, batches: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> AppendInfo:
        state = self._state
        size_bytes = headers[-1].end_position - headers[0].position
        max_timestamp = max(header.max_timestamp for header in headers)
        self._note_gaps(headers)
        self._write(batches, headers, max_timestamp, now_ms)
        return AppendInfo(
            headers[0].base_offset,
            headers[-1].last_offset,
            max_timestamp,
            duplicate=False,
            log_start_offset=state.log_start_offset,
            size_bytes=size_bytes,
        )

    def _check(self, batches: Buffer, leader_epoch: int | None, expected_offset: int) -> list[BatchHeader]:
        """Returns the headers of the batches to append, which the log can take at `expected_offset`."""
        topic_partition = self._state.topic_partition
        epoch = self._state.epochs.epoch_for_offset(expected_offset - 1)
        epoch = UNKNOWN_EPOCH if epoch is None else epoch
        headers: list[BatchHeader] = []
        for header in scan(batches):
            batch_epoch = header.partition_leader_epoch
            if leader_epoch is not None and batch_epoch > leader_epoch:
                break
            check_crc(batches, header)
            if not headers:
                _check_fit(header, expected_offset, epoch)
            if header.base_offset < expected_offset:
                reason = f"{topic_partition}: offset {header.base_offset} where {expected_offset} was expected"
                raise CorruptRecordError("", header.position, reason)
            wrong_epoch = describe_epoch(batch_epoch, epoch)
            if wrong_epoch is not None:
                raise CorruptRecordError("", header.position, f"{topic_partition}: {wrong_epoch}")
            if header.is_control and header.producer_id >= 0:  # after the write it would be too late to refuse it
                _check_marker(batches, header)
            epoch, expected_offset = max(epoch, batch_epoch), header.next_offset
            headers.append(header)
        return headers

    def _note_gaps(self, headers: Sequence[BatchHeader]) -> None:
        """Withdraws the claim before batches that leave out offsets, as compaction at the leader does."""
        state = self._state
        if state.complete.offset is None:
            return
        expected_offset = state.log_end_offset
        for header in headers:
            if header.base_offset > expected_offset:
                try:
                    state.complete.withdraw()
                except OSError as error:
                    if is_disk_full(error):
                        raise disk_full("a gap cannot be noted", state.directory, error) from error
                    state.guard.fail("a gap cannot be noted", error)
                return
            expected_offset = header.next_offset

    def _write(self, batches: Buffer, headers: Sequence[BatchHeader], max_timestamp: int, now_ms: int) -> None:
        """Writes all batches at once where they fit into the segment, else one by one."""
        size_bytes = headers[-1].end_position - headers[0].position
        rolls = self._active.is_due(size_bytes, headers[-1].last_offset, max_timestamp, now_ms)
        view = memoryview(batches)
        if not rolls and size_bytes <= self._state.config.segment_bytes:
            self._write_group(view, headers, max_timestamp, now_ms)
            return
        for header in headers:
            self._write_group(view, [header], header.max_timestamp, now_ms)

    def _write_group(self, view: memoryview, group: Sequence[BatchHeader], max_timestamp: int, now_ms: int) -> None:
        state, first, last = self._state, group[0], group[-1]
        size_bytes = last.end_position - first.position
        segment = self._active.make_room(first.base_offset, size_bytes, last.last_offset, max_timestamp, now_ms)
        state.begin_epochs(_epoch_starts(group))  # not for all groups at once: a full disk may end it at any
        self._active.write(segment, (view[first.position : last.end_position],))
        for header in group:
            segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                batch = view[header.position : header.end_position]
                aborted = apply_batch(state.producers, header, batch, header.base_offset, now_ms)
                if aborted is not None:
                    segment.note_aborted(aborted)
        state.note_appended(last.next_offset, now_ms)


def _check_fit(first: BatchHeader, expected_offset: int, epoch: int) -> None:
    """Raises if the first batch, by itself, may well be the leader's."""
    if first.base_offset < expected_offset <= first.last_offset:
        raise MisfitRecordsError(
            f"this log ends at {expected_offset}, inside of the leader's batch of offsets {first.base_offset} to {first.last_offset}"
        )
    if first.base_offset >= expected_offset and 0 <= first.partition_leader_epoch < epoch:
        raise MisfitRecordsError(
            f"this log ends at {expected_offset} in leader epoch {epoch}, where the leader's goes on in epoch "
            f"{first.partition_leader_epoch}"
        )


def _check_marker(batches: Buffer, header: BatchHeader) -> None:
    try:
        parse_marker(header, memoryview(batches)[header.position : header.end_position], header.base_offset)
    except InvalidRecordError as error:
        raise CorruptRecordError("", header.position, f"a control batch that cannot be read: {error}") from error


def _epoch_starts(headers: Sequence[BatchHeader]) -> list[tuple[int, int]]:
    """Returns (epoch, base offset) of the first batch of each epoch; batches from before leader epochs have none."""
    starts: dict[int, int] = {}
    for header in headers:
        if header.partition_leader_epoch >= 0:
            starts.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(starts.items())
