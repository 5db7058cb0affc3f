"""Replicas that are taken out of the way, many at a time: deleted with their topic, or set aside because the metadata do not name them.

The owner closes and forgets them one by one, as many in one step as it likes, and has a job for each directory do what
waits for the disk: new names for the folders, one fsync for all of them, then the checkpoints without their lines.  Until
the job has run, no replica of the same name may be created.  The files of deleted ones are removed after that.

| crash                                   | what the next start finds                                                 |
|-----------------------------------------|---------------------------------------------------------------------------|
| before the renames, or between two      | `-delete` folders: removed; the others as they were, and no metadata names them |
| between the renames and the checkpoints | `-delete` and `-stray` folders: the lines of their names are dropped      |
| before the files are removed            | `-delete` folders: removed                                                |

A full disk stops none of it for good: the reserve is given back, the owner runs the job again for names that found no room,
and lines that the checkpoints could not be written without go once files are removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct

from replog.errors import DiskFullError, StorageError
from replog.log.deletion import DirectoryDeletionJob
from replog.log.directories.offset_checkpoints import CheckpointJob, run_all
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
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
    """Moves the folders of retired replicas of one directory out of the way.  `run` it in any thread; then its `removals`.

    Args:
        fs: The disk.
        path: The log directory.
        replicas: The retired replicas.
        checkpoints: The jobs that write the directory's checkpoints without their lines.
        make_room: Gives the reserve of a full disk back; says whether there was one.

    Attributes:
        is_forgotten: Whether the checkpoints have no lines of them any more.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        replicas: Sequence[RetiredReplica],
        checkpoints: Sequence[CheckpointJob],
        make_room: Callable[[], bool],
    ) -> None:
        self.path = path
        self.replicas = tuple(replicas)
        self.is_forgotten = False
        self._fs = fs
        self._checkpoints = tuple(checkpoints)
        self._make_room = make_room
        self._to_rename = self._with_folders

    def run(self) -> None:
        """Renames the folders, durably, and removes the checkpoint lines; a replica of the same name may be created then.

        Raises:
            DiskFullError: There is no room for a name, even without the reserve, or (`TooManyOpenFilesError`) no
                descriptor: run it again, and it does the rest.
            StorageError: The disk failed; some folders may have their old names.
        """
        while not self._has_renamed():
            continue
        self.forget()

    def forget(self) -> None:
        """Removes the checkpoint lines, if there is room.

        Without room the deletions go on, which make some, and a new replica of the name forgets the line first.

        Raises:
            StorageError: The disk failed.
        """
        with contextlib.suppress(DiskFullError):
            run_all(self._checkpoints)
            self.is_forgotten = True

    def _has_renamed(self) -> bool:
        """Renames the folders with old names; returns whether all of that is durable, False: there is more room now."""
        folder = self.path
        try:
            while self._to_rename:
                folder = self._to_rename[0].folder
                with contextlib.suppress(FileNotFoundError):  # an earlier job has, and found no descriptor for the rest
                    self._fs.rename(folder, self._to_rename[0].target)
                del self._to_rename[0]
            self._fs.sync_dir(self.path)
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(f"{folder} cannot be taken out of the way: {error}. Check the disk") from error
            if is_out_of_files(error) or not self._make_room():
                raise disk_full(f"{folder} is not out of the way", self.path, error, "It is tried again") from error
            return False
        return True

    def removals(self) -> list[DirectoryDeletionJob]:
        """Returns the jobs that remove the files of those that are deleted, to be run in any thread after `run`."""
        return [DirectoryDeletionJob(self._fs, replica.target) for replica in self._with_folders if not replica.is_kept]

    @property
    def _with_folders(self) -> list[RetiredReplica]:
        return [replica for replica in self.replicas if not replica.is_lost]
