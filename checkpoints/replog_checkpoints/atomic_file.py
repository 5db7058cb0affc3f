"""Whole small files: read in one piece, replaced in one step.

Why: a checkpoint that is overwritten in place can be found half old and half new after a crash.  Written beside the
old one and renamed over it, it is one or the other.

    write `<path>.tmp` | fsync it | rename to `<path>` | fsync the folder

| crash                                            | what the next start finds                                |
|--------------------------------------------------|----------------------------------------------------------|
| before the rename                                | the old file (or none), perhaps a `.tmp` nobody reads    |
| after the rename, before the fsync of the folder | old or new, both complete                                |
| after the fsync of the folder                    | the new file                                             |

The fsync before the rename matters: without it the new name may survive with an empty file behind it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePosixPath

from replog_checkpoints.errors import CorruptCheckpointError
from replog_checkpoints.filesystem import Buffer, FileSystem, OpenMode

TEMPORARY_SUFFIX = ".tmp"


def parent_of(path: str) -> str:
    """The folder that holds `path`; "." for a bare name."""
    return str(PurePosixPath(path).parent)


def replace_file(fs: FileSystem, path: str, data: Buffer) -> None:
    """Makes `path` hold exactly `data`, durably, in one step.

    Raises:
        OSError: the old content is still there, or the new one is, unless the last fsync failed: then either may be
            found after a crash.  A failed fsync must not be retried, the directory counts as failed.  ENOSPC is never
            the error of an fsync here: with it the old content is there, and the same may be tried again.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = fs.open(temporary, OpenMode.REPLACE)
    try:
        file.pwrite([data], 0)
        _sync(file.sync, temporary)
    finally:
        file.close()
    fs.rename(temporary, path)
    _sync(lambda: fs.sync_dir(parent_of(path)), path)


def _sync(sync: Callable[[], None], path: str) -> None:
    """A full disk that an fsync finds is a failed fsync (EIO): what it could not write is lost, not refused."""
    try:
        sync()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise OSError(errno.EIO, f"fsync failed: {error.strerror}", path) from error
        raise


def read_file(fs: FileSystem, path: str, size_bytes_max: int) -> bytes | None:
    """The whole content of `path`, or None when there is no such file.

    Raises:
        CorruptCheckpointError: larger than `size_bytes_max`: not one of ours, and not read into memory.
    """
    try:
        file = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        size_bytes = file.size()
        if size_bytes > size_bytes_max:
            raise CorruptCheckpointError(
                path, 0, f"{size_bytes} bytes, more than the {size_bytes_max} this file can have"
            )
        return file.pread(size_bytes, 0)
    finally:
        file.close()


def make_durable_dirs(fs: FileSystem, path: str) -> None:
    """Creates a folder and the parents it lacks, each fsynced into its own parent, so that none is lost in a crash."""
    missing: list[str] = []
    folder = path
    while not fs.is_dir(folder):
        missing.append(folder)
        folder = parent_of(folder)
    for folder in reversed(missing):
        fs.make_dirs(folder)
        fs.sync_dir(parent_of(folder))
