"""Appending: as the leader, who gives offsets, and as a follower, who takes what the leader stored.

Order inside one append: the epoch is durable in the cache, then the bytes are written, then index, producer and log end
offset move.  A crash in between leaves an epoch without records (cut on open) or a batch above the recovery point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from replog.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidRecordError,
    InvalidRequestError,
    InvariantViolationError,
    RecordTooLargeError,
    ReplogError,
    StorageError,
)
from replog.log.append_group import AppendGroup, AppendInfo, AppendOutcome
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.log_part import LogPart
from replog.log.producers.files import apply_batch, parse_marker, write_snapshot
from replog.log.producers.state import ProducedBatch
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH
from replog.log.segments.offset_index import RELATIVE_OFFSET_MAX
from replog.log.segments.segment import LogSegment
from replog.records import (
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    describe_epoch,
    parse_header,
    scan,
    stamp_append_time,
)
from replog_checkpoints import File

UNSYNCED_FILES_MAX: Final = 24
"""Indexes and snapshots that may wait for an fsync, three a segment; its log is open as long.  Then a roll flushes."""


class LogAppending(LogPart):
    """The part of a log that grows."""

    __slots__ = ()

    def append_as_leader(
        self, batch: Buffer, *, leader_epoch: int, now_ms: int, header: BatchHeader | None = None
    ) -> AppendInfo:
        """Appends one batch, giving it the next offsets and the leader's epoch.

        Args:
            batch: Exactly one batch that passed `validate_produced`, or one of our own; not changed, not kept.
            leader_epoch: Leader epoch of this leader, at least the last one in the log.
            now_ms: Wall time.
            header: The header of `batch`, when the caller has it already.

        Returns:
            Where it is, or where the batch is that it repeats.

        Raises:
            OutOfOrderSequenceError, InvalidProducerEpochError: See `ProducerStateManager.check`.
            RecordTooLargeError: The batch is larger than a segment.
            DiskFullError: There is no room; nothing was appended.
            StorageError: The disk failed, now or earlier.
        """
        headers = None if header is None else (header,)
        (outcome,) = self.append_all_as_leader((batch,), leader_epoch=leader_epoch, now_ms=now_ms, headers=headers)
        if isinstance(outcome, ReplogError):
            raise outcome
        return outcome

    def append_all_as_leader(
        self,
        batches: Sequence[Buffer],
        *,
        leader_epoch: int,
        now_ms: int,
        headers: Sequence[BatchHeader] | None = None,
    ) -> list[AppendOutcome]:
        """Appends several batches in order, as `append_as_leader` would one by one, but with one write for each segment.

        Args:
            batches: Batches of any producers, repeated ones among them; see `append_as_leader`.
            leader_epoch: Leader epoch of this leader, at least the last one in the log.
            now_ms: Wall time.
            headers: The headers of `batches`, when the caller has them already.

        Returns:
            For each batch where it is, or the error it was refused with; the others are appended all the same.  Only a
            full disk ends it: what was not written by then, and repeats among it, is answered with `DiskFullError`.

        Raises:
            StorageError: The disk failed, now or earlier; how many batches are in the log is unknown.
        """
        try:
            self._state.guard.check()
        except DiskFullError as error:
            return [error] * len(batches)
        outcomes: list[AppendOutcome] = []
        group = AppendGroup(self._state.producers, self._state.log_end_offset, now_ms)
        try:
            for number, batch in enumerate(batches):
                try:
                    header = parse_header(batch) if headers is None else headers[number]
                    outcomes.append(self._stage(group, number, batch, header, leader_epoch, now_ms))
                except (InvalidRequestError, CorruptRecordError) as refusal:
                    if isinstance(refusal, CorruptRecordError) and refusal.path:  # a file of ours, not this batch
                        raise
                    outcomes.append(refusal)
            self._write_group(group, len(batches), now_ms)
        except DiskFullError as error:
            group.undo()
            return _without_room(outcomes, group.first_number, len(batches), error)
        return outcomes

    def append_as_follower(self, batches: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Appends batches exactly as the leader stored them.

        Args:
            batches: Whole batches; a torn last one is dropped.  Not changed, not kept.
            now_ms: Wall time.
            leader_epoch: The epoch of the leader they were fetched from: a batch of a higher one is left out with
                everything after it (docs/KAFKA.md 4.1).

        Returns:
            None when nothing was appended.

        Raises:
            CorruptRecordError: A checksum, offset or epoch cannot be right; nothing was appended, fetch again.
            DiskFullError: There is no room; the first batches may have been appended, see the log end.
            StorageError: The disk failed, now or earlier.
        """
        self._state.guard.check()
        headers = self._check_replicated(batches, leader_epoch, self._state.log_end_offset)
        if not headers:
            return None
        if self._state.admission is not None:
            self._state.admission(headers[-1].end_position - headers[0].position)
        self._write_replicated(batches, headers, now_ms)
        return AppendInfo(
            headers[0].base_offset,
            headers[-1].last_offset,
            max(header.max_timestamp for header in headers),
            duplicate=False,
            log_start_offset=self._state.log_start_offset,
            size_bytes=headers[-1].end_position - headers[0].position,
        )

    def assign_epoch_start(self, epoch: int) -> None:
        """Notes that a leader begins: `epoch` starts at the log end.  Durable when it returns.

        Raises:
            InvariantViolationError: A later epoch has written here.
        """
        self._state.guard.check()
        if self._state.last_epoch is not None and epoch < self._state.last_epoch:
            raise InvariantViolationError(
                f"{self._state.topic_partition}: leader epoch {epoch} after epoch {self._state.last_epoch} in the same log"
            )
        self._assign_epochs([(epoch, self._state.log_end_offset)])

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is empty."""
        self._state.guard.check()
        if self._state.segments.active.size_bytes:
            self._roll(self._state.log_end_offset, now_ms)

    def maybe_roll(self, now_ms: int) -> None:
        """Begins a new segment when the active one is due by size or age, without waiting for the next append."""
        self._state.guard.check()
        if self._should_roll(0, self._state.log_end_offset, now_ms, now_ms):
            self.roll(now_ms)

    def _stage(
        self, group: AppendGroup, number: int, batch: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Checks one batch and gives it its offsets; writes the group first where this batch does not fit to it."""
        size_bytes = header.size_bytes
        if size_bytes != len(batch):
            raise InvalidRecordError(f"{len(batch)} bytes are not one batch of {size_bytes} bytes")
        if group.size_bytes:
            group.note_staged()
        if header.producer_id >= 0 and not header.is_control:
            original = self._state.producers.check(header)
            if original is not None:
                return self._repeated(original)
        if size_bytes > self._state.config.segment_bytes:
            raise RecordTooLargeError(
                f"batch of {size_bytes} bytes, segment.bytes is {self._state.config.segment_bytes}: send smaller batches"
            )
        if self._state.admission is not None:
            self._state.admission(size_bytes)
        if leader_epoch != self._state.last_epoch:
            self.assign_epoch_start(leader_epoch)
        if self._state.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            batch, header = _with_append_time(batch, now_ms)
        base_offset = group.next_offset
        last_offset = base_offset + header.last_offset_delta
        self._make_room(group, number, header, last_offset, now_ms)
        group.add(header, batch, leader_epoch)
        return AppendInfo(
            base_offset,
            last_offset,
            header.max_timestamp,
            duplicate=False,
            log_start_offset=self._state.log_start_offset,
            size_bytes=size_bytes,
        )

    def _make_room(self, group: AppendGroup, number: int, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        """Writes the group where the active segment cannot take it and this batch, then rolls where that is due."""
        size_bytes, max_timestamp = header.size_bytes, header.max_timestamp
        segment = self._state.segments.active
        if group.size_bytes:
            group_bytes = group.size_bytes + size_bytes
            is_first = segment.size_bytes == 0  # a segment's limits begin to count with its first batch
            if (
                not is_first
                and not group.is_full
                and not self._should_roll(group_bytes, last_offset, max_timestamp, now_ms)
            ):
                return
            self._write_group(group, number, now_ms)
        self._segment_for(group.next_offset, size_bytes, last_offset, max_timestamp, now_ms)

    def _write_group(self, group: AppendGroup, next_number: int, now_ms: int) -> None:
        if not group.size_bytes:
            return
        segment = self._state.segments.active
        self._state.guard.begin(partial(self._undo_append, segment, segment.size_bytes, self._state.log_end_offset))
        try:
            self._write_bytes(segment, group.buffers)
        except DiskFullError:
            self._state.guard.done()
            raise
        if self._reader.tail is not None:
            end = segment.base_offset, segment.size_bytes + group.size_bytes
            self._reader.tail.note(self._state.log_end_offset, group.next_offset, group.buffers, end)
        group.note_written(segment, next_number)
        self._state.note_appended(group.next_offset, now_ms)
        self._state.guard.done()

    def _undo_append(self, segment: LogSegment, size_bytes: int, log_end_offset: int) -> None:
        """Cuts off what an append wrote that was interrupted (Ctrl-C) before the log end moved.

        Nobody was told of it, and the next append gets the same offsets: without this both would stand in the file.
        """
        if self._state.log_end_offset == log_end_offset:
            if self._reader.tail is not None:
                self._reader.tail.forget()
            segment.truncate(size_bytes, log_end_offset)

    def _write_bytes(self, segment: LogSegment, buffers: Sequence[Buffer]) -> None:
        """Appends to the segment's file.  A full disk leaves it as it was: the part that found room is cut off again.

        Durably, because all of the segment may be flushed already: after a roll no flush would sync it again, and what a
        crash brought back would stand below the recovery point.
        """
        try:
            segment.write(buffers)
        except OSError as error:
            if not is_disk_full(error):
                self._state.guard.fail("an append failed", error)
            if segment.open_log_file is None:
                raise disk_full("an append did not begin", self._state.directory, error) from error
            try:
                segment.file.truncate(segment.size_bytes)
                segment.file.sync()
            except OSError as failure:
                self._state.guard.fail("a half-written append cannot be cut off", failure)
            raise disk_full("an append found no room", self._state.directory, error) from error

    def _repeated(self, original: ProducedBatch) -> AppendInfo:
        return AppendInfo(
            original.base_offset,
            original.last_offset,
            original.timestamp,
            duplicate=True,
            log_start_offset=self._state.log_start_offset,
            size_bytes=0,
        )

    def _segment_for(
        self, base_offset: int, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment:
        if self._should_roll(batch_bytes, last_offset, max_timestamp, now_ms):
            self._roll_before(base_offset, last_offset, now_ms)
        return self._state.segments.active

    def _should_roll(self, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch belongs in a new segment.

        Raises:
            TooManyOpenFilesError, StorageError: The first batch's time cannot be read; nothing was changed.
        """
        try:
            return self._state.segments.active.should_roll(
                self._state.config, batch_bytes, last_offset, max_timestamp, now_ms
            )
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("an append did not begin", self._state.directory, error) from error
            raise StorageError(f"{self._state.topic_partition}: the active segment cannot be read: {error}") from error

    def _roll_before(self, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Begins a new segment at the log end, so that recovery can tell a hole from a gap.

        Only a gap too wide for relative offsets moves the base up; what is before it is flushed first.
        """
        if last_offset - self._state.log_end_offset <= RELATIVE_OFFSET_MAX:
            self._roll(self._state.log_end_offset, now_ms)
            return
        self._flusher.flush()
        self._roll(base_offset, now_ms)

    def _check_replicated(self, batches: Buffer, leader_epoch: int | None, expected_offset: int) -> list[BatchHeader]:
        epoch = self._state.epochs.epoch_for_offset(expected_offset - 1)
        epoch = UNKNOWN_EPOCH if epoch is None else epoch
        headers: list[BatchHeader] = []
        for header in scan(batches):
            batch_epoch = header.partition_leader_epoch
            if leader_epoch is not None and batch_epoch > leader_epoch:
                break
            check_crc(batches, header)
            if header.base_offset < expected_offset:
                reason = (
                    f"{self._state.topic_partition}: offset {header.base_offset} where {expected_offset} was expected"
                )
                raise CorruptRecordError("", header.position, reason)
            wrong_epoch = describe_epoch(batch_epoch, epoch)
            if wrong_epoch is not None:
                raise CorruptRecordError("", header.position, f"{self._state.topic_partition}: {wrong_epoch}")
            if header.is_control and header.producer_id >= 0:  # after the write it would be too late to refuse it
                _check_marker(batches, header)
            epoch, expected_offset = max(epoch, batch_epoch), header.next_offset
            headers.append(header)
        return headers

    def _note_gaps(self, headers: Sequence[BatchHeader]) -> None:
        """Withdraws the claim before batches that leave out offsets, as compaction at the leader does."""
        if self._state.complete.offset is None:
            return
        expected_offset = self._state.log_end_offset
        for header in headers:
            if header.base_offset > expected_offset:
                try:
                    self._state.complete.withdraw()
                except OSError as error:
                    if is_disk_full(error):
                        raise disk_full("a gap cannot be noted", self._state.directory, error) from error
                    self._state.guard.fail("a gap cannot be noted", error)
                return
            expected_offset = header.next_offset

    def _write_replicated(self, batches: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Writes all batches at once where they fit into the segment, else one by one."""
        self._note_gaps(headers)
        view = memoryview(batches)
        size_bytes = headers[-1].end_position - headers[0].position
        max_timestamp = max(header.max_timestamp for header in headers)
        rolls = self._should_roll(size_bytes, headers[-1].last_offset, max_timestamp, now_ms)
        self._state.wall_ms = now_ms
        groups: Sequence[Sequence[BatchHeader]]
        groups = (
            [[header] for header in headers] if rolls or size_bytes > self._state.config.segment_bytes else [headers]
        )
        for group in groups:
            first, last = group[0], group[-1]
            bytes_in_group = last.end_position - first.position
            segment = self._segment_for(
                first.base_offset, bytes_in_group, last.last_offset, max(h.max_timestamp for h in group), now_ms
            )
            self._assign_epochs(_epoch_starts(group))  # not for all at once: a full disk may end it at any group
            self._write_bytes(segment, (view[first.position : last.end_position],))
            self._state.is_touched = True
            for header in group:
                segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
                if header.producer_id >= 0:
                    batch = view[header.position : header.end_position]
                    aborted = apply_batch(self._state.producers, header, batch, header.base_offset, now_ms)
                    if aborted is not None:
                        segment.note_aborted(aborted)
            self._state.log_end_offset = last.next_offset

    def _assign_epochs(self, starts: Sequence[tuple[int, int]]) -> None:
        if len(starts) == 1 and starts[0][0] == self._state.last_epoch:
            return
        try:
            self._state.epochs.assign_all(starts)
        except OSError as error:
            self._state.guard.fail("the leader-epoch checkpoint cannot be written", error)
        self._state.last_epoch = self._state.epochs.latest_epoch

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Seals the active segment and begins a new one at `base_offset`.

        A full disk leaves the log as it is: the active segment goes on, and the next append rolls again.

        What was written until then is of no account: indexes beside an active segment are written anew when it is
        sealed and never believed after a crash, and a snapshot says the truth or has a wrong checksum.
        """
        if len(self._state.unsynced) >= UNSYNCED_FILES_MAX:
            self._flusher.flush()
        sealed = self._state.segments.active
        self._state.producers.expire(now_ms, self._state.config.producer_id_expiration_ms)
        written: list[File] = []
        self._state.name_changes += 1  # first: an interrupt in what follows must not leave a name without an fsync
        self._state.is_touched = True
        self._state.guard.begin(partial(self._end_roll, sealed, base_offset))
        try:
            written += sealed.write_indexes()
            written.append(write_snapshot(self._state.fs, self._state.directory, base_offset, self._state.producers))
            active = LogSegment.create(self._state.fs, self._state.directory, base_offset, self._state.config, now_ms)
        except OSError as error:
            self._state.guard.done()
            for file in written:
                self._state.closer.close(file)
            if is_disk_full(error):
                raise disk_full("a new segment cannot be created", self._state.directory, error) from error
            self._state.guard.fail("a new segment cannot be created", error)
        self._state.unsynced += written
        self._state.segments.append(active)
        sealed.drop_indexes()
        self._state.guard.done()

    def _end_roll(self, sealed: LogSegment, base_offset: int) -> None:
        """Ends a roll that was interrupted (Ctrl-C): an empty file that nobody knows must not stand inside the segment before."""
        if self._state.segments.active is not sealed:
            sealed.drop_indexes()
            return
        with contextlib.suppress(FileNotFoundError):
            self._state.fs.remove(file_path(self._state.directory, base_offset, LOG_SUFFIX))


def _check_marker(batches: Buffer, header: BatchHeader) -> None:
    try:
        parse_marker(header, memoryview(batches)[header.position : header.end_position], header.base_offset)
    except InvalidRecordError as error:
        raise CorruptRecordError("", header.position, f"a control batch that cannot be read: {error}") from error


def _with_append_time(batch: Buffer, now_ms: int) -> tuple[bytearray, BatchHeader]:
    """Returns a copy that carries the leader's time, and its header: the client's bytes are not ours to change."""
    stamped = bytearray(batch)
    stamp_append_time(stamped, now_ms)
    return stamped, parse_header(stamped)


def _without_room(
    outcomes: list[AppendOutcome], first_number: int, count: int, error: DiskFullError
) -> list[AppendOutcome]:
    """Returns the outcomes where all from `first_number` on had no room, but for those refused on their own."""
    decided = outcomes[:first_number]
    decided += [outcome if isinstance(outcome, ReplogError) else error for outcome in outcomes[first_number:]]
    return decided + [error] * (count - len(decided))


def _epoch_starts(headers: Sequence[BatchHeader]) -> list[tuple[int, int]]:
    """Returns (epoch, base offset) of the first batch of each epoch; batches from before leader epochs have none."""
    starts: dict[int, int] = {}
    for header in headers:
        if header.partition_leader_epoch >= 0:
            starts.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(starts.items())
