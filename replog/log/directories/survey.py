"""Looks at all log directories of a node before anything is changed in one of them.

Why first: when one of several directories is another cluster's, a copy, or holds a replica that another holds too, the
others must be found as they were.

A replica is in two directories when it was made anew in one while the other could not be opened: after its topic was deleted
and created again, or after it was moved to another broker and back.  Each directory notes which others were open with it
(`replog.opened.with` in `meta.properties`), so that it is known which copy is older: the one in the directory that was not
there.  A directory that was not there, and comes back when one that was there is missing, may hold older copies of what is in
that one: `has_returned`.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from replog.errors import (
    DirectoryLockedError,
    DiskFullError,
    ForeignDirectoryError,
    InconsistentClusterIdError,
    StorageError,
)
from replog.log.directories.identity import opened_with, read_identity, require_cluster_id, storage_errors
from replog.log.file_names import parse_partition_dir_name, partition_dir_name
from replog_checkpoints import FileSystem, MetaProperties, TopicPartition

REFUSED = (ForeignDirectoryError, DirectoryLockedError)
"""Not a disk that failed, but one that must not be used."""


class Survey:
    """The contents of the directories before anything is changed in one of them.

    Attributes:
        usable: Paths of the directories that can be used.
        unopened: Path -> error of each directory that cannot.
        older: The (path, replica) of each replica of which there is a newer one in another directory.
    """

    def __init__(self, fs: FileSystem, paths: Sequence[str], cluster_id: str | None, node_id: int) -> None:
        self.cluster_id = cluster_id
        self.usable: list[str] = []
        self.unopened: dict[str, StorageError] = {}
        self.older: list[tuple[str, TopicPartition]] = []
        self._fs = fs
        self._paths = paths
        self._node_id = node_id
        self._found: dict[str, MetaProperties] = {}

    def look(self) -> None:
        """Sorts the directories into usable and not; raises where one must be refused."""
        for path in self._paths:
            try:
                with storage_errors(path):
                    meta = read_identity(self._fs, path, self.cluster_id, self._node_id)
            except REFUSED:
                raise
            except StorageError as error:
                self.unopened[path] = error
                continue
            self.usable.append(path)
            if meta is not None:
                self._found[path] = meta
        self.require_one()
        self._agree()
        self._sort_doubles()

    def set_aside(self, path: str, error: StorageError | DiskFullError) -> None:
        """Counts a usable directory as one that could not be opened after all."""
        self.unopened[path] = error if isinstance(error, StorageError) else StorageError(str(error))

    def require_one(self) -> None:
        """Raises the first problem where no directory is left."""
        if len(self.unopened) == len(self._paths):
            raise next(iter(self.unopened.values()))

    def _agree(self) -> None:
        ids: dict[UUID, str] = {}
        for path, meta in self._found.items():
            if self.cluster_id is not None and meta.cluster_id != self.cluster_id:
                raise InconsistentClusterIdError(
                    f"{path} belongs to cluster {meta.cluster_id}, another log directory to {self.cluster_id}. Nothing was "
                    "changed: correct log.dirs"
                )
            self.cluster_id = meta.cluster_id
            other = ids.setdefault(meta.directory_id, path)
            if other != path:
                raise ForeignDirectoryError(
                    f"{path} and {other} have the same directory id: one is a copy of the other, or they are one. "
                    "Nothing was changed: take one of them out of log.dirs"
                )
        for path in self.usable:
            if path not in self._found:
                require_cluster_id(path, self.cluster_id)

    @property
    def has_returned(self) -> bool:
        """Whether a directory was not there when another was open the last time."""
        return any(self._was_without(path, other) for path in self._found for other in self._found)

    def _sort_doubles(self) -> None:
        newest: dict[TopicPartition, str] = {}
        for path in self._found:
            with storage_errors(path):
                names = [name for name in self._fs.list_dir(path) if self._fs.is_dir(f"{path}/{name}")]
            for key in filter(None, map(parse_partition_dir_name, names)):
                other = newest.setdefault(key, path)
                if other != path:
                    newest[key], older = self._newer_first(key, path, other)
                    self.older.append((older, key))

    def _newer_first(self, key: TopicPartition, path: str, other: str) -> tuple[str, str]:
        """Returns two directories with the same replica, the one that was open without the other first."""
        is_newer = self._was_without(path, other)
        if is_newer == self._was_without(other, path):
            raise ForeignDirectoryError(
                f"replica {partition_dir_name(*key)} is in {other} and in {path}. Nothing was changed: move the folder with "
                "the older data away, then start again"
            )
        return (path, other) if is_newer else (other, path)

    def _was_without(self, path: str, other: str) -> bool:
        """Whether the directory at `path` was open the last time, and `other` not."""
        known = opened_with(self._found[path])
        return known is not None and self._found[other].directory_id not in known
