"""What stands in the log directories of a node before anything is changed in one of them.

Why first: when one of several directories is another cluster's, a copy, or holds a replica that another holds too, the
others must be found as they were.
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
from replog.log.directory_identity import read_identity, require_cluster_id, storage_errors
from replog.log.file_names import parse_partition_dir_name
from replog_checkpoints import FileSystem, MetaProperties, TopicPartition

REFUSED = (ForeignDirectoryError, DirectoryLockedError)
"""Not a disk that failed, but one that must not be used."""


class Survey:
    """What stands in the directories before anything is changed in one of them."""

    def __init__(self, fs: FileSystem, paths: Sequence[str], cluster_id: str | None, node_id: int) -> None:
        self.cluster_id = cluster_id
        self.usable: list[str] = []
        self.unopened: dict[str, StorageError] = {}
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
        self._refuse_doubles()

    def set_aside(self, path: str, error: StorageError | DiskFullError) -> None:
        """A usable directory that could not be opened after all."""
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

    def _refuse_doubles(self) -> None:
        seen: dict[TopicPartition, str] = {}
        for path in self._found:
            with storage_errors(path):
                names = [name for name in self._fs.list_dir(path) if self._fs.is_dir(f"{path}/{name}")]
            for name in names:
                key = parse_partition_dir_name(name)
                if key is not None and seen.setdefault(key, path) != path:
                    raise ForeignDirectoryError(
                        f"replica {name} is in {seen[key]} and in {path}. Nothing was changed: move the folder with the "
                        "older data away, then start again"
                    )
