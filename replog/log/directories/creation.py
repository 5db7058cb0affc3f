"""Many new replicas of one directory at once.

Why together: each needs its folder, its first segment, its topic id and, where this broker leads, its first epoch on
stable storage.  Done one by one that is eight fsyncs each, and a journal commit between any two files.  Here every step
is taken for all of them before the next, and the folder that holds them is fsynced once.

    make folders and segments | write the small files beside | fsync them | rename | fsync each folder | fsync the parent

| crash                         | what the next start finds                                                        |
|-------------------------------|----------------------------------------------------------------------------------|
| before the fsync of the parent | some of the folders, perhaps without a topic id, none with records: completed when they are opened again |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.config import LogConfig
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.directories.fork import Fork
from replog.log.epoch_cache import epoch_path
from replog.log.file_names import partition_dir_name
from replog.log.log import Log
from replog.log.recovery.loaded_log import LoadedLog, new_log
from replog.log.state import LogState
from replog_checkpoints import Buffer, FileSystem, PartitionMetadata, TopicPartition


class NewReplica(Struct, frozen=True):
    """A replica that is to be made.

    Attributes:
        key: (topic, partition).
        topic_id: Id of the topic.
        config: Settings of the log.
        leader_epoch: The leader epoch in which this broker will lead it; None: it will not.
        fork: What it begins with; None: it is empty.
    """

    key: TopicPartition
    topic_id: UUID
    config: LogConfig
    leader_epoch: int | None = None
    fork: Fork | None = None

    @property
    def epoch_starts(self) -> list[tuple[int, int]]:
        return [] if self.leader_epoch is None else [(self.leader_epoch, 0)]


def create_logs(
    fs: FileSystem,
    directory: str,
    replicas: Sequence[NewReplica],
    *,
    now_ms: int,
    checkpoint: Callable[[], None],
    admission: Callable[[TopicPartition], Callable[[int], None] | None],
) -> list[Log]:
    """Makes the logs of new replicas, empty and durable; no folder of theirs may be there.

    Args:
        fs: The disk.
        directory: The log directory that will hold them.
        replicas: The replicas to make, at most as many as may have their files open at once.
        now_ms: Wall time.
        checkpoint: The same as for `Log.open`.
        admission: A function that gives the admission of each replica; see `Log.open`.

    Raises:
        OSError: The disk failed or is full; some folders may be there.
    """
    made: list[LoadedLog] = []
    files: list[tuple[str, Buffer]] = []
    try:
        for replica in replicas:
            folder = f"{directory}/{partition_dir_name(*replica.key)}"
            fs.make_dirs(folder, is_private=replica.key[0] == METADATA_TOPIC)  # by its records passwords can be tried
            made.append(new_log(fs, folder, replica.config, replica.epoch_starts, now_ms))
            metadata = checkpoints.format_partition_metadata(
                PartitionMetadata(replica.topic_id, partition_dir_name(*replica.key))
            )
            files.append((f"{folder}/{checkpoints.PARTITION_METADATA_FILE}", metadata))
            if replica.epoch_starts:
                files.append((epoch_path(folder), checkpoints.format_leader_epochs(replica.epoch_starts)))
        checkpoints.replace_files(fs, files)
        fs.sync_dir(directory)
    except BaseException:
        for loaded in made:  # only this function knows their descriptors
            loaded.segments.active.release(loaded.closer)
        raise
    return [
        Log(
            LogState(
                fs,
                f"{directory}/{partition_dir_name(*replica.key)}",
                replica.config,
                partition_dir_name(*replica.key),
                loaded,
                checkpoint,
                now_ms,
                admission(replica.key),
            )
        )
        for replica, loaded in zip(replicas, made, strict=True)
    ]
