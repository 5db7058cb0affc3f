"""The log of one partition replica: segments, indexes, leader epochs and producers behind one owner.

Why one class: what must hold between the parts holds here.  A batch is in the log when its bytes are in the active
segment, its epoch is in the cache (written before the batch), and its producer is updated; the log end offset moves last.

    log_start_offset <= recovery_point <= log_end_offset

| crash                                         | what the next start finds                                             |
|-----------------------------------------------|-----------------------------------------------------------------------|
| inside an append                              | a torn batch above the recovery point: cut                            |
| after a roll, before a flush                  | two segments, the recovery point in the first: both are scanned        |
| truncation: recovery point lowered, log not cut | the old tail, valid: the leader is asked again where to cut           |
| truncation: some segments deleted             | a shorter log without a hole: they are deleted from the end, one by one |

Not thread-safe: one owner, the event loop.  Only the `run` of its jobs may run in another thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID, uuid4

from replog.errors import CorruptRecordError, DiskFullError, ReadOnlyLogError, ReplogError, StorageError
from replog.log.append_group import AppendInfo, AppendOutcome
from replog.log.config import LogConfig
from replog.log.deletion import DirectoryDeletionJob, FileDeletionJob, retire_directory
from replog.log.dirty_window import WriteBackJob
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
from replog.log.flush import FlushJob
from replog.log.log_compaction import LogCompaction
from replog.log.producers.files import remove_snapshot
from replog.log.reading.read_job import ReadJob
from replog.log.reading.reader import unreadable
from replog.log.reading.tail_cache import LogTail, TailCache
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loader import LogLoader
from replog.log.recovery.promises import Promises, read_promises
from replog.log.recovery.read_only_view import ReadOnlyView
from replog.log.recovery.segment_recovery import ScanProgress
from replog.log.retention import segments_to_delete
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.records import BatchHeader, Buffer
from replog_checkpoints import File, FileSystem, make_durable_dirs, parent_of

READ_ONLY_LOOKS_MAX: Final = 100
"""How often a log is looked at anew because a writer has deleted files of it meanwhile, before a reader gives up."""


class Log(LogCompaction):
    """One partition replica's log.  Made by `Log.open`.

    Invariants:
        - offsets strictly rise, leader epochs never fall;
        - nothing is appended after a write or an fsync failed.
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        topic_partition: str,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        checkpoint: Callable[[], None] | None = None,
        admission: Callable[[int], None] | None = None,
        on_progress: Callable[[ScanProgress], None] | None = None,
        is_compacted: bool = False,
    ) -> Log:
        """Opens the log in `directory`, creating it when it is not there; recovers what a crash left.

        Args:
            fs: The disk.
            directory: The partition folder of this replica.
            config: Settings of the log.
            topic_partition: Name for messages, such as "flights-3".
            recovery_point: The checkpointed offset below which everything was flushed; 0 = unknown: check the whole
                log.  The log's own `flushed-offset` file says more after an unclean stop.
            log_start_offset: The checkpointed log start; 0 = unknown: the first segment's base offset.
            clean: Whether the last stop was clean and wrote `recovery_point`.
            now_ms: Wall time.
            checkpoint: A function that makes `recovery_point` and `log_start_offset` of this log durable before it
                returns; called when a truncation has lowered them.  None: the caller does not keep a recovery point (it
                passes 0 to `open`).
            admission: A function that is asked with the number of bytes before each append; raises `DiskFullError`.
            on_progress: A function that is told about every MiB or so that recovery has checked, in the thread of the
                caller.
            is_compacted: Whether a cleaner's checkpoint names this log: then gaps between batches say nothing.

        Raises:
            CorruptRecordError: Bytes that were flushed are damaged or gone, or offsets are missing that nobody left
                out; nothing was changed.
            DiskFullError: Recovery or creation needs room that the disk does not have; the same may work later.
            StorageError: The disk failed.
        """
        try:
            make_durable_dirs(fs, directory)
            if not clean:  # a killed process may have made it and never synced its name
                fs.sync_dir(parent_of(directory))
            flushed_file = FlushedOffsetFile.load(fs, directory)
            loader = LogLoader(fs, directory, config, recovery_point, flushed_file, log_start_offset, clean, now_ms)
            loader.on_progress = on_progress
            loader.is_compacted = is_compacted
            loaded = loader.load()
            if clean:  # another program may have cut the log since
                flushed_file.lower_to(loaded.log_end_offset)
            else:  # recovery has made segments durable that no checkpoint knows of yet
                flushed_file.raise_to(loaded.recovery_point, flushed_file.era)
            return cls(fs, directory, config, topic_partition, loaded, checkpoint, now_ms, admission)
        except OSError as error:
            if is_disk_full(error):
                raise disk_full("the log cannot be opened", directory, error) from error
            raise StorageError(f"{directory} cannot be opened: {error}. Check the disk, then start again") from error

    @classmethod
    def open_read_only(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig | None = None,
        *,
        now_ms: int,
        promises: Promises | None = None,
        verify_all: bool = False,
        on_progress: Callable[[ScanProgress], None] | None = None,
    ) -> Log:
        """Opens a log that we or Kafka wrote, running or not, without a lock and without changing a byte on disk.

        What a crash left is recovered in memory: a torn tail is not seen, missing indexes are made again (about half a
        percent of the log bytes), a `.swap` counts as what it replaces.  A writer in another process may go on; what it
        appends is not seen.  Whatever would change the log raises `ReadOnlyLogError`.

        Args:
            fs: The disk.
            directory: The partition folder of one replica, such as `data/flights-3`.
            config: Settings of the log; None: Kafka's defaults.
            now_ms: Wall time.
            promises: The promises of the log directory about this log; None: look there.
            verify_all: Whether to check every batch, not only the last segment's and what lies above a known recovery
                point.
            on_progress: The same as for `open`.

        Raises:
            CorruptRecordError: Bytes that were flushed are damaged or gone.
            TooManyOpenFilesError: No descriptor is left.
            StorageError: There is no such directory, the disk failed, or a writer never stopped deleting files
                meanwhile.
        """
        config = config or LogConfig()
        try:
            for _ in range(READ_ONLY_LOOKS_MAX):
                known = promises or read_promises(fs, directory)
                view = ReadOnlyView(fs, directory)
                loader = _read_only_loader(view, directory, config, known, now_ms, verify_all=verify_all)
                loader.on_progress = on_progress
                try:
                    loaded = loader.load()
                except (OSError, StorageError):
                    if view.is_outdated():  # a writer deletes files: what was seen were not those of one moment
                        continue
                    raise
                log = cls(view, directory, config, PurePosixPath(directory).name, loaded, None, now_ms)
                log._state.guard.refuse(ReadOnlyLogError(f"{directory} was opened for reading only"))
                return log
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("the log cannot be opened", directory, error) from error
            raise StorageError(f"{directory} cannot be read: {error}. Check the path and the disk") from error
        raise StorageError(
            f"{directory} cannot be read: files came and went during each of {READ_ONLY_LOOKS_MAX} attempts, because a "
            "process deletes from this log. What was seen says nothing: open it again"
        )

    def append_as_leader(
        self, batch: Buffer, *, leader_epoch: int, now_ms: int, header: BatchHeader | None = None
    ) -> AppendInfo:
        """Appends one batch, giving it the next offsets and the leader's epoch.

        Args:
            batch: Exactly one batch that passed `validate_produced`, or one of our own; not changed, not kept.
            leader_epoch: Leader epoch of this leader, at least the last one in the log.
            now_ms: Wall time.
            header: The header of `batch`, when the caller has it already.

        Returns:
            Where it is, or where the batch is that it repeats.

        Raises:
            OutOfOrderSequenceError, InvalidProducerEpochError: See `ProducerStateManager.check`.
            RecordTooLargeError: The batch is larger than a segment.
            DiskFullError: There is no room; nothing was appended.
            StorageError: The disk failed, now or earlier.
        """
        headers = None if header is None else (header,)
        (outcome,) = self._leader.append_all((batch,), leader_epoch=leader_epoch, now_ms=now_ms, headers=headers)
        if isinstance(outcome, ReplogError):
            raise outcome
        return outcome

    def append_all_as_leader(
        self,
        batches: Sequence[Buffer],
        *,
        leader_epoch: int,
        now_ms: int,
        headers: Sequence[BatchHeader] | None = None,
    ) -> list[AppendOutcome]:
        """Appends several batches in order, with one write for each segment; see `LeaderAppender.append_all`."""
        return self._leader.append_all(batches, leader_epoch=leader_epoch, now_ms=now_ms, headers=headers)

    def append_as_follower(self, batches: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Appends batches exactly as the leader stored them; see `FollowerAppender.append`."""
        return self._follower.append(batches, now_ms=now_ms, leader_epoch=leader_epoch)

    def assign_epoch_start(self, epoch: int) -> None:
        """Notes that a leader begins: `epoch` starts at the log end.  Durable when it returns."""
        self._leader.assign_epoch_start(epoch)

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is empty."""
        self._active.roll(now_ms)

    def maybe_roll(self, now_ms: int) -> None:
        """Begins a new segment when the active one is due by size or age, without waiting for the next append."""
        self._active.maybe_roll(now_ms)

    def replace_active_segment(self, now_ms: int) -> bool:
        """Begins an empty segment so that the active one can be deleted; see `ActiveSegment.replace`."""
        return self._active.replace(now_ms)

    def truncate_to(self, offset: int) -> bool:
        """Cuts the batch that holds `offset` and everything after it (KIP-101); see `Truncator.truncate_to`."""
        return self._truncator.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; the next record gets `offset`; see `Truncator.truncate_fully_and_start_at`."""
        self._truncator.truncate_fully_and_start_at(offset)

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes:
        """Returns whole batches from the one that holds `offset`, waiting for the disk if need be; see `LogReader.read`."""
        found = self._reader.read(
            offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch, is_checked=is_checked
        )
        return found or b""

    def read_cached(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes | None:
        """Returns the same as `read`, without waiting for the disk.

        Returns:
            None: not all of it is in the page cache; read it in a thread (`prepare_read`).
        """
        return self._reader.read(
            offset,
            max_bytes=max_bytes,
            end_offset=end_offset,
            min_one_batch=min_one_batch,
            is_checked=is_checked,
            cached_only=True,
        )

    def keep_tail(self, cache: TailCache | None) -> None:
        """Keeps what is appended as the leader from now on for those who read right behind; None: no more."""
        self._reader.tail = None if cache is None else LogTail(cache)

    def prepare_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> ReadJob:
        """Prepares what `read` does for another thread; see `LogReader.prepare_read`."""
        return self._reader.prepare_read(
            offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch, is_checked=is_checked
        )

    def complete_read(self, job: ReadJob) -> bytes | None:
        """Takes the result of a job; see `LogReader.complete_read`."""
        return self._reader.complete_read(job)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record below `end_offset` with at least this timestamp, or None."""
        return self._reader.offset_for_timestamp(timestamp_ms, end_offset=end_offset)

    def offset_of_max_timestamp(self, *, end_offset: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record with the largest timestamp; None: no record has one."""
        return self._reader.offset_of_max_timestamp(end_offset=end_offset)

    @property
    def dirty_bytes(self) -> int:
        """Bytes appended since the log was opened that no write-back and no flush has covered."""
        return self._window.dirty_bytes

    @property
    def is_behind_write_back(self) -> bool:
        """Whether the dirty window is several times too large: wait with appends until a job has been completed."""
        return self._window.is_behind

    def prepare_write_back(self) -> WriteBackJob | None:
        """Returns a job when a window has been appended since the last one; see `DirtyWindow.prepare_write_back`."""
        return self._window.prepare_write_back()

    def complete_write_back(self, job: WriteBackJob) -> None:
        """Takes the result of a job; see `DirtyWindow.complete_write_back`."""
        self._window.complete_write_back(job)

    def prepare_flush(self) -> FlushJob | None:
        """Captures what is dirty for an fsync in another thread; see `Flusher.prepare_flush`."""
        return self._flusher.prepare_flush()

    def complete_flush(self, job: FlushJob) -> None:
        """Takes the result of a job: the recovery point moves up; see `Flusher.complete_flush`."""
        self._flusher.complete_flush(job)

    def flush(self) -> None:
        """Makes everything appended so far durable, blocking; see `Flusher.flush`."""
        self._flusher.flush()

    def release_files(self) -> bool:
        """Closes the descriptors of an idle log; False: it is not idle, see `Flusher.release_files`."""
        return self._flusher.release_files()

    def claim_complete(self) -> None:
        """Notes that nothing compacts this log from its end on, unless a file says more already.

        For `open_log`, which knows that of its own logs.

        Of what is there already nobody knows: another program may have compacted it, or a segment may be gone for long.

        Raises:
            StorageError: The disk failed.
        """
        if self._state.complete.offset is not None:
            return
        try:
            self._state.complete.claim(self._state.log_end_offset)
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(f"{self._state.directory} cannot be opened: {error}. Check the disk") from error

    def set_log_start_offset(self, offset: int) -> None:
        """Moves the log start up: what is below may be deleted.  Lower offsets are ignored.

        Not durable by itself: after a crash the log may start lower again, and its leader epochs are still known then
        (they are forgotten with the segments, unlike in Kafka).

        Raises:
            OffsetOutOfRangeError: The offset is above the log end.
        """
        self._state.raise_log_start(offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Deletes the oldest segments that retention or the log start makes superfluous.

        Never one that reaches above the high watermark; the active one only after an empty one took its place.  One by
        one, each durably: a crash leaves a later start, never a hole.  Their files are renamed only: see
        `remove_deleted_files`.

        Returns:
            How many segments were deleted.
        """
        self._state.guard.check()
        try:
            count = segments_to_delete(
                self._state.segments,
                self._state.config,
                now_ms,
                high_watermark,
                self._state.log_start_offset,
                self._state.log_end_offset,
            )
        except OSError as error:
            raise unreadable(self._state, error) from error
        if count == len(self._state.segments) and not self.replace_active_segment(now_ms):
            count -= 1
        if count:
            self._reader.forget_places()
        try:
            if count:
                self._state.complete.raise_to(self._state.segments[count].base_offset)
                self.set_log_start_offset(self._state.segments[count].base_offset)
            for _ in range(count):
                base_offset = self._state.segments[0].base_offset
                self._state.deleted.add(
                    self._state.replace_segments(0, 1, ()), now_ms + self._state.config.file_delete_delay_ms
                )
                remove_snapshot(self._state.fs, self._state.directory, base_offset)
                self._state.fs.sync_dir(self._state.directory)
            with contextlib.suppress(DiskFullError):  # deleting makes room; more epochs than segments do no harm
                self._state.forget_epochs_before(self._state.segments[0].base_offset)
        except OSError as error:
            if is_out_of_files(error):  # what was renamed is in order; the directory is fsynced with the next one
                self._state.note_name_change()
                outcome = "What is deleted by now stays so, the rest goes the next time"
                raise disk_full("deleting old segments stopped early", self._state.directory, error, outcome) from error
            self._state.guard.fail("deleting old segments failed", error)
        self.mend_indexes()
        return count

    def mend_indexes(self) -> int:
        """Puts an index on disk that a look-up found missing or wrong and made again in memory, one segment a call.

        Returns:
            How many segments.

        Raises:
            StorageError: The disk failed.
        """
        self._state.guard.check()
        for number in range(self._state.segments.number_for(self._state.recovery_point)):
            segment = self._state.segments[number]
            if segment.needs_rewrite:
                return self._mend(segment)
        return 0

    def _mend(self, segment: LogSegment) -> int:
        try:
            _sync_and_close(segment.rewrite_indexes())
            self._state.fs.sync_dir(self._state.directory)
        except CorruptRecordError:
            return 0  # reads of those records say so; there is nothing to make an index from
        except OSError as error:
            if is_disk_full(error):
                return 0
            self._state.guard.fail("an index cannot be replaced", error)
        segment.drop_maps()
        return 1

    @property
    def next_file_deletion_ms(self) -> int | None:
        """Wall time at which the files of a deleted segment are due for removal; None: there are none."""
        return self._state.deleted.next_deletion_ms

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
            raise StorageError(
                f"{self._state.directory}: a deleted file cannot be removed: {error}. Check the disk"
            ) from error
        return job.segment_count

    def delete(self) -> None:
        """Deletes the log, blocking.  The directory gets another name first, so that half a log is never opened.

        Raises:
            StorageError: The disk failed; what is left under the other name is removed at the next start.
        """
        self.prepare_delete(uuid4()).run()

    def prepare_delete(self, unique_id: UUID) -> DirectoryDeletionJob:
        """Closes the log and renames its directory, durably; the job removes it, in any thread or at the next start.

        Raises:
            StorageError: The disk failed.
        """
        self.close_for_good()
        return retire_directory(self._state.fs, self._state.directory, unique_id)

    def close(self, now_ms: int) -> None:
        """Flushes, completes the indexes, writes a producer snapshot, closes every file.  No flush may be running.

        A failed log is only closed: what is on disk is for recovery to judge.

        Raises:
            TooManyOpenFilesError, StorageError: Not everything could be written; the files are closed all the same, and
                the stop was not clean.
        """
        if self._state.guard.is_closed:
            return
        try:
            if self._state.guard.refusal is None:
                self._flusher.flush_before_close(now_ms)
        finally:
            self.close_for_good()

    def close_for_good(self) -> None:
        """Closes the log without writing anything more: its directory is about to be renamed, or removed."""
        if self._compaction is not None:
            self._compaction.cancel()
        self._state.close()


def _read_only_loader(
    view: ReadOnlyView, directory: str, config: LogConfig, promises: Promises, now_ms: int, *, verify_all: bool
) -> LogLoader:
    return LogLoader(
        view,
        directory,
        config,
        promises.recovery_point,
        FlushedOffsetFile(view, directory, promises.flushed_offset),
        promises.log_start_offset,
        promises.clean and not verify_all,
        now_ms,
        is_read_only=True,
        scan_from=0 if verify_all else None if promises.recovery_point else OFFSET_MAX,
        is_compacted=promises.is_compacted,
        opens_holes=True,
    )


def _sync_and_close(files: Sequence[File]) -> None:
    try:
        for file in files:
            file.sync()
    finally:
        for file in files:
            file.close()
