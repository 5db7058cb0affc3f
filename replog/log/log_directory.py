"""One log directory: many logs under one lock, one identity, one set of checkpoints (kafka-reference 3.1).

    data/.lock                               held while this is open
    data/meta.properties                     whose directory it is; replog.format=1 says that the metadata log is ours
    data/.kafka_cleanshutdown                only while nobody has it open, after a clean stop
    data/recovery-point-offset-checkpoint    everything below is on stable storage
    data/log-start-offset-checkpoint         only logs that start inside a segment
    data/replication-offset-checkpoint       high watermarks
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

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.errors import (
    ConfigError,
    CorruptCheckpointError,
    DirectoryLockedError,
    InconsistentClusterIdError,
    InconsistentTopicIdError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log.config import LogConfig
from replog.log.file_names import DELETE_DIR_SUFFIX, parse_file_name, parse_partition_dir_name, partition_dir_name
from replog.log.log import Log, delete_directory
from replog_checkpoints import FileSystem, Lock, MetaProperties, PartitionMetadata, TopicPartition

FORMAT_KEY: Final = "replog.format"
FORMAT: Final = "1"
_LOCK_FILE: Final = ".lock"
_NO_BROKER_EPOCH: Final = -1
_TEXT_PREFIX_REFUSED: Final = "-"  # a directory id that begins with it looks like an option on a command line


class LogDirectory:
    """The logs of one directory.  Made by `LogDirectory.open`; one owner.

    Attributes:
        path: of the directory.
        meta: its identity.
        was_clean: the last stop was clean.
        previous_broker_epoch: of the incarnation that stopped cleanly; -1 unknown.
        high_watermarks: as checkpointed, exclusive; a replica without an entry starts at its log start.
        offline: replicas that cannot be opened, and why.
    """

    def __init__(self, fs: FileSystem, path: str, meta: MetaProperties, lock: Lock, config: LogConfig) -> None:
        self.path = path
        self.meta = meta
        self.was_clean = False
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.offline: dict[TopicPartition, ReplogError] = {}
        self._fs = fs
        self._lock = lock
        self._config = config
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._recovery_points: dict[TopicPartition, int] = {}  # as on disk
        self._log_start_offsets: dict[TopicPartition, int] = {}  # as on disk
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
    ) -> LogDirectory:
        """Locks the directory, formats it when it is new, and opens every replica in it.

        Args:
            fs: the disk.
            path: of the directory; created when missing.
            cluster_id: it must belong to; None: whatever it says, but then it must be formatted already.
            node_id: it must belong to.
            now_ms: wall time.
            config: settings of logs of which nothing else is known.
            config_for: topic -> settings, for the replicas found; None: `config` for all.
            new_directory_id: for a new directory.

        Raises:
            DirectoryLockedError: another process has it open.
            InconsistentClusterIdError: it belongs to another cluster or node; nothing was changed.
            CorruptCheckpointError: one of its checkpoints is damaged.
            ConfigError: it is new and no cluster id was given.
            StorageError: Kafka formatted it, its identity is missing, or the disk failed.
        """
        config = config or LogConfig()
        with _storage_errors(path):
            _read_identity(fs, path, cluster_id, node_id)  # refuse before the lock file is made
            checkpoints.make_durable_dirs(fs, path)
            lock = _take_lock(fs, path)
            try:
                meta = _read_identity(fs, path, cluster_id, node_id)
                if meta is None:
                    meta = _format(fs, path, cluster_id, node_id, new_directory_id)
                directory = cls(fs, path, meta, lock, config)
                directory._load(config_for or (lambda _: directory._config), now_ms)
            except BaseException:
                lock.release()
                raise
            return directory

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open.  Read only."""
        return self._logs

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
            StorageError: the disk failed.
        """
        key = (topic, partition)
        if key in self.offline:
            raise self.offline[key]
        with _storage_errors(self.path):
            if key not in self._logs:
                self._create(key, topic_id, config or self._config, now_ms)
            elif self._topic_ids[key] is None:
                self._write_topic_id(key, topic_id)
        found = self._topic_ids[key]
        if found != topic_id:
            raise InconsistentTopicIdError(
                f"{self._dir_of(key)} holds topic id {found}, {topic_id} was asked for: the topic was deleted and created "
                "again. Delete the old replica first"
            )
        if config is not None:
            self._logs[key].set_config(config)
        return self._logs[key]

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably; an offline one too.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            StorageError: the disk failed.
        """
        key = (topic, partition)
        with _storage_errors(self.path):
            if key in self._logs:
                self._logs.pop(key).delete()
            elif key in self.offline:
                del self.offline[key]
                delete_directory(self._fs, self._dir_of(key))
            else:
                raise UnknownTopicOrPartitionError(f"{self.path} has no replica {topic}-{partition}")
            self._topic_ids.pop(key, None)
            self.high_watermarks.pop(key, None)
            self._forget(key)

    def set_aside_log(self, topic: str, partition: int) -> str:
        """Renames a replica that nobody claims to `...-stray` and forgets it; returns the new path.

        It is kept, because who says that it is not claimed may have lost its memory (kafka-reference 3.1).

        Raises:
            UnknownTopicOrPartitionError: there is none that is open.
            StorageError: the disk failed.
        """
        key = (topic, partition)
        if key not in self._logs:
            raise UnknownTopicOrPartitionError(f"{self.path} has no open replica {topic}-{partition}")
        with _storage_errors(self.path):
            path = self._logs.pop(key).set_aside(uuid.uuid4())
            self._topic_ids.pop(key, None)
            self.high_watermarks.pop(key, None)
            self._forget(key)
        return path

    def checkpoint_recovery_points(self) -> None:
        """Writes the log starts and the recovery points of all logs."""
        with _storage_errors(self.path):
            self.checkpoint_log_start_offsets()
            points = {key: log.checkpointed_recovery_point for key, log in self._logs.items()}
            self._write_recovery_points({**self._kept(self._recovery_points), **points})

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the log starts that lie inside a segment."""
        starts = {key: log.log_start_offset for key, log in self._logs.items() if log.needs_log_start_checkpoint}
        offsets = {**self._kept(self._log_start_offsets), **starts}
        with _storage_errors(self.path):
            if offsets != self._log_start_offsets or not self._fs.exists(self._at(checkpoints.LOG_START_OFFSET_FILE)):
                checkpoints.write_offset_checkpoint(self._fs, self._at(checkpoints.LOG_START_OFFSET_FILE), offsets)
                self._log_start_offsets = offsets

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks; those of replicas not named are kept."""
        known = {
            key: offset for key, offset in self.high_watermarks.items() if key in self._logs or key in self.offline
        }
        self.high_watermarks = {**known, **high_watermarks}
        with _storage_errors(self.path):
            path = self._at(checkpoints.REPLICATION_OFFSET_FILE)
            checkpoints.write_offset_checkpoint(self._fs, path, self.high_watermarks)

    def close(self, *, now_ms: int, broker_epoch: int | None) -> None:
        """Closes every log, writes the checkpoints, then the clean-shutdown marker, and drops the lock.

        Args:
            now_ms: wall time.
            broker_epoch: of this incarnation, for the marker (-1: never registered); None: leave no marker.  There is
                none either while a replica is offline: its damage must be found again.

        Raises:
            StorageError: a log could not be closed in order; there is no marker then.
        """
        if self._closed:
            return
        self._closed = True
        try:
            with _storage_errors(self.path):
                self._close_logs(now_ms)
                self.checkpoint_recovery_points()
                if broker_epoch is not None and not self.offline:
                    marker = checkpoints.CleanShutdown(broker_epoch)
                    checkpoints.write_clean_shutdown(self._fs, self._at(checkpoints.CLEAN_SHUTDOWN_FILE), marker)
        finally:
            self._lock.release()

    # Parts

    def _load(self, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        recovery_points = self._read(checkpoints.RECOVERY_POINT_FILE)
        self._recovery_points = recovery_points or {}
        self._log_start_offsets = self._read(checkpoints.LOG_START_OFFSET_FILE) or {}
        self.high_watermarks = self._read(checkpoints.REPLICATION_OFFSET_FILE) or {}
        self._take_clean_marker()
        for name in self._fs.list_dir(self.path):
            if name.endswith(DELETE_DIR_SUFFIX) and self._fs.is_dir(self._at(name)):
                self._fs.remove_tree(self._at(name))
                continue
            key = parse_partition_dir_name(name)
            if key is not None and self._fs.is_dir(self._at(name)):
                self._load_log(key, config_for(key[0]), now_ms)
        gone = [key for key in self._recovery_points if key not in self._logs and key not in self.offline]
        if gone or recovery_points is None:
            self.checkpoint_recovery_points()

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

    def _load_log(self, key: TopicPartition, config: LogConfig, now_ms: int) -> None:
        directory = self._dir_of(key)
        try:
            metadata = checkpoints.read_partition_metadata(
                self._fs, f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
            )
            self._topic_ids[key] = metadata.topic_id if metadata else None
            self._logs[key] = self._open(key, config, now_ms)
        except checkpoints.CorruptCheckpointError as error:
            self.offline[key] = CorruptCheckpointError(error.path, error.line, error.reason)
        except ReplogError as error:
            self.offline[key] = error

    def _open(self, key: TopicPartition, config: LogConfig, now_ms: int) -> Log:
        """A replica without a recovery point is checked from its start, whatever the marker says."""
        recovery_point = self._recovery_points.get(key)
        return Log.open(
            self._fs,
            self._dir_of(key),
            config,
            topic_partition=partition_dir_name(*key),
            recovery_point=recovery_point or 0,
            log_start_offset=self._log_start_offsets.get(key, 0),
            clean=self.was_clean and recovery_point is not None,
            now_ms=now_ms,
            checkpoint=self.checkpoint_recovery_points,
        )

    def _create(self, key: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: int) -> None:
        self._forget(key)  # lines of an earlier replica must not make promises about this one
        checkpoints.make_durable_dirs(self._fs, self._dir_of(key))
        self._write_topic_id(key, topic_id)
        self._logs[key] = self._open(key, config, now_ms)

    def _write_topic_id(self, key: TopicPartition, topic_id: UUID) -> None:
        path = f"{self._dir_of(key)}/{checkpoints.PARTITION_METADATA_FILE}"
        checkpoints.write_partition_metadata(self._fs, path, PartitionMetadata(topic_id))
        self._topic_ids[key] = topic_id

    def _forget(self, key: TopicPartition) -> None:
        """Removes the checkpoint lines of a replica, durably."""
        if key in self._log_start_offsets:
            self.checkpoint_log_start_offsets()
        if key in self._recovery_points:
            points = {other: offset for other, offset in self._recovery_points.items() if other != key}
            self._write_recovery_points(points)

    def _write_recovery_points(self, offsets: dict[TopicPartition, int]) -> None:
        checkpoints.write_offset_checkpoint(self._fs, self._at(checkpoints.RECOVERY_POINT_FILE), offsets)
        self._recovery_points = offsets

    def _kept(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Lines of replicas that are offline: nothing new is known about them."""
        return {key: offset for key, offset in offsets.items() if key in self.offline}

    def _close_logs(self, now_ms: int) -> None:
        failures: list[StorageError] = []
        for log in self._logs.values():
            if log.failed:
                failures.append(StorageError(f"{log.directory} failed while it was open"))
            try:
                log.close(now_ms)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _read(self, name: str) -> dict[TopicPartition, int] | None:
        return checkpoints.read_offset_checkpoint(self._fs, self._at(name))

    def _dir_of(self, key: TopicPartition) -> str:
        return self._at(partition_dir_name(*key))

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    """The leaf library's errors and the disk's, as ours."""
    try:
        yield
    except checkpoints.CorruptCheckpointError as error:
        reason = f"{error.reason}. Nothing was changed: restore the file, or remove the directory and copy it anew"
        raise CorruptCheckpointError(error.path, error.line, reason) from error
    except OSError as error:
        raise StorageError(f"{path}: {error}. Check the disk, then start again") from error


def _take_lock(fs: FileSystem, path: str) -> Lock:
    try:
        return fs.lock(f"{path}/{_LOCK_FILE}")
    except BlockingIOError as error:
        raise DirectoryLockedError(
            f"{path} is in use by another process: stop it (see `fuser {path}/{_LOCK_FILE}`), or use another directory"
        ) from error


def _read_identity(fs: FileSystem, path: str, cluster_id: str | None, node_id: int) -> MetaProperties | None:
    """The identity of a formatted directory, checked; None for a new one.  Changes nothing."""
    meta = checkpoints.read_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}")
    if meta is None:
        _refuse_anonymous_data(fs, path)
        if cluster_id is None:
            raise ConfigError("cluster.id", None, f"{path} is new: it needs a cluster id to be formatted with")
        return None
    found_format = meta.extra.get(FORMAT_KEY)
    if found_format != FORMAT:
        writer = "Apache Kafka" if found_format is None else f"another version of replog ({FORMAT_KEY}={found_format})"
        raise StorageError(
            f"{path} was formatted by {writer}; this version needs {FORMAT_KEY}={FORMAT}. Nothing was changed: "
            "use another directory"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise InconsistentClusterIdError(
            f"{path} belongs to cluster {meta.cluster_id}, this node to {cluster_id}. Nothing was changed: "
            "correct cluster.id, or use another directory"
        )
    if meta.node_id != node_id:
        raise InconsistentClusterIdError(
            f"{path} belongs to node {meta.node_id}, this is node {node_id}. Nothing was changed: "
            "correct node.id, or use another directory"
        )
    return meta


def _refuse_anonymous_data(fs: FileSystem, path: str) -> None:
    """Replicas without an identity beside them: formatting over them could mix two clusters."""
    if not fs.is_dir(path):
        return
    for name in fs.list_dir(path):
        child = f"{path}/{name}"
        if parse_partition_dir_name(name) is None or not fs.is_dir(child):
            continue
        if any(parse_file_name(file) is not None for file in fs.list_dir(child)):
            raise StorageError(
                f"{path} holds replicas ({name}) but no {checkpoints.META_PROPERTIES_FILE}. Nothing was changed: "
                "restore that file, or use another directory"
            )


def _format(
    fs: FileSystem, path: str, cluster_id: str | None, node_id: int, new_directory_id: Callable[[], UUID]
) -> MetaProperties:
    if cluster_id is None:
        raise ConfigError("cluster.id", None, f"{path} is new: it needs a cluster id to be formatted with")
    directory_id = new_directory_id()
    while checkpoints.uuid_to_text(directory_id).startswith(_TEXT_PREFIX_REFUSED):
        directory_id = new_directory_id()
    meta = MetaProperties(cluster_id, node_id, directory_id, {FORMAT_KEY: FORMAT})
    checkpoints.write_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}", meta)
    return meta
