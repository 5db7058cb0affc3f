"""One log directory: many logs under one lock, one identity, one set of checkpoints (kafka-reference 3.1).

    data/.lock                               held while this is open
    data/.reserve                            room for checkpoints on a full disk, see `disk_space`
    data/meta.properties                     whose directory it is; replog.format=1 says that the metadata log is ours
    data/.kafka_cleanshutdown                only while nobody has it open, after a clean stop
    data/recovery-point-offset-checkpoint    everything below is on stable storage
    data/log-start-offset-checkpoint         only logs that start inside a segment
    data/replication-offset-checkpoint       high watermarks
    data/cleaner-offset-checkpoint           everything below is compacted
    data/flights-3/...                       one replica
    data/flights-3.<32 hex>-stray/...        a replica that nobody claimed at a start; kept, never opened

| crash                                          | what the next start finds                                            |
|------------------------------------------------|----------------------------------------------------------------------|
| between reading and removing the clean marker  | the marker, still true                                               |
| while a replica is created                     | a directory without records, completed when it is opened again        |
| while a replica is deleted                     | `...-delete`, removed; a checkpoint line without a directory, dropped |
| between the log-start and recovery-point files | a newer log start beside an older recovery point: both true            |

A directory that belongs to another node or cluster, or that Kafka formatted, is refused before anything in it is changed.
A replica that cannot be opened (bit-rot below its recovery point) goes offline alone: see `offline`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.errors import (
    DiskFullError,
    InconsistentTopicIdError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log.config import LogConfig
from replog.log.deletion import DirectoryDeletionJob, retire_directory, set_aside_directory
from replog.log.directory_checkpoints import DirectoryCheckpoints
from replog.log.directory_identity import (
    FORMAT,
    FORMAT_KEY,
    read_identity,
    require_cluster_id,
    storage_errors,
    take_lock,
    write_identity,
)
from replog.log.disk_space import NO_LIMITS, DiskLimits, DiskSpace
from replog.log.file_names import DELETE_DIR_SUFFIX, parse_partition_dir_name, partition_dir_name
from replog.log.log import Log
from replog.log.offset_checkpoints import OffsetCheckpoint
from replog.log.replica_creation import NewReplica, create_logs
from replog.log.segment_list import LogFiles
from replog_checkpoints import FileSystem, Lock, MetaProperties, PartitionMetadata, TopicPartition

__all__ = ["FORMAT", "FORMAT_KEY", "LoadedReplica", "LogDirectory"]

METADATA_TOPIC: Final = "__cluster_metadata"
"""Its appends are never refused for want of room: without it nothing could be deleted to make some."""

_NO_BROKER_EPOCH: Final = -1


class Mapper(Protocol):
    """Applies a function to items, in any threads; `map` for one after the other."""

    def __call__(
        self, function: Callable[[Log], Exception | None], items: Iterable[Log], /
    ) -> Iterable[Exception | None]: ...


@dataclass(frozen=True, slots=True)
class LoadedReplica:
    """A replica that was opened, perhaps in another thread, and is not part of its directory yet.

    Attributes:
        key: (topic, partition).
        topic_id: as its directory says; None: it does not.
        log: None where it cannot be opened.
        error: why.
    """

    key: TopicPartition
    topic_id: UUID | None
    log: Log | None
    error: ReplogError | None


@dataclass(frozen=True, slots=True)
class ClosedReplica:
    """What a replica was when it was closed, to be opened again.

    Attributes:
        files: it consisted of.
        recovery_point: everything below is on stable storage.
        high_watermark: exclusive.
    """

    key: TopicPartition
    topic_id: UUID | None
    config: LogConfig
    files: LogFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    first_dirty_offset: int
    high_watermark: int


class LogDirectory(DirectoryCheckpoints):
    """The logs of one directory.  Made by `LogDirectory.open`; one owner.

    Attributes:
        path: of the directory.
        meta: its identity.
        was_clean: the last stop was clean.
        previous_broker_epoch: of the incarnation that stopped cleanly; -1 unknown.
        high_watermarks: as checkpointed, exclusive; a replica without an entry starts at its log start.
        offline: replicas that cannot be opened, and why.
        failure: why the whole directory is offline; None: it works.
        space: room on its disk.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        meta: MetaProperties,
        lock: Lock,
        config: LogConfig,
        limits: DiskLimits,
        new_id: Callable[[], UUID],
    ) -> None:
        self.space = DiskSpace(fs, path, limits)
        super().__init__(fs, path, self.space)
        self.path = path
        self.meta = meta
        self.was_clean = False
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        self.failure: StorageError | None = None
        self._fs = fs
        self._lock = lock
        self._config = config
        self._new_id = new_id
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._closed = False

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        now_ms: int,
        config: LogConfig | None = None,
        config_for: Callable[[str], LogConfig] | None = None,
        new_directory_id: Callable[[], UUID] = uuid.uuid4,
        limits: DiskLimits | None = None,
    ) -> LogDirectory:
        """Locks the directory, formats it when it is new, and opens every replica in it, one after the other.

        Args:
            fs: the disk.
            path: of the directory; created when missing.
            cluster_id: it must belong to; None: whatever it says, but then it must be formatted already.
            node_id: it must belong to.
            now_ms: wall time.
            config: settings of logs of which nothing else is known.
            config_for: topic -> settings, for the replicas found; None: `config` for all.
            new_directory_id: for a new directory, and in the names of replicas that are deleted.
            limits: when its disk counts as full; None: never, and there is no reserve.

        Raises:
            DirectoryLockedError: another process has it open.
            InconsistentClusterIdError: it belongs to another cluster or node; nothing was changed.
            CorruptCheckpointError: one of its checkpoints is damaged.
            ConfigError: it is new and no cluster id was given.
            StorageError: Kafka formatted it, its identity is missing, or the disk failed.
        """
        config = config or LogConfig()
        directory = cls.lock(
            fs,
            path,
            cluster_id=cluster_id,
            node_id=node_id,
            config=config,
            limits=limits,
            new_directory_id=new_directory_id,
        )
        try:
            for key in directory.begin_load():
                directory.add(directory.load(key, config_for(key[0]) if config_for else config, now_ms))
            directory.end_load()
        except BaseException:
            directory.release()
            raise
        return directory

    @classmethod
    def lock(
        cls,
        fs: FileSystem,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        config: LogConfig,
        limits: DiskLimits | None = None,
        new_directory_id: Callable[[], UUID] = uuid.uuid4,
    ) -> LogDirectory:
        """The first step of opening: lock, identity, checkpoints.  Nothing is changed in a directory that is not new.

        Then `begin_load`, `load` for each replica (in any threads), `add` each, `end_load`; or `release`.
        """
        with storage_errors(path):
            if read_identity(fs, path, cluster_id, node_id) is None:  # refuse before the lock file is made
                require_cluster_id(path, cluster_id)
            checkpoints.make_durable_dirs(fs, path)
            lock = take_lock(fs, path)
            try:
                meta = read_identity(fs, path, cluster_id, node_id)
                if meta is None:
                    meta = write_identity(fs, path, require_cluster_id(path, cluster_id), node_id, new_directory_id)
                directory = cls(fs, path, meta, lock, config, limits or NO_LIMITS, new_directory_id)
                for checkpoint in directory._checkpoints:
                    directory._read_checkpoint(checkpoint)
            except BaseException:
                lock.release()
                raise
            directory.high_watermarks = dict(directory._replication_offsets.offsets)
            return directory

    # Loading

    def begin_load(self) -> list[TopicPartition]:
        """Takes the clean-shutdown marker and what half-deleted replicas left; returns the replicas to load."""
        with storage_errors(self.path):
            self._take_clean_marker()
            keys: list[TopicPartition] = []
            for name in self._fs.list_dir(self.path):
                if not self._fs.is_dir(self._at(name)):
                    continue
                if name.endswith(DELETE_DIR_SUFFIX):
                    self._fs.remove_tree(self._at(name))
                elif (key := parse_partition_dir_name(name)) is not None:
                    keys.append(key)
            return keys

    def load(self, key: TopicPartition, config: LogConfig, now_ms: int) -> LoadedReplica:
        """Opens one replica, recovering it where that is needed.  In any thread: it changes nothing here."""
        topic_id: UUID | None = None
        try:
            with storage_errors(self.path):
                path = f"{self.path_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
                metadata = checkpoints.read_partition_metadata(self._fs, path)
                topic_id = metadata.topic_id if metadata else None
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

    def end_load(self) -> None:
        """Drops the checkpoint lines of replicas that are gone; looks at the room on the disk."""
        with storage_errors(self.path), contextlib.suppress(DiskFullError):
            self.space.check()
            if not self._recovery_points.exists or self._recovery_points.offsets.keys() - self._known():
                self.checkpoint_recovery_points()

    def release(self) -> None:
        """Gives up: closes what is open without another word, drops the lock."""
        self._closed = True
        for log in self._logs.values():
            log.fail(StorageError(f"{self.path} was given up while it was opened"))
            log.close(0)
        self._lock.release()

    # Logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open.  Read only."""
        return self._logs

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """As checkpointed."""
        return self._recovery_points.offsets

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic id that a replica's directory carries; None when it has none."""
        return self._topic_ids.get((topic, partition))

    def open_log(
        self, topic: str, partition: int, topic_id: UUID, config: LogConfig | None = None, *, now_ms: int
    ) -> Log:
        """The log of a replica, created when there is none.

        Raises:
            InconsistentTopicIdError: the directory belongs to an earlier topic of the same name.
            CorruptRecordError: the replica is offline (see `offline`).
            DiskFullError: there is no room for a new one.
            StorageError: the disk failed.
        """
        key = (topic, partition)
        if key in self.offline:
            raise self.offline[key]
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
        """New replicas, durably, to be given to `add`; each may have failed.  In any thread; `forget` them first."""
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
        """A folder is there already: a crash while it was created."""
        try:
            with storage_errors(self.path):
                self._write_topic_id(replica.key, replica.topic_id)
                log = self._open(replica.key, replica.config, now_ms)
                if replica.leader_epoch is not None:
                    log.assign_epoch_start(replica.leader_epoch)
        except ReplogError as error:
            return LoadedReplica(replica.key, replica.topic_id, None, error)
        return LoadedReplica(replica.key, replica.topic_id, log, None)

    def has_folder(self, key: TopicPartition) -> bool:
        """Whether something of a replica is here, open or not: then it must not be created in another directory."""
        try:
            return key in self.offline or self._fs.is_dir(self.path_of(key))
        except OSError:
            return True  # nobody can tell

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably; an offline one too.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            StorageError: the disk failed.
        """
        job = self.prepare_delete(topic, partition)
        with contextlib.suppress(DiskFullError):  # what makes room goes on; a new replica forgets first
            self.forget([(topic, partition)])
        job.run()

    def prepare_delete(self, topic: str, partition: int) -> DirectoryDeletionJob:
        """Takes a replica out, durably; the job removes its files, in any thread.  `forget` it afterwards.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            StorageError: the disk failed.
        """
        key = (topic, partition)
        if key in self._logs:
            job = self._logs[key].prepare_delete(self._new_id())
        elif key in self.offline:
            job = retire_directory(self._fs, self.path_of(key), self._new_id())
        else:
            raise UnknownTopicOrPartitionError(f"{self.path} has no replica {topic}-{partition}")
        self._drop(key)
        return job

    def set_aside_log(self, topic: str, partition: int) -> str:
        """Renames a replica that nobody claims, or that is damaged, to `...-stray` and forgets it; returns the new path.

        It is kept, because who says that it is not claimed may have lost its memory (kafka-reference 3.1).

        Raises:
            UnknownTopicOrPartitionError: there is none.
            StorageError: the disk failed.
        """
        key = (topic, partition)
        if key in self._logs:
            path = self._logs[key].set_aside(self._new_id())
        elif key in self.offline:
            path = set_aside_directory(self._fs, self.path_of(key), self._new_id())
        else:
            raise UnknownTopicOrPartitionError(f"{self.path} has no replica {topic}-{partition}")
        self._drop(key)
        self.forget([key])
        return path

    def quarantine(self, key: TopicPartition, error: ReplogError) -> None:
        """Takes an open replica offline alone: its bytes contradict what was promised about them.  Nothing is changed."""
        log = self._logs.pop(key)
        log.fail(error)
        log.close(0)
        self.offline[key] = error

    def reopen(self, replica: ClosedReplica, now_ms: int, *, recovery_point: int) -> LoadedReplica:
        """Opens a replica that was closed a moment ago, here or in another directory.  In any thread; give it to `add`.

        Args:
            replica: as it was.
            now_ms: wall time.
            recovery_point: everything below is on stable storage here.
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
        """A replica is in another directory now."""
        self._drop(key)
        with contextlib.suppress(DiskFullError):  # a replica that comes back forgets first
            self.forget([key])

    def fail(self, error: StorageError) -> None:
        """The disk failed: every log refuses appends from now on.  They stay open until `close`."""
        if self.failure is not None:
            return
        self.failure = error
        for log in self._logs.values():
            log.fail(error)

    def check_identity(self) -> None:
        """Whether the directory is still there and still the same one.  In any thread.

        Raises:
            StorageError: it was unmounted, replaced or removed, or the disk does not answer.
        """
        with storage_errors(self.path):
            meta = checkpoints.read_meta_properties(self._fs, self._at(checkpoints.META_PROPERTIES_FILE))
        if meta is None or meta.directory_id != self.meta.directory_id:
            raise StorageError(f"{self.path} is not the directory any more that was opened: was the disk unmounted?")

    # The end

    def close(self, *, now_ms: int, broker_epoch: int | None, mapper: Mapper = map) -> None:
        """Closes every log, writes the checkpoints, then the clean-shutdown marker, and drops the lock.

        Args:
            now_ms: wall time.
            broker_epoch: of this incarnation, for the marker (-1: never registered); None: leave no marker.  There is
                none either while a replica is offline: its damage must be found again.
            mapper: closes the logs, in threads of its own.

        Raises:
            StorageError: a log could not be closed in order; there is no marker then.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.space.release_reserve()  # room for the last indexes and checkpoints
            with storage_errors(self.path):
                self._close_logs(now_ms, mapper)
                self.checkpoint_recovery_points()
                if broker_epoch is not None and not self.offline:
                    marker = checkpoints.CleanShutdown(broker_epoch)
                    checkpoints.write_clean_shutdown(self._fs, self._at(checkpoints.CLEAN_SHUTDOWN_FILE), marker)
        except DiskFullError as error:
            raise StorageError(f"{error} The next start checks the logs") from error
        finally:
            self._lock.release()

    # Parts

    def _read_checkpoint(self, checkpoint: OffsetCheckpoint) -> None:
        """A damaged `cleaner-offset-checkpoint` counts as missing: compacting everything again loses nothing."""
        try:
            checkpoint.read()
        except checkpoints.CorruptCheckpointError:
            if checkpoint is not self._cleaner_offsets:
                raise

    def _take_clean_marker(self) -> None:
        """Looks at the marker and removes it at once: a crash from here on is an unclean stop."""
        path = self._at(checkpoints.CLEAN_SHUTDOWN_FILE)
        try:
            marker = checkpoints.read_clean_shutdown(self._fs, path)
        except checkpoints.CorruptCheckpointError:
            marker = None  # cannot be believed: every log is checked
        if marker is not None:
            self.was_clean, self.previous_broker_epoch = True, marker.broker_epoch
        checkpoints.remove_clean_shutdown(self._fs, path)

    def _open(self, key: TopicPartition, config: LogConfig, now_ms: int) -> Log:
        """A replica without a recovery point is checked from its start, whatever the marker says."""
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
        )

    def _admission(self, key: TopicPartition) -> Callable[[int], None] | None:
        return None if key[0] == METADATA_TOPIC else self.space.admit

    def _remove_half_made(self, key: TopicPartition) -> None:
        """It may be created in another directory next, and two folders of one replica stop the next start."""
        with contextlib.suppress(OSError):
            self._fs.remove_tree(self.path_of(key))
            self._fs.sync_dir(self.path)

    def _write_topic_id(self, key: TopicPartition, topic_id: UUID) -> None:
        path = f"{self.path_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
        checkpoints.write_partition_metadata(self._fs, path, PartitionMetadata(topic_id))

    def _drop(self, key: TopicPartition) -> None:
        self._logs.pop(key, None)
        self.offline.pop(key, None)
        self._topic_ids.pop(key, None)
        self.high_watermarks.pop(key, None)

    def _close_logs(self, now_ms: int, mapper: Mapper) -> None:
        def close(log: Log) -> Exception | None:
            failed = StorageError(f"{log.directory} failed while it was open") if log.failed else None
            try:
                log.close(now_ms)
            except StorageError as error:
                return error
            return failed

        failures = [error for error in mapper(close, self._logs.values()) if error is not None]
        if self.failure is not None:
            raise self.failure
        if failures:
            raise failures[0]

    def path_of(self, key: TopicPartition) -> str:
        """Of the directory of a replica."""
        return self._at(partition_dir_name(*key))

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"
