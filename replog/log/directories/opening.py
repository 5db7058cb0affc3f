"""Locks all log directories of a node, then opens their replicas in threads: each has its own, since each is a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from contextlib import ExitStack, suppress
from uuid import UUID

from replog.errors import DiskFullError, StorageError
from replog.log.config import LogConfig
from replog.log.deletion import set_aside_directory
from replog.log.directories.identity import opened_with
from replog.log.directories.loaded_replica import LoadedReplica
from replog.log.directories.log_directory import LogDirectory
from replog.log.directories.survey import REFUSED, Survey
from replog.log.file_names import LOG_SUFFIX, file_path, parse_file_name
from replog.log.recovery.progress import RecoveryMeter, RecoveryProgress
from replog_checkpoints import FileSystem, TopicPartition


def lock_usable(survey: Survey, lock: Callable[[str], LogDirectory], undo: ExitStack) -> list[LogDirectory]:
    """Locks the usable directories and returns them; one whose disk fails is left out while others work.

    Args:
        survey: The survey of the directories.
        lock: A function that locks the directory with this path.
        undo: The stack that is told to release them.

    Raises:
        DirectoryLockedError, ForeignDirectoryError: One must not be used.
        StorageError: No directory is left.
    """
    locked: list[LogDirectory] = []
    for path in survey.usable:
        try:
            directory = lock(path)
        except REFUSED:
            raise
        except (StorageError, DiskFullError) as error:
            survey.set_aside(path, error)
            continue
        undo.callback(directory.release)
        locked.append(directory)
    survey.require_one()
    return locked


class Loader:
    """Opens the replicas of all directories in threads."""

    def __init__(
        self,
        fs: FileSystem,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        threads: Callable[[], Executor],
        on_progress: Callable[[RecoveryProgress], None] | None,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._config_for = config_for
        self._now_ms = now_ms
        self._threads = threads
        self._tell = on_progress or (lambda _: None)
        self._monotonic_ms = monotonic_ms

    def set_older_aside(
        self, directories: Sequence[LogDirectory], survey: Survey, new_id: Callable[[], UUID]
    ) -> tuple[list[LogDirectory], list[str]]:
        """Renames the older copies of replicas; returns the directories in which that worked, and where they are kept."""
        usable = {directory.path: directory for directory in directories}
        kept: list[str] = []
        for path, key in survey.older:
            if path not in usable:
                continue
            try:
                kept.append(set_aside_directory(self._fs, usable[path].path_of(key), new_id()))
            except StorageError as error:
                self._give_up(usable.pop(path), error, survey)
        return list(usable.values()), kept

    def load(
        self, directories: Sequence[LogDirectory], survey: Survey, waiting: AbstractSet[TopicPartition]
    ) -> list[LogDirectory]:
        """Loads all directories; one that fails as a whole is left out while others work.

        Args:
            directories: The directories, locked.
            survey: The survey of them.
            waiting: The replicas that are whole in a directory which cannot be used yet.
        """
        opened: list[LogDirectory] = []
        held = waiting if len(directories) == 1 else self._folders(directories) | waiting
        with ExitStack() as pools:
            begun = [(directory, self._begin(directory, pools, survey, held)) for directory in directories]
            for directory, futures in begun:
                if futures is None:
                    continue
                for future in futures:
                    directory.add(future.result())
                try:
                    directory.end_load()
                except StorageError as error:
                    self._give_up(directory, error, survey)
                else:
                    opened.append(directory)
        return opened

    def note_together(self, directories: Sequence[LogDirectory], survey: Survey) -> list[LogDirectory]:
        """Notes in each directory which of them work; returns those.  One that has always been alone needs no note."""
        left = list(directories)
        if len(left) == 1 and not survey.unopened and opened_with(left[0].meta) is None:
            return left
        while True:
            ids = [directory.meta.directory_id for directory in left]
            try:
                for directory in left:
                    directory.note_opened_with(ids)
            except StorageError as error:
                self._give_up(directory, error, survey)
                left.remove(directory)
            else:
                return left

    @staticmethod
    def _folders(directories: Sequence[LogDirectory]) -> set[TopicPartition]:
        """Returns the replicas that have a folder in one of the directories; one whose disk fails is told of later."""
        found: set[TopicPartition] = set()
        for directory in directories:
            with suppress(StorageError):
                found.update(directory.folders())
        return found

    def _begin(
        self, directory: LogDirectory, pools: ExitStack, survey: Survey, held: AbstractSet[TopicPartition]
    ) -> list[Future[LoadedReplica]] | None:
        """Begins to load a directory; returns the loads that are under way, or None: the directory is offline."""
        executor = self._threads()
        pools.callback(executor.shutdown, cancel_futures=True)
        meter = RecoveryMeter(directory.path, self._monotonic_ms, self._tell)
        try:
            keys = directory.begin_load(held)
        except StorageError as error:
            self._give_up(directory, error, survey)
            return None
        meter.begin(len(keys), self._scan_bytes(directory, keys, executor))
        return [executor.submit(self._load, directory, key, meter) for key in keys]

    def _scan_bytes(self, directory: LogDirectory, keys: Sequence[TopicPartition], executor: Executor) -> int:
        if directory.was_clean:
            return 0
        points = directory.recovery_points
        return sum(executor.map(lambda key: _scan_bytes(self._fs, directory.path_of(key), points.get(key, 0)), keys))

    def _load(self, directory: LogDirectory, key: TopicPartition, meter: RecoveryMeter) -> LoadedReplica:
        loaded = directory.load(key, self._config_for(key[0]), self._now_ms)
        meter.log_opened(0 if loaded.log is None else loaded.log.recovery.bytes_scanned)
        return loaded

    @staticmethod
    def _give_up(directory: LogDirectory, error: StorageError, survey: Survey) -> None:
        survey.set_aside(directory.path, error)
        survey.require_one()
        directory.release()


def _scan_bytes(fs: FileSystem, directory: str, recovery_point: int) -> int:
    """Counts the bytes of the segments that opening a log after a crash will read, from the one that holds the recovery point on."""
    try:
        found = (parse_file_name(name) for name in fs.list_dir(directory))
        bases = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == LOG_SUFFIX)
        first = max(0, sum(base <= recovery_point for base in bases) - 1)
        return sum(fs.size(file_path(directory, base, LOG_SUFFIX)) for base in bases[first:])
    except OSError:
        return 0  # opening it will report the error
