"""One log directory: many logs under one lock, one identity, one set of checkpoints (docs/KAFKA.md 3.1).

    data/.lock                               held while this is open
    data/.reserve                            room for checkpoints on a full disk, see `disk_space`
    data/meta.properties                     whose directory it is; replog.format=1 says that the metadata log is ours
    data/.kafka_cleanshutdown                only while nobody has it open, after a clean stop
    data/recovery-point-offset-checkpoint    everything below is on stable storage
    data/log-start-offset-checkpoint         only logs that start inside a segment
    data/log-start-offset-witness            the same with a checksum, see `start_witness`
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
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.errors import DiskFullError, ReplogError, StorageError, raised_anew
from replog.log.config import LogConfig
from replog.log.directories.identity import (
    read_identity,
    require_cluster_id,
    storage_errors,
    take_lock,
    write_identity,
    write_opened_with,
)
from replog.log.directories.offset_checkpoints import OffsetCheckpoint
from replog.log.directories.replicas import DirectoryReplicas
from replog.log.disk_space import NO_LIMITS, DiskLimits, DiskSpace, not_closed_in_order
from replog.log.file_names import DELETE_DIR_SUFFIX, parse_partition_dir_name
from replog.log.log import Log
from replog_checkpoints import FileSystem, Lock, MetaProperties, TopicPartition

_NO_BROKER_EPOCH: Final = -1


class Mapper(Protocol):
    """Applies a function to items, in any threads; `map` for one after the other."""

    def __call__(
        self, function: Callable[[Log], Exception | None], items: Iterable[Log], /
    ) -> Iterable[Exception | None]: ...


class LogDirectory(DirectoryReplicas):
    """The logs of one directory.  Made by `LogDirectory.open`; one owner.

    Attributes:
        meta: Identity of the directory.
        previous_broker_epoch: Broker epoch of the incarnation that stopped cleanly; -1 unknown.
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
        super().__init__(fs, path, config, DiskSpace(fs, path, limits), new_id)
        self.meta = meta
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        self._lock = lock
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
            fs: The disk.
            path: Path of the directory; created when missing.
            cluster_id: The cluster that it must belong to; None: whatever it says, but then it must be formatted
                already.
            node_id: The node that it must belong to.
            now_ms: Wall time.
            config: Settings of logs of which nothing else is known.
            config_for: A function: topic -> settings, for the replicas found; None: `config` for all.
            new_directory_id: A function that makes ids, for a new directory and the names of replicas that are deleted.
            limits: The limits at which its disk counts as full; None: never, and there is no reserve.

        Raises:
            DirectoryLockedError: Another process has it open.
            InconsistentClusterIdError: It belongs to another cluster or node; nothing was changed.
            CorruptCheckpointError: One of its checkpoints is damaged.
            ConfigError: It is new and no cluster id was given.
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
        """Takes the first step of opening: lock, identity, checkpoints.  Changes nothing in one that is not new.

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
        """Removes the clean-shutdown marker and what half-deleted replicas left; returns the replicas to load."""
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

    def end_load(self) -> None:
        """Drops the checkpoint lines of replicas that are gone; looks at the room on the disk."""
        with storage_errors(self.path), contextlib.suppress(DiskFullError):
            self.space.check()
            if not self._recovery_points.exists or self._recovery_points.offsets.keys() - self._known():
                self.checkpoint_recovery_points()

    def release(self) -> None:
        """Closes what is open without writing anything, and drops the lock: the opening is given up."""
        self._closed = True
        for log in self._logs.values():
            log.fail(StorageError(f"{self.path} was given up while it was opened"))
            log.close(0)
        self._lock.release()

    # While it is open

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """The checkpointed recovery points."""
        return self._recovery_points.offsets

    def fail(self, error: StorageError) -> None:
        """Makes every log refuse appends from now on, because the disk failed.  They stay open until `close`."""
        if self.failure is not None:
            return
        self.failure = error
        for log in self._logs.values():
            log.fail(error)

    def note_opened_with(self, ids: Collection[UUID]) -> None:
        """Keeps which directories the node has opened; see `survey`.

        Raises:
            StorageError: The disk failed.
        """
        with contextlib.suppress(DiskFullError), storage_errors(self.path):
            self.meta = write_opened_with(self._fs, self.path, self.meta, ids)

    def check_identity(self) -> None:
        """Raises unless the directory is still there and still the same one.  In any thread.

        Raises:
            StorageError: It was unmounted, replaced or removed, or the disk does not answer.
        """
        with storage_errors(self.path):
            meta = checkpoints.read_meta_properties(self._fs, self._at(checkpoints.META_PROPERTIES_FILE))
        if meta is None or meta.directory_id != self.meta.directory_id:
            raise StorageError(f"{self.path} is not the directory any more that was opened: was the disk unmounted?")

    # The end

    def close(self, *, now_ms: int, broker_epoch: int | None, mapper: Mapper = map) -> None:
        """Closes every log, writes the checkpoints, then the clean-shutdown marker, and drops the lock.

        Args:
            now_ms: Wall time.
            broker_epoch: Broker epoch of this incarnation, for the marker (-1: never registered); None: leave no
                marker.  There is none either while a replica is offline: its damage must be found again.
            mapper: A function that closes the logs, in threads of its own.

        Raises:
            StorageError: A log could not be closed in order; there is no marker then.
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
            raise StorageError(not_closed_in_order(self.path, error)) from error
        finally:
            self._lock.release()

    # Parts

    def _read_checkpoint(self, checkpoint: OffsetCheckpoint) -> None:
        """Reads a checkpoint; a damaged `cleaner-offset-checkpoint` counts as missing.

        To compact everything again loses nothing.
        """
        try:
            checkpoint.read()
        except checkpoints.CorruptCheckpointError:
            if checkpoint is not self._cleaner_offsets:
                raise

    def _take_clean_marker(self) -> None:
        """Reads the clean-shutdown marker and removes it at once: a crash from here on is an unclean stop."""
        path = self._at(checkpoints.CLEAN_SHUTDOWN_FILE)
        try:
            marker = checkpoints.read_clean_shutdown(self._fs, path)
        except checkpoints.CorruptCheckpointError:
            marker = None  # cannot be believed: every log is checked
        if marker is not None:
            self.was_clean, self.previous_broker_epoch = True, marker.broker_epoch
        checkpoints.remove_clean_shutdown(self._fs, path)

    def _close_logs(self, now_ms: int, mapper: Mapper) -> None:
        def close(log: Log) -> Exception | None:
            failed = StorageError(f"{log.directory} failed while it was open: {log.failure}") if log.failed else None
            try:
                log.close(now_ms)
            except ReplogError as error:
                return error
            return failed

        failures = [error for error in mapper(close, self._logs.values()) if error is not None]
        if self.failure is not None:
            raise raised_anew(self.failure)
        if failures:
            raise failures[0]
