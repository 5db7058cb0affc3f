"""The end of a replica's move to another log directory: its copy takes its place.

`move` says what is on the disks at each step; this module, which directory has the replica afterwards.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.errors import ReplogError, StorageError
from replog.log.deletion import DirectoryDeletionJob
from replog.log.directories.loaded_replica import ClosedReplica, LoadedReplica
from replog.log.directories.log_directory import LogDirectory
from replog.log.directories.move import FolderCopy, swap_folders
from replog_checkpoints import FileSystem, TopicPartition


class ReplicaMove(Struct, frozen=True):
    """A replica on its way to another directory.

    Attributes:
        copy: The copy of its folder.
    """

    key: TopicPartition
    source: LogDirectory
    target: LogDirectory
    copy: FolderCopy


class SwapJob:
    """Puts the copy of a closed replica in its place and opens it; see `LogManager.begin_swap`.  Run once, in any thread.

    Attributes:
        home: The directory that has the replica afterwards.
        loaded: The replica, opened or not.
        retired: The job that removes the old folder; None: the move failed.
        error: The error with which the move failed; None: it did not.
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
        """Swaps the folders and opens the replica; an error is kept for the owner."""
        replica, move = self.replica, self.move
        try:
            move.copy.finish(replica.files)
            self.retired = swap_folders(self._fs, move.copy.source, move.copy.target, unique_id)
        except OSError as error:  # the replica is as it was
            self.error = StorageError(f"{move.target.path} cannot take {move.copy.source}: {error}. Check the disk")
            move.copy.abandon()
            self.loaded = move.source.reopen(replica, now_ms, recovery_point=replica.recovery_point)
        except (
            StorageError
        ) as error:  # halfway: records that are written to the replica now would be lost at the next start
            self.error = error
            self.loaded = LoadedReplica(replica.key, replica.topic_id, None, error)
        else:
            self.home = move.target
            self.loaded = self.home.reopen(replica, now_ms, recovery_point=replica.log_end_offset)

    def give_up(self) -> None:
        """Closes the files, because the node ends before the owner took the result; the next start finds them."""
        if self.loaded.log is not None:
            self.loaded.log.fail(StorageError("the node is stopping"))
            self.loaded.log.close(0)
