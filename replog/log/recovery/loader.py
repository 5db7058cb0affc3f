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
from replog.errors import DiskFullError
from replog.log.compaction.swap import complete_swaps
from replog.log.disk_space import is_disk_full
from replog.log.epoch_cache import LeaderEpochCache, epoch_path, write_epochs
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
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
from replog.log.recovery.cut_bytes import CutPiece, tell_cut
from replog.log.recovery.loaded_log import LoadedLog, RecoveryReport
from replog.log.recovery.plausibility import lost_segments
from replog.log.recovery.segment_recovery import SegmentScanner
from replog.log.recovery.unclean_segments import LogRecovery
from replog.log.segments.files import TEMPORARY_SUFFIX
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.log.segments.segment_list import SegmentList

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
            segments[-1].has_transactions = f"{offset:020d}{TRANSACTION_INDEX_SUFFIX}" in self._names
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
