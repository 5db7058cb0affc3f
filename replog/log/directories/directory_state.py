"""The state of one log directory: its replicas, its identity and its condition, shared by the parts of `LogDirectory`.

The parts read it as they like; only its methods change it, and each is one transition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from replog.errors import ReplogError, StorageError
from replog.log.config import LogConfig
from replog.log.disk_space import DiskSpace
from replog.log.file_names import partition_dir_name
from replog.log.log import Log
from replog_checkpoints import FileSystem, MetaProperties, TopicPartition

METADATA_TOPIC: Final = "__cluster_metadata"
"""Its appends are never refused for want of room: without it nothing could be deleted to make some."""

_NO_BROKER_EPOCH: Final = -1


class DirectoryState:
    """The state of one log directory, without its offset checkpoints: those are with `DirectoryCheckpoints`.

    Attributes:
        fs: The disk.
        path: Path of the directory.
        config: Settings of logs of which nothing else is known.
        space: The room on its disk.
        new_id: A function that makes ids, for the names of replicas that are deleted.
        meta: Identity of the directory.
        logs: The logs that are open.
        offline: The replicas that cannot be opened, and why.
        lost: Those of them whose folders are gone.
        topic_ids: The topic ids that partition folders carry; None: it has none.
        high_watermarks: The checkpointed high watermarks, exclusive; a replica without one starts at its log start.
        was_clean: Whether the last stop was clean.
        previous_broker_epoch: Broker epoch of the incarnation that stopped cleanly; -1 unknown.
        failure: The error for which the whole directory is offline; None: it works.

    Invariants:
        - a replica is in `logs` or in `offline`, never in both;
        - only its methods assign to its attributes, or change their contents.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        config: LogConfig,
        space: DiskSpace,
        new_id: Callable[[], UUID],
        meta: MetaProperties,
    ) -> None:
        self.fs = fs
        self.path = path
        self.config = config
        self.space = space
        self.new_id = new_id
        self.meta = meta
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, ReplogError] = {}
        self.lost: set[TopicPartition] = set()
        self.topic_ids: dict[TopicPartition, UUID | None] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.was_clean = False
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        self.failure: StorageError | None = None

    # What follows from it

    @property
    def known(self) -> set[TopicPartition]:
        """Every replica that is here, open or not."""
        return {*self.logs, *self.offline}

    def at(self, name: str) -> str:
        """Returns the path of a file or folder of the directory."""
        return f"{self.path}/{name}"

    def path_of(self, key: TopicPartition) -> str:
        """Returns the path of a replica's partition folder."""
        return self.at(partition_dir_name(*key))

    def admission(self, key: TopicPartition) -> Callable[[int], None] | None:
        """Returns the function by which appends to a replica ask for room; None: they need not ask."""
        return None if key[0] == METADATA_TOPIC else self.space.admit

    # The directory as a whole

    def note_clean_stop(self, broker_epoch: int) -> None:
        """Notes the content of the clean-shutdown marker."""
        self.was_clean, self.previous_broker_epoch = True, broker_epoch

    def doubt_clean_stop(self) -> None:
        """Takes the last stop for one that was not in order where others ask: what it left has changed since."""
        self.previous_broker_epoch = _NO_BROKER_EPOCH

    def set_meta(self, meta: MetaProperties) -> None:
        """Takes the identity as it is written now."""
        self.meta = meta

    def fail(self, error: StorageError) -> None:
        """Takes the directory offline with all logs, which stay open and refuse appends; the first failure stays."""
        if self.failure is not None:
            return
        self.failure = error
        for log in self.logs.values():
            log.fail(error)

    # One replica

    def put(self, key: TopicPartition, topic_id: UUID | None, log: Log) -> None:
        """Takes a replica whose log is open."""
        self.offline.pop(key, None)
        self.logs[key], self.topic_ids[key] = log, topic_id

    def put_offline(self, key: TopicPartition, topic_id: UUID | None, error: ReplogError) -> None:
        """Takes a replica that cannot be used."""
        self.logs.pop(key, None)
        self.offline[key], self.topic_ids[key] = error, topic_id

    def put_lost(self, key: TopicPartition, error: ReplogError) -> None:
        """Takes a replica whose folder is gone."""
        self.put_offline(key, None, error)
        self.lost.add(key)

    def take_offline(self, key: TopicPartition, error: ReplogError) -> None:
        """Closes the log of a replica, which cannot be used any more; nothing is written."""
        log = self.logs.pop(key)
        log.fail(error)
        log.close(0)
        self.offline[key] = error

    def note_topic_id(self, key: TopicPartition, topic_id: UUID) -> None:
        """Notes that a partition folder carries a topic id now."""
        self.topic_ids[key] = topic_id

    def drop(self, key: TopicPartition) -> None:
        """Forgets a replica."""
        self.logs.pop(key, None)
        self.offline.pop(key, None)
        self.lost.discard(key)
        self.topic_ids.pop(key, None)
        self.high_watermarks.pop(key, None)

    # High watermarks

    def set_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Takes the high watermarks as they are checkpointed now."""
        self.high_watermarks = dict(high_watermarks)

    def set_high_watermark(self, key: TopicPartition, offset: int) -> None:
        """Takes the high watermark of one replica, which came from another directory."""
        self.high_watermarks[key] = offset

    def forget_high_watermarks(self, keys: Iterable[TopicPartition]) -> None:
        """Forgets the high watermarks of replicas that are gone."""
        for key in keys:
            self.high_watermarks.pop(key, None)
