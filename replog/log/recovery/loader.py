"""Opening a log: what the files of a directory say after a clean stop or a crash (docs/KAFKA.md 3.2 to 3.5).

| step                                                         | where             |
|--------------------------------------------------------------|-------------------|
| a swap that was interrupted is completed                     | `compaction.swap` |
| files that are missing, and were flushed: refused            | here              |
| leader epochs                                                | here              |
| segments are believed, read, cut                             | `unclean_segments` |
| one segment is read                                          | `loader_scan`     |
| what deletions and compactions left is swept                 | here              |
| producers; everything that was cut or deleted is so durably  | here              |
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import replog_checkpoints as checkpoints
from replog.errors import CorruptIndexError, CorruptRecordError, DiskFullError
from replog.log.compaction.swap import complete_swaps
from replog.log.disk_space import is_disk_full
from replog.log.epoch_cache import LeaderEpochCache, epoch_path, write_epochs
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
    file_path,
    parse_file_name,
)
from replog.log.producers.files import (
    deepen_producers,
    rebuild_producers,
    remove_snapshots,
    remove_stray_snapshots,
    restore_snapshot,
    snapshot_offsets,
)
from replog.log.recovery.completeness import (
    COMPLETE_FROM_FILE,
    Completeness,
    hole,
    is_first_lost,
    read_complete_from,
    start_complete,
)
from replog.log.recovery.cut_bytes import CutPiece, keep_cut, tell_cut
from replog.log.recovery.loaded_log import LoadedLog, RecoveryReport
from replog.log.recovery.loader_scan import SegmentScanning
from replog.log.recovery.plausibility import epochs_fit, lost_segments
from replog.log.recovery.segment_recovery import SegmentScanner
from replog.log.segments.files import TEMPORARY_SUFFIX
from replog.log.segments.offset_index import RELATIVE_OFFSET_MAX
from replog.log.segments.promised_end import promised_end_offset
from replog.log.segments.scan import scan_headers
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.records import describe_epoch


class LogRecovery(SegmentScanning):
    """The part of opening a log that decides which bytes are believed, read and cut.

    After a clean stop nothing is scanned but the few batches behind the last index entry, and the last segment where it does
    not end at the recovery point.  Otherwise every segment from the
    one with the recovery point on is read and checked::

        recovery point                                      first damage
             |                                                   |
        -----+--------------------- good batches ----------------+ x x x x   -> cut here; later segments deleted

        first damage        flushed offset
             |                    |
        -----+ x x x x x x x x x -+-----------------            -> bytes that were flushed have changed or are gone:
                                                                   CorruptRecordError, nothing is touched

    The flushed offset is the one in the file of that name (see `flushed_offset`), or the recovery point if that is higher.

    | crash during recovery                             | what the next start finds                             |
    |---------------------------------------------------|-------------------------------------------------------|
    | while what is cut is copied beside the log        | the same                                              |
    | while later segments are deleted (log not cut yet) | the same damage at the same place: same decision      |
    | after the cut, before new indexes are written     | no usable index and a low recovery point: scanned again |
    """

    def _refuse_hole(self, segment: LogSegment, end_offset: int, next_base_offset: int) -> None:
        """Refuses a segment that does not reach to the next one although no offset was ever left out."""
        start_offset = max(end_offset, self._complete.offset or 0, self.log_start_offset)
        if self._complete.offset is not None and start_offset < next_base_offset and not self.opens_holes:
            raise hole(segment.path, segment.size_bytes, start_offset, next_base_offset)

    def _check_empty(self) -> int:
        if self._flushed_offset > self.log_start_offset:
            raise self._lost(self.directory, 0, self.log_start_offset, "there are no segment files")
        return self.log_start_offset

    def _recover(self, segments: list[LogSegment]) -> int:
        """Checks the segments that must be checked, leaves the last one active; returns the log end offset."""
        scan_from = self.recovery_point if self.scan_from is None else self.scan_from
        first_scanned = len(segments) if self.clean else _number_for(segments, scan_from)
        if first_scanned < len(segments):  # the log's own epochs there replace those of the checkpoint
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
        """Forgets the epochs of a checkpoint that contradicts the batches: they are made again from the log."""
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
            CorruptRecordError: It does, and offsets behind it are missing.
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
        """Returns the end offset of a segment that need not be scanned (a sealed one: its base offset); None: scan it."""
        if is_last:
            try:
                end_offset = segment.load_indexes(self.config)
            except (CorruptIndexError, CorruptRecordError):
                return None
            if end_offset != self.recovery_point:  # a clean stop leaves it there: the last batch is in doubt
                return None
        elif segment.has_usable_indexes(self._names):
            end_offset = segment.base_offset
        else:
            return None
        if self.report.epochs_rebuilt:
            for position, header in scan_headers(segment.file, 0, segment.size_bytes):
                epoch = header.partition_leader_epoch
                reason = describe_epoch(epoch, self._last_epoch)
                if reason is not None and self._is_flushed(header.base_offset):
                    raise self._lost(segment.path, position, header.base_offset, reason)
                self._note_epoch(epoch, header.base_offset)
            segment.release(self._closer)
        return end_offset

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
            return False  # a follower met a wide gap, and flushed first (`ActiveSegment.make_room`)
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


def _number_for(segments: list[LogSegment], offset: int) -> int:
    """Returns the number of the segment that may hold `offset`."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)


