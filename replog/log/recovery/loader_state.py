"""The input of opening a log, its findings so far, and the refusal of a log whose flushed bytes are damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from replog.errors import CorruptRecordError
from replog.log.config import LogConfig
from replog.log.epoch_cache import LeaderEpochCache
from replog.log.file_closer import FileCloser
from replog.log.producers.state import ProducerStateManager
from replog.log.recovery.completeness import Completeness
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loaded_log import RecoveryReport
from replog.log.recovery.segment_recovery import ScanProgress, SegmentScanner
from replog.log.segments.segment import LogSegment
from replog_checkpoints import FileSystem


@dataclass(slots=True)
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
    _producers_from: int | None = field(init=False, default=None)  # offset of the snapshot that they come from
    _complete: Completeness = field(init=False)
    _last_epoch: int = field(init=False, default=UNKNOWN_EPOCH)  # of the batches looked at so far, as they say
    _believes_epochs: bool = field(init=False, default=False)  # the checkpoint fits what is not looked at
    _lost_start: int | None = field(init=False, default=None)  # the log start, where the files with it are gone

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
