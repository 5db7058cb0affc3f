"""Compaction: the part that the owner of a log does, before and after a pass in another thread.

The segments that a pass may touch are decided when it is prepared.  Whether its result still fits is decided at its end:

| meanwhile the owner                | completing the pass                                                           |
|------------------------------------|-------------------------------------------------------------------------------|
| appends, rolls, flushes            | exchanges the segments                                                         |
| truncates                          | throws the result away: the segments it read may be gone                      |
| deletes segments that it read      | throws the result away: it would bring deleted records back                   |
| closes or deletes the log          | throws the result away; the pass stops early                                   |
"""

from __future__ import annotations

from functools import partial

from replog.errors import CorruptRecordError, InvariantViolationError, StorageError
from replog.log.compaction.job import CompactionJob, CompactionSettings, CompactionStats
from replog.log.compaction.planning import Dirtiness, SourceSegment, measure
from replog.log.compaction.swap import rename_to_swap, strip_swap
from replog.log.disk_space import disk_full, disk_full_errors, is_disk_full, is_out_of_files
from replog.log.file_names import CLEANED_SUFFIX
from replog.log.producers.files import remove_snapshot
from replog.log.reading.aborted import aborted_transactions
from replog.log.reading.reader import LogReader
from replog.log.segments.segment import LogSegment
from replog.log.state import LogState


