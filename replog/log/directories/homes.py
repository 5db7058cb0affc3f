"""Which log directory of a node holds which replica, and where a new one goes; shared by all parts of `LogManager`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from replog.errors import (
    InvariantViolationError,
    LogDirNotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.log.directories.log_directory import LogDirectory
from replog.log.disk_space import DiskState
from replog.log.file_names import partition_dir_name
from replog_checkpoints import TopicPartition


class ReplicaHomes:
    """The log directories of one node, and the home of each replica; one owner.

    Args:
        directories: The directories that were opened, in configured order.
        unopened: Path -> error of those that could not be opened.
        waiting: The replicas that are whole in a directory which cannot be used yet -> its path.

    Attributes:
        directories: Path -> directory of all that were opened, in configured order; one with a `failure` is offline.
        unopened: Path -> error of the directories that could not be opened at the start.
        retiring: The replicas whose folders may still be in the way of others of their names.

    Invariants:
        - nothing else than its methods says where a replica is.
    """

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        unopened: Mapping[str, StorageError],
        waiting: Mapping[TopicPartition, str],
    ) -> None:
        self.directories = {directory.path: directory for directory in directories}
        self.unopened = dict(unopened)
        self.retiring: set[TopicPartition] = set()
        self._waiting = waiting
        self._creating = Counter[str]()  # directory -> replicas that are being made
        self._home: dict[TopicPartition, LogDirectory] = {}
        for directory in directories:
            self._home.update(dict.fromkeys((*directory.logs, *directory.offline), directory))

    # Where a replica is

    def online(self) -> list[LogDirectory]:
        """Returns the directories that work."""
        return [directory for directory in self.directories.values() if directory.failure is None]

    def get(self, key: TopicPartition) -> LogDirectory | None:
        """Returns the directory that holds a replica; None: none does, or one that could not be opened."""
        return self._home.get(key)

    def require(self, key: TopicPartition) -> LogDirectory:
        """Returns the directory that holds a replica.

        Raises:
            UnknownTopicOrPartitionError: There is no such replica.
        """
        home = self._home.get(key)
        if home is None:
            raise UnknownTopicOrPartitionError(f"there is no replica {partition_dir_name(*key)} in any log directory")
        return home

    def require_directory(self, path: str) -> LogDirectory:
        """Returns the directory with this path.

        Raises:
            LogDirNotFoundError: No log directory has this path.
            StorageError: It could not be opened.
        """
        if path in self.unopened:
            raise raised_anew(self.unopened[path])
        found = self.directories.get(path)
        if found is None:
            known = ", ".join((*self.directories, *self.unopened))
            raise LogDirNotFoundError(f"this broker has no log directory {path}; it has {known}")
        return found

    def find_or_choose(self, key: TopicPartition, *, is_new: bool, directory: str | None) -> LogDirectory:
        """Returns the directory that holds a replica, or else the one in which it is to be made.

        Args:
            key: Topic and partition.
            is_new: Whether it cannot be in a directory that is offline, so that it may be created.
            directory: Path of the log directory for a new one; None: the one with the fewest replicas.

        Raises:
            StorageError: Its data may be in a directory that cannot be used, or none works.
        """
        home = self._home.get(key)
        if home is not None:
            return home
        name = partition_dir_name(*key)
        if key in self.retiring:
            raise InvariantViolationError(f"{name} is created while the folder of an older one is renamed")
        if (whole := self._waiting.get(key)) is not None:
            raise StorageError(
                f"{name} is whole in {whole}, and is used there when all log directories can be opened again"
            )
        if directory is not None:
            return self.require_directory(directory)
        if self.unopened and not is_new:
            path, error = next(iter(self.unopened.items()))
            raise StorageError(
                f"{name} is in no log directory that could be opened, and {path} could not be: {error}. "
                "It is not created elsewhere: its data may be there"
            )
        online = self.online()
        if not online:
            raise StorageError("every log directory is offline")
        writable = [found for found in online if found.space.state is not DiskState.READ_ONLY]
        return min(writable or online, key=self._replica_count)

    def _replica_count(self, directory: LogDirectory) -> int:
        return len(directory.logs) + len(directory.offline) + self._creating[directory.path]

    # When that changes

    def put(self, keys: Iterable[TopicPartition], home: LogDirectory) -> None:
        """Notes that a directory holds these replicas."""
        self._home.update(dict.fromkeys(keys, home))

    def remove(self, key: TopicPartition) -> None:
        """Notes that a replica is gone."""
        del self._home[key]

    def settle(self, key: TopicPartition, home: LogDirectory) -> None:
        """Ties a replica whose creation failed to the directory that has some of it: only there it is tried again."""
        if home.has_folder(key):
            self._home[key] = home
        else:
            self._home.pop(key, None)

    def begin_creation(self, key: TopicPartition, home: LogDirectory) -> None:
        """Notes that a replica is being made in a directory, and counts as one of it."""
        self._home[key] = home
        self._creating[home.path] += 1

    def end_creation(self, home: LogDirectory) -> None:
        """Notes that a replica was made, or could not be."""
        self._creating[home.path] -= 1

    def begin_retirement(self, key: TopicPartition) -> None:
        """Notes that a replica is gone, and that its folder is still there."""
        del self._home[key]
        self.retiring.add(key)

    def end_retirement(self, keys: Iterable[TopicPartition]) -> None:
        """Notes that the folders of retired replicas are out of the way, or that they are replicas again."""
        self.retiring.difference_update(keys)
