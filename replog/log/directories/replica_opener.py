"""Opening the replicas of one log directory: those that are in its folder, new ones, and those that were closed a moment ago.

Runs in any thread: it changes only files of the directory and, without room, the reserve.  The directory's owner takes the
results (`DirectoryReplicas.add`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.errors import DiskFullError, ForkFailedError, ReplogError
from replog.log.config import LogConfig
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.creation import NewReplica, create_logs
from replog.log.directories.directory_state import DirectoryState
from replog.log.directories.fork import finish_fork, name_fork
from replog.log.directories.identity import storage_errors
from replog.log.directories.loaded_replica import ClosedReplica, LoadedReplica
from replog.log.file_names import partition_dir_name
from replog.log.log import Log
from replog.log.recovery.misplaced import misplaced
from replog_checkpoints import PartitionMetadata, TopicPartition


class ReplicaOpener:
    """The part of a log directory that opens replicas and makes new ones, in any thread."""

    def __init__(self, state: DirectoryState, checkpoints: DirectoryCheckpoints) -> None:
        self._state = state
        self._checkpoints = checkpoints

    def has_folder(self, key: TopicPartition) -> bool:
        """Whether something of a replica is here, open or not: then it must not be created in another directory."""
        try:
            return key in self._state.offline or self._state.fs.is_dir(self._state.path_of(key))
        except OSError:
            return True  # it is unknown

    # As the folder has them

    def load(self, key: TopicPartition, config: LogConfig, now_ms: int) -> LoadedReplica:
        """Opens one replica, recovering it where that is needed, at the cost of the reserve where there is no room."""
        loaded = self._try_to_load(key, config, now_ms)
        if isinstance(loaded.error, DiskFullError):
            self._state.space.release_reserve()  # where another replica has released it meanwhile, that is room as well
            loaded = self._try_to_load(key, config, now_ms)
        return loaded

    def _try_to_load(self, key: TopicPartition, config: LogConfig, now_ms: int) -> LoadedReplica:
        topic_id: UUID | None = None
        try:
            with storage_errors(self._state.path):
                metadata = checkpoints.read_partition_metadata(self._state.fs, self._topic_id_path(key))
                if (elsewhere := misplaced(self._state.path_of(key), metadata)) is not None:
                    raise elsewhere
                topic_id = metadata.topic_id if metadata else None
                self._checkpoints.require_undoubted_start(key)
                log = self._open(key, config, now_ms)
        except ReplogError as error:
            return LoadedReplica(key, topic_id, None, error)
        if metadata is not None and metadata.folder_name is None:  # from Kafka or an older replog
            with contextlib.suppress(OSError):  # the next start does it
                self.write_topic_id(key, metadata.topic_id)
        return LoadedReplica(key, topic_id, log, None)

    def reopen(self, replica: ClosedReplica, now_ms: int, *, recovery_point: int) -> LoadedReplica:
        """Opens a replica that was closed a moment ago, here or in another directory.

        Args:
            replica: The replica as it was when it was closed.
            now_ms: Wall time.
            recovery_point: The offset below which everything is on stable storage here.
        """
        try:
            with storage_errors(self._state.path):
                log = Log.open(
                    self._state.fs,
                    self._state.path_of(replica.key),
                    replica.config,
                    topic_partition=partition_dir_name(*replica.key),
                    recovery_point=recovery_point,
                    log_start_offset=replica.log_start_offset,
                    clean=False,
                    now_ms=now_ms,
                    checkpoint=self._checkpoints.checkpoint_recovery_points,
                    admission=self._state.admission(replica.key),
                )
        except ReplogError as error:
            return LoadedReplica(replica.key, replica.topic_id, None, error)
        return LoadedReplica(replica.key, replica.topic_id, log, None)

    # New ones

    def create(self, replicas: Sequence[NewReplica], now_ms: int) -> list[LoadedReplica]:
        """Makes new replicas, durably; their checkpoint lines are forgotten before.  Each may have failed."""
        if any(replica.fork is not None for replica in replicas):
            return [self._made(replica, now_ms) for replica in replicas]
        fresh = [replica for replica in replicas if not self.has_folder(replica.key)]
        logs: dict[TopicPartition, Log] = {}
        error: ReplogError | None = None
        try:
            with storage_errors(self._state.path):
                made = create_logs(
                    self._state.fs,
                    self._state.path,
                    fresh,
                    now_ms=now_ms,
                    checkpoint=self._checkpoints.checkpoint_recovery_points,
                    admission=self._state.admission,
                )
                logs = dict(zip((replica.key for replica in fresh), made, strict=True))
        except ReplogError as failure:
            error = failure
            for replica in fresh:
                self._remove_half_made(replica.key)
            if len(replicas) > 1:  # whose fault was it?
                return [found for replica in replicas for found in self.create([replica], now_ms)]
        if error is not None:
            return [LoadedReplica(replica.key, replica.topic_id, None, error) for replica in replicas]
        return [
            LoadedReplica(replica.key, replica.topic_id, logs[replica.key], None)
            if replica.key in logs
            else self._complete(replica, now_ms)
            for replica in replicas
        ]

    def _made(self, replica: NewReplica, now_ms: int) -> LoadedReplica:
        """Makes one replica; of one that is a fork nothing is left where that fails."""
        fork, state = replica.fork, self._state
        if fork is None:
            return self.create([replica], now_ms)[0]
        folder, name = state.path_of(replica.key), partition_dir_name(*replica.key)
        try:
            with storage_errors(state.path):
                finish_fork(state.fs, fork, PartitionMetadata(replica.topic_id, name))
                name_fork(state.fs, fork, folder)
                log = Log.open(
                    state.fs,
                    folder,
                    replica.config,
                    topic_partition=name,
                    recovery_point=fork.recovery_point,
                    log_start_offset=fork.log_start_offset,
                    clean=False,
                    now_ms=now_ms,
                    checkpoint=self._checkpoints.checkpoint_recovery_points,
                    admission=state.admission(replica.key),
                    is_compacted=fork.is_compacted,
                )
            if log.log_end_offset != fork.end_offset:
                log.close_for_good()
                raise ForkFailedError(f"{folder} ends at {log.log_end_offset}, and was to end at {fork.end_offset}")
        except ReplogError as error:
            for path in (fork.folder, folder):
                with contextlib.suppress(OSError):
                    state.fs.remove_tree(path)
            return LoadedReplica(
                replica.key, replica.topic_id, None, ForkFailedError(f"{name} cannot be forked: {error}")
            )
        return LoadedReplica(replica.key, replica.topic_id, log, None)

    def write_topic_id(self, key: TopicPartition, topic_id: UUID) -> None:
        """Writes whose folder it is into the partition folder of a replica, durably.

        Raises:
            OSError: The disk failed or is full.
        """
        metadata = PartitionMetadata(topic_id, partition_dir_name(*key))
        checkpoints.write_partition_metadata(self._state.fs, self._topic_id_path(key), metadata)

    def _complete(self, replica: NewReplica, now_ms: int) -> LoadedReplica:
        """Opens a replica whose folder is there already, from a crash while it was created, with topic id and epoch."""
        try:
            with storage_errors(self._state.path):
                self.write_topic_id(replica.key, replica.topic_id)
                log = self._open(replica.key, replica.config, now_ms)
                if replica.leader_epoch is not None:
                    log.assign_epoch_start(replica.leader_epoch)
        except ReplogError as error:
            return LoadedReplica(replica.key, replica.topic_id, None, error)
        return LoadedReplica(replica.key, replica.topic_id, log, None)

    def _remove_half_made(self, key: TopicPartition) -> None:
        """Removes the folder of a replica whose creation failed.

        It may be created in another directory next, and two folders of one replica stop the next start.
        """
        with contextlib.suppress(OSError):
            self._state.fs.remove_tree(self._state.path_of(key))
            self._state.fs.sync_dir(self._state.path)

    # Parts

    def _open(self, key: TopicPartition, config: LogConfig, now_ms: int) -> Log:
        """Opens a log.  One without a recovery point is checked from its start, even after a clean stop."""
        recovery_point = self._checkpoints.recovery_points.get(key)
        return Log.open(
            self._state.fs,
            self._state.path_of(key),
            config,
            topic_partition=partition_dir_name(*key),
            recovery_point=recovery_point or 0,
            log_start_offset=self._checkpoints.log_start_offset(key),
            clean=self._state.was_clean and recovery_point is not None,
            now_ms=now_ms,
            checkpoint=self._checkpoints.checkpoint_recovery_points,
            admission=self._state.admission(key),
            is_compacted=self._checkpoints.first_dirty_offset(key) is not None,
        )

    def _topic_id_path(self, key: TopicPartition) -> str:
        return f"{self._state.path_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
