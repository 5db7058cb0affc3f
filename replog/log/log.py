"""The log of one partition replica: segments, indexes, leader epochs and producers behind one owner.

The work is done by parts, which `replog.log` lists; this is their face.  A batch is in the log when its bytes are in the
active segment, its epoch is in the cache (written before), and its producer is updated; the log end offset moves last.  What
a crash leaves, each part says for itself.  Not thread-safe: only the `run` of its jobs may run in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from replog.errors import CorruptRecordError, ReadOnlyLogError, ReplogError, StorageError
from replog.log.active_segment import ActiveSegment
from replog.log.append_group import AppendInfo, AppendOutcome
from replog.log.compactor import Compactor
from replog.log.config import LogConfig
from replog.log.dirty_window import DirtyWindow, WriteBackJob
from replog.log.epoch_cache import CachedEpochEnd, LeaderEpochCache
from replog.log.flush import Flusher, FlushJob
from replog.log.follower_append import FollowerAppender
from replog.log.forwarding import forwarded
from replog.log.leader_append import LeaderAppender
from replog.log.producers.state import ProducerStateManager
from replog.log.reading.aborted import aborted_transactions, may_have_aborted_from
from replog.log.reading.captured_read import ReadJob
from replog.log.reading.locating import located
from replog.log.reading.reader import LogReader
from replog.log.reading.tail_cache import LogTail, TailCache
from replog.log.recovery.loaded_log import RecoveryReport
from replog.log.recovery.opening import load_for_reading, load_for_writing
from replog.log.recovery.promises import Promises
from replog.log.recovery.segment_recovery import ScanProgress
from replog.log.segments.transaction_index import AbortedTransaction
from replog.log.state import LogState
from replog.log.truncator import Truncator
from replog.log.upkeep import Upkeep
from replog.records import BatchHeader, Buffer
from replog_checkpoints import FileSystem


class Log:
    """One partition replica's log: its offsets strictly rise, its leader epochs never fall.  Made by `Log.open`."""

    __slots__ = (
        "_active",
        "_compactor",
        "_flusher",
        "_follower",
        "_leader",
        "_reader",
        "_state",
        "_truncator",
        "_upkeep",
        "_window",
    )

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._reader = LogReader(state)
        self._window = DirtyWindow(state, self._reader)
        self._flusher = Flusher(state, self._window)
        self._truncator = Truncator(state, self._reader, self._window)
        self._active = ActiveSegment(state, self._flusher)
        self._leader = LeaderAppender(state, self._active, self._reader)
        self._follower = FollowerAppender(state, self._active, self._truncator)
        self._compactor = Compactor(state, self._reader)
        self._upkeep = Upkeep(state, self._reader, self._active)

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
        """Opens the log in `directory`, creating it when it is not there; recovers it after a crash.

        Args:
            fs: The disk.
            directory: The partition folder of this replica.
            config: Settings of the log.
            topic_partition: Name for messages, such as "flights-3".
            recovery_point: The checkpointed offset below which all was flushed; 0: unknown.  `flushed-offset` may say more.
            log_start_offset: The checkpointed log start; 0 = unknown: the first segment's base offset.
            clean: Whether the last stop was clean and wrote `recovery_point`.
            now_ms: Wall time.
            checkpoint: A function that makes `recovery_point` and `log_start_offset` durable when a truncation has
                lowered them.  None: the caller does not keep a recovery point (it passes 0 to `open`).
            admission: A function that is asked with the number of bytes before each append; raises `DiskFullError`.
            on_progress: A function that is told, in this thread, about every MiB or so that recovery has checked.
            is_compacted: Whether a cleaner's checkpoint names this log: then gaps between batches say nothing.

        Raises:
            CorruptRecordError: Bytes that were flushed are damaged or gone, or offsets are missing that were never
                left out; nothing was changed.
            DiskFullError: Recovery or creation needs room that the disk does not have; the same may work later.
            StorageError: The disk failed.
        """
        loaded = load_for_writing(
            fs,
            directory,
            config,
            recovery_point,
            log_start_offset,
            now_ms,
            on_progress,
            clean=clean,
            is_compacted=is_compacted,
        )
        return cls(LogState(fs, directory, config, topic_partition, loaded, checkpoint, now_ms, admission))

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

        The traces of a crash are recovered in memory: a torn tail is not seen, missing indexes are made again (about half a
        percent of the log bytes), a `.swap` counts as the segments it replaces.  A writer in another process may go on; its
        appends are not seen.  A call that would change the log raises `ReadOnlyLogError`.

        Args:
            fs: The disk.
            directory: The partition folder of one replica, such as `data/flights-3`.
            config: Settings of the log; None: Kafka's defaults.
            now_ms: Wall time.
            promises: The promises of the log directory about this log; None: look there.
            verify_all: Whether to check every batch, not only the last segment's and those above a known recovery
                point.
            on_progress: The same as for `open`.

        Raises:
            CorruptRecordError: Bytes that were flushed are damaged or gone.
            TooManyOpenFilesError: No descriptor is left.
            StorageError: There is no such directory, the disk failed, or a writer never stopped deleting files.
        """
        config = config or LogConfig()
        view, loaded = load_for_reading(
            fs, directory, config, now_ms=now_ms, promises=promises, verify_all=verify_all, on_progress=on_progress
        )
        log = cls(LogState(view, directory, config, PurePosixPath(directory).name, loaded, None, now_ms))
        log._state.guard.refuse(ReadOnlyLogError(f"{directory} was opened for reading only"))
        return log

    @property
    def directory(self) -> str:
        """The partition folder."""
        return self._state.directory

    @property
    def topic_partition(self) -> str:
        """Name for messages."""
        return self._state.topic_partition

    @property
    def config(self) -> LogConfig:
        """Settings in force."""
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record, exclusive end."""
        return self._state.log_end_offset

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point without regard to the log start: true even if a crash loses the log-start checkpoint."""
        return self._state.recovery_point

    @property
    def checkpointed_log_start_offset(self) -> int:
        """The log start as far as a crash cannot leave it above the log end, unless the log is being emptied."""
        return self._state.checkpointed_log_start_offset

    @property
    def complete_from(self) -> int | None:
        """The offset from which on none was ever left out; None: unknown, or there are gaps."""
        return self._state.complete.offset

    @property
    def flushed_offset(self) -> int:
        """The exclusive end of the records on stable storage (or deleted): no power cut reaches below it."""
        return self._state.flushed_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without indexes."""
        return self._state.segments.size_bytes

    def size_from(self, offset: int) -> int:
        """Reckons the bytes of the batches from `offset` on without looking at the disk; see `SegmentList`."""
        return self._state.segments.size_from(offset, self._state.log_end_offset)

    files = forwarded("_state", LogState.files)

    @property
    def needs_log_start_checkpoint(self) -> bool:
        """Whether the oldest segment's name does not say where the log starts (or goes before another name says it)."""
        return self._state.needs_log_start_checkpoint

    @property
    def segment_base_offsets(self) -> list[int]:
        """Base offsets of all segments, rising."""
        return [segment.base_offset for segment in self._state.segments]

    @property
    def has_unflushed_segment(self) -> bool:
        """Whether a sealed segment is not on stable storage yet (docs/KAFKA.md 3.6)."""
        return self._state.segments.active.base_offset > self._state.recovery_point

    @property
    def leader_epochs(self) -> LeaderEpochCache:
        """Which epoch began where."""
        return self._state.epochs

    @property
    def producers(self) -> ProducerStateManager:
        """Idempotent producers."""
        return self._state.producers

    @property
    def recovery(self) -> RecoveryReport:
        """The findings of opening it."""
        return self._state.report

    @property
    def last_epoch(self) -> int | None:
        """The latest leader epoch in the cache; None when there is none."""
        return self._state.last_epoch

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed, so that only reads work."""
        return self._state.guard.has_failed

    @property
    def failure(self) -> StorageError | None:
        """Why only reads work; None: more does, or the log is closed."""
        return StorageError(str(self._state.guard.refusal)) if self.failed else None

    set_config = forwarded("_state", LogState.set_config)

    def end_offset_for_epoch(self, epoch: int) -> CachedEpochEnd | None:
        """Returns where `epoch` ended here; None when this log cannot know (docs/KAFKA.md 3.5)."""
        return self._state.end_offset_for_epoch(epoch)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records in [start, end); see `reading.aborted`."""
        return aborted_transactions(self._state, start_offset, end_offset)

    def may_have_aborted_from(self, start_offset: int) -> bool:
        """Whether a transaction may have been aborted whose marker lies at or above an offset; looks at no file."""
        return may_have_aborted_from(self._state, start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which every transaction has ended, and its end is replicated (docs/KAFKA.md 4.1)."""
        return self._state.last_stable_offset(high_watermark)

    def append_as_leader(
        self, batch: Buffer, *, leader_epoch: int, now_ms: int, header: BatchHeader | None = None
    ) -> AppendInfo:
        """Appends one batch as `append_all_as_leader` does several; raises the error that it would answer."""
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

    assign_epoch_start = forwarded("_leader", LeaderAppender.assign_epoch_start)
    roll = forwarded("_active", ActiveSegment.roll)
    maybe_roll = forwarded("_active", ActiveSegment.maybe_roll)
    replace_active_segment = forwarded("_active", ActiveSegment.replace)
    truncate_to = forwarded("_truncator", Truncator.truncate_to)
    truncate_fully_and_start_at = forwarded("_truncator", Truncator.truncate_fully_and_start_at)

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
        """Returns the same as `read` without waiting for the disk; None: not all of it is in the page cache."""
        return self._reader.read(
            offset,
            max_bytes=max_bytes,
            end_offset=end_offset,
            min_one_batch=min_one_batch,
            is_checked=is_checked,
            cached_only=True,
        )

    def keep_tail(self, cache: TailCache | None) -> None:
        """Keeps batches that are appended as the leader from now on for readers right behind; None: keeps no more."""
        self._reader.tail = None if cache is None else LogTail(cache)

    def prepare_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> ReadJob:
        """Prepares the work of `read` for another thread; see `LogReader.prepare_read`."""
        return self._reader.prepare_read(
            offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch, is_checked=is_checked
        )

    def complete_read(self, job: ReadJob) -> bytes | None:
        """Takes the result of a job; see `LogReader.complete_read`."""
        return self._reader.complete_read(job)

    locate = forwarded("_reader", LogReader.locate)
    check_epoch_in = forwarded("_reader", LogReader.check_epoch_in)
    check_epoch_before = forwarded("_reader", LogReader.check_epoch_before)

    def located(self, data: bytes, error: CorruptRecordError) -> CorruptRecordError:
        """Returns an error that was found in `data`, which was read from this log, with its file; see `damage.located`."""
        return located(self._state, data, error)

    offset_for_timestamp = forwarded("_reader", LogReader.offset_for_timestamp)
    first_record = forwarded("_reader", LogReader.first_record)
    prepare_search = forwarded("_reader", LogReader.prepare_search)
    prepare_search_from = forwarded("_reader", LogReader.prepare_search_from)
    complete_search = forwarded("_reader", LogReader.complete_search)
    find_cuts = forwarded("_reader", LogReader.find_cuts)

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
        """Captures the dirty files for an fsync in another thread; see `Flusher.prepare_flush`."""
        return self._flusher.prepare_flush()

    def complete_flush(self, job: FlushJob) -> None:
        """Takes the result of a job: the recovery point moves up; see `Flusher.complete_flush`."""
        self._flusher.complete_flush(job)

    flush = forwarded("_flusher", Flusher.flush)
    release_files = forwarded("_flusher", Flusher.release_files)
    claim_complete = forwarded("_upkeep", Upkeep.claim_complete)
    set_log_start_offset = forwarded("_state", LogState.raise_log_start)
    delete_old_segments = forwarded("_upkeep", Upkeep.delete_old_segments)

    @property
    def next_file_deletion_ms(self) -> int | None:
        """Wall time at which the files of a deleted segment are due for removal; None: there are none."""
        return self._state.deleted.next_deletion_ms

    prepare_file_deletion = forwarded("_upkeep", Upkeep.prepare_file_deletion)
    remove_deleted_files = forwarded("_upkeep", Upkeep.remove_deleted_files)

    @property
    def first_dirty_offset(self) -> int:
        """Everything below it was compacted; a `cleaner-offset-checkpoint` keeps it (docs/KAFKA.md 1.10)."""
        return self._state.first_dirty_offset

    restore_first_dirty_offset = forwarded("_state", LogState.restore_first_dirty_offset)
    dirtiness = forwarded("_compactor", Compactor.dirtiness)
    prepare_compaction = forwarded("_compactor", Compactor.prepare_compaction)
    complete_compaction = forwarded("_compactor", Compactor.complete_compaction)

    def require_writable(self) -> None:
        """Raises the error that every change of this log meets: it failed, is closed, or was opened for reading only."""
        self._state.guard.check()

    def fail(self, error: Exception) -> None:
        """Marks the log as failed, because its disk or directory has: only reads are still tried."""
        if self._state.guard.refusal is None:
            self._state.guard.note_failure(error)

    def close(self, now_ms: int) -> None:
        """Flushes, completes the indexes, writes a producer snapshot, closes every file.  No flush may be running.

        A failed log is only closed: recovery judges the files.

        Raises:
            TooManyOpenFilesError, StorageError: Not everything could be written; the files are closed all the same.
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
        self._compactor.cancel()
        self._state.close()
