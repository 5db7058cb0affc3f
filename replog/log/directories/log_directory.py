"""One log directory: many logs under one lock, one identity, one set of checkpoints (docs/KAFKA.md 3.1).

    data/.lock                               held while this is open
    data/.reserve                            room for checkpoints on a full disk, see `disk_space`
    data/meta.properties                     whose directory it is; replog.format=1 says that the metadata log is ours
    data/.kafka_cleanshutdown                only while it is not open, after a clean stop
    data/recovery-point-offset-checkpoint    everything below is on stable storage
    data/log-start-offset-checkpoint         only logs that start inside a segment
    data/log-start-offset-witness            the same with a checksum, see `offset_witness`
    data/replication-offset-checkpoint       high watermarks
    data/replication-offset-witness          the same with a checksum
    data/cleaner-offset-checkpoint           everything below is compacted
    data/flights-3/...                       one replica
    data/flights-3.<32 hex>-stray/...        a replica that the metadata did not name at a start; kept, never opened

| crash                                          | what the next start finds                                            |
|------------------------------------------------|----------------------------------------------------------------------|
| between reading and removing the clean marker  | the marker, still true                                               |
| while a replica is created                     | a directory without records, completed when it is opened again        |
| while a replica is deleted                     | `...-delete`, removed, and its checkpoint lines dropped               |
| between the log-start and recovery-point files | a newer log start beside an older recovery point: both true            |

A directory that belongs to another node or cluster, or that Kafka formatted, is refused before anything in it is changed.
A replica that cannot be opened (bit-rot below its recovery point) goes offline alone: see `offline`.

The clean marker vouches for the contents at the moment when it was written.  Where a start finds something else (a folder is gone, a log
ends elsewhere than its recovery point), `previous_broker_epoch` is unknown, as after a crash: no replica here is taken for
one that has everything.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.errors import DiskFullError, ReplogError, StorageError, raised_anew
from replog.log.config import LogConfig
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.directory_state import DirectoryState
from replog.log.directories.fork import Fork, begin_fork
from replog.log.directories.identity import (
    read_identity,
    require_cluster_id,
    storage_errors,
    take_lock,
    write_identity,
    write_opened_with,
)
from replog.log.directories.lost_replicas import folder_is_gone, lost_replicas
from replog.log.directories.offset_checkpoints import run_all
from replog.log.directories.replica_opener import ReplicaOpener
from replog.log.directories.replicas import DirectoryReplicas
from replog.log.disk_space import NO_LIMITS, DiskLimits, DiskSpace, not_closed_in_order
from replog.log.file_names import (
    DELETE_DIR_SUFFIX,
    deleted_dir_name,
    parse_partition_dir_name,
    partition_dir_name,
    retired_stem,
    retired_stems_of,
)
from replog.log.forwarding import forwarded
from replog.log.log import Log
from replog_checkpoints import FileSystem, Lock, MetaProperties, TopicPartition

_log = logging.getLogger(__name__)


class Mapper(Protocol):
    """Applies a function to items, in any threads; `map` for one after the other."""

    def __call__(
        self, function: Callable[[Log], Exception | None], items: Iterable[Log], /
    ) -> Iterable[Exception | None]: ...


class LogDirectory:
    """The logs of one directory.  Made by `LogDirectory.open`; one owner.

    The work is done by parts, which share a `DirectoryState`; this is their face, and has the start and the end.
    """

    def __init__(self, state: DirectoryState, lock: Lock) -> None:
        self._state = state
        self._lock = lock
        self._checkpoints = DirectoryCheckpoints(state)
        self._opener = ReplicaOpener(state, self._checkpoints)
        self._replicas = DirectoryReplicas(state, self._checkpoints, self._opener)
        self._is_closed = False

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
            cluster_id: The cluster that it must belong to; None: any cluster, but then it must be formatted
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
                with contextlib.suppress(OSError):  # the next start does it
                    checkpoints.seal_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}", meta)
                space = DiskSpace(fs, path, limits or NO_LIMITS)
                directory = cls(DirectoryState(fs, path, config, space, new_directory_id, meta), lock)
                directory._checkpoints.read()
            except BaseException:
                lock.release()
                raise
            return directory

    # Loading

    def begin_load(self, elsewhere: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Removes the clean-shutdown marker and the remains of half-deleted replicas; returns the replicas to load.

        Args:
            elsewhere: The replicas that other directories of the node hold: they have been moved there.
        """
        fs, at = self._state.fs, self._state.at
        with storage_errors(self.path):
            self._take_clean_marker()
            keys = self.folders()
            names = fs.list_dir(self.path)
            if not self.was_clean:  # a crash may have come before the lines of retired replicas were dropped
                self._forget_retired(names, set(keys))
            for name in names:
                if name.endswith(DELETE_DIR_SUFFIX) and fs.is_dir(at(name)):
                    fs.remove_tree(at(name))
            points = self.recovery_points
            for key in lost_replicas(points, {*keys, *elsewhere}):
                self._state.put_lost(key, folder_is_gone(self.path, key, points[key]))
            return keys

    def folders(self) -> list[TopicPartition]:
        """Returns the replicas that have a folder here.

        Raises:
            StorageError: The disk failed.
        """
        fs = self._state.fs
        with storage_errors(self.path):
            found = ((name, parse_partition_dir_name(name)) for name in fs.list_dir(self.path))
            return [key for name, key in found if key is not None and fs.is_dir(self._state.at(name))]

    load = forwarded("_opener", ReplicaOpener.load)
    add = forwarded("_replicas", DirectoryReplicas.add)

    def end_load(self) -> None:
        """Drops the checkpoint lines of replicas that are gone; looks at the room on the disk, and at the traces of the last stop."""
        changed = self._changed_since_clean_stop() if self.was_clean else None
        if changed is not None:
            self._state.doubt_clean_stop()
            _log.warning(
                "%s: %s since the last stop, which was in order. It counts as a crash: where partitions have other replicas, "
                "those decide what is in them", self.path, changed,
            )  # fmt: skip
        with storage_errors(self.path), contextlib.suppress(DiskFullError):
            self.space.check()
            if not self._checkpoints.are_of_these_replicas:
                self.checkpoint_recovery_points()

    def release(self) -> None:
        """Closes open files without writing anything, and drops the lock: the opening is given up."""
        self._is_closed = True
        for log in self.logs.values():
            log.fail(StorageError(f"{self.path} was given up while it was opened"))
            log.close(0)
        self._lock.release()

    # How it stands

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self._state.path

    @property
    def meta(self) -> MetaProperties:
        """Identity of the directory."""
        return self._state.meta

    @property
    def space(self) -> DiskSpace:
        """The room on its disk."""
        return self._state.space

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean."""
        return self._state.was_clean

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the incarnation that stopped cleanly; -1 unknown."""
        return self._state.previous_broker_epoch

    @property
    def failure(self) -> StorageError | None:
        """The error for which the whole directory is offline; None: it works."""
        return self._state.failure

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open.  Read only."""
        return self._state.logs

    @property
    def offline(self) -> Mapping[TopicPartition, ReplogError]:
        """The replicas that cannot be opened, and why.  Read only."""
        return self._state.offline

    @property
    def lost(self) -> AbstractSet[TopicPartition]:
        """Those of `offline` whose folders are gone.  Read only."""
        return self._state.lost

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The checkpointed high watermarks, exclusive; a replica without one starts at its log start.  Read only."""
        return self._state.high_watermarks

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """The checkpointed recovery points."""
        return self._checkpoints.recovery_points

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """Returns the topic id that a replica's partition folder carries; None when it has none."""
        return self._state.topic_ids.get((topic, partition))

    path_of = forwarded("_state", DirectoryState.path_of)
    has_folder = forwarded("_opener", ReplicaOpener.has_folder)
    fail = forwarded("_state", DirectoryState.fail)

    def note_opened_with(self, ids: Collection[UUID]) -> None:
        """Keeps which directories the node has opened; see `survey`.

        Raises:
            StorageError: The disk failed.
        """
        with contextlib.suppress(DiskFullError), storage_errors(self.path):
            self._state.set_meta(write_opened_with(self._state.fs, self.path, self.meta, ids))

    def check_identity(self) -> None:
        """Raises unless the directory is still there and still the same one.  In any thread.

        Raises:
            StorageError: It was unmounted, replaced or removed, or the disk does not answer.
        """
        with storage_errors(self.path):
            path = self._state.at(checkpoints.META_PROPERTIES_FILE)
            meta = checkpoints.read_meta_properties(self._state.fs, path)
        if meta is None or meta.directory_id != self.meta.directory_id:
            raise StorageError(f"{self.path} is not the directory any more that was opened: was the disk unmounted?")

    # Replicas that come and go

    def open_log(
        self, topic: str, partition: int, topic_id: UUID, config: LogConfig | None = None, *, now_ms: int
    ) -> Log:
        """Returns the log of a replica, created when there is none; see `DirectoryReplicas.open_log`."""
        return self._replicas.open_log((topic, partition), topic_id, config, now_ms)

    create = forwarded("_opener", ReplicaOpener.create)

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably; see `DirectoryReplicas.delete`."""
        self._replicas.delete((topic, partition))

    def set_aside_log(self, topic: str, partition: int) -> str | None:
        """Renames a replica that the metadata do not name, or that is damaged, to `...-stray` and forgets it; see `DirectoryReplicas`.

        It is kept, because the metadata that do not name it may be incomplete (docs/KAFKA.md 3.1).
        """
        return self._replicas.set_aside((topic, partition))

    retire = forwarded("_replicas", DirectoryReplicas.retire)
    prepare_retirement = forwarded("_replicas", DirectoryReplicas.prepare_retirement)
    retirement_failed = forwarded("_replicas", DirectoryReplicas.retirement_failed)
    quarantine = forwarded("_state", DirectoryState.take_offline)
    lose = forwarded("_state", DirectoryState.put_lost)

    def begin_fork(self, source: TopicPartition, key: TopicPartition, end_offset: int) -> Fork:
        """Begins a replica with the records of another one of this directory; see `fork.begin_fork`.

        Raises:
            DiskFullError, StorageError: The disk failed, or has no room; or the replica is no source.
        """
        state = self._state
        folder = state.at(deleted_dir_name(partition_dir_name(*key), state.new_id()))  # a start removes it
        try:
            with storage_errors(self.path):
                fork = begin_fork(state.fs, state.logs[source], folder, end_offset)
                self.space.admit(fork.copied_bytes)
        except ReplogError:
            with contextlib.suppress(OSError):
                state.fs.remove_tree(folder)
            raise
        return fork

    # Replicas that move

    close_replica = forwarded("_replicas", DirectoryReplicas.close_one)
    reopen = forwarded("_opener", ReplicaOpener.reopen)
    replace = forwarded("_replicas", DirectoryReplicas.replace)
    drop = forwarded("_replicas", DirectoryReplicas.drop)

    # Checkpoints

    prepare_recovery_points = forwarded("_checkpoints", DirectoryCheckpoints.prepare_recovery_points)
    prepare_log_start_offsets = forwarded("_checkpoints", DirectoryCheckpoints.prepare_log_start_offsets)
    prepare_cleaner_offsets = forwarded("_checkpoints", DirectoryCheckpoints.prepare_cleaner_offsets)
    prepare_high_watermarks = forwarded("_checkpoints", DirectoryCheckpoints.prepare_high_watermarks)
    checkpoint_recovery_points = forwarded("_checkpoints", DirectoryCheckpoints.checkpoint_recovery_points)

    def checkpoint_log_start_offsets(self, ahead: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes the log starts that lie inside a segment; see `DirectoryCheckpoints.prepare_log_start_offsets`."""
        run_all(self._checkpoints.prepare_log_start_offsets(ahead))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks; see `DirectoryCheckpoints.prepare_high_watermarks`."""
        run_all(self._checkpoints.prepare_high_watermarks(high_watermarks))

    gave_up = forwarded("_checkpoints", DirectoryCheckpoints.gave_up)
    forget_given_up = forwarded("_checkpoints", DirectoryCheckpoints.forget_given_up)
    forget = forwarded("_checkpoints", DirectoryCheckpoints.forget)

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
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.space.release_reserve()  # room for the last indexes and checkpoints
            with storage_errors(self.path):
                self._close_logs(now_ms, mapper)
                self.checkpoint_recovery_points()
                if broker_epoch is not None and not self.offline:
                    marker = checkpoints.CleanShutdown(broker_epoch)
                    path = self._state.at(checkpoints.CLEAN_SHUTDOWN_FILE)
                    checkpoints.write_clean_shutdown(self._state.fs, path, marker)
        except DiskFullError as error:
            raise StorageError(not_closed_in_order(self.path, error)) from error
        finally:
            self._lock.release()

    # Parts

    def _take_clean_marker(self) -> None:
        """Reads the clean-shutdown marker and removes it at once: a crash from here on is an unclean stop."""
        path = self._state.at(checkpoints.CLEAN_SHUTDOWN_FILE)
        try:
            marker = checkpoints.read_clean_shutdown(self._state.fs, path)
        except checkpoints.DamagedCheckpointError:
            marker = None  # cannot be believed: every log is checked
        if marker is not None:
            self._state.note_clean_stop(marker.broker_epoch)
        checkpoints.remove_clean_shutdown(self._state.fs, path)

    def _forget_retired(self, names: Iterable[str], keys: AbstractSet[TopicPartition]) -> None:
        """Drops the lines that an interrupted retirement has left, before the folder that explains them is removed."""
        stems = {stem for name in names if (stem := retired_stem(name)) is not None}
        gone = [
            key
            for key in self.recovery_points
            if key not in keys and not stems.isdisjoint(retired_stems_of(partition_dir_name(*key)))
        ]
        with contextlib.suppress(DiskFullError):  # they are dropped in memory, and written with the next checkpoint
            self._checkpoints.forget(gone)

    def _changed_since_clean_stop(self) -> str | None:
        """Returns the first thing that is not as an orderly stop has left it; None: all is."""
        if self._state.lost:
            names = sorted(partition_dir_name(*key) for key in self._state.lost)
            return f"{len(names)} of its folders have gone, {names[0]} among them,"
        for key, log in self.logs.items():
            if log.log_end_offset != self.recovery_points.get(key, 0):  # a stop may come before the line of a new one
                return f"{partition_dir_name(*key)} has changed, or the checkpoint that says where it ends has,"
        return None

    def _close_logs(self, now_ms: int, mapper: Mapper) -> None:
        def close(log: Log) -> Exception | None:
            failed = StorageError(f"{log.directory} failed while it was open: {log.failure}") if log.failed else None
            try:
                log.close(now_ms)
            except ReplogError as error:
                return error
            return failed

        failures = [error for error in mapper(close, self.logs.values()) if error is not None]
        if self.failure is not None:
            raise raised_anew(self.failure)
        if failures:
            raise failures[0]
