"""Reading a whole segment while a log is opened: the end of its good batches, and their contents.

A right checksum is not enough: it covers neither a batch's offset nor its leader epoch.  What contradicts them is judged
here (`flush_border`, `epoch_witness`, gaps where there are none), as damage at the first batch that is in doubt.
"""

from __future__ import annotations

from replog.errors import StorageError
from replog.log.producers.files import producers_before
from replog.log.producers.state import ProducerStateManager
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH, first_contradiction
from replog.log.recovery.flush_border import batch_over, certain_end
from replog.log.recovery.loader_state import LoaderState
from replog.log.recovery.segment_recovery import ScanOutcome, ScanProgress
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX
from replog.log.segments.reader import Found
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.time_index import TIME_ENTRY_BYTES
from replog.records import SegmentScan


class SegmentScanning(LoaderState):
    """The part of opening a log that reads every byte of a segment."""

    __slots__ = ()

    def _scan(self, segments: list[LogSegment], number: int, expected_offset: int) -> tuple[int, bool]:
        """Reads a whole segment: its indexes, its epochs and the producers at its end are made anew.

        Returns:
            The offset after its last good batch, and whether something else stands behind that batch.
        """
        segment = segments[number]
        size_bytes = segment.size_bytes
        self.report.segments_scanned += 1
        self._scanned_segment = segment
        found = self._scan_bytes(segments, number, expected_offset, size_bytes)
        damage = found.damage
        if damage is not None:
            good_bytes = found.scan.size_bytes
            position, offset = certain_end(
                segment, good_bytes, size_bytes, expected_offset, self._flushed_offset, has_no_gaps=self._has_no_gaps
            )
            if self._is_flushed(offset):
                raise self._lost(segment.path, position, offset, damage)
        if self._is_flushed(segment.base_offset) and (segment is segments[-1] or not self.config.compacts):
            self._refuse_flush_inside_batch(segment)
        doubt = self._doubtful_batch(segment, found.scan, self._epoch_before(segments, number))
        if doubt is not None:
            batch, damage = doubt
            if self._is_flushed(batch.previous_end):
                raise self._lost(segment.path, batch.position, batch.previous_end, damage)
            self._producers_at = None  # they have seen the batch
            found = self._scan_bytes(segments, number, expected_offset, batch.position)
        if damage is not None:
            self.report.bytes_cut += size_bytes - found.scan.size_bytes
            self._damage = damage
        for transaction in found.aborted:
            segment.note_aborted(transaction)
        for epoch, start_offset in found.scan.epoch_starts:
            self._note_epoch(epoch, start_offset)
        return found.scan.next_offset, damage is not None

    def _scan_bytes(
        self, segments: list[LogSegment], number: int, expected_offset: int, size_bytes: int
    ) -> ScanOutcome:
        """Scans the first `size_bytes` of a segment, which becomes active with the findings."""
        segment = segments[number]
        producers = self._producers_before(segments, number)
        limit = RELATIVE_OFFSET_MAX + 1
        if number + 1 < len(segments):
            limit = min(limit, segments[number + 1].base_offset - segment.base_offset)
        epoch = self._epoch_before(segments, number)
        new_scan = self._new_scan(segment, expected_offset, epoch, segment.base_offset + limit - 1)
        found = self._scanner.scan(segment.file, size_bytes, new_scan, producers, self._count_bytes)
        if found.is_overflow and limit > RELATIVE_OFFSET_MAX:  # else it holds batches of a later segment
            raise _too_wide(segment, found.scan)
        segment.take_scan(found.scan, self.config)
        self._producers_at = found.scan.next_offset
        return found

    def _epoch_before(self, segments: list[LogSegment], number: int) -> int:
        """Returns the epoch of the last batch before a segment; -1: unknown."""
        if not self._believes_epochs or number == 0:
            return self._last_epoch
        epoch = self._epochs.epoch_for_offset(segments[number].base_offset - 1)
        return UNKNOWN_EPOCH if epoch is None else epoch

    def _doubtful_batch(self, segment: LogSegment, scan: SegmentScan, epoch_before: int) -> tuple[Found, str] | None:
        """Returns a batch with a right checksum whose offset or epoch is wrong all the same, and why."""
        entries = None if self.report.epochs_rebuilt else self._epochs_on_disk
        wrong = first_contradiction(entries, epoch_before, scan.epoch_starts)
        found = None if wrong is None else segment.find(wrong[1])
        if wrong is not None and found is not None:
            return (
                found,
                f"leader epoch {wrong[0]}, which the leader-epoch checkpoint gives to later offsets or to none",
            )
        jump = self._jump_at_end(segment, scan.next_offset)
        if jump is None:
            return None
        return jump, f"offsets {jump.previous_end} to {jump.base_offset - 1} are missing"

    def _jump_at_end(self, segment: LogSegment, end_offset: int) -> Found | None:
        """Returns the last good batch of a segment if offsets are missing before it that were never left out.

        No checksum covers a batch's offset, and behind the last good batch nothing contradicts it.
        """
        if self._complete.offset is None or end_offset <= segment.base_offset:
            return None
        last = segment.find(end_offset - 1)
        if last is None or last.base_offset <= max(last.previous_end, self._complete.offset, self.log_start_offset):
            return None
        return last

    @property
    def _has_no_gaps(self) -> bool:
        """Whether no offset was left out of the records that were flushed last."""
        return self._complete.offset is not None and self._complete.offset < self._flushed_offset

    def _refuse_flush_inside_batch(self, segment: LogSegment) -> None:
        """Refuses a segment that reaches beyond where a flush ended, and in which no batch ends there.

        The last flushed batch has jumped up then, and nothing follows that would contradict it.
        """
        found = batch_over(segment, self._flushed_offset, has_no_gaps=self._has_no_gaps)
        if found is not None:
            reason = f"no batch ends at offset {self._flushed_offset}, where a flush did"
            raise self._lost(segment.path, found.position, found.previous_end, reason)

    def _new_scan(self, segment: LogSegment, expected_offset: int, epoch: int, offset_max: int) -> SegmentScan:
        return SegmentScan(
            segment.base_offset,
            expected_offset,
            epoch,
            min(offset_max, OFFSET_MAX - 1),
            self.config.index_interval_bytes,
            self.config.segment_index_bytes // OFFSET_ENTRY_BYTES,
            self.config.segment_index_bytes // TIME_ENTRY_BYTES - 1,
        )

    def _producers_before(self, segments: list[LogSegment], number: int) -> ProducerStateManager:
        """Returns the producers where a segment begins: from the end of the one scanned before it, or from a snapshot."""
        if self._producers_at is None or self._producers_at > segments[number].base_offset or not self._is_next(number):
            found = producers_before(self.fs, self.directory, segments, number, self.now_ms)
            self._producers, self._producers_from = found
        self._scanned_number = number
        return self._producers

    def _is_next(self, number: int) -> bool:
        return number == self._scanned_number + 1

    def _count_bytes(self, count: int) -> None:
        self.report.bytes_scanned += count
        if self.on_progress is not None:
            total = max(self._bytes_total, self.report.bytes_scanned)
            base_offset = self._scanned_segment.base_offset if self._scanned_segment is not None else 0
            self.on_progress(ScanProgress(self.report.bytes_scanned, total, base_offset))


def _too_wide(segment: LogSegment, scan: SegmentScan) -> StorageError:
    return StorageError(
        f"{segment.path} at byte {scan.size_bytes}: offset {scan.next_offset} is more than {RELATIVE_OFFSET_MAX} above "
        "the segment's first one, which no index can express; old versions of Kafka wrote such segments. Nothing was "
        "changed: start Kafka 4.1 on it once, which splits them, then stop it"
    )