_CHECKPOINT_DELETED: Final = ".checkpoint.deleted"


class LogLoader(LogRecovery):
    """Opens one log; used once.  See `LoaderState` for its input."""

    def load(self) -> LoadedLog:
        """Opens the log; when it returns, cuts and deletions are durable.

        Raises:
            CorruptRecordError: Flushed bytes are damaged or gone; nothing was changed.
            OSError: The disk failed.
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
            for segment in segments:  # only this function knows their descriptors
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
        segments.active.own()  # it is appended to
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
        self._find_producers(segments, log_end_offset)
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

    def _find_producers(self, segments: SegmentList, log_end_offset: int) -> None:
        """Finds the producers at the log end, as every later start will, and has a snapshot that outlives all but the last segment.

        A scan may know less than a snapshot above its beginning, which knows producers of deleted segments.  It may know more, as it
        finds producers again that had been forgotten.
        """
        newest = max(snapshot_offsets(self.fs, self.directory), default=None)
        snapshot_offset = self._producers_from
        if self._producers_at == log_end_offset and (newest is None or newest == snapshot_offset):
            deepen_producers(self._producers, segments, self.config.producer_tail_bytes)
        else:
            snapshot_offset = rebuild_producers(
                self.fs,
                self.directory,
                self._producers,
                segments,
                self.config,
                self.now_ms,
                flushed_offset=OFFSET_MAX,
            )
        is_missing = snapshot_offset is None or snapshot_offset < segments.active.base_offset
        if is_missing and len(segments) > 1 and not self.is_read_only:
            try:
                restore_snapshot(self.fs, self.directory, list(segments), self.now_ms)
            except OSError as error:
                if not is_disk_full(error):  # else the next start tries again
                    raise

    def _recovery_point_after(self, segments: SegmentList, log_start_offset: int, log_end_offset: int) -> int:
        """Returns how far the log is flushed; flushes it first where that would lie below the log start.

        Or the next checkpoint would have to lower the log start again.
        """
        if self.clean:
            return log_end_offset
        recovery_point = max(min(self.recovery_point, log_end_offset), segments.active.base_offset)
        if recovery_point >= log_start_offset:
            return recovery_point
        segments.active.file.sync()
        self.fs.sync_dir(self.directory)
        return log_end_offset

    def _find_segments(self, names: list[str]) -> list[LogSegment]:
        found = (parse_file_name(name) for name in names)
        offsets = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == LOG_SUFFIX)
        segments: list[LogSegment] = []
        for offset in offsets:
            size_bytes = self.fs.size(file_path(self.directory, offset, LOG_SUFFIX))
            segments.append(LogSegment(self.fs, self.directory, offset, size_bytes, self.now_ms))
            kinds = (TRANSACTION_INDEX_SUFFIX, TRANSACTION_WITNESS_SUFFIX)
            segments[-1].has_transactions = any(f"{offset:020d}{kind}" in self._names for kind in kinds)
        return segments

    def _sweep(self, names: list[str]) -> None:
        """Deletes the remains of an interrupted deletion or compaction, and indexes without a log.

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

    def _refuse_lost_segments(self, names: list[str]) -> None:
        lost = lost_segments(names, self.log_start_offset, was_clean=self.clean)
        missing = [offset for offset in lost if offset < self._flushed_offset]
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

    def _refuse_log_start(self, segments: list[LogSegment], log_end_offset: int) -> None:
        """Refuses a log that ends below its checkpointed start although some of it was flushed.

        Emptying a log lowers the flushed offset and the recovery point to 0 first, and no other step checkpoints a start above the end.
        """
        if self._flushed_offset > 0:
            reason = f"the checkpointed log start {self.log_start_offset} lies above it, which cannot be"
            raise self._lost(segments[-1].path, segments[-1].size_bytes, log_end_offset, reason)

    def _read_epochs(self) -> None:
        """Reads the epochs from the checkpoint; a missing or damaged one is made again from the log, never taken as empty."""
        path = epoch_path(self.directory)
        try:
            self._epochs_on_disk = checkpoints.read_leader_epochs(self.fs, path)
        except checkpoints.DamagedCheckpointError:
            self._epochs_on_disk = None
        self.report.epochs_rebuilt = self._epochs_on_disk is None
        self._epochs = LeaderEpochCache(self._epochs_on_disk or [], lambda _: None)
