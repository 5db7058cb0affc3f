"""The offset checkpoints of one directory: the offsets in each, gathered from its logs.

| file                               | a line for                                            |
|------------------------------------|-------------------------------------------------------|
| `recovery-point-offset-checkpoint` | every log                                             |
| `log-start-offset-checkpoint`      | logs that start inside a segment                      |
| `replication-offset-checkpoint`    | every log: its high watermark                         |
| `cleaner-offset-checkpoint`        | logs that were compacted                              |
| `given-up-offset-checkpoint`       | repaired replicas, until no election counts on them   |

Lines of a replica that is offline stay as they are, since nothing new is known about it; a replica that is gone has none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import replog_checkpoints as checkpoints
from replog.log.directories.directory_state import DirectoryState
from replog.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoint, run_all
from replog.log.file_names import partition_dir_name
from replog.log.recovery.offset_witness import GIVEN_UP_FILE, OffsetWitness
from replog_checkpoints import TopicPartition

_log = logging.getLogger(__name__)


class DirectoryCheckpoints:
    """The part of a log directory that remembers offsets.  Each `prepare_...` gives jobs for one thread, in order."""

    def __init__(self, state: DirectoryState) -> None:
        self._state = state
        fs, space = state.fs, state.space
        self._recovery_points = OffsetCheckpoint(fs, state.at(checkpoints.RECOVERY_POINT_FILE), space)
        starts_path = state.at(checkpoints.LOG_START_OFFSET_FILE)
        self._log_start_offsets = OffsetCheckpoint(fs, starts_path, space, OffsetWitness(fs, starts_path))
        marks_path = state.at(checkpoints.REPLICATION_OFFSET_FILE)
        self._replication_offsets = OffsetCheckpoint(fs, marks_path, space, OffsetWitness(fs, marks_path))
        self._cleaner_offsets = OffsetCheckpoint(fs, state.at(checkpoints.CLEANER_OFFSET_FILE), space)
        given_up_path = state.at(GIVEN_UP_FILE)
        self._given_up = OffsetCheckpoint(fs, given_up_path, space, OffsetWitness(fs, given_up_path))

    # What they say

    def read(self) -> None:
        """Takes the content of all files.

        Raises:
            CorruptCheckpointError: One is damaged; the error is the leaf library's.
            OSError: The disk failed.
        """
        for checkpoint in self._all:
            self._read_one(checkpoint)
        self._state.set_high_watermarks(self._undoubted_high_watermarks())

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """The checkpointed recovery points."""
        return self._recovery_points.offsets

    @property
    def are_of_these_replicas(self) -> bool:
        """Whether there are recovery points, and none of a replica that is not here."""
        return self._recovery_points.exists and self.recovery_points.keys() <= self._state.known

    def log_start_offset(self, key: TopicPartition) -> int:
        """Returns the checkpointed log start of a replica; 0 unknown."""
        return self._log_start_offsets.offsets.get(key, 0)

    def require_undoubted_start(self, key: TopicPartition) -> None:
        """Raises where the two files about the log start of a replica contradict each other.

        Raises:
            CorruptCheckpointError: One of the two is damaged; the text names the ways out.
        """
        self._log_start_offsets.require_undoubted(key)

    def first_dirty_offset(self, key: TopicPartition) -> int | None:
        """Returns the offset below which a log is compacted; None: it never was."""
        return self._cleaner_offsets.offsets.get(key)

    def gave_up(self, key: TopicPartition) -> bool:
        """Whether a repair has given up records of a replica, as far as the file and its witness know."""
        return self._given_up.may_name(key)

    # What is written

    def forget_given_up(self, key: TopicPartition) -> None:
        """Removes the line that says so, durably.

        Raises:
            DiskFullError, StorageError: It may still be there.
        """
        kept = {other: end for other, end in self._given_up.offsets.items() if other != key}
        job = self._given_up.prepare(kept, gone=[key])
        if job is not None:
            job.run()

    def prepare_recovery_points(self) -> list[CheckpointJob]:
        """Prepares jobs that write the log starts, cleaner offsets and recovery points of all logs, in any order.

        Each log is looked at once: with ten thousand of them, what a look costs is to bring its objects into the caches.
        """
        points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        firsts: dict[TopicPartition, int] = {}
        for key, log in self._state.logs.items():
            points[key] = log.checkpointed_recovery_point
            if log.needs_log_start_checkpoint:
                starts[key] = log.checkpointed_log_start_offset
            if (first := log.first_dirty_offset) > 0:
                firsts[key] = first
        return [
            *self._prepared(self._log_start_offsets, starts),
            *self._prepared_cleaner_offsets(firsts),
            *self._prepared(self._recovery_points, points),
        ]

    def prepare_cleaner_offsets(self) -> list[CheckpointJob]:
        """Prepares jobs that write how far logs are compacted; none as long as there was nothing to compact."""
        return self._prepared_cleaner_offsets(
            {key: first for key, log in self._state.logs.items() if (first := log.first_dirty_offset) > 0}
        )

    def prepare_log_start_offsets(self, ahead: Mapping[TopicPartition, int] | None = None) -> list[CheckpointJob]:
        """Prepares jobs that write the log starts that lie inside a segment.

        Args:
            ahead: The starts that logs are about to get, none above the flushed offset; None: none.
        """
        starts = {
            key: log.checkpointed_log_start_offset
            for key, log in self._state.logs.items()
            if log.needs_log_start_checkpoint
        }
        return self._prepared(self._log_start_offsets, {**starts, **(ahead or {})})

    def prepare_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> list[CheckpointJob]:
        """Prepares jobs that write the high watermarks.

        Replicas of this directory that are not named keep theirs; others are left out.
        """
        kept, logs, offline = {**self._state.high_watermarks, **high_watermarks}, self._state.logs, self._state.offline
        for key in [key for key in kept if key not in logs and key not in offline]:
            del kept[key]
        self._state.set_high_watermarks(kept)
        job = self._replication_offsets.prepare(kept)
        return [] if job is None else [job]

    def checkpoint_recovery_points(self) -> None:
        """Writes the log starts and the recovery points of all logs."""
        run_all(self.prepare_recovery_points())

    def prepare_forgetting(self, keys: Iterable[TopicPartition]) -> list[CheckpointJob]:
        """Prepares jobs that remove the checkpoint lines of replicas that are gone or about to be created."""
        gone = set(keys)
        self._state.forget_high_watermarks(gone)
        jobs: list[CheckpointJob] = []
        for checkpoint in self._all:
            if any(checkpoint.may_name(key) for key in gone):
                kept = {key: at for key, at in checkpoint.offsets.items() if key not in gone}
                job = checkpoint.prepare(kept, gone=gone)
                jobs += [] if job is None else [job]
        return jobs

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Removes the checkpoint lines of these replicas at once, durably.

        Raises:
            DiskFullError: There is no room for the shorter files.
            StorageError: The disk failed.
        """
        run_all(self.prepare_forgetting(keys))

    # Parts

    def _undoubted_high_watermarks(self) -> dict[TopicPartition, int]:
        """Returns those that nothing contradicts; of any other replica the high watermark is unknown."""
        marks = self._replication_offsets
        doubted = sorted(partition_dir_name(*key) for key in marks.offsets if marks.doubts(key))
        if doubted:
            _log.warning(
                "%s: the high watermarks of %d replicas, %s among them, are not those that were written: one of %s and its "
                "witness is damaged, or another program, such as an older replog, has written the former. Their leaders learn "
                "them from the replicas",
                self._state.path, len(doubted), doubted[0], checkpoints.REPLICATION_OFFSET_FILE,
            )  # fmt: skip
        return {key: offset for key, offset in marks.offsets.items() if not marks.doubts(key)}

    @property
    def _all(self) -> tuple[OffsetCheckpoint, ...]:
        offsets = self._log_start_offsets, self._recovery_points, self._replication_offsets, self._cleaner_offsets
        return (*offsets, self._given_up)

    def _read_one(self, checkpoint: OffsetCheckpoint) -> None:
        """Reads a checkpoint; a damaged `cleaner-offset-checkpoint` counts as missing.

        To compact everything again loses nothing.
        """
        try:
            checkpoint.read()
        except checkpoints.DamagedCheckpointError:
            if checkpoint is not self._cleaner_offsets:
                raise

    def _prepared_cleaner_offsets(self, offsets: dict[TopicPartition, int]) -> list[CheckpointJob]:
        if not offsets and not self._cleaner_offsets.offsets and not self._cleaner_offsets.exists:
            return []
        return self._prepared(self._cleaner_offsets, offsets)

    def _prepared(self, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]) -> list[CheckpointJob]:
        """Prepares jobs that write offsets, and the lines of replicas that are offline: nothing new is known about them."""
        of_offline = {key: checkpoint.offsets[key] for key in self._state.offline if key in checkpoint.offsets}
        job = checkpoint.prepare({**of_offline, **offsets} if of_offline else offsets)
        return [] if job is None else [job]
