"""What one log knows, and the guard before every change.

`Log` is put together from parts that each do one thing with this state: append, cut, flush.  They share it because what
must hold between offsets, epochs and producers holds for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from replog.errors import BrokerClosedError, CorruptIndexError, ReplogError, StorageError
from replog.log.compaction.job import CompactionJob
from replog.log.config import LogConfig
from replog.log.deletion import DeletedSegments
from replog.log.disk_space import disk_full_errors, is_out_of_files, left_unfinished
from replog.log.epoch_cache import EpochEndOffset, LeaderEpochCache
from replog.log.loaded_log import LoadedLog, RecoveryReport
from replog.log.log_reader import LogReader
from replog.log.producers.files import aborted_in_segment
from replog.log.producers.state import ProducerStateManager
from replog.log.segments.segment_list import LogFiles
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.log.write_back import DirtyWindow
from replog_checkpoints import File, FileSystem


class LogState:
    """The state of one replica's log.

    Invariants:
        - `log_start_offset <= recovery_point <= log_end_offset`;
        - nothing is appended after a write or an fsync failed.
    """

    __slots__ = (
        "_admission",
        "_checkpoint",
        "_closer",
        "_compaction",
        "_complete",
        "_config",
        "_deleted",
        "_directory",
        "_directory_changes",
        "_directory_synced",
        "_epochs",
        "_first_dirty_offset",
        "_flushed_file",
        "_fs",
        "_generation",
        "_is_emptied",
        "_last_epoch",
        "_log_end_offset",
        "_log_start_offset",
        "_producers",
        "_reader",
        "_recovery_point",
        "_recovery_report",
        "_rest",
        "_segments",
        "_topic_partition",
        "_touched",
        "_unavailable",
        "_unsynced",
        "_wall_ms",
        "_window",
        "_write_back_gate",
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
        self._admission = admission
        self._fs = fs
        self._directory = directory
        self._config = config
        self._topic_partition = topic_partition
        self._checkpoint = checkpoint
        self._segments = loaded.segments
        self._closer = loaded.closer
        self._compaction: CompactionJob | None = None
        self._first_dirty_offset = 0  # as restored, or from the last compaction
        self._flushed_file = loaded.flushed_file
        self._deleted = DeletedSegments(fs, loaded.closer)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._recovery_report = loaded.report
        self._log_start_offset = loaded.log_start_offset
        self._log_end_offset = loaded.log_end_offset
        self._recovery_point = loaded.recovery_point
        self._complete = loaded.complete
        self._reader = LogReader(loaded.segments, loaded.complete)
        self._window = DirtyWindow(loaded.segments)
        self._write_back_gate = threading.Lock()  # held while a write-back may take, and until it has noted, an error
        self._last_epoch = loaded.epochs.latest_epoch
        self._unsynced: list[File] = []
        self._directory_changes: int = 0 if loaded.report.clean else 1  # a killed process may have left names unsynced
        self._directory_synced = 0
        self._touched = loaded.created or not loaded.report.clean or loaded.report.segments_scanned > 0
        self._generation = 0
        self._is_emptied = False
        self._unavailable: ReplogError | None = None
        self._rest: Callable[[], None] | None = None  # of a change that has begun; before the next one
        self._wall_ms = now_ms  # the last wall time anybody told

    @property
    def directory(self) -> str:
        """The partition folder."""
        return self._directory

    @property
    def topic_partition(self) -> str:
        """Name for messages."""
        return self._topic_partition

    @property
    def config(self) -> LogConfig:
        """Settings in force."""
        return self._config

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record, exclusive end."""
        return self._log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below is on stable storage (or deleted), exclusive."""
        return max(self._recovery_point, self._log_start_offset)

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point without regard to the log start: true whatever a crash does to the log-start checkpoint."""
        return self._recovery_point

    @property
    def checkpointed_log_start_offset(self) -> int:
        """The log start as far as a crash cannot leave it above the log end, unless the log is being emptied."""
        if self._is_emptied:
            return self._log_start_offset
        return min(self._log_start_offset, max(self._recovery_point, self._segments[0].base_offset))

    @property
    def complete_from(self) -> int | None:
        """The offset from which on none was ever left out; None: unknown, or there are gaps."""
        return self._complete.offset

    @property
    def flushed_offset(self) -> int:
        """The same as the recovery point: how far a power cut cannot reach."""
        return self.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without indexes."""
        return self._segments.size_bytes

    def size_from(self, offset: int) -> int:
        """Reckons the bytes of the batches from `offset` on without looking at the disk; see `SegmentList`."""
        return self._segments.size_from(offset, self._log_end_offset)

    def files(self) -> LogFiles:
        """Returns the segments that the log consists of now, with their sizes."""
        return LogFiles(self._generation, tuple((segment, segment.size_bytes) for segment in self._segments))

    @property
    def needs_log_start_checkpoint(self) -> bool:
        """Whether the oldest segment's name does not say where the log starts (or goes before another name says it)."""
        return self._is_emptied or self._log_start_offset > self._segments[0].base_offset

    @property
    def segment_base_offsets(self) -> list[int]:
        """Base offsets of all segments, rising."""
        return [segment.base_offset for segment in self._segments]

    @property
    def has_unflushed_segment(self) -> bool:
        """Whether a sealed segment is not on stable storage yet (docs/KAFKA.md 3.6)."""
        return self._segments.active.base_offset > self._recovery_point

    @property
    def leader_epochs(self) -> LeaderEpochCache:
        """Which epoch began where."""
        return self._epochs

    @property
    def producers(self) -> ProducerStateManager:
        """Idempotent producers."""
        return self._producers

    @property
    def recovery(self) -> RecoveryReport:
        """What opening it found."""
        return self._recovery_report

    @property
    def last_epoch(self) -> int | None:
        """The latest leader epoch in the cache; None when there is none."""
        return self._last_epoch

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed, so that only reads work."""
        return isinstance(self._unavailable, StorageError)

    @property
    def failure(self) -> StorageError | None:
        """Why only reads work; None: more does, or the log is closed."""
        return StorageError(str(self._unavailable)) if self.failed else None

    def set_config(self, config: LogConfig) -> None:
        """Takes new settings; index limits apply from the next segment on."""
        self._config = config

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Returns where `epoch` ended here; None when this log cannot know (docs/KAFKA.md 3.5)."""
        return self._epochs.end_offset_for(epoch, self._log_end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records in [start, end), by offset of their marker (docs/KAFKA.md 1.8).

        A reader of committed records skips the batches of their producers from their first offset to their marker.

        Raises:
            CorruptRecordError: A transaction index is wrong, and the log it is made from too.
            TooManyOpenFilesError: A transaction index cannot be opened now.
            StorageError: A transaction index cannot be read.
        """
        found: list[AbortedTransaction] = []
        for number in range(self._segments.number_for(start_offset), len(self._segments)):
            try:
                with disk_full_errors("a transaction index cannot be read", self._directory):
                    index = self._aborted_in(number)
            except OSError as error:
                raise StorageError(f"{self._topic_partition}: a transaction index cannot be read: {error}") from error
            if index is not None and index.collect(start_offset, end_offset, found):
                break
        return found

    def _aborted_in(self, number: int) -> TransactionIndex | None:
        try:
            return self._segments[number].transactions
        except CorruptIndexError:
            return aborted_in_segment(self._fs, self._directory, list(self._segments), number, self._wall_ms)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which every transaction has ended, and its end is replicated (docs/KAFKA.md 4.1).

        Args:
            high_watermark: The high watermark, exclusive.
        """
        unstable_offset = self._producers.first_unstable_offset(high_watermark)
        if unstable_offset is None:
            return high_watermark
        return min(high_watermark, max(unstable_offset, self._log_start_offset))

    def _check_available(self) -> None:
        unavailable = self._unavailable
        if unavailable is not None:
            raise type(unavailable)(str(unavailable))
        if self._rest is not None:
            self._end_change("the last change", self._rest)

    def _end_change(self, action: str, rest: Callable[[], None]) -> None:
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
            self._fail(f"{action} failed", error)
        except StorageError as error:
            self._note_failure(error)
            raise
        self._rest = None

    def _note_failure(self, error: Exception) -> None:
        """Marks the log as failed, unless it is closed: what a late flush finds then concerns nobody.

        May run in the thread of a flush.
        """
        if isinstance(self._unavailable, BrokerClosedError):
            return
        self._unavailable = StorageError(
            f"{self._directory}: {error}. What is on disk is unknown now, so nothing more is appended: "
            "check the disk, then open the log again (restart the broker whose log it is), which verifies it"
        )

    def require_writable(self) -> None:
        """Raises the error that every change of this log meets, if there is one.

        Raises:
            StorageError: A write or an fsync failed.
            ReadOnlyLogError, BrokerClosedError: It was opened for reading only, or is closed.
        """
        self._check_available()

    def fail(self, error: Exception) -> None:
        """Marks the log as failed, because what holds it has, such as the disk: nothing is appended any more.

        Reads are still tried.
        """
        if self._unavailable is None:
            self._note_failure(error)

    def _fail(self, action: str, error: OSError | StorageError) -> NoReturn:
        """Marks the log as failed, because what is on disk is not known any more, and raises."""
        self._note_failure(error)
        raise StorageError(f"{self._topic_partition}: {action}: {self._unavailable}") from error
