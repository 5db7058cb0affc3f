"""Appending as the leader, which gives offsets.

Order inside one append: the epoch is durable in the cache, then the bytes are written, then index, producer and log end
offset move.  A crash in between leaves an epoch without records (cut on open) or a batch above the recovery point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from replog.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidRecordError,
    InvalidRequestError,
    InvariantViolationError,
    RecordTooLargeError,
    ReplogError,
)
from replog.log.active_segment import ActiveSegment
from replog.log.append_group import AppendGroup, AppendInfo, AppendOutcome
from replog.log.epoch_cache import epoch_path
from replog.log.producers.files import parse_marker
from replog.log.producers.state import ProducedBatch
from replog.log.reading.reader import LogReader
from replog.log.segments.segment import LogSegment
from replog.log.state import LogState
from replog.records import BatchHeader, Buffer, TimestampType, parse_header, stamp_append_time


class LeaderAppender:
    """Appends batches of producers.

    Args:
        state: The state of the log.
        active: The active segment of the log.
        reader: The reader of the log, whose tail takes appended batches.
    """

    __slots__ = ("_active", "_reader", "_state")

    def __init__(self, state: LogState, active: ActiveSegment, reader: LogReader) -> None:
        self._state = state
        self._active = active
        self._reader = reader

    def assign_epoch_start(self, epoch: int) -> None:
        """Notes that a leader begins: `epoch` starts at the log end.  Durable when it returns.

        Raises:
            CorruptRecordError: A later epoch has written here, by the batches or by the checkpoint of epochs.
        """
        state = self._state
        state.guard.check()
        if state.last_epoch is not None and epoch < state.last_epoch:
            segment = state.segments[state.segments.number_for(state.epochs.entries[-1][1])]
            reason = (
                f"leader epoch {epoch} begins, and {epoch_path(state.directory)} has records of epoch {state.last_epoch} from "
                f"offset {state.epochs.entries[-1][1]} on, as made from the batches or not: one of the two is damaged, no checksum "
                "covers the epoch of a batch. Nothing was changed: restore it; where the partition has other replicas, this "
                "one is fetched from its leader again"
            )
            raise CorruptRecordError(segment.path, 0, reason)
        state.begin_epochs([(epoch, state.log_end_offset)])

    def append_all(
        self,
        batches: Sequence[Buffer],
        *,
        leader_epoch: int,
        now_ms: int,
        headers: Sequence[BatchHeader] | None = None,
    ) -> list[AppendOutcome]:
        """Appends several batches in order, with one write for each segment.

        Args:
            batches: Batches of any producers, repeated ones among them: each exactly one that passed `validate_produced`, or one of our
                own; not changed, not kept.
            leader_epoch: Leader epoch of this leader, at least the last one in the log.
            now_ms: Wall time.
            headers: The headers of `batches`, when the caller has them already.

        Returns:
            For each batch where it is, or the error it was refused with; the others are appended all the same.  Only a
            full disk ends it: batches that were not written by then, repeats included, are answered with `DiskFullError`.

        Raises:
            StorageError: The disk failed, now or earlier; how many batches are in the log is unknown.
        """
        state = self._state
        try:
            state.guard.check()
        except DiskFullError as error:
            return [error] * len(batches)
        outcomes: list[AppendOutcome] = []
        group = AppendGroup(state.producers, state.log_end_offset, now_ms)
        try:
            for number, batch in enumerate(batches):
                try:
                    header = parse_header(batch) if headers is None else headers[number]
                    outcomes.append(self._stage(group, number, batch, header, leader_epoch, now_ms))
                except (InvalidRequestError, CorruptRecordError) as refusal:
                    if isinstance(refusal, CorruptRecordError) and refusal.path:  # a file of ours, not this batch
                        raise
                    outcomes.append(refusal)
            if group.size_bytes:
                self._write(group, len(batches), now_ms)
        except DiskFullError as error:
            group.undo()
            return _without_room(outcomes, group.first_number, len(batches), error)
        return outcomes

    def _stage(
        self, group: AppendGroup, number: int, batch: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Checks one batch and gives it its offsets; writes the group first where this batch does not fit to it."""
        state = self._state
        size_bytes = header.size_bytes
        if size_bytes != len(batch):
            raise InvalidRecordError(f"{len(batch)} bytes are not one batch of {size_bytes} bytes")
        if group.size_bytes:
            group.note_staged()
        if header.producer_id >= 0:
            original = self._repeated_by(header, batch)
            if original is not None:
                return self._repeated(original)
        if size_bytes > state.config.segment_bytes:
            raise RecordTooLargeError(
                f"batch of {size_bytes} bytes, segment.bytes is {state.config.segment_bytes}: send smaller batches"
            )
        if state.admission is not None:
            state.admission(size_bytes)
        if leader_epoch != state.last_epoch:
            if state.last_epoch is not None and leader_epoch < state.last_epoch:  # it has begun, so a later one has too
                raise InvariantViolationError(
                    f"{state.topic_partition}: leader epoch {leader_epoch} after epoch {state.last_epoch} in the same log"
                )
            self.assign_epoch_start(leader_epoch)
        if state.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            batch, header = _with_append_time(batch, now_ms)
        base_offset = group.next_offset
        last_offset = base_offset + header.last_offset_delta
        if group.size_bytes and not self._takes_beside(group, header, last_offset, now_ms):
            self._write(group, number, now_ms)
        if not group.size_bytes:
            self._active.make_room(base_offset, size_bytes, last_offset, header.max_timestamp, now_ms)
        group.add(header, batch, leader_epoch)
        return AppendInfo(
            base_offset,
            last_offset,
            header.max_timestamp,
            duplicate=False,
            log_start_offset=state.log_start_offset,
            size_bytes=size_bytes,
        )

    def _repeated_by(self, header: BatchHeader, batch: Buffer) -> ProducedBatch | None:
        """Returns the batch in the log that a batch of a producer repeats, or None: append it.

        Raises:
            ReplogError: Its producer, or the coordinator that ends a transaction, may not write it.
        """
        producers = self._state.producers
        if not header.is_control:
            return producers.check(header)
        marker = parse_marker(header, batch, header.base_offset)
        if marker is not None:
            producers.check_marker(marker)
        return None

    def _takes_beside(self, group: AppendGroup, header: BatchHeader, last_offset: int, now_ms: int) -> bool:
        """Whether the active segment takes a batch together with the group before it."""
        if group.is_full or not self._state.segments.active.size_bytes:
            return False  # a segment's limits begin to count with its first batch
        size_bytes = group.size_bytes + header.size_bytes
        return not self._active.is_due(size_bytes, last_offset, header.max_timestamp, now_ms)

    def _write(self, group: AppendGroup, next_number: int, now_ms: int) -> None:
        """Writes the group, and begins an empty one with batch `next_number`."""
        state, tail = self._state, self._reader.tail
        segment = state.segments.active
        state.guard.begin(partial(self._undo, segment, segment.size_bytes, state.log_end_offset))
        try:
            self._active.write(segment, group.buffers)
        except DiskFullError:
            state.guard.done()
            raise
        if tail is not None:
            end = segment.base_offset, segment.size_bytes + group.size_bytes
            tail.note(state.log_end_offset, group.next_offset, group.buffers, end)
        group.note_written(segment, next_number)
        state.note_appended(group.next_offset, now_ms)
        state.guard.done()

    def _undo(self, segment: LogSegment, size_bytes: int, log_end_offset: int) -> None:
        """Cuts off the bytes of an append that was interrupted (Ctrl-C) before the log end moved.

        It was not acknowledged, and the next append gets the same offsets: without this both would stand in the file.
        """
        if self._state.log_end_offset == log_end_offset:
            if self._reader.tail is not None:
                self._reader.tail.forget()
            segment.truncate(size_bytes, log_end_offset)

    def _repeated(self, original: ProducedBatch) -> AppendInfo:
        return AppendInfo(
            original.base_offset,
            original.last_offset,
            original.timestamp,
            duplicate=True,
            log_start_offset=self._state.log_start_offset,
            size_bytes=0,
        )


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
