"""Opening a log: what the files of a directory say after a clean stop or a crash (kafka-reference 3.2 to 3.5).

After a clean stop nothing is scanned but the few batches behind the last index entry.  Otherwise every segment from the
one with the recovery point on is read and checked::

    recovery point                                      first damage
         |                                                   |
    -----+--------------------- good batches ----------------+ x x x x   -> cut here; later segments deleted

    first damage        recovery point
         |                    |
    -----+ x x x x x x x x x -+-----------------            -> bytes that were flushed have changed or are gone:
                                                               CorruptRecordError, nothing is touched

| crash during recovery                             | what the next start finds                             |
|---------------------------------------------------|-------------------------------------------------------|
| while later segments are deleted (log not cut yet) | the same damage at the same place: same decision      |
| after the cut, before new indexes are written     | no usable index and a low recovery point: scanned again |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import replog_checkpoints as checkpoints
from replog.errors import CorruptIndexError, CorruptRecordError, StorageError
from replog.log.config import LogConfig
from replog.log.epoch_cache import LeaderEpochCache
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_path,
    parse_file_name,
)
from replog.log.flush import FileCloser
from replog.log.producer_files import rebuild_producers, remove_snapshots, remove_stray_snapshots
from replog.log.producer_state import ProducerStateManager
from replog.log.segment import OFFSET_MAX, RELATIVE_OFFSET_MAX, LogSegment
from replog.log.segment_list import SegmentList
from replog.log.segment_scan import scan_batches, scan_headers
from replog.records import BatchHeader
from replog_checkpoints import FileSystem

_CHECKPOINT_DELETED: Final = ".checkpoint.deleted"


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did.

    Attributes:
        clean: the caller vouched for a clean stop.
        segments_scanned: segments whose every byte was checked.
        bytes_scanned: good bytes in them.
        bytes_cut: bytes cut from a torn tail, deleted segments included.
        segments_removed: deleted because they lay behind the cut.
        epochs_rebuilt: the leader-epoch checkpoint was missing or damaged, and was made again from the log.
    """

    clean: bool
    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    segments_removed: int = 0
    epochs_rebuilt: bool = False


@dataclass(slots=True)
class LoadedLog:
    """Everything a `Log` starts from."""

    segments: SegmentList
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    closer: FileCloser
    report: RecoveryReport
    created: bool


