"""All log directories of one node: several disks, opened side by side, failing one by one (kafka-reference 3.1).

    log.dirs = /disk1/data, /disk2/data

    /disk1/data   __cluster_metadata-0   flights-0   flights-2
    /disk2/data   flights-1   flights-3

Each directory has its own lock, identity, clean-shutdown marker and checkpoints (`log_directory`).  A new replica goes to
the directory with the fewest.  What is checked at a start is checked in all directories before anything is changed in one.

| what is wrong                                              | outcome                                                  |
|------------------------------------------------------------|----------------------------------------------------------|
| another node's or cluster's directory, Kafka's, a copy     | refused, nothing changed                                 |
| in use by another process                                  | refused, nothing changed                                 |
| the same replica in two directories                        | refused, nothing changed: one of them must be moved away |
| a directory cannot be read, or a checkpoint of it is damaged | it is offline, the others are opened; refused where it is the only one |
| a replica cannot be opened                                 | it is offline alone                                      |
| a write or fsync fails later                               | its directory is offline, the others go on               |

While a directory is offline nobody knows which replicas it holds, so a replica that is not found is not created elsewhere
unless it is known to be new: two copies of one replica would meet when the disk comes back.

This is a host: it owns threads for opening and closing, everything else belongs to one owner, the event loop.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from replog.errors import (
    DiskFullError,
    InvalidRequestError,
    LogDirNotFoundError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log.config import LogConfig
from replog.log.deletion import DirectoryDeletionJob
from replog.log.directory_identity import storage_errors
from replog.log.directory_loader import Loader
from replog.log.directory_survey import REFUSED, Survey
from replog.log.disk_space import DiskLimits, DiskState
from replog.log.file_names import future_dir_name, partition_dir_name
from replog.log.log import Log
from replog.log.log_directory import METADATA_TOPIC, ClosedReplica, LoadedReplica, LogDirectory
from replog.log.offset_checkpoints import CheckpointJob
from replog.log.recovery_progress import RecoveryProgress
from replog.log.replica_creation import NewReplica
from replog.log.replica_move import FinishedMoves, FolderCopy, finish_moves, swap_folders
from replog_checkpoints import FileSystem, TopicPartition

RECOVERY_THREADS: Final = 2
"""Kafka's default of num.recovery.threads.per.data.dir."""


