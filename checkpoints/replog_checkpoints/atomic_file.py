"""Whole small files: read in one piece, replaced in one step.

Why: a checkpoint that is overwritten in place can be found half old and half new after a crash.  Written beside the
old one and renamed over it, it is one or the other.

    write `<path>.tmp` | fsync it | rename to `<path>` | fsync the folder

Several files go through each step together: a file system that commits its journal after every step of every file takes
many times as long.

| crash                                            | what the next start finds                                |
|--------------------------------------------------|----------------------------------------------------------|
| before the rename                                | the old file (or none), perhaps a `.tmp` nobody reads    |
| after the rename, before the fsync of the folder | old or new, both complete                                |
| after the fsync of the folder                    | the new file                                             |

The fsync before the rename matters: without it the new name may survive with an empty file behind it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from replog_checkpoints.errors import DamagedCheckpointError
from replog_checkpoints.filesystem import Buffer, File, FileSystem, OpenMode

TEMPORARY_SUFFIX = ".tmp"


def parent_of(path: str) -> str:
    """Returns the folder that holds `path`; "." for a bare name."""
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def replace_file(fs: FileSystem, path: str, data: Buffer) -> None:
    """Makes `path` hold exactly `data`, durably, in one step.

    Raises:
        OSError: The old content is still there, or the new one is, unless the last fsync failed: then either may be
            found after a crash.  A failed fsync must not be retried, the directory counts as failed.  ENOSPC is never
            the error of an fsync here: with it the old content is there, and the same may be tried again.
    """
    replace_files(fs, [(path, data)])


def replace_files(fs: FileSystem, files: Sequence[tuple[str, Buffer]]) -> None:
    """Replaces several files, each (path, data) in one step of its own: after a crash some may be new.

    Raises:
        OSError: Each of them has its old or its new content, as `replace_file` says.
    """
    opened: list[File] = []
    try:
        for path, data in files:
            opened.append(fs.open(path + TEMPORARY_SUFFIX, OpenMode.REPLACE))
            opened[-1].pwrite([data], 0)
        for file in opened:
            file.sync()
    finally:
        for file in opened:
            file.close()
    for path, _ in files:
        fs.rename(path + TEMPORARY_SUFFIX, path)
    _keep_names(fs, [path for path, _ in files])


def _keep_names(fs: FileSystem, paths: Sequence[str]) -> None:
    """Fsyncs the folders in which these names have changed, each once."""
    for folder in dict.fromkeys(map(parent_of, paths)):
        fs.sync_dir(folder)


def read_file(fs: FileSystem, path: str, size_bytes_max: int) -> bytes | None:
    """Returns the whole content of `path`, or None when there is no such file.

    Raises:
        CorruptCheckpointError: The file is larger than `size_bytes_max`: not one of ours, and not read into memory.
    """
    try:
        file = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        size_bytes = file.size()
        if size_bytes > size_bytes_max:
            raise DamagedCheckpointError(
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
