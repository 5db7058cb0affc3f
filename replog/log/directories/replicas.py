"""The replicas of one log directory as its owner holds them: taken in, taken offline, moved and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

from replog.errors import (
    DiskFullError,
    InconsistentTopicIdError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.log.config import LogConfig
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.creation import NewReplica
from replog.log.directories.directory_state import DirectoryState
from replog.log.directories.identity import storage_errors
from replog.log.directories.loaded_replica import ClosedReplica, LoadedReplica
from replog.log.directories.replica_opener import ReplicaOpener
from replog.log.directories.retirement import RetiredReplica, RetirementJob
from replog.log.file_names import deleted_dir_name, partition_dir_name, stray_dir_name
from replog.log.log import Log
from replog_checkpoints import PARTITION_METADATA_FILE, TopicPartition, uuid_to_text


class DirectoryReplicas:
    """The part of a log directory that says which replicas it has; one owner."""

    def __init__(self, state: DirectoryState, checkpoints: DirectoryCheckpoints, opener: ReplicaOpener) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._opener = opener

    # That come

    def add(self, loaded: LoadedReplica) -> None:
        """Takes a replica that the opener has opened, or could not open."""
        if loaded.log is not None:
            loaded.log.restore_first_dirty_offset(self._checkpoints.first_dirty_offset(loaded.key) or 0)
            self._state.put(loaded.key, loaded.topic_id, loaded.log)
        elif loaded.error is not None:
            self._state.put_offline(loaded.key, loaded.topic_id, loaded.error)

    def open_log(self, key: TopicPartition, topic_id: UUID, config: LogConfig | None, now_ms: int) -> Log:
        """Returns the log of a replica, created when there is none; one that found no room when it was opened is opened again.

        That recovers it here and now, above its recovery point: ask when there is room.

        Args:
            key: Topic and partition.
            topic_id: Id of the topic.
            config: Settings of the log; None: as they are, or the directory's.
            now_ms: Wall time.

        Raises:
            InconsistentTopicIdError: The partition folder belongs to an earlier topic of the same name.
            CorruptRecordError: The replica is offline.
            DiskFullError: There is no room for a new one, or to recover one.
            StorageError: The disk failed.
        """
        state = self._state
        if isinstance(state.offline.get(key), DiskFullError) and state.topic_ids[key] in {None, topic_id}:
            self.add(self._opener.load(key, config or state.config, now_ms))
        if key in state.offline:
            raise raised_anew(state.offline[key])
        if key not in state.logs:
            self._checkpoints.forget([key])  # lines of an earlier replica must not make promises about this one
            (made,) = self._opener.create([NewReplica(key, topic_id, config or state.config)], now_ms)
            if made.error is not None:
                raise made.error
            self.add(made)
        elif state.topic_ids[key] is None:
            with storage_errors(state.path):
                self._opener.write_topic_id(key, topic_id)
            state.note_topic_id(key, topic_id)
        found = state.topic_ids[key]
        if found != topic_id:
            raise InconsistentTopicIdError(
                f"{state.path_of(key)}/{PARTITION_METADATA_FILE} holds topic id {found and uuid_to_text(found)}, "
                f"{uuid_to_text(topic_id)} was asked for: the file is damaged or another's, then restore it; or the topic was "
                "deleted and created again. Delete the old replica first"
            )
        if config is not None:
            state.logs[key].set_config(config)
        return state.logs[key]

    # That go

    def delete(self, key: TopicPartition) -> None:
        """Deletes a replica and its checkpoint lines, durably; an offline one too.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            DiskFullError: There is no room for another name; it is offline.
            StorageError: The disk failed.
        """
        job = self.prepare_retirement([self.retire(key, is_kept=False)])
        self._run_retirement(job)
        for removal in job.removals():
            removal.run()

    def set_aside(self, key: TopicPartition) -> str | None:
        """Renames a replica to `...-stray` and forgets it.

        Returns:
            The new path; None: its folder is gone.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            DiskFullError: There is no room for another name; it is offline.
            StorageError: The disk failed.
        """
        replica = self.retire(key, is_kept=True)
        self._run_retirement(self.prepare_retirement([replica]))
        return None if replica.is_lost else replica.target

    def retire(self, key: TopicPartition, *, is_kept: bool) -> RetiredReplica:
        """Closes and forgets a replica, an offline one too; its folder and its checkpoint lines are left to a job.

        Args:
            key: Topic and partition.
            is_kept: Whether its files are set aside instead of being removed.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
        """
        state = self._state
        log = state.logs.get(key)
        if log is not None:
            log.close_for_good()
        elif key not in state.offline:
            raise UnknownTopicOrPartitionError(f"{state.path} has no replica {partition_dir_name(*key)}")
        name, unique_id = partition_dir_name(*key), state.new_id()
        target = stray_dir_name(name, unique_id) if is_kept else deleted_dir_name(name, unique_id)
        topic_id = state.topic_ids.get(key)
        is_lost = key in state.lost
        retired = RetiredReplica(key, topic_id, state.path, state.at(name), state.at(target), is_kept, is_lost)
        state.drop(key)
        return retired

    def prepare_retirement(self, replicas: Sequence[RetiredReplica]) -> RetirementJob:
        """Prepares the job that renames the folders of retired replicas of this directory and removes their lines."""
        forgotten = self._checkpoints.prepare_forgetting([replica.key for replica in replicas])
        return RetirementJob(self._state.fs, self._state.path, replicas, forgotten, self._state.space.make_room)

    def retirement_failed(self, job: RetirementJob, error: ReplogError) -> None:
        """Keeps the replicas of a job as offline ones: it is unknown which of their folders are still there."""
        for replica in job.replicas:
            if replica.is_lost:
                self._state.put_lost(replica.key, error)
            else:
                self._state.put_offline(replica.key, replica.topic_id, error)

    def _run_retirement(self, job: RetirementJob) -> None:
        try:
            job.run()
        except (DiskFullError, StorageError) as error:
            self.retirement_failed(job, error)
            raise

    # That move

    def close_one(self, key: TopicPartition, high_watermark: int, error: ReplogError) -> ClosedReplica:
        """Takes an open replica offline, to be reopened; `error` is its answer meanwhile."""
        log = self._state.logs[key]
        replica = ClosedReplica(
            key=key,
            topic_id=self._state.topic_ids.get(key),
            config=log.config,
            files=log.files(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            recovery_point=log.flushed_offset,
            first_dirty_offset=log.first_dirty_offset,
            high_watermark=high_watermark,
        )
        self._state.take_offline(key, error)
        return replica

    def replace(self, loaded: LoadedReplica, replica: ClosedReplica) -> None:
        """Takes a replica that was reopened, with its state besides its files."""
        self._state.drop(loaded.key)
        self.add(loaded)
        self._state.set_high_watermark(loaded.key, replica.high_watermark)
        if loaded.log is not None:
            loaded.log.restore_first_dirty_offset(replica.first_dirty_offset)
            if self._state.failure is not None:
                loaded.log.fail(self._state.failure)

    def drop(self, key: TopicPartition) -> None:
        """Forgets a replica that is in another directory now, and its checkpoint lines."""
        self._state.drop(key)
        # where that fails the next checkpoint tells, and a replica that comes back forgets first
        with contextlib.suppress(DiskFullError, StorageError):
            self._checkpoints.forget([key])