class LogManager:
    """The logs of all directories of a node.  Made by `LogManager.open`; one owner.

    Attributes:
        directories: path -> directory, all that were opened, in configured order; one with a `failure` is offline.
        unopened: path -> why; directories that could not be opened at the start.
        finished_moves: what became of moves that a crash had interrupted.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[LogDirectory],
        unopened: Mapping[str, StorageError],
        finished_moves: FinishedMoves,
        threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self.directories = {directory.path: directory for directory in directories}
        self.unopened = dict(unopened)
        self.finished_moves = finished_moves
        self._fs = fs
        self._threads = threads
        self._home: dict[TopicPartition, LogDirectory] = {}
        for directory in directories:
            self._home.update(dict.fromkeys((*directory.logs, *directory.offline), directory))
        self._creating = Counter[str]()  # directory -> replicas that are being made

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        paths: Sequence[str],
        *,
        cluster_id: str | None,
        node_id: int,
        now_ms: int,
        config: LogConfig | None = None,
        config_for: Callable[[str], LogConfig] | None = None,
        new_directory_id: Callable[[], UUID] = uuid.uuid4,
        limits: DiskLimits | None = None,
        recovery_threads: int = RECOVERY_THREADS,
        on_progress: Callable[[RecoveryProgress], None] | None = None,
        monotonic_ms: Callable[[], int] = lambda: 0,
        threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> LogManager:
        """Locks and opens all directories, recovering their replicas in parallel.

        Args:
            fs: the disks.
            paths: of the directories, at least one; created when missing.
            cluster_id: they must belong to; None: what the formatted ones say.
            node_id: they must belong to.
            now_ms: wall time.
            config: settings of logs of which nothing else is known.
            config_for: topic -> settings, for the replicas found; None: `config` for all.
            new_directory_id: for new directories, and in the names of replicas that are deleted.
            limits: when a disk counts as full; None: the defaults.
            recovery_threads: for each directory, from 1.
            on_progress: told how far each directory is, at most ten times a second, in threads of the manager, one
                call at a time for one directory.
            monotonic_ms: for the progress.
            threads: makes them: how many, and the prefix of their names.

        Raises:
            DirectoryLockedError, InconsistentClusterIdError, ConfigError: a directory must not be used.
            StorageError: a directory is not ours, a replica is in two, or none can be opened; see the table above.
        """
        config = config or LogConfig()
        survey = Survey(fs, paths, cluster_id, node_id)
        survey.look()
        with ExitStack() as undo:
            directories: list[LogDirectory] = []
            for path in survey.usable:
                try:
                    directory = LogDirectory.lock(
                        fs, path, cluster_id=survey.cluster_id, node_id=node_id, config=config,
                        limits=limits or DiskLimits(), new_directory_id=new_directory_id,
                    )  # fmt: skip
                except REFUSED:
                    raise
                except (StorageError, DiskFullError) as error:
                    survey.set_aside(path, error)
                    continue
                undo.callback(directory.release)
                directories.append(directory)
            survey.require_one()
            finished = finish_moves(
                fs,
                [found.path for found in directories],
                all_are_here=not survey.unopened,
                unique_id=new_directory_id(),
            )
            loader = Loader(
                fs, config_for or (lambda _: config), now_ms, lambda: threads(recovery_threads, "replog-recovery"),
                on_progress, monotonic_ms,
            )  # fmt: skip
            opened = loader.load(directories, survey)
            undo.pop_all()
        return cls(fs, opened, survey.unopened, finished, threads)

    # What there is

    @property
    def cluster_id(self) -> str:
        """Of every directory."""
        return next(iter(self.directories.values())).meta.cluster_id

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Of the directories that work."""
        return tuple(directory.meta.directory_id for directory in self._online())

    @property
    def previous_broker_epoch(self) -> int:
        """Of the incarnation that stopped cleanly in every directory; -1 where one of them tells otherwise."""
        epochs = {directory.previous_broker_epoch for directory in self.directories.values()}
        return epochs.pop() if len(epochs) == 1 and not self.unopened else -1

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open in directories that work."""
        return {key: log for directory in self._online() for key, log in directory.logs.items()}

    @property
    def offline(self) -> Mapping[TopicPartition, ReplogError]:
        """Replicas that cannot be used, and why: alone, or with their directory."""
        found: dict[TopicPartition, ReplogError] = {}
        for directory in self.directories.values():
            found.update(directory.offline)
            if directory.failure is not None:
                found.update(dict.fromkeys(directory.logs, directory.failure))
        return found

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """As checkpointed, exclusive."""
        return {key: mark for directory in self.directories.values() for key, mark in directory.high_watermarks.items()}

    def home_of(self, topic: str, partition: int) -> LogDirectory | None:
        """The directory that holds a replica; None: none does, or one that could not be opened."""
        return self._home.get((topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        """As checkpointed, exclusive; 0 unknown."""
        home = self.home_of(topic, partition)
        return 0 if home is None else home.high_watermarks.get((topic, partition), 0)

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic id that a replica's directory carries; None when it has none."""
        home = self.home_of(topic, partition)
        return None if home is None else home.topic_id(topic, partition)

    def offline_error(self, topic: str, partition: int) -> ReplogError | None:
        """Why a replica cannot be used; None when it can, or when there is none."""
        home = self.home_of(topic, partition)
        if home is None:
            return None
        return home.failure or home.offline.get((topic, partition))

    # Logs

    def open_log(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig | None = None,
        *,
        now_ms: int,
        is_new: bool = True,
        directory: str | None = None,
    ) -> Log:
        """The log of a replica, created when there is none.

        Args:
            topic: its name.
            partition: of the topic.
            topic_id: of the topic.
            config: settings; None: as they are, or the defaults.
            now_ms: wall time.
            is_new: it cannot be in a directory that is offline, so it may be created.
            directory: where a new one is created; None: in the directory with the fewest.

        Raises:
            InconsistentTopicIdError: the directory belongs to an earlier topic of the same name.
            DiskFullError: there is no room for a new one.
            StorageError: it is offline, or the disk failed.
        """
        home = self._home_or_new(topic, partition, is_new=is_new, directory=directory)
        if home.failure is not None:
            raise home.failure
        try:
            log = home.open_log(topic, partition, topic_id, config, now_ms=now_ms)
        except ReplogError:
            self._settle_home((topic, partition), home)
            raise
        self._home[topic, partition] = home
        return log

    def prepare_create(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        *,
        now_ms: int,
        is_new: bool = True,
        leader_epoch: int | None = None,
    ) -> CreateJob | None:
        """The creation of a replica, to be run in any thread and given to `complete_create`; None: there is one already.

        A replica that was prepared counts as one of its directory, so that many at once are spread.

        Args:
            topic: its name.
            partition: of the topic.
            topic_id: of the topic.
            config: settings.
            now_ms: wall time.
            is_new: as for `open_log`.
            leader_epoch: in which this broker will lead it, written with the rest; None: it will not.

        Raises:
            DiskFullError, StorageError: as `open_log`.
        """
        key = (topic, partition)
        if key in self._home:
            return None
        home = self._home_or_new(topic, partition, is_new=is_new, directory=None)
        home.forget([key])
        self._home[key] = home
        self._creating[home.path] += 1
        return CreateJob(home, NewReplica(key, topic_id, config, leader_epoch), now_ms)

    def complete_create(self, job: CreateJob) -> None:
        """Takes the result; where it failed, `open_log` will try again and say why."""
        loaded = job.result
        self._creating[job.home.path] -= 1
        if loaded is None or job.home.failure is not None:
            self._settle_home(job.replica.key, job.home)
        else:
            job.home.add(loaded)

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably; see `delete_logs`."""
        for job in self.delete_logs([(topic, partition)]):
            job.run()

    def delete_logs(self, keys: Sequence[TopicPartition]) -> list[DirectoryDeletionJob]:
        """Takes replicas out, durably, and removes their checkpoint lines, once for all; the jobs remove the files.

        Raises:
            UnknownTopicOrPartitionError: there is none of one of them; those before it are deleted.
            StorageError: the disk failed.
        """
        jobs: list[DirectoryDeletionJob] = []
        homes: dict[str, list[TopicPartition]] = {}
        try:
            for key in keys:
                home = self._home_or_raise(key)
                jobs.append(home.prepare_delete(*key))
                homes.setdefault(home.path, []).append(key)
                del self._home[key]
        finally:
            for path, gone in homes.items():
                with contextlib.suppress(DiskFullError):  # what makes room goes on; a new replica forgets first
                    self.directories[path].forget(gone)
        return jobs

    def set_aside_log(self, topic: str, partition: int) -> str:
        """Renames a replica that nobody claims, or that is damaged, to `...-stray` and forgets it; returns the new path.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            StorageError: the disk failed.
        """
        path = self._home_or_raise((topic, partition)).set_aside_log(topic, partition)
        del self._home[topic, partition]
        return path

    # Moves between directories

    def prepare_move(self, topic: str, partition: int, path: str) -> ReplicaMove:
        """The move of an open replica to another directory; see `replica_move`.

        Raises:
            UnknownTopicOrPartitionError: there is no such replica.
            LogDirNotFoundError: no log directory has this path.
            InvalidRequestError: it is there already, is the metadata log, or its name is too long.
            StorageError: the replica, its directory or the other one is offline.
            DiskFullError: the other one has no room.
        """
        key = (topic, partition)
        source, target = self._home_or_raise(key), self._directory_or_raise(path)
        if topic == METADATA_TOPIC:
            raise InvalidRequestError("the metadata log stays in the first log directory")
        if target is source:
            raise InvalidRequestError(f"{partition_dir_name(*key)} is in {path} already")
        for error in (source.failure, source.offline.get(key), target.failure):
            if error is not None:
                raise error
        if target.space.state is DiskState.READ_ONLY:
            raise DiskFullError(f"{path} has no room: {target.space.describe()}")
        name = future_dir_name(partition_dir_name(*key), uuid.uuid4())
        if name is None:
            raise InvalidRequestError(f"{topic}: its name is too long for the folder of a copy")
        return ReplicaMove(key, source, target, FolderCopy(self._fs, source.path_of(key), f"{target.path}/{name}"))

    def begin_swap(self, move: ReplicaMove, high_watermark: int) -> SwapJob:
        """Closes the replica, so that its copy can take its place; the job must be given to `complete_swap`."""
        log, source = move.source.logs[move.key], move.source
        replica = ClosedReplica(
            key=move.key,
            topic_id=source.topic_id(*move.key),
            config=log.config,
            files=log.files(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            recovery_point=log.recovery_point,
            first_dirty_offset=log.first_dirty_offset,
            high_watermark=high_watermark,
        )
        source.quarantine(move.key, StorageError(f"{log.topic_partition} is about to be opened in {move.target.path}"))
        return SwapJob(self._fs, move, replica)

    def complete_swap(self, job: SwapJob) -> LogDirectory:
        """Takes the result: the replica is open again, in the new directory, or in the old one where that failed."""
        if job.home is not job.move.source:
            job.move.source.drop(job.move.key)
        job.home.replace(job.loaded, job.replica)
        self._home[job.move.key] = job.home
        return job.home

    def _directory_or_raise(self, path: str) -> LogDirectory:
        if path in self.unopened:
            raise self.unopened[path]
        found = self.directories.get(path)
        if found is None:
            known = ", ".join((*self.directories, *self.unopened))
            raise LogDirNotFoundError(f"this broker has no log directory {path}; it has {known}")
        return found

    # What fails

    def quarantine(self, topic: str, partition: int, error: ReplogError) -> None:
        """Takes an open replica offline alone: its bytes contradict what was promised about them."""
        self._home_or_raise((topic, partition)).quarantine((topic, partition), error)

    def fail_directory(self, path: str, error: StorageError) -> tuple[TopicPartition, ...]:
        """A disk failed: its directory is offline from now on; returns the replicas that go with it."""
        directory = self.directories[path]
        directory.fail(error)
        return tuple(directory.logs)

    def is_essential(self, path: str) -> bool:
        """Whether the node cannot go on without this directory: it holds the metadata log, or there is no other."""
        home = self._home.get((METADATA_TOPIC, 0))
        return (home is not None and home.path == path) or [found.path for found in self._online()] == [path]

    # Checkpoints

    def prepare_recovery_points(self) -> dict[str, list[CheckpointJob]]:
        """Path -> jobs for one thread, in order, of each directory that works."""
        return {directory.path: directory.prepare_recovery_points() for directory in self._online()}

    def prepare_log_start_offsets(self) -> dict[str, list[CheckpointJob]]:
        """As `prepare_recovery_points`."""
        return {directory.path: directory.prepare_log_start_offsets() for directory in self._online()}

    def prepare_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[str, list[CheckpointJob]]:
        """As `prepare_recovery_points`; replicas that are not named keep what they have."""
        marks: dict[str, dict[TopicPartition, int]] = {directory.path: {} for directory in self._online()}
        for key, offset in high_watermarks.items():
            home = self._home.get(key)
            if home is not None and home.path in marks:
                marks[home.path][key] = offset
        return {path: self.directories[path].prepare_high_watermarks(found) for path, found in marks.items()}

    def checkpoint_recovery_points(self) -> None:
        """Writes the recovery points of every directory that works, blocking."""
        for directory in self._online():
            directory.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the log starts of every directory that works, blocking."""
        for directory in self._online():
            directory.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks of every directory that works, blocking."""
        for jobs in self.prepare_high_watermarks(high_watermarks).values():
            for job in jobs:
                job.run()

    # Disks

    def check_disks(self) -> dict[str, DiskState | StorageError]:
        """Looks at every disk that works: is it there, and is there room?  In any thread.

        Returns:
            Path -> how it stands; a `StorageError` where the directory must go offline (`fail_directory`).
        """
        found: dict[str, DiskState | StorageError] = {}
        for directory in self._online():
            try:
                directory.check_identity()
                with storage_errors(directory.path):
                    found[directory.path] = directory.space.check()
            except StorageError as error:
                found[directory.path] = error
        return found

    # The end

    def close(self, *, now_ms: int, broker_epoch: int | None) -> None:
        """Closes every directory, each in order and for itself, several logs at a time.

        Args:
            now_ms: wall time.
            broker_epoch: for the clean-shutdown markers; None: leave none.

        Raises:
            StorageError: one of them could not be closed in order; it has no marker.
        """
        failures: list[StorageError] = []
        with self._threads(RECOVERY_THREADS * 2, "replog-close") as executor:
            for directory in self.directories.values():
                try:
                    directory.close(now_ms=now_ms, broker_epoch=broker_epoch, mapper=executor.map)
                except StorageError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    # Parts

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories.values() if directory.failure is None]

    def _settle_home(self, key: TopicPartition, home: LogDirectory) -> None:
        """A creation failed: where something of it is left, it is tried again there and nowhere else."""
        if home.has_folder(key):
            self._home[key] = home
        else:
            self._home.pop(key, None)

    def _home_or_raise(self, key: TopicPartition) -> LogDirectory:
        home = self._home.get(key)
        if home is None:
            raise UnknownTopicOrPartitionError(f"there is no replica {partition_dir_name(*key)} in any log directory")
        return home

    def _home_or_new(self, topic: str, partition: int, *, is_new: bool, directory: str | None) -> LogDirectory:
        home = self._home.get((topic, partition))
        if home is not None:
            return home
        if (whole := self.finished_moves.waiting.get((topic, partition))) is not None:
            raise StorageError(
                f"{topic}-{partition} is whole in {whole}, and is used there when all log directories can be opened again"
            )
        if directory is not None:
            if directory in self.unopened:
                raise self.unopened[directory]
            return self.directories[directory]
        if self.unopened and not is_new:
            path, error = next(iter(self.unopened.items()))
            raise StorageError(
                f"{topic}-{partition} is in no log directory that could be opened, and {path} could not be: {error}. "
                "It is not created elsewhere: its data may be there"
            )
        online = self._online()
        if not online:
            raise StorageError("every log directory is offline")
        writable = [found for found in online if found.space.state is not DiskState.READ_ONLY]
        return min(writable or online, key=self._replica_count)

    def _replica_count(self, directory: LogDirectory) -> int:
        return len(directory.logs) + len(directory.offline) + self._creating[directory.path]


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A replica on its way to another directory.

    Attributes:
        copy: of its folder.
    """

    key: TopicPartition
    source: LogDirectory
    target: LogDirectory
    copy: FolderCopy


