"""The log directories of one node, side by side: their contents together, and work that is done to each of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from replog.errors import DiskFullError, ReplogError, StorageError
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.directories.homes import ReplicaHomes
from replog.log.directories.identity import storage_errors
from replog.log.directories.offset_checkpoints import CheckpointJob
from replog.log.disk_space import DiskState
from replog.log.log import Log
from replog_checkpoints import TopicPartition

_log = logging.getLogger(__name__)


class DirectoryGroup:
    """What `LogManager` tells of all directories at once, and has each of them do."""

    def __init__(self, homes: ReplicaHomes) -> None:
        self._homes = homes

    # What they hold

    @property
    def cluster_id(self) -> str:
        """The cluster id of every directory."""
        return next(iter(self._homes.directories.values())).meta.cluster_id

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Ids of the directories that work."""
        return tuple(directory.meta.directory_id for directory in self._homes.online())

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the incarnation that stopped cleanly in every directory; -1 where one tells otherwise."""
        epochs = {directory.previous_broker_epoch for directory in self._homes.directories.values()}
        return epochs.pop() if len(epochs) == 1 and not self._homes.unopened else -1

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """(topic, partition) -> its log, all that are open in directories that work."""
        return {key: log for directory in self._homes.online() for key, log in directory.logs.items()}

    @property
    def replicas(self) -> tuple[TopicPartition, ...]:
        """All replicas in directories that work, unusable ones included."""
        return tuple(key for directory in self._homes.online() for key in (*directory.logs, *directory.offline))

    @property
    def offline(self) -> Mapping[TopicPartition, ReplogError]:
        """Replicas that cannot be used, and why: alone, or with their directory."""
        found: dict[TopicPartition, ReplogError] = {}
        for directory in self._homes.directories.values():
            found.update(directory.offline)
            if directory.failure is not None:
                found.update(dict.fromkeys(directory.logs, directory.failure))
        return found

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The checkpointed high watermarks, exclusive."""
        return {
            key: mark
            for directory in self._homes.directories.values()
            for key, mark in directory.high_watermarks.items()
        }

    def high_watermark(self, topic: str, partition: int) -> int:
        """Returns the checkpointed high watermark of a replica, exclusive; 0 unknown."""
        home = self._homes.get((topic, partition))
        return 0 if home is None else home.high_watermarks.get((topic, partition), 0)

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """Returns the topic id that a replica's partition folder carries; None when it has none."""
        home = self._homes.get((topic, partition))
        return None if home is None else home.topic_id(topic, partition)

    def offline_error(self, topic: str, partition: int) -> ReplogError | None:
        """Returns why a replica cannot be used; None when it can, or when there is none."""
        home = self._homes.get((topic, partition))
        if home is None:
            return None
        return home.failure or home.offline.get((topic, partition))

    # Disks

    def check_disks(self) -> dict[str, DiskState | StorageError]:
        """Looks at every disk that works: is it there, and is there room?  In any thread.

        Returns:
            Path -> how it stands; a `StorageError` where the directory must go offline (`fail_directory`).  One that could
            not be looked at for want of descriptors is left out.
        """
        found: dict[str, DiskState | StorageError] = {}
        for directory in self._homes.online():
            try:
                directory.check_identity()
                with storage_errors(directory.path):
                    found[directory.path] = directory.space.check()
            except DiskFullError as error:
                _log.warning("%s", error)
            except StorageError as error:
                found[directory.path] = error
        return found

    def fail_directory(self, path: str, error: StorageError) -> tuple[TopicPartition, ...]:
        """Takes a directory offline, because its disk failed; returns the replicas that go with it."""
        directory = self._homes.directories[path]
        directory.fail(error)
        return tuple(directory.logs)

    def is_essential(self, path: str) -> bool:
        """Whether the node cannot go on without this directory: it holds the metadata log, or there is no other."""
        home = self._homes.get((METADATA_TOPIC, 0))
        return (home is not None and home.path == path) or [found.path for found in self._homes.online()] == [path]

    # Checkpoints

    def prepare_recovery_points(self) -> dict[str, list[CheckpointJob]]:
        """Prepares jobs that write the recovery points: path -> jobs for one thread, of each directory that works."""
        return {directory.path: directory.prepare_recovery_points() for directory in self._homes.online()}

    def prepare_log_start_offsets(self) -> dict[str, list[CheckpointJob]]:
        """Prepares jobs that write the log starts, as `prepare_recovery_points` does."""
        return {directory.path: directory.prepare_log_start_offsets() for directory in self._homes.online()}

    def prepare_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[str, list[CheckpointJob]]:
        """Prepares jobs that write the high watermarks, as `prepare_recovery_points` does.

        Replicas that are not named keep their values.
        """
        marks: dict[str, dict[TopicPartition, int]] = {directory.path: {} for directory in self._homes.online()}
        for key, offset in high_watermarks.items():
            home = self._homes.get(key)
            if home is not None and home.path in marks:
                marks[home.path][key] = offset
        return {path: self._homes.directories[path].prepare_high_watermarks(found) for path, found in marks.items()}

    def checkpoint_recovery_points(self) -> None:
        """Writes the recovery points of every directory that works, blocking."""
        for directory in self._homes.online():
            directory.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the log starts of every directory that works, blocking."""
        for directory in self._homes.online():
            directory.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks of every directory that works, blocking."""
        for jobs in self.prepare_high_watermarks(high_watermarks).values():
            for job in jobs:
                job.run()
