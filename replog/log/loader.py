"""Opening a log: what the files of a directory say after a clean stop or a crash (kafka-reference 3.2 to 3.5).

After a clean stop nothing is scanned but the few batches behind the last index entry.  Otherwise every segment from the
one with the recovery point on is read and checked::

    recovery point                                      first damage
         |                                                   |
    -----+--------------------- good batches ----------------+ x x x x   -> cut here; later segments deleted

    first damage        flushed offset
         |                    |
    -----+ x x x x x x x x x -+-----------------            -> bytes that were flushed have changed or are gone:
                                                               CorruptRecordError, nothing is touched

The flushed offset is what the file of that name says (see `flushed_offset`), or the recovery point where that is higher.

| crash during recovery                             | what the next start finds                             |
|---------------------------------------------------|-------------------------------------------------------|
| while what is cut is copied beside the log        | the same                                              |
| while later segments are deleted (log not cut yet) | the same damage at the same place: same decision      |
| after the cut, before new indexes are written     | no usable index and a low recovery point: scanned again |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import replog_checkpoints as checkpoints
from replog.errors import CorruptIndexError, CorruptRecordError, DiskFullError, StorageError
from replog.log.compaction.swap import complete_swaps
from replog.log.completeness import (
    COMPLETE_FROM_FILE,
    Completeness,
    hole,
    is_first_lost,
    read_complete_from,
    start_complete,
)
from replog.log.config import LogConfig
from replog.log.cut_bytes import CutPiece, keep_cut, tell_cut
from replog.log.disk_space import is_disk_full
from replog.log.epoch_cache import LeaderEpochCache
from replog.log.epoch_file import epoch_path, write_epochs
from replog.log.epoch_witness import UNKNOWN_EPOCH, first_contradiction
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    file_path,
    parse_file_name,
)
from replog.log.flush import FileCloser
from replog.log.flush_border import batch_over, certain_end
from replog.log.flushed_offset import FlushedOffsetFile
from replog.log.loaded_log import LoadedLog, RecoveryReport
from replog.log.offset_index import OFFSET_ENTRY_BYTES
from replog.log.plausibility import epochs_fit, lost_segments, promised_end_offset
from replog.log.producer_files import (
    deepen_producers,
    forget_as_snapshot,
    producers_before,
    rebuild_producers,
    remove_snapshots,
    remove_stray_snapshots,
)
from replog.log.producer_state import ProducerStateManager
from replog.log.segment import OFFSET_MAX, RELATIVE_OFFSET_MAX, LogSegment
from replog.log.segment_files import TEMPORARY_SUFFIX
from replog.log.segment_list import SegmentList
from replog.log.segment_reader import Found
from replog.log.segment_recovery import ScanOutcome, ScanProgress, SegmentScanner
from replog.log.segment_scan import scan_headers
from replog.log.time_index import TIME_ENTRY_BYTES
from replog.records import SegmentScan
from replog_checkpoints import FileSystem

_CHECKPOINT_DELETED: Final = ".checkpoint.deleted"


@dataclass(slots=True)
class LogLoader:
    """Opens one log; used once.

    Args:
        fs: the disk.
        directory: of the log, exists.
        config: of the log.
        recovery_point: everything below it was flushed; what lies above is checked after an unclean stop.
        flushed_file: says, after an unclean stop, up to where damage cannot be a torn write.
        log_start_offset: as checkpointed; 0 when not.
        clean: the last stop was clean.
        now_ms: wall time.
        scan_from: after an unclean stop, segments from the one with this offset on are checked byte by byte; None: from
            the one with the recovery point.  Higher only where nothing is going to be written.
        is_read_only: nothing is cut but in memory: no bytes are kept, and nothing is logged.
        is_compacted: Whether compaction has been here, as the directory above knows: then gaps say nothing.
        opens_holes: Whether a log in which offsets are missing is opened all the same; reads say so then.
        on_progress: told about every MiB or so that was checked.
    """

    fs: FileSystem
    directory: str
    config: LogConfig
    recovery_point: int
    flushed_file: FlushedOffsetFile
    log_start_offset: int
    clean: bool
    now_ms: int
    scan_from: int | None = None
    is_read_only: bool = False
    on_progress: Callable[[ScanProgress], None] | None = None
    is_compacted: bool = False
    opens_holes: bool = False
    report: RecoveryReport = field(init=False)
    _flushed_offset: int = field(init=False)
    _closer: FileCloser = field(init=False, default_factory=FileCloser)
    _epochs: LeaderEpochCache = field(init=False)
    _epochs_on_disk: list[tuple[int, int]] | None = field(init=False, default=None)
    _damage: str = field(init=False, default="")  # why the last scan ended early
    _directory_changed: bool = field(init=False, default=False)
    _names: set[str] = field(init=False, default_factory=set)
    _scanner: SegmentScanner = field(init=False)
    _scanned_segment: LogSegment | None = field(init=False, default=None)
    _scanned_number: int = field(init=False, default=-1)
    _bytes_total: int = field(init=False, default=0)
    _producers: ProducerStateManager = field(init=False, default_factory=ProducerStateManager)
    _producers_at: int | None = field(init=False, default=None)  # offset up to which they are known
    _complete: Completeness = field(init=False)
    _last_epoch: int = field(init=False, default=UNKNOWN_EPOCH)  # of the batches looked at so far, as they say
    _believes_epochs: bool = field(init=False, default=False)  # the checkpoint fits what is not looked at
    _lost_start: int | None = field(init=False, default=None)  # the log start, where the files with it are gone

    def load(self) -> LoadedLog:
        """Does it all; when it returns, what was cut or deleted is so durably.

        Raises:
            CorruptRecordError: flushed bytes are damaged or gone; nothing was changed.
            OSError: the disk failed.
        """
        self.report = RecoveryReport(self.clean)
        noted = None if self.clean else self.flushed_file.offset
        self._flushed_offset = max(self.recovery_point, noted or 0)
        self._scanner = SegmentScanner(self.now_ms)
        complete_swaps(self.fs, self.directory)
        names = self.fs.list_dir(self.directory)
        self._names = set(names)
        claim = None if self.is_compacted else read_complete_from(self.fs, self.directory)
        self._complete = Completeness(self.fs, self.directory, claim)
        segments = self._find_segments(names)
        try:
            return self._load(names, segments)
        except BaseException:
            for segment in segments:  # nobody else knows of their descriptors
                segment.release(self._closer)
            raise

    def _load(self, names: list[str], segments: list[LogSegment]) -> LoadedLog:
        created = not segments
        self._refuse_lost_segments(names)
        self._read_epochs()
        self._refuse_lost_start(segments)
        log_end_offset = self._recover(segments) if segments else self._check_empty()
        if segments and log_end_offset < self.log_start_offset:
            self._refuse_log_start(segments, log_end_offset)
        self._sweep(names)
        if segments and log_end_offset < self.log_start_offset:
            pieces = [CutPiece(segment.path, 0, segment.size_bytes) for segment in segments]
            self._remove_from(segments, 0)
            if not self.is_read_only:
                why = "the log was being emptied when the process ended"
                tell_cut(self.directory, pieces, f"below {self.log_start_offset}", why, 0)
            self._epochs.clear()
        if not segments:
            log_end_offset = self.log_start_offset
            remove_snapshots(self.fs, self.directory, above=-1)  # of a log that was being emptied
            if names:
                self._complete.raise_to(log_end_offset)
            else:
                start_complete(self.fs, self.directory)
                self._complete.offset = 0
            segments.append(LogSegment.create(self.fs, self.directory, log_end_offset, self.config, self.now_ms))
            self._directory_changed = True
        return self._finish(SegmentList(segments, self._closer), log_end_offset, created)

    def _finish(self, segments: SegmentList, log_end_offset: int, created: bool) -> LoadedLog:
        log_start_offset = max(self.log_start_offset, segments[0].base_offset)
        if self._lost_start is not None:
            log_start_offset = self._lost_start
        self._epochs.truncate_from_end(log_end_offset)
        are_epochs_true = self._epochs.entries == self._epochs_on_disk
        self._epochs.truncate_from_start(segments[0].base_offset)
        self._directory_changed |= remove_snapshots(self.fs, self.directory, above=log_end_offset)
        if self._directory_changed:
            self.fs.sync_dir(self.directory)
        if self._epochs.entries != self._epochs_on_disk:
            with contextlib.suppress(*(DiskFullError,) * are_epochs_true):  # those of deleted segments do no harm
                write_epochs(self.fs, self.directory, self._epochs.entries)
        remove_stray_snapshots(self.fs, self.directory, segments)
        if self._producers_at == log_end_offset:
            forget_as_snapshot(self.fs, self.directory, self._producers)
            deepen_producers(self._producers, segments, self.config.producer_tail_bytes)
        else:
            rebuild_producers(
                self.fs,
                self.directory,
                self._producers,
                segments,
                self.config,
                self.now_ms,
                flushed_offset=OFFSET_MAX,
            )
        recovery_point = self._recovery_point_after(segments, log_start_offset, log_end_offset)
        segments.release_all()
        if self.is_compacted and COMPLETE_FROM_FILE in self._names:
            self.fs.remove(f"{self.directory}/{COMPLETE_FROM_FILE}")  # only now: a refusal changes nothing
            self.fs.sync_dir(self.directory)
        return LoadedLog(
            segments=segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            epochs=LeaderEpochCache(self._epochs.entries, partial(write_epochs, self.fs, self.directory)),
            producers=self._producers,
            closer=self._closer,
            complete=self._complete,
            report=self.report,
            created=created,
            flushed_file=self.flushed_file,
        )

    def _recovery_point_after(self, segments: SegmentList, log_start_offset: int, log_end_offset: int) -> int:
        """How far the log is flushed.  Not below its start, or the next checkpoint would have to lower that again."""
        if self.clean:
            return log_end_offset
        recovery_point = max(min(self.recovery_point, log_end_offset), segments.active.base_offset)
        if recovery_point >= log_start_offset:
            return recovery_point
        segments.active.file.sync()
        self.fs.sync_dir(self.directory)
        return log_end_offset

    # Files

    def _find_segments(self, names: list[str]) -> list[LogSegment]:
        found = (parse_file_name(name) for name in names)
        offsets = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == LOG_SUFFIX)
        segments: list[LogSegment] = []
        for offset in offsets:
            size_bytes = self.fs.size(file_path(self.directory, offset, LOG_SUFFIX))
            segments.append(LogSegment(self.fs, self.directory, offset, size_bytes, self.now_ms))
            segments[-1].has_transactions = f"{offset:020d}{TRANSACTION_INDEX_SUFFIX}" in self._names
        return segments

    def _sweep(self, names: list[str]) -> None:
        """Deletes what an interrupted deletion or compaction left, and indexes without a log.

        The indexes first: beside a `.log.deleted` they are known not to be the rest of a lost segment.
        """
        present = set(names)
        for name in sorted(names, key=lambda name: name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))):
            parsed = parse_file_name(name)
            leftover = name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) and not name.endswith(_CHECKPOINT_DELETED)
            if name.endswith(TEMPORARY_SUFFIX):  # an index that was being replaced
                leftover = parse_file_name(name.removesuffix(TEMPORARY_SUFFIX)) is not None
            orphan = (
                parsed is not None and parsed[1] in SEGMENT_SUFFIXES and f"{parsed[0]:020d}{LOG_SUFFIX}" not in present
            )
            if leftover or orphan:
                with contextlib.suppress(FileNotFoundError):  # an index that recovery has replaced since
                    self.fs.remove(f"{self.directory}/{name}")
                self._directory_changed = True

    def _remove_from(self, segments: list[LogSegment], number: int) -> None:
        """Deletes segments from the end down to `number`, durably."""
        for segment in reversed(segments[number:]):
            self.report.bytes_cut += segment.size_bytes
            self.report.segments_removed += 1
            segment.remove(self._closer)
        del segments[number:]
        self.fs.sync_dir(self.directory)

    def _refuse_lost_segments(self, names: list[str]) -> None:
        missing = [offset for offset in lost_segments(names, self.log_start_offset) if offset < self._flushed_offset]
        if missing:
            path = file_path(self.directory, missing[0], LOG_SUFFIX)
            raise self._lost(path, 0, missing[0], "the file is gone, its indexes are here")

    def _refuse_lost_start(self, segments: list[LogSegment]) -> None:
        claim, epochs = self._complete.offset, self._epochs_on_disk
        if not segments or not is_first_lost(claim, segments[0].base_offset, epochs, self._names):
            return
        start_offset = max(claim or 0, self.log_start_offset)
        if start_offset >= segments[0].base_offset:
            return
        if not self.opens_holes:
            path = file_path(self.directory, start_offset, LOG_SUFFIX)
            raise hole(path, 0, start_offset, segments[0].base_offset)
        self._lost_start = start_offset

    def _refuse_hole(self, segment: LogSegment, end_offset: int, next_base_offset: int) -> None:
        """Refuses a segment that does not reach to the next one although no offset was ever left out."""
        start_offset = max(end_offset, self._complete.offset or 0, self.log_start_offset)
        if self._complete.offset is not None and start_offset < next_base_offset and not self.opens_holes:
            raise hole(segment.path, segment.size_bytes, start_offset, next_base_offset)

    def _refuse_log_start(self, segments: list[LogSegment], log_end_offset: int) -> None:
        """Emptying a log lowers what is promised to 0 first, and no other step checkpoints a start above the end."""
        if self._flushed_offset > 0:
            reason = f"the checkpointed log start {self.log_start_offset} lies above it, which cannot be"
            raise self._lost(segments[-1].path, segments[-1].size_bytes, log_end_offset, reason)

    # Leader epochs

    def _read_epochs(self) -> None:
        """From the checkpoint; a missing or damaged one is made again from the log, never taken as empty."""
        path = epoch_path(self.directory)
        try:
            self._epochs_on_disk = checkpoints.read_leader_epochs(self.fs, path)
        except checkpoints.CorruptCheckpointError:
            self._epochs_on_disk = None
        self.report.epochs_rebuilt = self._epochs_on_disk is None
        self._epochs = LeaderEpochCache(self._epochs_on_disk or [], lambda _: None)

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        self._last_epoch = max(self._last_epoch, epoch)
        latest = self._epochs.latest_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            self._epochs.assign(epoch, base_offset)

    # Recovery

    def _check_empty(self) -> int:
        if self._flushed_offset > self.log_start_offset:
            raise self._lost(self.directory, 0, self.log_start_offset, "there are no segment files")
        return self.log_start_offset

    def _recover(self, segments: list[LogSegment]) -> int:
        """Checks what must be checked, leaves the last segment active; returns the log end offset."""
        scan_from = self.recovery_point if self.scan_from is None else self.scan_from
        first_scanned = len(segments) if self.clean else _number_for(segments, scan_from)
        if first_scanned < len(segments):  # what the log says there replaces what the checkpoint says
            self._epochs.truncate_from_end(segments[first_scanned].base_offset)
        self._bytes_total = sum(segment.size_bytes for segment in segments[first_scanned:])
        self._doubt_epochs(segments, first_scanned)
        self._believes_epochs = first_scanned > 0 and not self.report.epochs_rebuilt
        end_offset, number = segments[0].base_offset, 0
        while number < len(segments):
            segment, is_last = segments[number], number == len(segments) - 1
            end_offset = max(end_offset, segment.base_offset)
            next_base_offset = OFFSET_MAX if is_last else segments[number + 1].base_offset
            promised = base_offset = segment.base_offset
            if number < first_scanned and not is_last:
                promised = promised_end_offset(self.fs, self.directory, base_offset, next_base_offset)
            trusted_end = None
            if number < first_scanned and self._ends_at(segment, promised, next_base_offset, is_last=is_last):
                trusted_end = self._trusted_end(segment, is_last=is_last)
            if trusted_end is not None:
                end_offset = trusted_end
            else:
                if number < first_scanned:
                    self._bytes_total += segment.size_bytes
                end_offset, damaged = self._scan(segments, number, end_offset)
                if not is_last and next_base_offset < end_offset and self._is_flushed(next_base_offset):
                    reason = f"it reaches up to offset {end_offset}, into the next segment"
                    raise self._lost(segment.path, segment.size_bytes, next_base_offset, reason)
                if end_offset < promised and self._is_flushed(end_offset):
                    reason = f"its indexes know of offset {promised - 1}, the segment ends here"
                    raise self._lost(segment.path, segment.size_bytes, end_offset, reason)
                if damaged or self._is_hole(segments, number, end_offset):
                    why = self._damage if damaged else "the segment ends before the next one begins"
                    self._cut(segments, number, end_offset, why)
                elif not is_last:
                    self._seal(segment)
            number += 1
        if self._is_flushed(end_offset):
            raise self._lost(segments[-1].path, segments[-1].size_bytes, end_offset, "the log ends here")
        return end_offset

    def _doubt_epochs(self, segments: list[LogSegment], first_scanned: int) -> None:
        """A checkpoint that contradicts the batches is made again from the log."""
        if self.report.epochs_rebuilt or first_scanned == 0:
            return
        trusted = segments[:first_scanned]
        last = trusted[-1]
        end_offset = segments[first_scanned].base_offset if first_scanned < len(segments) else None
        try:
            end_offset = last.end_offset() if end_offset is None else end_offset
            fits = epochs_fit(self._epochs.entries, trusted, self.log_start_offset, end_offset)
        except CorruptRecordError:
            fits = False
        for segment in trusted:
            segment.release(self._closer)
        if not fits:
            self.report.epochs_rebuilt = True
            self._epochs.clear()

    def _ends_at(self, segment: LogSegment, promised: int, next_base_offset: int, *, is_last: bool) -> bool:
        """Whether a segment begins within itself, and a sealed one reaches what its indexes promise and not into the next.

        Raises:
            CorruptRecordError: it does, and offsets behind it are missing.
        """
        try:
            begins = segment.base_offset <= segment.first_offset() < next_base_offset
            end_offset = next_base_offset if is_last else segment.end_offset()
        except CorruptRecordError:
            return is_last  # its indexes are looked at before it is trusted
        finally:
            if not is_last:
                segment.release(self._closer)
        fits = begins and promised <= end_offset <= next_base_offset
        if fits and not is_last:
            self._refuse_hole(segment, end_offset, next_base_offset)
        return fits

    def _trusted_end(self, segment: LogSegment, *, is_last: bool) -> int | None:
        """End offset of a segment that need not be scanned (its base offset when it is sealed); None: scan it."""
        if is_last:
            try:
                end_offset = segment.load_indexes(self.config)
            except (CorruptIndexError, CorruptRecordError):
                return None
        elif segment.has_usable_indexes(self._names):
            end_offset = segment.base_offset
        else:
            return None
        if self.report.epochs_rebuilt:
            for position, header in scan_headers(segment.file, 0, segment.size_bytes):
                epoch = header.partition_leader_epoch
                if 0 <= epoch < self._last_epoch and self._is_flushed(header.base_offset):
                    reason = f"leader epoch {epoch} after epoch {self._last_epoch}: one of the two is wrong"
                    raise self._lost(segment.path, position, header.base_offset, reason)
                self._note_epoch(epoch, header.base_offset)
            segment.release(self._closer)
        return end_offset

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
        """Scans the first `size_bytes` of a segment, which becomes active with what they say."""
        segment = segments[number]
        producers = self._producers_before(segments, number)
        limit = RELATIVE_OFFSET_MAX + 1
        if number + 1 < len(segments):
            limit = min(limit, segments[number + 1].base_offset - segment.base_offset)
        epoch = self._epoch_before(segments, number)
        new_scan = self._new_scan(segment, expected_offset, epoch, segment.base_offset + limit - 1)
        found = self._scanner.scan(segment.file, size_bytes, new_scan, producers, self._count_bytes)
        if found.is_overflow and limit > RELATIVE_OFFSET_MAX:  # else it holds what belongs into a later segment
            raise _too_wide(segment, found.scan)
        segment.take_scan(found.scan, self.config)
        self._producers_at = found.scan.next_offset
        return found

    def _epoch_before(self, segments: list[LogSegment], number: int) -> int:
        """The epoch of the last batch before a segment; -1: unknown."""
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
        """Returns the last good batch of a segment if offsets are missing before it that nobody left out.

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
        """Whether nobody left out an offset of what was flushed last."""
        return self._complete.offset is not None and self._complete.offset < self._flushed_offset

    def _refuse_flush_inside_batch(self, segment: LogSegment) -> None:
        """The last flushed batch has jumped up, and nothing follows that would contradict it."""
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
        """The producers where a segment begins: those at the end of the one scanned before it, or from a snapshot."""
        if self._producers_at is None or self._producers_at > segments[number].base_offset or not self._is_next(number):
            self._producers = producers_before(self.fs, self.directory, segments, number, self.now_ms)
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

    def _is_hole(self, segments: list[LogSegment], number: int, end_offset: int) -> bool:
        """Whether a power cut took the end of this segment, at the border of a batch, but not the next segment.

        A segment begins where the one before it ended, unless compaction has been there since, and that happens below
        the recovery point only.
        """
        if number == len(segments) - 1:
            return False
        if segments[number + 1].base_offset <= max(end_offset, self.recovery_point):
            self._refuse_hole(segments[number], end_offset, segments[number + 1].base_offset)
            return False
        if segments[number + 1].base_offset - segments[number].base_offset > RELATIVE_OFFSET_MAX + 1:
            return False  # a follower met a wide gap, and flushed first (`LogAppending._roll_before`)
        if self._is_flushed(end_offset):
            raise self._lost(segments[number].path, segments[number].size_bytes, end_offset, "the segment ends here")
        return True

    def _cut(self, segments: list[LogSegment], number: int, end_offset: int, why: str) -> None:
        """Cuts a torn tail: later segments first, so that a crash in between finds the same damage again."""
        segment = segments[number]
        pieces = [CutPiece(segment.path, segment.size_bytes, segment.file.size())]
        pieces += [CutPiece(later.path, 0, later.size_bytes) for later in segments[number + 1 :]]
        kept_bytes = 0 if self.is_read_only else keep_cut(self.fs, self.directory, pieces)
        self._remove_from(segments, number + 1)
        segment.truncate(segment.size_bytes, end_offset)
        if not self.is_read_only:
            tell_cut(self.directory, pieces, f"from {end_offset} on", why, kept_bytes)

    def _seal(self, segment: LogSegment) -> None:
        """Makes a scanned segment durable, with its rebuilt indexes: the recovery point may pass it then.

        Not left to the next flush, which would need a descriptor for every segment that a lost checkpoint brought back.
        """
        segment.file.sync()
        try:
            for file in segment.write_indexes():
                file.sync()
                file.close()
        except OSError as error:
            if not is_disk_full(error):
                raise
            segment.needs_rewrite = True  # made in memory until there is room: opening is the way to make some
        segment.drop_indexes()
        segment.release(self._closer)
        self._directory_changed = True

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
        """Two cases in which nothing was damaged, where only the log's own file says that `offset` was flushed."""
        if offset < self.recovery_point:
            return ""
        return (
            f". Only {self.flushed_file.path} says so (the recovery point is {self.recovery_point}), and it does not fit the "
            f"log in two more cases. A copy of a folder that was being written to: offsets {offset} to "
            f"{self._flushed_offset - 1} are in the original, --accept-loss opens the copy without them. A folder that Apache "
            "Kafka or an older replog had open and cut since: nothing is lost, `replog log repair "
            f"{self.directory} --forget-flushed-offset` removes that file; safe only if you know of such a program"
        )


def _number_for(segments: list[LogSegment], offset: int) -> int:
    """Number of the segment that may hold `offset`."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)


def _too_wide(segment: LogSegment, scan: SegmentScan) -> StorageError:
    return StorageError(
        f"{segment.path} at byte {scan.size_bytes}: offset {scan.next_offset} is more than {RELATIVE_OFFSET_MAX} above "
        "the segment's first one, which no index can express; old versions of Kafka wrote such segments. Nothing was "
        "changed: start Kafka 4.1 on it once, which splits them, then stop it"
    )
