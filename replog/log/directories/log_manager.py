"""All log directories of one node: several disks, opened side by side, failing one by one (docs/KAFKA.md 3.1).

    log.dirs = /disk1/data, /disk2/data

    /disk1/data   __cluster_metadata-0   flights-0   flights-2
    /disk2/data   flights-1   flights-3

Each directory has its own lock, identity, clean-shutdown marker and checkpoints (`log_directory`).  A new replica goes to
the directory with the fewest.  All checks of a start are made in all directories before anything is changed in one.

| what is wrong                                              | outcome                                                  |
|------------------------------------------------------------|----------------------------------------------------------|
| another node's or cluster's directory, Kafka's, a copy     | refused, nothing changed                                 |
| in use by another process                                  | refused, nothing changed                                 |
| the same replica in two directories                        | the older one is set aside; refused, nothing changed, if it is unknown which that is (`survey`) |
| a directory cannot be read, or a checkpoint of it is damaged | it is offline, the others are opened; refused where it is the only one |
| a replica cannot be opened                                 | it is offline alone                                      |
| a write or fsync fails later                               | its directory is offline, the others go on               |

While a directory is offline its replicas are unknown, so a replica that is not found is not created elsewhere
unless it is known to be new: two copies of one replica would meet when the disk comes back.

This is a host: it owns threads for opening and closing, everything else belongs to one owner, the event loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from replog.errors import DiskFullError, InvalidRequestError, ReplogError, StorageError
from replog.log.config import LogConfig
from replog.log.directories.creation import NewReplica
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.directories.group import DirectoryGroup
from replog.log.directories.homes import ReplicaHomes
from replog.log.directories.loaded_replica import LoadedReplica
from replog.log.directories.log_directory import LogDirectory
from replog.log.directories.move import FinishedMoves, FolderCopy, finish_moves
from replog.log.directories.opening import Loader, lock_usable
from replog.log.directories.retirement import RetiredReplica, RetirementJob
from replog.log.directories.survey import Survey
from replog.log.directories.swap import ReplicaMove, SwapJob
from replog.log.disk_space import DiskLimits, DiskState
from replog.log.file_names import future_dir_name, partition_dir_name
from replog.log.log import Log
from replog.log.recovery.progress import RecoveryProgress
from replog_checkpoints import FileSystem, TopicPartition


class CreateJob:
    """The creation of one replica; see `LogManager.prepare_create`.  Run once, in any thread.

    Attributes:
        home: The log directory that the replica is made in.
        replica: The replica that is to be made.
        result: The replica that was made; None: the job has not run, or failed.
        error: The error with which it failed; None: it did not.
    """

    def __init__(self, home: LogDirectory, replica: NewReplica, now_ms: int) -> None:
        self.home = home
        self.replica = replica
        self.now_ms = now_ms
        self.result: LoadedReplica | None = None
        self.error: ReplogError | None = None

    def run(self) -> None:
        """Makes the replica; an error is kept for the owner."""
        run_together([self])


def run_together(jobs: Sequence[CreateJob]) -> None:
    """Runs all jobs, those of one directory in one go, which costs far less than one by one."""
    for home in dict.fromkeys(job.home for job in jobs):
        here = [job for job in jobs if job.home is home]
        for job, made in zip(here, home.create([job.replica for job in here], here[0].now_ms), strict=True):
            job.error = made.error
            job.result = None if made.error is not None else made


RECOVERY_THREADS: Final = 2
"""Kafka's default of num.recovery.threads.per.data.dir."""


