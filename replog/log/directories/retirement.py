"""Replicas that are taken out of the way, many at a time: deleted with their topic, or set aside because nobody names them.

The owner closes and forgets them one by one, as many in one step as it likes, and has a job for each directory do what
waits for the disk: new names for the folders, one fsync for all of them, then the checkpoints without their lines.  Until
the job has run, no replica of the same name may be created.  The files of deleted ones are removed after that.

| crash                                   | what the next start finds                                                 |
|-----------------------------------------|---------------------------------------------------------------------------|
| before the renames, or between two      | `-delete` folders: removed; the others as they were, and no metadata names them |
| between the renames and the checkpoints | `-delete` and `-stray` folders: the lines of their names are dropped      |
| before the files are removed            | `-delete` folders: removed                                                |
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from replog.errors import DiskFullError, StorageError
from replog.log.deletion import DirectoryDeletionJob
from replog.log.directories.offset_checkpoints import CheckpointJob, run_all
from replog_checkpoints import FileSystem, TopicPartition


class RetiredReplica(Struct, frozen=True):
    """A replica that is closed and forgotten, and whose folder is still there.

    Attributes:
        key: Topic and partition.
        topic_id: Id of its topic; None: it has none.
        directory: The log directory that it is in.
        folder: Path of its partition folder.
        target: Path that the folder gets.
        is_kept: Whether it is set aside, for a person to look at; else its files are removed.
        is_lost: Whether the folder was gone when the directory was opened: only its checkpoint lines are left.
    """

    key: TopicPartition
    topic_id: UUID | None
    directory: str
    folder: str
    target: str
    is_kept: bool
    is_lost: bool = False


class RetirementJob:
    """Moves the folders of retired replicas of one directory out of the way.  `run` once, in any thread; then its `removals`.

    Args:
        fs: The disk.
        path: The log directory.
        replicas: The retired replicas.
        checkpoints: The jobs that write the directory's checkpoints without their lines.
    """

    def __init__(
        self, fs: FileSystem, path: str, replicas: Sequence[RetiredReplica], checkpoints: Sequence[CheckpointJob]
    ) -> None:
        self.path = path
        self.replicas = tuple(replicas)
        self._fs = fs
        self._checkpoints = tuple(checkpoints)

    def run(self) -> None:
        """Renames the folders, durably, and removes the checkpoint lines; a replica of the same name may be created then.

        Raises:
            StorageError: The disk failed; some folders may have their old names.
        """
        folder = self.path
        try:
            for replica in self._with_folders:
                folder = replica.folder
                self._fs.rename(folder, replica.target)
            self._fs.sync_dir(self.path)
        except OSError as error:
            raise StorageError(f"{folder} cannot be taken out of the way: {error}. Check the disk") from error
        with contextlib.suppress(DiskFullError):  # what makes room goes on; a new replica forgets first
            run_all(self._checkpoints)

    def removals(self) -> list[DirectoryDeletionJob]:
        """Returns the jobs that remove the files of those that are deleted, to be run in any thread after `run`."""
        return [DirectoryDeletionJob(self._fs, replica.target) for replica in self._with_folders if not replica.is_kept]

    @property
    def _with_folders(self) -> list[RetiredReplica]:
        return [replica for replica in self.replicas if not replica.is_lost]
