"""The replicas of one log directory: loaded, created, taken offline, moved and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import replog_checkpoints as checkpoints
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
from replog.log.directories.creation import NewReplica, create_logs
from replog.log.directories.identity import storage_errors
from replog.log.directories.loaded_replica import ClosedReplica, LoadedReplica
from replog.log.directories.retirement import RetiredReplica, RetirementJob
from replog.log.disk_space import DiskSpace
from replog.log.file_names import deleted_dir_name, partition_dir_name, stray_dir_name
from replog.log.log import Log
from replog_checkpoints import FileSystem, PartitionMetadata, TopicPartition

METADATA_TOPIC: Final = "__cluster_metadata"
"""Its appends are never refused for want of room: without it nothing could be deleted to make some."""


class DirectoryReplicas(DirectoryCheckpoints):
    """The part of a log directory that holds replicas; one owner.

    Attributes:
        path: Path of the directory.
        was_clean: Whether the last stop was clean.
        failure: The error for which the whole directory is offline; None: it works.
        space: The room on its disk.
    """

    def __init__(
        self, fs: FileSystem, path: str, config: LogConfig, space: DiskSpace, new_id: Callable[[], UUID]
    ) -> None:
        super().__init__(fs, path, space)
        self.path = path
        self.was_clean = False
        self.failure: StorageError | None = None
        self.space = space
        self._fs = fs
        self._config = config
        self._new_id = new_id
        self._topic_ids: dict[TopicPartition, UUID | None] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open.  Read only."""
        return self._logs

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """Returns the topic id that a replica's partition folder carries; None when it has none."""
        return self._topic_ids.get((topic, partition))

    def path_of(self, key: TopicPartition) -> str:
        """Returns the path of a replica's partition folder."""
        return self._at(partition_dir_name(*key))

    # As the folder has them

    def load(self, key: TopicPartition, config: LogConfig, now_ms: int) -> LoadedReplica:
        """Opens one replica, recovering it where that is needed, at the cost of the reserve where there is no room.

        In any thread: it changes nothing here but the reserve.
        """
        loaded = self._try_to_load(key, config, now_ms)
        if isinstance(loaded.error, DiskFullError):
            self.space.release_reserve()  # where another replica has released it meanwhile, that is room as well
            loaded = self._try_to_load(key, config, now_ms)
        return loaded

    def _try_to_load(self, key: TopicPartition, config: LogConfig, now_ms: int) -> LoadedReplica:
        topic_id: UUID | None = None
        try:
            with storage_errors(self.path):
                path = f"{self.path_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
                metadata = checkpoints.read_partition_metadata(self._fs, path)
                topic_id = metadata.topic_id if metadata else None
                self._log_start_offsets.require_undoubted(key)
                return LoadedReplica(key, topic_id, self._open(key, config, now_ms), None)
        except ReplogError as error:
            return LoadedReplica(key, topic_id, None, error)

    def add(self, loaded: LoadedReplica) -> None:
        """Takes a replica that `load` opened, or could not open."""
        self._topic_ids[loaded.key] = loaded.topic_id
        if loaded.log is not None:
            loaded.log.restore_first_dirty_offset(self._cleaner_offsets.offsets.get(loaded.key, 0))
            self._logs[loaded.key] = loaded.log
        elif loaded.error is not None:
            self.offline[loaded.key] = loaded.error

    def has_folder(self, key: TopicPartition) -> bool:
        """Whether something of a replica is here, open or not: then it must not be created in another directory."""
        try:
            return key in self.offline or self._fs.is_dir(self.path_of(key))
        except OSError:
            return True  # nobody can tell

    # New ones

    def open_log(
        self, topic: str, partition: int, topic_id: UUID, config: LogConfig | None = None, *, now_ms: int
    ) -> Log:
        """Returns the log of a replica, created when there is none.

        Raises:
            InconsistentTopicIdError: The partition folder belongs to an earlier topic of the same name.
            CorruptRecordError: The replica is offline (see `offline`).
            DiskFullError: There is no room for a new one.
            StorageError: The disk failed.
        """
        key = (topic, partition)
        if key in self.offline:
            raise raised_anew(self.offline[key])
        if key not in self._logs:
            self.forget([key])  # lines of an earlier replica must not make promises about this one
            (made,) = self.create([NewReplica(key, topic_id, config or self._config)], now_ms)
            if made.error is not None:
                raise made.error
            self.add(made)
        elif self._topic_ids[key] is None:
            with storage_errors(self.path):
                self._write_topic_id(key, topic_id)
            self._topic_ids[key] = topic_id
        found = self._topic_ids[key]
        if found != topic_id:
            raise InconsistentTopicIdError(
                f"{self.path_of(key)} holds topic id {found}, {topic_id} was asked for: the topic was deleted and created "
                "again. Delete the old replica first"
            )
        if config is not None:
            self._logs[key].set_config(config)
        return self._logs[key]

    def create(self, replicas: Sequence[NewReplica], now_ms: int) -> list[LoadedReplica]:
        """Makes new replicas, durably, in any thread; `forget` them first, `add` them then.  Each may have failed."""
        fresh = [replica for replica in replicas if not self.has_folder(replica.key)]
        logs: dict[TopicPartition, Log] = {}
        error: ReplogError | None = None
        try:
            with storage_errors(self.path):
                made = create_logs(
                    self._fs,
                    self.path,
                    fresh,
                    now_ms=now_ms,
                    checkpoint=self.checkpoint_recovery_points,
                    admission=self._admission,
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

    def _complete(self, replica: NewReplica, now_ms: int) -> LoadedReplica:
        """Opens a replica whose folder is there already, from a crash while it was created, with topic id and epoch."""
        try:
            with storage_errors(self.path):
                self._write_topic_id(replica.key, replica.topic_id)
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
            self._fs.remove_tree(self.path_of(key))
            self._fs.sync_dir(self.path)

    def _write_topic_id(self, key: TopicPartition, topic_id: UUID) -> None:
        path = f"{self.path_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
        checkpoints.write_partition_metadata(self._fs, path, PartitionMetadata(topic_id))

    # That go

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably; an offline one too.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            StorageError: The disk failed.
        """
        job = self.prepare_retirement([self.retire((topic, partition), is_kept=False)])
        self._run_retirement(job)
        for removal in job.removals():
            removal.run()

    def set_aside_log(self, topic: str, partition: int) -> str:
        """Renames a replica that nobody claims, or that is damaged, to `...-stray` and forgets it; returns the new path.

        It is kept, because who says that it is not claimed may have lost its memory (docs/KAFKA.md 3.1).

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            StorageError: The disk failed.
        """
        replica = self.retire((topic, partition), is_kept=True)
        self._run_retirement(self.prepare_retirement([replica]))
        return replica.target

    def retire(self, key: TopicPartition, *, is_kept: bool) -> RetiredReplica:
        """Closes and forgets a replica, an offline one too; its folder and its checkpoint lines are left to a job.

        Args:
            key: Topic and partition.
            is_kept: Whether its files are set aside instead of being removed.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
        """
        log = self._logs.get(key)
        if log is not None:
            log.close_for_good()
        elif key not in self.offline:
            raise UnknownTopicOrPartitionError(f"{self.path} has no replica {partition_dir_name(*key)}")
        name, unique_id = partition_dir_name(*key), self._new_id()
        target = stray_dir_name(name, unique_id) if is_kept else deleted_dir_name(name, unique_id)
        retired = RetiredReplica(key, self._topic_ids.get(key), self.path, self._at(name), self._at(target), is_kept)
        self._drop(key)
        return retired

    def prepare_retirement(self, replicas: Sequence[RetiredReplica]) -> RetirementJob:
        """Prepares the job that renames the folders of retired replicas of this directory and removes their lines."""
        forgotten = self.prepare_forgetting([replica.key for replica in replicas])
        return RetirementJob(self._fs, self.path, replicas, forgotten)

    def retirement_failed(self, job: RetirementJob, error: StorageError) -> None:
        """Keeps the replicas of a job as offline ones: nobody knows which of their folders are still there."""
        for replica in job.replicas:
            self._topic_ids[replica.key] = replica.topic_id
            self.offline[replica.key] = error

    def _run_retirement(self, job: RetirementJob) -> None:
        try:
            job.run()
        except StorageError as error:
            self.retirement_failed(job, error)
            raise

    def quarantine(self, key: TopicPartition, error: ReplogError) -> None:
        """Takes an open replica offline alone: its bytes contradict what was promised about them.  Nothing is changed."""
        log = self._logs.pop(key)
        log.fail(error)
        log.close(0)
        self.offline[key] = error

    # That move

    def close_replica(self, key: TopicPartition, high_watermark: int, error: StorageError) -> ClosedReplica:
        """Takes an open replica offline, to be reopened; `error` is what it answers with meanwhile."""
        log = self._logs[key]
        replica = ClosedReplica(
            key=key,
            topic_id=self.topic_id(*key),
            config=log.config,
            files=log.files(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            recovery_point=log.flushed_offset,
            first_dirty_offset=log.first_dirty_offset,
            high_watermark=high_watermark,
        )
        self.quarantine(key, error)
        return replica

    def reopen(self, replica: ClosedReplica, now_ms: int, *, recovery_point: int) -> LoadedReplica:
        """Opens a replica that was closed a moment ago, here or in another directory.  In any thread; give it to `add`.

        Args:
            replica: The replica as it was when it was closed.
            now_ms: Wall time.
            recovery_point: The offset below which everything is on stable storage here.
        """
        try:
            with storage_errors(self.path):
                log = Log.open(
                    self._fs,
                    self.path_of(replica.key),
                    replica.config,
                    topic_partition=partition_dir_name(*replica.key),
                    recovery_point=recovery_point,
                    log_start_offset=replica.log_start_offset,
                    clean=False,
                    now_ms=now_ms,
                    checkpoint=self.checkpoint_recovery_points,
                    admission=self._admission(replica.key),
                )
        except ReplogError as error:
            return LoadedReplica(replica.key, replica.topic_id, None, error)
        return LoadedReplica(replica.key, replica.topic_id, log, None)

    def replace(self, loaded: LoadedReplica, replica: ClosedReplica) -> None:
        """Takes a replica that was reopened; what is known of it besides its files goes with it."""
        self._drop(loaded.key)
        self.add(loaded)
        self.high_watermarks[loaded.key] = replica.high_watermark
        if loaded.log is not None:
            loaded.log.restore_first_dirty_offset(replica.first_dirty_offset)
            if self.failure is not None:
                loaded.log.fail(self.failure)

    def drop(self, key: TopicPartition) -> None:
        """Forgets a replica that is in another directory now, and its checkpoint lines."""
        self._drop(key)
        with contextlib.suppress(DiskFullError):  # a replica that comes back forgets first
            self.forget([key])

    # Parts

    def _open(self, key: TopicPartition, config: LogConfig, now_ms: int) -> Log:
        """Opens a log; one without a recovery point is checked from its start, whatever the marker says."""
        recovery_point = self._recovery_points.offsets.get(key)
        return Log.open(
            self._fs,
            self.path_of(key),
            config,
            topic_partition=partition_dir_name(*key),
            recovery_point=recovery_point or 0,
            log_start_offset=self._log_start_offsets.offsets.get(key, 0),
            clean=self.was_clean and recovery_point is not None,
            now_ms=now_ms,
            checkpoint=self.checkpoint_recovery_points,
            admission=self._admission(key),
            is_compacted=key in self._cleaner_offsets.offsets,
        )

    def _admission(self, key: TopicPartition) -> Callable[[int], None] | None:
        return None if key[0] == METADATA_TOPIC else self.space.admit

    def _drop(self, key: TopicPartition) -> None:
        self._logs.pop(key, None)
        self.offline.pop(key, None)
        self._topic_ids.pop(key, None)
        self.high_watermarks.pop(key, None)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"