class LogManager(DirectoryGroup):
    """The logs of all directories of a node.  Made by `LogManager.open`; one owner.

    Attributes:
        set_aside: Paths at which older copies of replicas are kept that the start has found.
        finished_moves: The outcomes of moves that a crash had interrupted.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[LogDirectory],
        survey: Survey,
        set_aside: Sequence[str],
        finished_moves: FinishedMoves,
        threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self.set_aside = tuple(set_aside)
        self.finished_moves = finished_moves
        super().__init__(ReplicaHomes(directories, survey.unopened, finished_moves.waiting))
        self._has_returned = survey.has_returned
        self._fs = fs
        self._threads = threads

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
            fs: The disks.
            paths: Paths of the directories, at least one; created when missing.
            cluster_id: The cluster that they must belong to; None: the cluster of the formatted ones.
            node_id: The node that they must belong to.
            now_ms: Wall time.
            config: Settings of logs of which nothing else is known.
            config_for: A function: topic -> settings, for the replicas found; None: `config` for all.
            new_directory_id: A function that makes ids, for new directories and the names of replicas that are deleted.
            limits: The limits at which a disk counts as full; None: the defaults.
            recovery_threads: Threads that recover each directory, from 1.
            on_progress: Told how far each directory is, at most ten times a second, one call at a time for a directory.
            monotonic_ms: A function that tells monotonic milliseconds, for the progress.
            threads: A function that makes an executor from the number of its threads and the prefix of their names.

        Raises:
            DirectoryLockedError, InconsistentClusterIdError, ConfigError: A directory must not be used.
            StorageError: A directory is not ours, a replica is in two and it is unknown which is older, or none can be
                opened; see the table above.
        """
        config = config or LogConfig()
        survey = Survey(fs, paths, cluster_id, node_id)
        survey.look()
        with ExitStack() as undo:
            locked = lock_usable(
                survey,
                lambda path: LogDirectory.lock(
                    fs, path, cluster_id=survey.cluster_id, node_id=node_id, config=config,
                    limits=limits or DiskLimits(), new_directory_id=new_directory_id,
                ),
                undo,
            )  # fmt: skip
            loader = Loader(
                fs, config_for or (lambda _: config), now_ms, lambda: threads(recovery_threads, "replog-recovery"),
                on_progress, monotonic_ms,
            )  # fmt: skip
            usable, set_aside = loader.set_older_aside(locked, survey, new_directory_id)
            finished = finish_moves(fs, [directory.path for directory in usable], all_are_here=not survey.unopened)
            opened = loader.note_together(loader.load(usable, survey, finished.waiting.keys()), survey)
            undo.pop_all()
        return cls(fs, opened, survey, set_aside, finished, threads)

    # What the directories hold

    @property
    def directories(self) -> Mapping[str, LogDirectory]:
        """Path -> directory of all that were opened, in configured order; one with a `failure` is offline."""
        return self._homes.directories

    @property
    def unopened(self) -> Mapping[str, StorageError]:
        """Path -> error of the directories that could not be opened at the start."""
        return self._homes.unopened

    @property
    def missing_directories(self) -> int:
        """Number of directories that may come back with all that was written to them; 0 where that is doubtful."""
        return 0 if self._has_returned else len(self.directories) + len(self.unopened) - len(self.directory_ids)

    @property
    def retiring(self) -> AbstractSet[TopicPartition]:
        """The replicas whose folders may still be in the way of others of their names.  Read only."""
        return self._homes.retiring

    def home_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Returns the directory that holds a replica; None: none does, or one that could not be opened."""
        return self._homes.get((topic, partition))

    def gave_up(self, topic: str, partition: int) -> bool:
        """Whether a repair has given up records of a replica, and the controller may not know it yet."""
        return any(directory.gave_up((topic, partition)) for directory in self._homes.directories.values())

    def forget_given_up(self, topic: str, partition: int) -> None:
        """Notes, durably, that no election counts any more on the records that a repair gave up.

        Raises:
            DiskFullError, StorageError: It is not noted.
        """
        for directory in self._homes.directories.values():
            if directory.gave_up((topic, partition)):
                directory.forget_given_up((topic, partition))

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
        """Returns the log of a replica, created when there is none.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            topic_id: Id of the topic.
            config: Settings of the log; None: as they are, or the defaults.
            now_ms: Wall time.
            is_new: Whether it cannot be in a directory that is offline, so that it may be created.
            directory: Path of the log directory for a new one; None: the one with the fewest replicas.

        Raises:
            InconsistentTopicIdError: The partition folder belongs to an earlier topic of the same name.
            DiskFullError: There is no room for a new one.
            StorageError: The replica or its directory is offline, or the disk failed.
        """
        home = self._homes.find_or_choose((topic, partition), is_new=is_new, directory=directory)
        if home.failure is not None:
            raise home.failure
        try:
            log = home.open_log(topic, partition, topic_id, config, now_ms=now_ms)
        except ReplogError:
            self._homes.settle((topic, partition), home)
            raise
        self._homes.put([(topic, partition)], home)
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
        """Prepares a job that creates a replica, in any thread; None: there is one already.

        It must be given to `complete_create`.

        A replica that was prepared counts as one of its directory, so that many at once are spread.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            topic_id: Id of the topic.
            config: Settings of the log.
            now_ms: Wall time.
            is_new: The same as for `open_log`.
            leader_epoch: The leader epoch in which this broker will lead it, written with the rest; None: it will not.

        Raises:
            DiskFullError, StorageError: See `open_log`.
        """
        key = (topic, partition)
        if self._homes.get(key) is not None:
            return None
        home = self._homes.find_or_choose(key, is_new=is_new, directory=None)
        home.forget([key])
        self._homes.begin_creation(key, home)
        return CreateJob(home, NewReplica(key, topic_id, config, leader_epoch), now_ms)

    def prepare_fork(
        self,
        source: TopicPartition,
        source_id: UUID,
        end_offset: int,
        replica: NewReplica,
        *,
        now_ms: int,
        is_new: bool,
        is_whole: bool,
    ) -> CreateJob | None:
        """Prepares a job that creates a replica with the records of another one; None: that is not here, or not all of it.

        Args:
            source: Topic and partition of the other one.
            source_id: Its topic id.
            end_offset: The end (exclusive) of the records.
            replica: The replica, which has no home yet.
            now_ms: Wall time.
            is_new: The same as for `open_log`.
            is_whole: Whether all of the records have to be there; else those that are do.

        Raises:
            DiskFullError, StorageError: See `open_log`, and `LogDirectory.begin_fork`.
        """
        self._homes.find_or_choose(replica.key, is_new=is_new, directory=None)
        home = self._homes.get(source)
        if home is None or source not in home.logs or home.topic_id(*source) != source_id:
            return None
        if is_whole and home.logs[source].log_end_offset < end_offset:
            return None
        home.forget([replica.key])
        fork = home.begin_fork(source, replica.key, end_offset)
        self._homes.begin_creation(replica.key, home)
        return CreateJob(home, replace(replica, fork=fork), now_ms)

    def lose(self, key: TopicPartition, error: ReplogError, *, is_new: bool) -> None:
        """Keeps a replica that must not be made empty as one whose records are gone.

        Raises:
            StorageError: Every log directory is offline, or it may be in one that is.
        """
        home = self._homes.find_or_choose(key, is_new=is_new, directory=None)
        home.lose(key, error)
        self._homes.put([key], home)

    def complete_create(self, job: CreateJob) -> None:
        """Takes the result of a job; where it failed, `open_log` will try again and say why, but for a fork: that is lost."""
        loaded = job.result
        self._homes.end_creation(job.home)
        if loaded is None and job.replica.fork is not None and job.error is not None:
            self.lose(job.replica.key, job.error, is_new=True)
            return
        if loaded is None or job.home.failure is not None:
            self._homes.settle(job.replica.key, job.home)
        else:
            job.home.add(loaded)

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a replica and its checkpoint lines, durably.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            StorageError: The disk failed.
        """
        key = (topic, partition)
        self._homes.require(key).delete_log(topic, partition)
        self._homes.remove(key)

    def retire(self, topic: str, partition: int, *, is_kept: bool) -> RetiredReplica:
        """Closes and forgets a replica; `prepare_retirement` must be given it before another of that name is created.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            is_kept: Whether its files are set aside instead of being removed.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
        """
        key = (topic, partition)
        retired = self._homes.require(key).retire(key, is_kept=is_kept)
        self._homes.begin_retirement(key)
        return retired

    def prepare_retirement(self, replicas: Iterable[RetiredReplica]) -> list[RetirementJob]:
        """Prepares a job for each directory, to be run in any thread and given to `complete_retirement`."""
        by_path: dict[str, list[RetiredReplica]] = {}
        for replica in replicas:
            by_path.setdefault(replica.directory, []).append(replica)
        return [self.directories[path].prepare_retirement(found) for path, found in by_path.items()]

    def complete_retirement(self, job: RetirementJob, failure: StorageError | None) -> None:
        """Takes the result of a job; where it failed the replicas are back, offline, as their directory should be."""
        keys = [replica.key for replica in job.replicas]
        self._homes.end_retirement(keys)
        if failure is not None:
            home = self.directories[job.path]
            home.retirement_failed(job, failure)
            self._homes.put(keys, home)

    def set_aside_log(self, topic: str, partition: int) -> str | None:
        """Renames a replica that the metadata do not name, or that is damaged, to `...-stray` and forgets it.

        Returns:
            The new path; None: its folder is gone.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            StorageError: The disk failed.
        """
        path = self._homes.require((topic, partition)).set_aside_log(topic, partition)
        self._homes.remove((topic, partition))
        return path

    def quarantine(self, topic: str, partition: int, error: ReplogError) -> None:
        """Takes an open replica offline alone: its bytes contradict the promises about them."""
        self._homes.require((topic, partition)).quarantine((topic, partition), error)

    # Moves between directories

    def prepare_move(self, topic: str, partition: int, path: str) -> ReplicaMove:
        """Prepares the move of an open replica to another directory; see `move`.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
            LogDirNotFoundError: No log directory has this path.
            InvalidRequestError: The replica is there already, is the metadata log, or its name is too long.
            StorageError: The replica, its directory or the other one is offline.
            DiskFullError: The other one has no room.
        """
        key = (topic, partition)
        source, target = self._homes.require(key), self._homes.require_directory(path)
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
        meanwhile = StorageError(f"{partition_dir_name(*move.key)} is about to be opened in {move.target.path}")
        return SwapJob(self._fs, move, move.source.close_replica(move.key, high_watermark, meanwhile))

    def complete_swap(self, job: SwapJob) -> LogDirectory:
        """Takes the result: the replica is open again, in the new directory, or in the old one where that failed.

        Returns:
            The directory that it is in.
        """
        if job.home is not job.move.source:
            job.move.source.drop(job.move.key)
        job.home.replace(job.loaded, job.replica)
        self._homes.put([job.move.key], job.home)
        return job.home

    # The end

    def close(self, *, now_ms: int, broker_epoch: int | None) -> None:
        """Closes every directory, each in order and for itself, several logs at a time.

        Args:
            now_ms: Wall time.
            broker_epoch: Broker epoch of this incarnation, for the clean-shutdown markers; None: leave none.

        Raises:
            StorageError: One of them could not be closed in order; it has no marker.
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
