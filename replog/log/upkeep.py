"""The upkeep of a log: old segments go, their files follow, lost indexes come back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from replog.errors import CorruptRecordError, DiskFullError, StorageError
from replog.log.active_segment import ActiveSegment
from replog.log.config import LogConfig
from replog.log.deletion import FileDeletionJob
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
from replog.log.producers.files import remove_snapshot
from replog.log.reading.reader import LogReader, unreadable
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.log.state import LogState
from replog_checkpoints import File


class Upkeep:
    """Deletes old segments and mends indexes.

    Args:
        state: The state of the log.
        reader: The reader of the log, whose places may be in a segment that goes.
        active: The active segment of the log, which goes only when another one took its place.
    """

    __slots__ = ("_active", "_reader", "_state")

    def __init__(self, state: LogState, reader: LogReader, active: ActiveSegment) -> None:
        self._state = state
        self._reader = reader
        self._active = active

    def claim_complete(self) -> None:
        """Notes that nothing compacts this log from its end on, unless a file says more already.

        For `open_log`, which knows that of its own logs.

        Older offsets are not covered: another program may have compacted them, or a segment may be gone for long.

        Raises:
            StorageError: The disk failed.
        """
        state = self._state
        if state.complete.offset is not None:
            return
        try:
            state.complete.claim(state.log_end_offset)
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(f"{state.directory} cannot be opened: {error}. Check the disk") from error

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Deletes the oldest segments that retention or the log start makes superfluous.

        Never one that reaches above the high watermark; the active one only after an empty one took its place.  One by
        one, each durably: a crash leaves a later start, never a hole.  Their files are renamed only: see
        `remove_deleted_files`.

        Returns:
            How many segments were deleted.
        """
        state = self._state
        state.guard.check()
        try:
            count = segments_to_delete(
                state.segments, state.config, now_ms, high_watermark, state.log_start_offset, state.log_end_offset
            )
        except OSError as error:
            raise unreadable(state, error) from error
        if count == len(state.segments) and not self._active.replace(now_ms):
            count -= 1
        if count:
            self._reader.forget_places()
        try:
            self._delete(count, now_ms)
            with contextlib.suppress(DiskFullError):  # deleting makes room; more epochs than segments do no harm
                state.forget_epochs_before(state.segments[0].base_offset)
        except OSError as error:
            if is_out_of_files(error):  # the renamed files are in order; the directory is fsynced with the next one
                state.note_name_change()
                state.guard.done()
                outcome = "What is deleted by now stays so, the rest goes the next time"
                raise disk_full("deleting old segments stopped early", state.directory, error, outcome) from error
            state.guard.fail("deleting old segments failed", error)
        self.mend_indexes()
        return count

    def _delete(self, count: int, now_ms: int) -> None:
        state = self._state
        if count:
            state.complete.raise_to(state.segments[count].base_offset)
            state.raise_log_start(state.segments[count].base_offset)
        for _ in range(count):
            self._delete_first(now_ms + state.config.file_delete_delay_ms)

    def _delete_first(self, due_ms: int) -> None:
        """Deletes the oldest segment; one whose files have got their new names only in part goes the next time."""
        state = self._state
        state.guard.begin(partial(state.fs.sync_dir, state.directory))
        segment = state.segments[0]
        state.deleted.add([segment], due_ms)
        state.replace_segments(0, 1, ())
        remove_snapshot(state.fs, state.directory, segment.base_offset)
        state.fs.sync_dir(state.directory)
        state.guard.done()

    def mend_indexes(self) -> int:
        """Puts an index on disk that a look-up found missing or wrong and made again in memory, one segment a call.

        Returns:
            How many segments.

        Raises:
            StorageError: The disk failed.
        """
        state = self._state
        state.guard.check()
        for number in range(state.segments.number_for(state.recovery_point)):
            segment = state.segments[number]
            if segment.needs_rewrite:
                return self._mend(segment)
        return 0

    def _mend(self, segment: LogSegment) -> int:
        state = self._state
        try:
            _sync_and_close(segment.rewrite_indexes())
            state.fs.sync_dir(state.directory)
        except CorruptRecordError:
            return 0  # reads of those records say so; there is nothing to make an index from
        except OSError as error:
            if is_disk_full(error):
                return 0
            state.guard.fail("an index cannot be replaced", error)
        segment.drop_maps()
        return 1

    def prepare_file_deletion(self, now_ms: int) -> FileDeletionJob | None:
        """Returns a job that removes the files that are due, to be run in any thread; None: nothing is due."""
        return self._state.deleted.take_due(now_ms)

    def remove_deleted_files(self, now_ms: int) -> int:
        """Removes the files of segments that were deleted `file_delete_delay_ms` ago; returns how many segments.

        Raises:
            StorageError: Some files cannot be removed; the log works on, the next start sweeps them.
        """
        job = self.prepare_file_deletion(now_ms)
        if job is None:
            return 0
        try:
            job.run()
        except OSError as error:
            directory = self._state.directory
            raise StorageError(f"{directory}: a deleted file cannot be removed: {error}. Check the disk") from error
        return job.segment_count


def _sync_and_close(files: Sequence[File]) -> None:
    try:
        for file in files:
            file.sync()
    finally:
        for file in files:
            file.close()


# ---- retention: how many of the oldest segments may go (docs/KAFKA.md 4.8) ------------------------------------------


def segments_to_delete(
    segments: SegmentList,
    config: LogConfig,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    log_end_offset: int,
) -> int:
    """Returns the number of segments, from the oldest, that a rule allows to delete.

    A segment goes when all of it lies below the log start, or its newest record is older than `retention.ms`, or the
    log without it is still at least `retention.bytes` large.  Never one that reaches above the high watermark.  The
    active one is judged like the others where it holds records, so that a quiet log does not keep them for
    `segment.ms`; only a log start at the end of the log does not delete it.

    Args:
        segments: The segments of the log.
        config: Settings of the log, with the rules.
        now_ms: Wall time.
        high_watermark: The high watermark, exclusive.
        log_start_offset: First offset that is still wanted.
        log_end_offset: Exclusive end of the log.
    """
    size_bytes = segments.size_bytes
    count = 0
    for number in range(len(segments)):
        segment, is_active = segments[number], number == len(segments) - 1
        end_offset = log_end_offset if is_active else segments[number + 1].base_offset
        if end_offset > high_watermark or (is_active and segment.size_bytes == 0):
            break
        below_start = end_offset <= log_start_offset and not is_active
        too_large = config.deletes and 0 <= config.retention_bytes <= size_bytes - segment.size_bytes
        if not (below_start or too_large or _is_too_old(segment, config, now_ms)):
            break
        size_bytes -= segment.size_bytes
        count += 1
    return count


def _is_too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms < 0 or not config.deletes:
        return False
    try:
        newest_ms = segment.largest_timestamp()
    except CorruptRecordError:
        return False  # damaged, and its time index too: nothing is deleted on a guess
    if newest_ms < 0:  # records without timestamps: the file's age
        newest_ms = segment.modified_ms()
    return now_ms - newest_ms > config.retention_ms
