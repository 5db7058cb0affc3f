"""The state of one log: the offsets, epochs, producers and segments that all parts of `Log` work on.

The parts read it as they like; only its methods change it, and each is one transition.  They share it because the rules between
offsets, epochs and segments hold for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from replog.errors import BrokerClosedError, OffsetOutOfRangeError, ReplogError, StorageError
from replog.log.config import LogConfig
from replog.log.deletion import DeletedSegments
from replog.log.disk_space import is_out_of_files, left_unfinished
from replog.log.epoch_cache import CachedEpochEnd
from replog.log.recovery.loaded_log import LoadedLog
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import LogFiles
from replog_checkpoints import File, FileSystem


class ChangeGuard:
    """Whether one log may be changed.

    It refuses changes once the log has failed, was closed, or was opened for reading only; and it ends a change that began and
    was kept from its end, by an interrupt (Ctrl-C) or for want of descriptors, before the next one begins.

    Attributes:
        refusal: The error that every change meets; None: the log may be changed.

    Invariants:
        - nothing is appended after a write or an fsync failed;
        - no change begins before the last one has ended.
    """

    __slots__ = ("_directory", "_rest", "_topic_partition", "refusal")

    def __init__(self, directory: str, topic_partition: str) -> None:
        self._directory = directory
        self._topic_partition = topic_partition
        self._rest: Callable[[], None] | None = None  # of a change that has begun; before the next one
        self.refusal: ReplogError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or deleted."""
        return isinstance(self.refusal, BrokerClosedError)

    @property
    def has_failed(self) -> bool:
        """Whether a write or an fsync failed, so that only reads work."""
        return isinstance(self.refusal, StorageError)

    def check(self) -> None:
        """Raises the error that every change meets, if there is one, and ends an interrupted change."""
        refusal = self.refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))
        if self._rest is not None:
            self.end("the last change", self._rest)

    def begin(self, rest: Callable[[], None]) -> None:
        """Begins a change.

        Args:
            rest: A function that ends or undoes it where it is interrupted; it does no harm where parts are done already.
        """
        self._rest = rest

    def done(self) -> None:
        """Ends a change of which nothing is left to do."""
        self._rest = None

    def end(self, action: str, rest: Callable[[], None]) -> None:
        """Ends a change that has begun; where no file can be opened, the next change ends it first.

        Args:
            action: The change as messages call it, such as "a truncation".
            rest: A function that does the rest, and no harm where parts of it are done already.

        Raises:
            TooManyOpenFilesError: The rest is still to be done.
            StorageError: The disk failed.
        """
        self._rest = rest
        try:
            rest()
        except OSError as error:
            if is_out_of_files(error):
                raise left_unfinished(f"{action} has not ended", self._directory, error) from error
            self.fail(f"{action} failed", error)
        except StorageError as error:
            self.note_failure(error)
            raise
        self._rest = None

    def refuse(self, refusal: ReplogError) -> None:
        """Refuses every change from now on, unless a failure does already."""
        if self.refusal is None:
            self.refusal = refusal

    def note_failure(self, error: Exception) -> None:
        """Marks the log as failed, unless it is closed: then the error of a late flush does not matter.

        May run in the thread of a flush.
        """
        if self.is_closed:
            return
        self.refusal = StorageError(
            f"{self._directory}: {error}. What is on disk is unknown now, so nothing more is appended: "
            "check the disk, then open the log again (restart the broker whose log it is), which verifies it"
        )

    def fail(self, action: str, error: OSError | StorageError) -> NoReturn:
        """Marks the log as failed, because the content of the disk is unknown, and raises."""
        self.note_failure(error)
        raise StorageError(f"{self._topic_partition}: {action}: {self.refusal}") from error