@dataclass(slots=True)
class LogLoader:
    """Opens one log; used once.

    Args:
        fs: the disk.
        directory: of the log, exists.
        config: of the log.
        recovery_point: everything below it was flushed.
        log_start_offset: as checkpointed; 0 when not.
        clean: the last stop was clean.
        now_ms: wall time.
    """

    fs: FileSystem
    directory: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean: bool
    now_ms: int
    report: RecoveryReport = field(init=False)
    _closer: FileCloser = field(init=False, default_factory=FileCloser)
    _epochs: LeaderEpochCache = field(init=False)
    _epochs_on_disk: list[tuple[int, int]] | None = field(init=False, default=None)
    _directory_changed: bool = field(init=False, default=False)

    def load(self) -> LoadedLog:
        """Does it all; when it returns, what was cut or deleted is so durably.

        Raises:
            CorruptRecordError: flushed bytes are damaged or gone; nothing was changed.
            StorageError: the directory needs Kafka to finish an interrupted compaction.
            OSError: the disk failed.
        """
        self.report = RecoveryReport(self.clean)
        names = self.fs.list_dir(self.directory)
        self._refuse_swaps(names)
        segments = self._find_segments(names)
        created = not segments
        self._read_epochs()
        log_end_offset = self._recover(segments) if segments else self._check_empty()
        self._sweep(names)
        if segments and log_end_offset < self.log_start_offset:
            self._remove_from(segments, 0)
            self._epochs.clear()
        if not segments:
            log_end_offset = self.log_start_offset
            segments.append(LogSegment.create(self.fs, self.directory, log_end_offset, self.config, self.now_ms))
            self._directory_changed = True
        return self._finish(SegmentList(segments, self._closer), log_end_offset, created)

    def _finish(self, segments: SegmentList, log_end_offset: int, created: bool) -> LoadedLog:
        log_start_offset = max(self.log_start_offset, segments[0].base_offset)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(segments[0].base_offset)
        self._directory_changed |= remove_snapshots(self.fs, self.directory, above=log_end_offset)
        if self._directory_changed:
            self.fs.sync_dir(self.directory)
        if self._epochs.entries != self._epochs_on_disk:
            self._write_epochs(self._epochs.entries)
        producers = ProducerStateManager()
        remove_stray_snapshots(self.fs, self.directory, segments)
        rebuild_producers(
            self.fs,
            self.directory,
            producers,
            segments,
            self.config,
            self.now_ms,
            flushed_offset=OFFSET_MAX,
        )
        segments.release_all()
        recovery_point = max(min(self.recovery_point, log_end_offset), segments.active.base_offset)
        return LoadedLog(
            segments=segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset if self.clean else recovery_point,
            epochs=LeaderEpochCache(self._epochs.entries, self._write_epochs),
            producers=producers,
            closer=self._closer,
            report=self.report,
            created=created,
        )

    # Files

    def _refuse_swaps(self, names: list[str]) -> None:
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        if swaps:
            raise StorageError(
                f"{self.directory} holds {swaps[0]}, half of a compaction that Kafka did not finish. "
                "Nothing was changed: start Kafka on it once so that it completes the swap, then stop it"
            )

    def _find_segments(self, names: list[str]) -> list[LogSegment]:
        found = (parse_file_name(name) for name in names)
        offsets = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == LOG_SUFFIX)
        return [
            LogSegment(
                self.fs,
                self.directory,
                offset,
                self.fs.size(file_path(self.directory, offset, LOG_SUFFIX)),
                self.now_ms,
            )
            for offset in offsets
        ]

    def _sweep(self, names: list[str]) -> None:
        """Deletes what an interrupted deletion or compaction left, and indexes without a log."""
        present = set(names)
        for name in names:
            parsed = parse_file_name(name)
            leftover = name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) and not name.endswith(_CHECKPOINT_DELETED)
            orphan = (
                parsed is not None and parsed[1] in SEGMENT_SUFFIXES and f"{parsed[0]:020d}{LOG_SUFFIX}" not in present
            )
            if leftover or orphan:
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

    # Leader epochs

    def _read_epochs(self) -> None:
        """From the checkpoint; a missing or damaged one is made again from the log, never taken as empty."""
        path = self._epoch_path()
        try:
            self._epochs_on_disk = checkpoints.read_leader_epochs(self.fs, path)
        except checkpoints.CorruptCheckpointError:
            self._epochs_on_disk = None
        self.report.epochs_rebuilt = self._epochs_on_disk is None
        self._epochs = LeaderEpochCache(self._epochs_on_disk or [], lambda _: None)

    def _write_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        checkpoints.write_leader_epochs(self.fs, self._epoch_path(), entries)

    def _epoch_path(self) -> str:
        return f"{self.directory}/{checkpoints.LEADER_EPOCH_FILE}"

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        latest = self._epochs.latest_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            self._epochs.assign(epoch, base_offset)

    # Recovery

    def _check_empty(self) -> int:
        if self.recovery_point > self.log_start_offset:
            raise CorruptRecordError(
                self.directory,
                0,
                f"no segment files, but everything below offset {self.recovery_point} was flushed. Restore the files, or "
                "delete the directory so that the replica is copied from its leader",
            )
        return self.log_start_offset

    def _recover(self, segments: list[LogSegment]) -> int:
        """Checks what must be checked, leaves the last segment active; returns the log end offset."""
        first_scanned = len(segments) if self.clean else _number_for(segments, self.recovery_point)
        if first_scanned < len(segments):  # what the log says there replaces what the checkpoint says
            self._epochs.truncate_from_end(segments[first_scanned].base_offset)
        end_offset, number = segments[0].base_offset, 0
        while number < len(segments):
            segment, is_last = segments[number], number == len(segments) - 1
            end_offset = max(end_offset, segment.base_offset)
            trusted_end = self._trusted_end(segment, is_last=is_last) if number < first_scanned else None
            if trusted_end is not None:
                end_offset = trusted_end
            else:
                end_offset, damaged = self._scan(segment, end_offset)
                if damaged or self._is_hole(segments, number, end_offset):
                    self._cut(segments, number, end_offset)
                elif not is_last:
                    self._seal(segment)
            number += 1
        if self._is_flushed(end_offset):
            raise self._lost(segments[-1].path, segments[-1].size_bytes, end_offset, "the log ends here")
        return end_offset

    def _trusted_end(self, segment: LogSegment, *, is_last: bool) -> int | None:
        """End offset of a segment that need not be scanned (its base offset when it is sealed); None: scan it."""
        if is_last:
            try:
                end_offset = segment.load_indexes(self.config)
            except (CorruptIndexError, CorruptRecordError):
                return None
        elif segment.has_usable_indexes():
            end_offset = segment.base_offset
        else:
            return None
        if self.report.epochs_rebuilt:
            for _, header in scan_headers(segment.file, 0, segment.size_bytes):
                self._note_epoch(header.partition_leader_epoch, header.base_offset)
            segment.release(self._closer)
        return end_offset

    def _scan(self, segment: LogSegment, expected_offset: int) -> tuple[int, bool]:
        """Reads a whole segment and rebuilds its indexes in memory.

        Returns:
            The offset after its last good batch, and whether something else stands behind that batch.
        """
        size_bytes, segment.size_bytes = segment.size_bytes, 0
        segment.start_indexes(self.config)
        self.report.segments_scanned += 1
        damage: CorruptRecordError | None = None
        epoch = -1
        try:
            for position, header, _ in scan_batches(segment.file, 0, size_bytes):
                _check_order(segment, position, header, expected_offset, epoch)
                segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
                epoch = header.partition_leader_epoch
                self._note_epoch(epoch, header.base_offset)
                expected_offset = header.next_offset
        except CorruptRecordError as error:
            damage = error
        self.report.bytes_scanned += segment.size_bytes
        if damage is not None:
            if self._is_flushed(expected_offset):
                raise self._lost(segment.path, segment.size_bytes, expected_offset, damage.reason) from damage
            self.report.bytes_cut += size_bytes - segment.size_bytes
        return expected_offset, damage is not None

    def _is_hole(self, segments: list[LogSegment], number: int, end_offset: int) -> bool:
        """Whether a power cut took the end of this segment, at the border of a batch, but not the next segment.

        A segment begins where the one before it ended, unless compaction has been there since, and that happens below
        the recovery point only.
        """
        if number == len(segments) - 1 or segments[number + 1].base_offset <= max(end_offset, self.recovery_point):
            return False
        if self._is_flushed(end_offset):
            raise self._lost(segments[number].path, segments[number].size_bytes, end_offset, "the segment ends here")
        return True

    def _cut(self, segments: list[LogSegment], number: int, end_offset: int) -> None:
        """Cuts a torn tail: later segments first, so that a crash in between finds the same damage again."""
        self._remove_from(segments, number + 1)
        segments[number].truncate(segments[number].size_bytes, end_offset)

    def _seal(self, segment: LogSegment) -> None:
        """Makes a scanned segment durable, with its rebuilt indexes: the recovery point may pass it then.

        Not left to the next flush, which would need a descriptor for every segment that a lost checkpoint brought back.
        """
        segment.file.sync()
        for file in segment.write_indexes():
            file.sync()
            file.close()
        segment.drop_indexes()
        segment.release(self._closer)
        self._directory_changed = True

    def _is_flushed(self, offset: int) -> bool:
        """Whether damage at `offset` concerns bytes that were flushed and are still wanted."""
        return offset < self.recovery_point and self.recovery_point > self.log_start_offset

    def _lost(self, path: str, position: int, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            path,
            position,
            f"{reason} (offset {offset}), but everything below offset {self.recovery_point} was flushed: the disk lost or "
            "changed it. Nothing was cut or deleted. Restore the file, or delete the replica's directory so that it is "
            "copied from its leader",
        )


def _number_for(segments: list[LogSegment], offset: int) -> int:
    """Number of the segment that may hold `offset`."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)


def _check_order(
    segment: LogSegment, position: int, header: BatchHeader, expected_offset: int, previous_epoch: int
) -> None:
    """Offset and epoch are outside the checksum: a batch that was written here before the file was cut has a valid one.

    Raises:
        CorruptRecordError: this batch cannot follow the one before it.
    """
    epoch = header.partition_leader_epoch
    if header.base_offset < expected_offset or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        reason = f"offsets {header.base_offset} to {header.last_offset} cannot follow offset {expected_offset - 1}"
    elif 0 <= epoch < previous_epoch:
        reason = f"leader epoch {epoch} cannot follow epoch {previous_epoch}"
    else:
        return
    raise CorruptRecordError(segment.path, position, reason)