class SwapJob:
    """Puts the copy of a closed replica in its place and opens it; see `LogManager.begin_swap`.  Run once, in any thread.

    Attributes:
        home: where the replica is afterwards.
        loaded: it, opened or not.
        retired: removes what was the replica; None: the move failed.
        error: why.
    """

    def __init__(self, fs: FileSystem, move: ReplicaMove, replica: ClosedReplica) -> None:
        self.move = move
        self.replica = replica
        self.home = move.source
        self.loaded = LoadedReplica(replica.key, replica.topic_id, None, StorageError("the swap was not run"))
        self.retired: DirectoryDeletionJob | None = None
        self.error: ReplogError | None = None
        self._fs = fs

    def run(self, now_ms: int, unique_id: UUID) -> None:
        """Does it; an error is kept for the owner."""
        replica, move = self.replica, self.move
        try:
            move.copy.finish(replica.files)
            self.retired = swap_folders(self._fs, move.copy.source, move.copy.target, unique_id)
        except OSError as error:  # the replica is as it was
            self.error = StorageError(f"{move.target.path} cannot take {move.copy.source}: {error}. Check the disk")
            move.copy.abandon()
            self.loaded = move.source.reopen(replica, now_ms, recovery_point=replica.recovery_point)
        except StorageError as error:  # halfway: what is written to the replica now would be lost at the next start
            self.error = error
            self.loaded = LoadedReplica(replica.key, replica.topic_id, None, error)
        else:
            self.home = move.target
            self.loaded = self.home.reopen(replica, now_ms, recovery_point=replica.log_end_offset)

    def give_up(self) -> None:
        """The node ends before the owner took the result: its files are closed, and the next start finds them."""
        if self.loaded.log is not None:
            self.loaded.log.fail(StorageError("the node is stopping"))
            self.loaded.log.close(0)


class CreateJob:
    """The creation of one replica; see `LogManager.prepare_create`.  Run once, in any thread.

    Attributes:
        home: its directory.
        replica: what is to be made.
        result: what was made; None: not run, or failed.
        error: why it failed.
    """

    def __init__(self, home: LogDirectory, replica: NewReplica, now_ms: int) -> None:
        self.home = home
        self.replica = replica
        self.now_ms = now_ms
        self.result: LoadedReplica | None = None
        self.error: ReplogError | None = None

    def run(self) -> None:
        """Makes it; an error is kept for the owner."""
        run_together([self])


def run_together(jobs: Sequence[CreateJob]) -> None:
    """Runs them all, those of one directory in one go, which costs far less than one by one."""
    for home in dict.fromkeys(job.home for job in jobs):
        here = [job for job in jobs if job.home is home]
        for job, made in zip(here, home.create([job.replica for job in here], here[0].now_ms), strict=True):
            job.error = made.error
            job.result = None if made.error is not None else made
