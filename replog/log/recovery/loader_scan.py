"""Reading a whole segment while a log is opened: the end of its good batches, and their contents.

A right checksum is not enough: it covers neither a batch's offset nor its leader epoch.  What contradicts them is judged
here (`certain_end`, `epoch_witness`, gaps where there are none), as damage at the first batch that is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable

from replog.errors import CorruptRecordError, StorageError
from replog.log.config import LogConfig
from replog.log.epoch_cache import LeaderEpochCache
from replog.log.file_closer import FileCloser
from replog.log.producers.files import producers_before
from replog.log.producers.state import ProducerStateManager
from replog.log.recovery.completeness import Completeness
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH, first_contradiction
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loaded_log import RecoveryReport
from replog.log.recovery.segment_recovery import ScanOutcome, ScanProgress, SegmentScanner
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX
from replog.log.segments.reader import Found
from replog.log.segments.scan import PlacedHeader, read_header, scan_batches, scan_headers
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.time_index import TIME_ENTRY_BYTES
from replog.records import SegmentScan
from replog_checkpoints import FileSystem


def certain_end(
    segment: LogSegment,
    good_bytes: int,
    file_bytes: int,
    expected_offset: int,
    flushed_offset: int,
    *,
    has_no_gaps: bool,
) -> tuple[int, int]:
    """Returns the byte and the offset at which the batches end whose offsets are not in doubt.

    A bit that flips in one makes the batch jump up.  It looks whole, and the batch behind it looks like the damage, at an
    offset above the flushed ones: a torn write, to be cut.  Two things tell::

        offsets      16   17   18 -> 50   19   20   21       19 goes back, and its checksum is right: 50 is wrong
        flushed to                          ^ 20             a flush ends where a batch ends: none reaches over 20

    Without damage the second one is judged only if compaction cannot have taken the border away.

    Args:
        segment: A segment that is damaged behind its good batches.
        good_bytes: The size of the good batches.
        file_bytes: The size of the file.
        expected_offset: The end of the segment before it.
        flushed_offset: The flushed offset, exclusive.
        has_no_gaps: Whether no compaction can have taken the batch that ended there.
    """
    last: PlacedHeader | None = None
    end_offset = end_before = max(segment.base_offset, expected_offset)
    for placed in scan_headers(segment.file, 0, good_bytes):
        last, end_before = placed, end_offset
        end_offset = placed.header.next_offset
        begins_below = has_no_gaps or placed.header.base_offset < flushed_offset
        if end_before < flushed_offset < end_offset and begins_below:
            return placed.position, end_before
    following = _offset_of_whole_batch(segment, good_bytes, file_bytes)
    if last is not None and following is not None and end_before <= following < end_offset:
        return last.position, end_before
    return good_bytes, end_offset


def batch_over(segment: LogSegment, offset: int, *, has_no_gaps: bool) -> Found | None:
    """Returns the first batch that reaches over `offset`, although none ends there; None: one does, or all end before.

    Args:
        segment: One whose batches and indexes are known.
        offset: Where a flush ended.
        has_no_gaps: Whether no compaction can have taken the batch that ended there; then one behind `offset` is wrong, too.
    """
    found = segment.find(offset - 1) if offset > segment.base_offset else None
    if found is None or (found.base_offset >= offset and not has_no_gaps):
        return None
    if read_header(segment.file, found.position).next_offset == offset:
        return None
    return found


def _offset_of_whole_batch(segment: LogSegment, position: int, file_bytes: int) -> int | None:
    """Returns the base offset of the batch at a byte; None: there is none with a right checksum."""
    try:
        for batch in scan_batches(segment.file, position, file_bytes):
            return batch.header.base_offset
    except CorruptRecordError:
        pass
    return None


class LoaderState:
    """The state that the parts of `LogLoader` share.

    Args:
        fs: The disk.
        directory: The partition folder, which exists.
        config: The settings of the log.
        recovery_point: Everything below it was flushed; batches above it are checked after an unclean stop.
        flushed_file: The file that says, after an unclean stop, up to where damage cannot be a torn write.
        log_start_offset: The log start as checkpointed; 0 when it is not.
        clean: Whether the last stop was clean.
        now_ms: Wall time.
        scan_from: The offset whose segment, and all later ones, are checked byte by byte after an unclean stop; None: the
            recovery point.  Higher only where nothing is going to be written.
        is_read_only: Whether it is cut in memory only: no bytes are kept beside the log, and nothing is logged.
        is_compacted: Whether compaction has been here, as the directory above knows: then gaps say nothing.
        opens_holes: Whether a log in which offsets are missing is opened all the same; reads say so then.
        on_progress: The function that is told of every MiB or so that was checked; None: there is none.
    """

    report: RecoveryReport
    _flushed_offset: int
    _epochs: LeaderEpochCache
    _scanner: SegmentScanner
    _complete: Completeness

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        recovery_point: int,
        flushed_file: FlushedOffsetFile,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        *,
        scan_from: int | None = None,
        is_read_only: bool = False,
        on_progress: Callable[[ScanProgress], None] | None = None,
        is_compacted: bool = False,
        opens_holes: bool = False,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.config = config
        self.recovery_point = recovery_point
        self.flushed_file = flushed_file
        self.log_start_offset = log_start_offset
        self.clean = clean
        self.now_ms = now_ms
        self.scan_from = scan_from
        self.is_read_only = is_read_only
        self.on_progress = on_progress
        self.is_compacted = is_compacted
        self.opens_holes = opens_holes
        self._closer = FileCloser()
        self._epochs_on_disk: list[tuple[int, int]] | None = None
        self._damage = ""  # why the last scan ended early
        self._directory_changed = False
        self._names: set[str] = set()
        self._scanned_number = -1
        self._bytes_total = 0
        self._producers = ProducerStateManager()
        self._producers_at: int | None = None  # offset up to which they are known
        self._producers_from: int | None = None  # offset of the snapshot that they come from
        self._last_epoch = UNKNOWN_EPOCH  # of the batches looked at so far, as they say
        self._believes_epochs = False  # the checkpoint fits what is not looked at
        self._lost_start: int | None = None  # the log start, where the files with it are gone

    def _remove_from(self, segments: list[LogSegment], number: int) -> None:
        """Deletes segments from the end down to `number`, durably."""
        for segment in reversed(segments[number:]):
            self.report.bytes_cut += segment.size_bytes
            self.report.segments_removed += 1
            segment.remove(self._closer)
        del segments[number:]
        self.fs.sync_dir(self.directory)

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        self._last_epoch = max(self._last_epoch, epoch)
        latest = self._epochs.latest_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            self._epochs.assign(epoch, base_offset)

    def _is_flushed(self, offset: int) -> bool:
        """Whether damage at `offset` concerns bytes that were flushed and are still wanted."""
        return offset < self._flushed_offset and self._flushed_offset > self.log_start_offset

    def _lost(self, path: str, position: int, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            path,
            position,
            f"{reason} (offset {offset}), but everything below offset {self._flushed_offset} was flushed: the disk lost or "
            "changed it. Nothing was cut or deleted. Restore the file from a copy; where the partition has other replicas, "
            f"this one is fetched from its leader again; or give up everything from offset {offset} on: "
            f"replog log repair {self.directory} --accept-loss{self._doubt_of_note(offset)}",
        )

    def _doubt_of_note(self, offset: int) -> str:
        """Returns two cases in which nothing was damaged, where only the log's own file says that `offset` was flushed."""
        if offset < self.recovery_point:
            return ""
        return (
            f". Only {self.flushed_file.path} says so (the recovery point is {self.recovery_point}), and it does not fit the "
            f"log in two more cases. A copy of a folder that was being written to: offsets {offset} to "
            f"{self._flushed_offset - 1} are in the original, --accept-loss opens the copy without them. A folder that Apache "
            "Kafka or an older replog had open and cut since: nothing is lost, `replog log repair "
            f"{self.directory} --forget-flushed-offset` removes that file; safe only if you know of such a program"
        )


class SegmentScanning(LoaderState):
    """The part of opening a log that reads every byte of a segment."""

    def _scan(self, segments: list[LogSegment], number: int, expected_offset: int) -> tuple[int, bool]:
        """Reads a whole segment: its indexes, its epochs and the producers at its end are made anew.

        Returns:
            The offset after its last good batch, and whether something else stands behind that batch.
        """
        segment = segments[number]
        size_bytes = segment.size_bytes
        self.report.segments_scanned += 1
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
            self.on_progress(ScanProgress(self.report.bytes_scanned, total))


def _too_wide(segment: LogSegment, scan: SegmentScan) -> StorageError:
    return StorageError(
        f"{segment.path} at byte {scan.size_bytes}: offset {scan.next_offset} is more than {RELATIVE_OFFSET_MAX} above "
        "the segment's first one, which no index can express; old versions of Kafka wrote such segments. Nothing was "
        "changed: start Kafka 4.1 on it once, which splits them, then stop it"
    )
