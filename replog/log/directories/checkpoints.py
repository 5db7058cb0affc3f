"""The offset checkpoints of one directory: what stands in each, gathered from its logs.

| file                               | a line for                                            |
|------------------------------------|-------------------------------------------------------|
| `recovery-point-offset-checkpoint` | every log                                             |
| `log-start-offset-checkpoint`      | logs that start inside a segment                      |
| `replication-offset-checkpoint`    | every log: its high watermark                         |
| `cleaner-offset-checkpoint`        | logs that were compacted                              |

Lines of a replica that is offline stay as they are, since nothing new is known about it; a replica that is gone has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import replog_checkpoints as checkpoints
from replog.errors import ReplogError
from replog.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoint, run_all
from replog.log.disk_space import DiskSpace
from replog.log.log import Log
from replog.log.recovery.start_witness import StartWitness
from replog_checkpoints import FileSystem, TopicPartition


class DirectoryCheckpoints:
    """The part of a log directory that remembers offsets.  Each `prepare_...` gives jobs for one thread, in order.

    Attributes:
        high_watermarks: The checkpointed high watermarks, exclusive; a replica without one starts at its log start.
        offline: The replicas that cannot be opened, and why.
    """

    def __init__(self, fs: FileSystem, path: str, space: DiskSpace) -> None:
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.offline: dict[TopicPartition, ReplogError] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._recovery_points = OffsetCheckpoint(fs, f"{path}/{checkpoints.RECOVERY_POINT_FILE}", space)
        starts_path = f"{path}/{checkpoints.LOG_START_OFFSET_FILE}"
        self._log_start_offsets = OffsetCheckpoint(fs, starts_path, space, StartWitness(fs, starts_path))
        self._replication_offsets = OffsetCheckpoint(fs, f"{path}/{checkpoints.REPLICATION_OFFSET_FILE}", space)
        self._cleaner_offsets = OffsetCheckpoint(fs, f"{path}/{checkpoints.CLEANER_OFFSET_FILE}", space)

    def prepare_recovery_points(self) -> list[CheckpointJob]:
        """Prepares jobs that write the log starts, what is compacted, then the recovery points, of all logs."""
        points = {key: log.checkpointed_recovery_point for key, log in self._logs.items()}
        job = self._recovery_points.prepare({**self._kept(self._recovery_points), **points})
        return self.prepare_log_start_offsets() + self.prepare_cleaner_offsets() + ([] if job is None else [job])

    def prepare_cleaner_offsets(self) -> list[CheckpointJob]:
        """Prepares jobs that write how far logs are compacted; none as long as there was nothing to compact."""
        found = {key: log.first_dirty_offset for key, log in self._logs.items() if log.first_dirty_offset > 0}
        offsets = {**self._kept(self._cleaner_offsets), **found}
        if not offsets and not self._cleaner_offsets.exists:
            return []
        job = self._cleaner_offsets.prepare(offsets)
        return [] if job is None else [job]

    def prepare_log_start_offsets(self, ahead: Mapping[TopicPartition, int] | None = None) -> list[CheckpointJob]:
        """Prepares jobs that write the log starts that lie inside a segment.

        Args:
            ahead: The starts that logs are about to get, none above what is flushed; None: none.
        """
        starts = {
            key: log.checkpointed_log_start_offset for key, log in self._logs.items() if log.needs_log_start_checkpoint
        }
        job = self._log_start_offsets.prepare({**self._kept(self._log_start_offsets), **starts, **(ahead or {})})
        return [] if job is None else [job]

    def prepare_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> list[CheckpointJob]:
        """Prepares jobs that write the high watermarks.

        Replicas of this directory that are not named keep theirs; others are left out.
        """
        known = self._known()
        merged = {**self.high_watermarks, **high_watermarks}
        self.high_watermarks = {key: offset for key, offset in merged.items() if key in known}
        job = self._replication_offsets.prepare(dict(self.high_watermarks))
        return [] if job is None else [job]

    def checkpoint_recovery_points(self) -> None:
        """Writes the log starts and the recovery points of all logs."""
        run_all(self.prepare_recovery_points())

    def checkpoint_log_start_offsets(self, ahead: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes the log starts that lie inside a segment; see `prepare_log_start_offsets`."""
        run_all(self.prepare_log_start_offsets(ahead))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks; see `prepare_high_watermarks`."""
        run_all(self.prepare_high_watermarks(high_watermarks))

    def prepare_forgetting(self, keys: Iterable[TopicPartition]) -> list[CheckpointJob]:
        """Prepares jobs that remove the checkpoint lines of replicas that are gone or about to be created."""
        gone = set(keys)
        for key in gone:
            self.high_watermarks.pop(key, None)
        jobs: list[CheckpointJob] = []
        for checkpoint in self._checkpoints:
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

    @property
    def _checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return self._log_start_offsets, self._recovery_points, self._replication_offsets, self._cleaner_offsets

    def _known(self) -> set[TopicPartition]:
        return {*self._logs, *self.offline}

    def _kept(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        """Returns the lines of replicas that are offline: nothing new is known about them."""
        return {key: offset for key, offset in checkpoint.offsets.items() if key in self.offline}