class LogState:
    """The state of one replica's log.

    Attributes:
        fs: The disk.
        directory: The partition folder.
        topic_partition: Name for messages.
        admission: A function that is asked with the number of bytes before each append; None: there is room for all.
        checkpoint: A function that makes recovery point and log start durable; None: the caller keeps neither.
        config: Settings in force.
        guard: Whether the log may be changed.
        segments: The segments; the last one is active.
        deleted: The segments that left the log and still have files.
        closer: The closer, which closes files once no job uses them.
        epochs: Which leader epoch began where.
        producers: Idempotent producers.
        complete: From where on no offset was left out.
        flushed_file: The file beside the log that says how far it is flushed.
        report: The findings of opening it.
        log_start_offset: First offset that may be read.
        log_end_offset: Offset of the next record, exclusive end.
        recovery_point: Everything below is on stable storage (or deleted), exclusive; without regard to the log start.
        first_dirty_offset: Everything below it was compacted.
        last_epoch: The latest leader epoch in the cache; None when there is none.
        generation: How often the log was cut: data that were captured before a cut are void after it.
        unsynced: Open files beside the log, indexes and snapshots, that wait for the next flush.
        name_changes: How often names in the directory changed.
        name_changes_synced: How many of these changes are on stable storage.
        is_touched: Whether anything changed, so that an orderly stop has something to write.
        wall_ms: The last wall time that a caller told.

    Invariants:
        - `log_start_offset <= flushed_offset <= log_end_offset`;
        - nothing else than its methods assigns to its attributes, or changes its segments and epochs.
    """

    __slots__ = (
        "_is_emptied",
        "admission",
        "checkpoint",
        "closer",
        "complete",
        "config",
        "deleted",
        "directory",
        "epochs",
        "first_dirty_offset",
        "flushed_file",
        "fs",
        "generation",
        "guard",
        "is_touched",
        "last_epoch",
        "log_end_offset",
        "log_start_offset",
        "name_changes",
        "name_changes_synced",
        "producers",
        "recovery_point",
        "report",
        "segments",
        "topic_partition",
        "unsynced",
        "wall_ms",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        topic_partition: str,
        loaded: LoadedLog,
        checkpoint: Callable[[], None] | None,
        now_ms: int,
        admission: Callable[[int], None] | None = None,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.topic_partition = topic_partition
        self.admission = admission
        self.config = config
        self.guard = ChangeGuard(directory, topic_partition)
        self.segments = loaded.segments
        self.deleted = DeletedSegments(fs, loaded.closer)
        self.closer = loaded.closer
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.complete = loaded.complete
        self.flushed_file = loaded.flushed_file
        self.report = loaded.report
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.first_dirty_offset = 0  # as restored, or from the last compaction
        self.last_epoch = loaded.epochs.latest_epoch
        self.generation = 0
        self.unsynced: list[File] = []
        self.name_changes: int = 0 if loaded.report.clean else 1  # a killed process may have left names unsynced
        self.name_changes_synced = 0
        self.is_touched = loaded.created or not loaded.report.clean or loaded.report.segments_scanned > 0
        self.wall_ms = now_ms
        self.checkpoint = checkpoint
        self._is_emptied = False

    # What follows from it

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage (or deleted), exclusive: how far a power cut cannot reach."""
        return max(self.recovery_point, self.log_start_offset)

    @property
    def checkpointed_log_start_offset(self) -> int:
        """The log start as far as a crash cannot leave it above the log end, unless the log is being emptied."""
        if self._is_emptied:
            return self.log_start_offset
        return min(self.log_start_offset, max(self.recovery_point, self.segments[0].base_offset))

    @property
    def needs_log_start_checkpoint(self) -> bool:
        """Whether the oldest segment's name does not say where the log starts (or goes before another name says it)."""
        return self._is_emptied or self.log_start_offset > self.segments[0].base_offset

    @property
    def has_unsynced_names(self) -> bool:
        """Whether names in the directory changed since it was fsynced."""
        return self.name_changes > self.name_changes_synced

    def files(self) -> LogFiles:
        """Returns the segments that the log consists of now, with their sizes."""
        return LogFiles(self.generation, tuple((segment, segment.size_bytes) for segment in self.segments))

    def end_offset_for_epoch(self, epoch: int) -> CachedEpochEnd | None:
        """Returns where `epoch` ended here; None when this log cannot know (docs/KAFKA.md 3.5)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which every transaction has ended, and its end is replicated (docs/KAFKA.md 4.1).

        Args:
            high_watermark: The high watermark, exclusive.
        """
        unstable_offset = self.producers.first_unstable_offset(high_watermark)
        if unstable_offset is None:
            return high_watermark
        return min(high_watermark, max(unstable_offset, self.log_start_offset))

    # Settings

    def set_config(self, config: LogConfig) -> None:
        """Takes new settings; index limits apply from the next segment on."""
        self.config = config

    def touch(self) -> None:
        """Notes that an orderly stop has something to write: indexes, producers."""
        self.is_touched = True

    # Appends

    def begin_epochs(self, starts: Sequence[tuple[int, int]]) -> None:
        """Notes, durably, that epochs begin at the (epoch, offset) pairs; where it is the latest one, it goes on.

        Raises:
            DiskFullError: There is no room; nothing was changed.
            StorageError: The disk failed.
        """
        if len(starts) == 1 and starts[0][0] == self.last_epoch:
            return
        try:
            self.epochs.assign_all(starts)
        except OSError as error:
            self.guard.fail("the leader-epoch checkpoint cannot be written", error)
        self.last_epoch = self.epochs.latest_epoch

    def note_appended(self, log_end_offset: int, now_ms: int) -> None:
        """Moves the log end behind the batches that the active segment holds by now."""
        self.is_touched = True
        self.wall_ms = now_ms
        self.log_end_offset = log_end_offset

    # Segments and names

    def note_name_change(self) -> None:
        """Notes that a name in the directory changes: the next flush fsyncs it.

        Before the change, or an interrupt could leave a name without an fsync.
        """
        self.name_changes += 1

    def note_names_synced(self, name_changes: int) -> None:
        """Notes that the directory was fsynced after so many changes."""
        self.name_changes_synced = max(self.name_changes_synced, name_changes)

    def note_name_synced(self) -> None:
        """Notes that the directory was fsynced for the last change of a name: no flush has to."""
        self.name_changes -= 1

    def begin_segment(self, active: LogSegment, unsynced: Sequence[File] = ()) -> None:
        """Makes an empty segment the active one.

        Args:
            active: The segment, whose base offset is above all others.
            unsynced: Open files of the former active one, for the next flush to sync.
        """
        self.unsynced += unsynced
        self.segments.append(active)

    def remove_last_segment(self) -> None:
        """Deletes the last segment."""
        self.segments.remove_last()

    def replace_segments(self, first_number: int, count: int, segments: Sequence[LogSegment]) -> list[LogSegment]:
        """Puts segments in the place of others; returns those that went.  See `SegmentList.replace`."""
        return self.segments.replace(first_number, count, segments)

    # Flushes

    def drop_unsynced(self, files: Sequence[File]) -> None:
        """Closes those of the files that were waiting for a flush: they are synced, or not needed any more."""
        for file in files:
            if file in self.unsynced:
                self.unsynced.remove(file)
                self.closer.close(file)

    def raise_recovery_point(self, offset: int) -> None:
        """Notes that everything below `offset` is on stable storage; closes the sealed segments that this completes."""
        flushed_before, self.recovery_point = self.recovery_point, offset
        self.segments.release_flushed(flushed_before, offset)

    # Truncation

    def begin_generation(self) -> None:
        """Notes that the log is about to be cut: data that were captured before are void."""
        self.is_touched = True
        self.generation += 1

    def move_log_start(self, offset: int) -> None:
        """Lets the log start at `offset`, which may be lower: it is cut or emptied, or was not after all."""
        self.log_start_offset = offset

    def lower_recovery_point(self, offset: int) -> None:
        """Withdraws the promise that records at or above `offset` are on stable storage."""
        self.recovery_point = min(self.recovery_point, offset)

    def lower_first_dirty_offset(self, offset: int) -> None:
        """Notes that nothing at or above `offset` is compacted any more."""
        self.first_dirty_offset = min(self.first_dirty_offset, offset)

    def forget_epochs_from(self, end_offset: int) -> None:
        """Removes, durably, the epochs that began at or above `end_offset`."""
        self.epochs.truncate_from_end(end_offset)
        self.last_epoch = self.epochs.latest_epoch

    def forget_epochs(self) -> None:
        """Removes, durably, all epochs: the log is being emptied."""
        self.epochs.clear()
        self.last_epoch = self.epochs.latest_epoch

    def end_at(self, offset: int) -> None:
        """Lets the log end at `offset`: records behind it are cut."""
        self.log_end_offset = offset

    def write_checkpoint(self, *, is_emptied: bool) -> None:
        """Makes recovery point and log start durable, if a directory keeps them.

        Args:
            is_emptied: Whether the log start counts although it lies above the recovery point.

        Raises:
            DiskFullError, StorageError: They are not durable.
        """
        if self.checkpoint is None:
            return
        self._is_emptied = is_emptied
        try:
            self.checkpoint()
        finally:
            self._is_emptied = False

    # Deletion and compaction

    def raise_log_start(self, offset: int) -> None:
        """Moves the log start up: records below may be deleted.  Lower offsets are ignored.

        Not durable by itself: after a crash the log may start lower again, and its leader epochs are still known then
        (they are forgotten with the segments, unlike in Kafka).

        Raises:
            OffsetOutOfRangeError: The offset is above the log end.
        """
        self.guard.check()
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} ends at {self.log_end_offset}, it cannot start at {offset}",
                self.log_start_offset,
                self.log_end_offset,
            )
        self.log_start_offset = max(self.log_start_offset, offset)

    def forget_epochs_before(self, offset: int) -> None:
        """Forgets, durably, the epochs that ended at or below `offset`, where the log starts."""
        self.epochs.truncate_from_start(offset)

    def restore_first_dirty_offset(self, offset: int) -> None:
        """Takes over the offset of a cleaner checkpoint; 0 if there is none: everything is dirty."""
        self.first_dirty_offset = min(offset, self.log_end_offset)

    def raise_first_dirty_offset(self, offset: int) -> None:
        """Notes that everything below `offset` is compacted."""
        self.first_dirty_offset = max(self.first_dirty_offset, offset)

    # Its end

    def close(self) -> None:
        """Closes every file; from now on the log refuses every change."""
        self.flushed_file.close()
        for file in self.unsynced:
            self.closer.close(file)
        self.unsynced.clear()
        self.deleted.release_all()
        self.segments.release_all()
        self.guard.refuse(BrokerClosedError(f"{self.topic_partition} is closed"))
