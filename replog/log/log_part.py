"""What the parts of a log have in common, until each is an object of its own."""

from __future__ import annotations

from collections.abc import Callable

from replog.errors import StorageError
from replog.log.active_segment import ActiveSegment
from replog.log.compaction.job import CompactionJob
from replog.log.config import LogConfig
from replog.log.dirty_window import DirtyWindow
from replog.log.epoch_cache import EpochEndOffset, LeaderEpochCache
from replog.log.flush import Flusher
from replog.log.follower_append import FollowerAppender
from replog.log.leader_append import LeaderAppender
from replog.log.loaded_log import LoadedLog, RecoveryReport
from replog.log.producers.state import ProducerStateManager
from replog.log.reading.aborted import aborted_transactions
from replog.log.reading.reader import LogReader
from replog.log.segments.segment_list import LogFiles
from replog.log.segments.transaction_index import AbortedTransaction
from replog.log.state import LogState
from replog.log.truncator import Truncator
from replog_checkpoints import FileSystem


class LogPart:
    """What the parts of a log share."""

    __slots__ = (
        "_active",
        "_compaction",
        "_flusher",
        "_follower",
        "_leader",
        "_reader",
        "_state",
        "_truncator",
        "_window",
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
        self._state = LogState(fs, directory, config, topic_partition, loaded, checkpoint, now_ms, admission)
        self._compaction: CompactionJob | None = None
        self._reader = LogReader(self._state)
        self._window = DirtyWindow(self._state, self._reader)
        self._flusher = Flusher(self._state, self._window)
        self._truncator = Truncator(self._state, self._reader, self._window)
        self._active = ActiveSegment(self._state, self._flusher)
        self._leader = LeaderAppender(self._state, self._active, self._reader)
        self._follower = FollowerAppender(self._state, self._active, self._truncator)

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
    def recovery_point(self) -> int:
        """Everything below is on stable storage (or deleted), exclusive."""
        return self._state.flushed_offset

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point without regard to the log start: true whatever a crash does to the log-start checkpoint."""
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
        """The same as the recovery point: how far a power cut cannot reach."""
        return self._state.flushed_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without indexes."""
        return self._state.segments.size_bytes

    def size_from(self, offset: int) -> int:
        """Reckons the bytes of the batches from `offset` on without looking at the disk; see `SegmentList`."""
        return self._state.segments.size_from(offset, self._state.log_end_offset)

    def files(self) -> LogFiles:
        """Returns the segments that the log consists of now, with their sizes."""
        return self._state.files()

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
        """What opening it found."""
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

    def set_config(self, config: LogConfig) -> None:
        """Takes new settings; index limits apply from the next segment on."""
        self._state.set_config(config)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Returns where `epoch` ended here; None when this log cannot know (docs/KAFKA.md 3.5)."""
        return self._state.end_offset_for_epoch(epoch)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records in [start, end); see `reading.aborted`."""
        return aborted_transactions(self._state, start_offset, end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which every transaction has ended, and its end is replicated (docs/KAFKA.md 4.1).

        Args:
            high_watermark: The high watermark, exclusive.
        """
        return self._state.last_stable_offset(high_watermark)

    def require_writable(self) -> None:
        """Raises the error that every change of this log meets, if there is one.

        Raises:
            StorageError: A write or an fsync failed.
            ReadOnlyLogError, BrokerClosedError: It was opened for reading only, or is closed.
        """
        self._state.guard.check()

    def fail(self, error: Exception) -> None:
        """Marks the log as failed, because what holds it has, such as the disk: nothing is appended any more.

        Reads are still tried.
        """
        if self._state.guard.refusal is None:
            self._state.guard.note_failure(error)
