"""Segments that left a log: their files wait under `.deleted` names until no reader can still need them.

Why not at once: a reader in another thread may be between finding a segment and opening its file, and freeing a gigabyte
takes the file system long enough to be noticed (docs/KAFKA.md 1.5).

    00000000000000001024.log  ->  00000000000000001024.log.deleted  ->  gone after `file_delete_delay_ms`

| crash                                  | what the next start finds                                                |
|----------------------------------------|--------------------------------------------------------------------------|
| between two renames of one segment     | an index without a log: swept, like the `.deleted` files                  |
| after the renames, before the removal  | `.deleted` files: swept                                                   |
| after the renames, before the fsync of the directory | the segment may be back: retention decides again              |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from uuid import UUID

from msgspec import Struct

from replog.errors import StorageError
from replog.log.disk_space import is_disk_full
from replog.log.file_closer import FileCloser
from replog.log.file_names import DELETED_SUFFIX, deleted_dir_name, stray_dir_name
from replog.log.segments.segment import LogSegment
from replog_checkpoints import FileSystem, parent_of


class FileDeletionJob(Struct, frozen=True):
    """Removes files that are no part of any log any more.  `run` in any thread; nothing has to be completed.

    Attributes:
        paths: Paths of the files, some of which may not exist.
        segment_count: Number of segments that they were.
    """

    fs: FileSystem
    paths: tuple[str, ...]
    segment_count: int

    def run(self) -> None:
        """Removes the files.

        Raises:
            OSError: Some are left; the next start sweeps them.
        """
        for path in self.paths:
            try:
                self.fs.remove(path)
            except FileNotFoundError:
                continue


class DirectoryDeletionJob(Struct, frozen=True):
    """Removes a directory that `retire_directory` renamed.  `run` in any thread; nothing has to be completed.

    Attributes:
        path: Path of the directory, under its new name.
    """

    fs: FileSystem
    path: str

    def run(self) -> None:
        """Removes the directory with everything in it.

        Raises:
            StorageError: Some of it is left; the next start sweeps it.
        """
        try:
            self.fs.remove_tree(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{self.path} cannot be deleted: {error}. Check the disk") from error


def retire_directory(fs: FileSystem, directory: str, unique_id: UUID) -> DirectoryDeletionJob:
    """Renames a partition folder to a `-delete` one, durably, so that half a replica is never opened.

    Args:
        fs: The disk.
        directory: The partition folder; nothing in it is used any more.
        unique_id: A part of the new name: a replica of the same name may be created and deleted again before this one
            is gone.

    Raises:
        StorageError: The disk failed.
    """
    name = deleted_dir_name(PurePosixPath(directory).name, unique_id)
    return DirectoryDeletionJob(fs, _renamed(fs, directory, name, "deleted"))


def set_aside_directory(fs: FileSystem, directory: str, unique_id: UUID) -> str:
    """Renames a partition folder to a `-stray` one, durably, which nothing opens; returns the new path.

    Args:
        fs: The disk.
        directory: The partition folder; nothing in it is used any more.
        unique_id: A part of the new name: a replica of the same name may be set aside again.

    Raises:
        StorageError: The disk failed.
    """
    return _renamed(fs, directory, stray_dir_name(PurePosixPath(directory).name, unique_id), "set aside")


def _renamed(fs: FileSystem, directory: str, name: str, becomes: str) -> str:
    parent = parent_of(directory)
    target = f"{parent}/{name}"
    try:
        fs.rename(directory, target)
        fs.sync_dir(parent)
    except OSError as error:
        raise StorageError(f"{directory} cannot be {becomes}: {error}. Check the disk") from error
    return target


class DeletedSegments:
    """The segments of one log that wait for their removal, oldest first.

    Invariants:
        - at most one with a given base offset: their files would have the same names.
    """

    __slots__ = ("_closer", "_fs", "_waiting")

    def __init__(self, fs: FileSystem, closer: FileCloser) -> None:
        self._fs = fs
        self._closer = closer
        self._waiting: list[tuple[int, LogSegment]] | None = None  # (due, segment): most logs have none

    @property
    def next_deletion_ms(self) -> int | None:
        """Wall time at which the next one is due; None: none waits."""
        return min(due_ms for due_ms, _ in self._waiting) if self._waiting else None

    def add(self, segments: Iterable[LogSegment], due_ms: int) -> None:
        """Renames the files of segments that are in no list any more.  The directory needs an fsync afterwards.

        If a directory has no room for the new names, the files are removed at once.

        Raises:
            OSError: Some keep their names; after a restart they are part of the log again.
        """
        waiting = self._waiting if self._waiting is not None else []
        self._waiting = waiting
        for segment in segments:
            for item in waiting:  # compacted twice within the delay: an index with both names would tell of a lost log
                if item[1].base_offset == segment.base_offset:
                    item[1].release(self._closer)
                    item[1].drop_maps()
                    self._remove(item[1].file_names)
                    waiting.remove(item)
                    break
            try:
                segment.change_suffix(DELETED_SUFFIX)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self._remove_at_once(segment)
            else:
                waiting.append((due_ms, segment))

    def _remove_at_once(self, segment: LogSegment) -> None:
        """Removes the files of a segment under the names they have: making room must not need room for longer names.

        Some may have the longer ones already.

        The indexes before the log, or a crash in between would look like a log that was lost.
        """
        segment.release(self._closer)
        segment.drop_maps()
        paths = segment.file_names
        self._remove(paths)
        self._remove([path + DELETED_SUFFIX for path in paths])

    def _remove(self, paths: Sequence[str]) -> None:
        """Removes files, the last one first."""
        for path in reversed(paths):
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(path)

    def take_due(self, now_ms: int) -> FileDeletionJob | None:
        """Returns a job that removes the files that are due; forgets those segments and closes their descriptors."""
        due = [segment for due_ms, segment in self._waiting or () if due_ms <= now_ms]
        if not due:
            return None
        for segment in due:
            segment.release(self._closer)
            segment.drop_maps()
        paths = tuple(path for segment in due for path in segment.file_names)
        job = FileDeletionJob(self._fs, paths, len(due))
        self._waiting = [item for item in self._waiting or () if item[0] > now_ms] or None
        return job

    def release_all(self) -> None:
        """Closes the descriptors and forgets everything; the next start sweeps the files."""
        for _, segment in self._waiting or ():
            segment.release(self._closer)
            segment.drop_maps()
        self._waiting = None
