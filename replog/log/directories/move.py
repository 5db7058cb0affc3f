"""A replica moves to another log directory of its broker, while it is used (KIP-113).

    /disk1/data/flights-3                                the replica, in use
    /disk2/data/flights-3.<32 hex>-future                its copy, growing; name of Kafka's

Segments are copied as they are, with their indexes and snapshots; batches that are appended meanwhile are copied later.  When
little is missing the replica is closed for a moment, and the copy takes its place::

    copy the rest | fsync | 1 rename -future to -moved | 2 rename flights-3 to -delete | 3 rename -moved to flights-3

Each rename is durable before the next.  `-moved` says that the copy has everything; where the replica is there too it is at
least as new, for it may have been used while the directory of the copy was missing:

| crash                | what the next start finds (`finish_moves`)                                     |
|----------------------|--------------------------------------------------------------------------------|
| before 1             | the replica, and `-future`, which is removed: the move must be asked for again  |
| between 1 and 2      | the replica, and `-moved`, which is removed: the move must be asked for again    |
| between 2 and 3      | `-moved` only, which takes its place                                            |
| after 3              | the replica in the new directory; before its first checkpoint there it is checked whole, and starts where its first segment does |

While a log directory is missing, it may hold the replica.  Where there is only `-moved`, that stays as it is, and the replica is
not made anew: it would be newer than the copy that takes its place later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from uuid import UUID

from msgspec import Struct

from replog.errors import StorageError
from replog.log.deletion import DirectoryDeletionJob, retire_directory
from replog.log.directories.identity import storage_errors
from replog.log.disk_space import is_disk_full
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    FUTURE_DIR_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MOVED_DIR_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
    file_path,
    parse_file_name,
    parse_moving_dir_name,
    partition_dir_name,
)
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import LogFiles
from replog_checkpoints import File, FileSystem, OpenMode, parent_of

PIECE_BYTES = 1 << 20
"""Read and written at once."""

_BESIDE_SEALED = (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
    SNAPSHOT_SUFFIX,
)


class FolderCopy:
    """The copy of a replica's folder, made in steps, in one thread at a time.

    Args:
        fs: The disks.
        source: Path of the replica's folder.
        target: Path of the copy's folder, which must not exist.
    """

    def __init__(self, fs: FileSystem, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self._fs = fs
        self._generation: int | None = None
        self._copied: dict[int, tuple[LogSegment, int]] = {}  # base offset -> (segment, bytes of it)
        self._complete: set[int] = set()  # sealed, and their small files are there too

    @property
    def copied_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes in self._copied.values())

    def missing_bytes(self, files: LogFiles) -> int:
        """Returns the number of bytes of `files` that are not copied."""
        return sum(size_bytes - self._has(files, segment) for segment, size_bytes in files.segments)

    def step(self, files: LogFiles, bytes_max: int) -> int:
        """Copies some of the missing bytes.

        Args:
            files: The segments of the log now.
            bytes_max: Bytes of records to copy at most.

        Returns:
            How many bytes of records were copied.

        Raises:
            OSError: A disk failed or is full.
        """
        self._take_over(files)
        left = bytes_max
        for number, (segment, size_bytes) in enumerate(files.segments):
            base_offset = segment.base_offset
            has = self._has(files, segment)
            if has < size_bytes:
                upto = min(size_bytes, has + left)
                try:
                    self._copy_range(file_path("", base_offset, LOG_SUFFIX)[1:], has, upto)
                except FileNotFoundError:
                    continue  # deleted by retention since
                self._copied[base_offset] = (segment, upto)
                left -= upto - has
            if left <= 0:
                break
            if number < len(files.segments) - 1 and base_offset not in self._complete:
                self._copy_beside(base_offset)
        return bytes_max - left

    def finish(self, files: LogFiles) -> None:
        """Makes the copy equal to the folder, which is not written to any more, and durable.

        Args:
            files: The segments of the log when it was closed.

        Raises:
            OSError: A disk failed or is full.
        """
        self._take_over(files)
        names = [name for name in self._fs.list_dir(self.source) if not name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))]
        last = max((found[0] for found in map(parse_file_name, names) if found and found[1] == LOG_SUFFIX), default=0)
        for name in names:
            parsed = parse_file_name(name)
            if parsed is not None and parsed[1] == LOG_SUFFIX:
                size_bytes = self._fs.size(f"{self.source}/{name}")
                has = self._copied[parsed[0]][1] if parsed[0] in self._copied else 0
                if has < size_bytes or parsed[0] not in self._complete:
                    self._copy_range(name, has, size_bytes, sync=True)
            elif parsed is None or parsed[0] >= last or parsed[0] not in self._complete:
                self._copy_whole(name)
        for name in set(self._fs.list_dir(self.target)) - set(names):
            self._fs.remove(f"{self.target}/{name}")
        self._fs.sync_dir(self.target)
        self._fs.sync_dir(parent_of(self.target))

    def abandon(self) -> None:
        """Removes the copy; files that cannot be removed now are removed at the next start."""
        with contextlib.suppress(OSError):
            self._fs.remove_tree(self.target)

    def _take_over(self, files: LogFiles) -> None:
        """Drops copied files that the log does not consist of any more; after a truncation the whole copy."""
        if self._generation != files.generation:
            if self._generation is None:
                self._fs.make_dirs(self.target)
            self._generation = files.generation
            self._copied.clear()
            self._complete.clear()
            for name in self._fs.list_dir(self.target):
                self._fs.remove(f"{self.target}/{name}")
        now = {segment.base_offset: segment for segment, _ in files.segments}
        for base_offset, (segment, _) in list(self._copied.items()):
            if now.get(base_offset) is not segment:
                del self._copied[base_offset]
                self._complete.discard(base_offset)
                for suffix in (LOG_SUFFIX, *_BESIDE_SEALED):
                    with contextlib.suppress(FileNotFoundError):
                        self._fs.remove(file_path(self.target, base_offset, suffix))

    def _has(self, files: LogFiles, segment: LogSegment) -> int:
        """Returns the number of bytes of a segment that are copied."""
        found = self._copied.get(segment.base_offset)
        is_same = found is not None and found[0] is segment and self._generation == files.generation
        return found[1] if found is not None and is_same else 0

    def _copy_range(self, name: str, start: int, end: int, *, sync: bool = False) -> None:
        source = self._fs.open(f"{self.source}/{name}", OpenMode.READ)
        try:
            target = self._fs.open(f"{self.target}/{name}", OpenMode.WRITE if start else OpenMode.REPLACE)
            try:
                _copy(source, target, start, end)
                if sync:
                    target.sync()
            finally:
                target.close()
        finally:
            source.close()

    def _copy_whole(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._copy_range(name, 0, self._fs.size(f"{self.source}/{name}"), sync=True)

    def _copy_beside(self, base_offset: int) -> None:
        """Makes the copied records of a sealed segment durable, and copies the small files beside it."""
        log = self._fs.open(file_path(self.target, base_offset, LOG_SUFFIX), OpenMode.WRITE)
        try:
            log.sync()
            log.drop_cache(0, log.size())
        finally:
            log.close()
        for suffix in _BESIDE_SEALED:
            self._copy_whole(file_path("", base_offset, suffix)[1:])
        self._complete.add(base_offset)


def _copy(source: File, target: File, start: int, end: int) -> None:
    while start < end:
        data = source.pread(min(PIECE_BYTES, end - start), start)
        if not data:
            raise OSError(f"{source.path} ends at {start}, {end} bytes were there")
        target.pwrite([data], start)
        start += len(data)


def swap_folders(fs: FileSystem, current: str, future: str, unique_id: UUID) -> DirectoryDeletionJob:
    """Puts a finished copy in the place of a replica; the job removes the old folder.

    Raises:
        OSError: There is no room for the first new name: nothing has changed.
        StorageError: A rename failed, and may have taken effect all the same: neither may be used before the next start.
    """
    moved = future.removesuffix(FUTURE_DIR_SUFFIX) + MOVED_DIR_SUFFIX
    is_begun = False
    try:
        fs.rename(future, moved)
        is_begun = True
        fs.sync_dir(parent_of(moved))
        job = retire_directory(fs, current, unique_id)
        _take_place(fs, moved, PurePosixPath(current).name)
    except OSError as error:
        if not is_begun and is_disk_full(error):
            raise
        raise StorageError(
            f"{current} cannot be replaced by {moved}: {error}. Check the disks, then restart"
        ) from error
    return job


def _remove_copy(fs: FileSystem, parent: str, name: str) -> None:
    """Removes a copy, renamed to `-future` first.

    A folder named `-moved` is a whole copy, or the replica is there: half a copy must not be left under that name.
    """
    future = name.removesuffix(MOVED_DIR_SUFFIX).removesuffix(FUTURE_DIR_SUFFIX) + FUTURE_DIR_SUFFIX
    if future != name:
        fs.rename(f"{parent}/{name}", f"{parent}/{future}")
        fs.sync_dir(parent)
    fs.remove_tree(f"{parent}/{future}")


def _take_place(fs: FileSystem, moved: str, name: str) -> None:
    parent = parent_of(moved)
    fs.rename(moved, f"{parent}/{name}")
    fs.sync_dir(parent)


class FinishedMoves(Struct, frozen=True):
    """The outcome of moves that a crash had interrupted.

    Attributes:
        told: A sentence for the broker's log about each.
        waiting: The replicas that must not be made anew, and the folders in which they are whole.
    """

    told: tuple[str, ...]
    waiting: Mapping[tuple[str, int], str]


def finish_moves(fs: FileSystem, paths: Sequence[str], *, all_are_here: bool) -> FinishedMoves:
    """Ends or undoes the moves that a crash interrupted, before a start opens a replica.

    Args:
        fs: The disks.
        paths: Paths of the log directories that can be used, locked.
        all_are_here: Whether these are all, so that no other may hold the replica.

    Raises:
        StorageError: A disk failed.
    """
    told: list[str] = []
    waiting: dict[tuple[str, int], str] = {}
    for path in paths:
        with storage_errors(path):
            for name in fs.list_dir(path):
                found = parse_moving_dir_name(name)
                if found is None or not fs.is_dir(f"{path}/{name}"):
                    continue
                key, suffix = found
                replica = partition_dir_name(*key)
                if suffix == FUTURE_DIR_SUFFIX or any(fs.is_dir(f"{other}/{replica}") for other in paths):
                    _remove_copy(fs, path, name)
                    told.append(f"{replica}: its move to {path} was interrupted; it stays where it is")
                elif not all_are_here:
                    waiting[key] = f"{path}/{name}"
                    told.append(f"{replica}: {path}/{name} is complete, and is used when all log directories are back")
                else:
                    _take_place(fs, f"{path}/{name}", replica)
                    told.append(f"{replica}: its move to {path} was interrupted at the end, and is completed")
    return FinishedMoves(tuple(told), waiting)