class Compactor:
    """Prepares compactions of a log, and puts their results in place.

    Args:
        state: The state of the log.
        reader: The reader of the log, whose places are wrong once segments are exchanged.
    """

    __slots__ = ("_job", "_reader", "_state")

    def __init__(self, state: LogState, reader: LogReader) -> None:
        self._state = state
        self._reader = reader
        self._job: CompactionJob | None = None  # that is under way

    def dirtiness(self, now_ms: int, high_watermark: int) -> Dirtiness:
        """Measures how much there is to compact.

        Args:
            now_ms: Wall time.
            high_watermark: The high watermark, exclusive; nothing that reaches above it is looked at.

        Raises:
            TooManyOpenFilesError, StorageError: A file cannot be read.
        """
        state = self._state
        try:
            with disk_full_errors("a log cannot be read", state.directory):
                return measure(
                    state.segments,
                    state.config,
                    first_dirty_offset=max(state.first_dirty_offset, state.log_start_offset),
                    ceiling=min(state.last_stable_offset(high_watermark), state.recovery_point),
                    now_ms=now_ms,
                )
        except OSError as error:
            raise StorageError(f"{state.topic_partition} cannot be read: {error}. Check the disk") from error

    def prepare_compaction(
        self, now_ms: int, high_watermark: int, settings: CompactionSettings | None = None
    ) -> CompactionJob | None:
        """Prepares one pass over the log.  Every job must be handed to `complete_compaction`, whether it ran or not.

        Args:
            now_ms: Wall time.
            high_watermark: The high watermark, exclusive; nothing that reaches above it is touched, nor records that are
                not on stable storage, in an open transaction or in the active segment.
            settings: Settings of the broker; None: Kafka's defaults.

        Returns:
            None: the log is not compacted by its `cleanup_policy`, not dirty enough, or a pass is under way.

        Raises:
            TooManyOpenFilesError, StorageError: A file cannot be read, or the log has failed.
        """
        state = self._state
        state.guard.check()
        if not state.config.compacts or self._job is not None:
            return None
        dirtiness = self.dirtiness(now_ms, high_watermark)
        if not dirtiness.is_due(state.config):
            return None
        aborted = aborted_transactions(state, state.segments[0].base_offset, dirtiness.end_offset)
        producers = state.producers.producers
        self._job = CompactionJob(
            state.fs,
            state.directory,
            state.config,
            settings or CompactionSettings(),
            [self._source(number) for number in range(dirtiness.segments_count)],
            aborted,
            first_dirty_offset=dirtiness.first_dirty_offset,
            last_data_offsets=frozenset(one.batches[-1].last_offset for one in producers.values() if one.batches),
            marker_epochs={pid: one.producer_epoch for pid, one in producers.items() if not one.batches},
            generation=state.generation,
            now_ms=now_ms,
        )
        return self._job

    def complete_compaction(self, job: CompactionJob, now_ms: int) -> CompactionStats | None:
        """Takes the result of a pass: the compacted segments take the place of those it read.

        Args:
            job: A job of this log; finished, or cancelled before it ran.
            now_ms: Wall time; the old files go `file_delete_delay_ms` later.

        Returns:
            The statistics; None: the log changed meanwhile or the job was cancelled, and nothing was changed.

        Raises:
            CorruptRecordError: A batch is damaged; the log is untouched and not failed.
            DiskFullError: There is no room for the new segments; the log is untouched, the same may work later.  Or,
                for want of descriptors, they are exchanged, and that ends with the next change.
            UnsupportedCompressionError: A library is not installed; the log is untouched.
            StorageError: The disk failed.  `failed` tells whether the log did as well.
        """
        state = self._state
        if self._job is not job:
            raise InvariantViolationError(
                f"{state.topic_partition}: a compaction was completed that it did not prepare"
            )
        self._job = None
        if state.guard.is_closed or job.is_cancelled or not self._still_has(job):
            job.discard()
            return None
        if job.error is not None:
            self._refuse_compaction(job.error)
        if not job.finished:
            raise InvariantViolationError(f"{state.topic_partition}: a compaction was completed that never ran")
        if state.guard.refusal is not None:
            job.discard()
        state.guard.check()
        try:
            state.complete.withdraw()
        except OSError as error:
            job.discard()
            self._refuse_compaction(error)
        try:
            replaced = self._swap(job, now_ms)
        except OSError as error:
            state.guard.fail("exchanging compacted segments failed", error)
        state.raise_first_dirty_offset(job.stats.clean_end_offset)
        state.guard.end("exchanging compacted segments", partial(self._end_swap, replaced, job.segments))
        return job.stats

    def cancel(self) -> None:
        """Makes a pass that is under way stop early: the log is closed."""
        if self._job is not None:
            self._job.cancel()

    # Parts

    def _source(self, number: int) -> SourceSegment:
        segment = self._state.segments[number]
        end_offset = self._state.segments[number + 1].base_offset
        return SourceSegment(segment, segment.path, segment.base_offset, end_offset, segment.size_bytes)

    def _still_has(self, job: CompactionJob) -> bool:
        """Whether the log still holds the segments that the job read."""
        state = self._state
        first = state.segments.number_for(job.sources[0].base_offset)
        if job.generation != state.generation or first + len(job.sources) >= len(state.segments):
            return False
        return all(state.segments[first + i] is source.segment for i, source in enumerate(job.sources))

    def _refuse_compaction(self, error: Exception) -> None:
        """Raises the error that the job met; the log fails with it only when an fsync did."""
        state = self._state
        if isinstance(error, OSError):
            if is_disk_full(error):
                raise disk_full("compacted segments cannot be written", state.directory, error) from error
            raise StorageError(f"{state.topic_partition} cannot be compacted: {error}. Check the disk") from error
        if isinstance(error, StorageError) and not isinstance(error, CorruptRecordError):
            state.guard.fail("a compaction failed", error)
        raise error

    def _swap(self, job: CompactionJob, now_ms: int) -> list[LogSegment]:
        """Exchanges the segments; see `compaction.swap` for the steps and what a crash leaves.

        Returns:
            Those that are replaced; `_end_swap` must follow.
        """
        state = self._state
        count = job.stats.segments_before
        first = state.segments.number_for(job.sources[0].base_offset)
        try:
            rename_to_swap(state.fs, state.directory, job.segments)
        except OSError as error:
            if not is_out_of_files(error):
                raise
            for segment in job.segments:  # or a start after a crash would find a swap that is decided
                segment.change_suffix(CLEANED_SUFFIX)
            job.discard()
            self._refuse_compaction(error)
        state.touch()
        self._reader.forget_places()
        replaced = state.replace_segments(first, count, job.segments)
        state.deleted.add(replaced, now_ms + state.config.file_delete_delay_ms)
        return replaced

    def _end_swap(self, replaced: list[LogSegment], new: list[LogSegment]) -> None:
        """Takes steps 5 to 7 of `compaction.swap`, which may be done again."""
        self._state.fs.sync_dir(self._state.directory)
        strip_swap(self._state.fs, self._state.directory, new)
        self._remove_snapshots_without_segment(replaced, new)

    def _remove_snapshots_without_segment(self, gone: list[LogSegment], new: list[LogSegment]) -> None:
        """Removes producer snapshots that stand at no segment's base any more; else the next open would."""
        bases = {segment.base_offset for segment in new}
        for segment in gone:
            if segment.base_offset not in bases:
                remove_snapshot(self._state.fs, self._state.directory, segment.base_offset)
