"""A fork of a local log: a second log that shares the sealed segments of the first one, by hard links.

    orders/log-0/00000000000000000000.log     <- one file ->   orders-copy/log-0/00000000000000000000.log
    orders/log-0/00000000000001042000.log     the active segment, empty   (a copy)

No byte of a record is copied, so that ten gigabytes take as long as ten files.  Neither log can be seen in the other
(`replog.log.directories.fork`).  The log is rolled first, so that all its segments are sealed.

| a crash                                        | what it leaves                                                     |
|------------------------------------------------|--------------------------------------------------------------------|
| before the folder is renamed                   | the log as it was, and `COPY.forking`, which the next fork removes   |
| after                                          | both logs; the first start of the copy counts as one after a crash |
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from replog.errors import StorageError
from replog.local.config import LocalLogConfig
from replog.local.encoding import wall_ms
from replog.local.folder import LogFolder, checked_path, partition_folder
from replog.log import Log
from replog.log.directories.fork import begin_fork, finish_fork
from replog.log.directories.identity import storage_errors
from replog.log.disk_space import RESERVE_FILE
from replog.log.segments.files import copy_file
from replog_checkpoints import CLEAN_SHUTDOWN_FILE, FileSystem, OsFileSystem, parent_of

FORKING_SUFFIX: Final = ".forking"

_OF_ITS_OWN: Final = frozenset({".lock", RESERVE_FILE, CLEAN_SHUTDOWN_FILE})
"""Files of a log directory that its copy makes for itself."""


def fork_log(
    path: str | os.PathLike[str], copy: str | os.PathLike[str], *, file_system: FileSystem | None = None
) -> int:
    """Makes a second log of one that nobody has open, with the same records at the same offsets; both go on by themselves.

    Args:
        path: The folder of the log, made by `open_log`.  What a crash left in it is recovered first.
        copy: The folder of the second log, which must not exist, on the same disk.
        file_system: Another disk than this machine's.

    Returns:
        The offset at which both end.

    Raises:
        DirectoryLockedError: The log is open for writing.
        StorageError: There is no log, there is something at `copy`, it lies in the log's folder or on another disk, or the disk failed;
            the log is as it was.
        CorruptRecordError, CorruptCheckpointError: As `open_log`.
    """
    fs = file_system or OsFileSystem()
    source, target = checked_path(path), checked_path(copy)
    with storage_errors(source):
        if not fs.is_dir(partition_folder(source)):
            raise StorageError(f"{source} is no log that open_log made. Name the folder of one")
        if target.startswith(f"{source}/"):
            raise StorageError(f"{target} lies in the folder of the log. Name a folder beside it")
        if fs.exists(target):
            raise StorageError(f"{target} is there already. Name a folder that is not, or remove it")
        folder = LogFolder.open(fs, source, LocalLogConfig().log_config(), now_ms=wall_ms())
        try:
            folder.log.roll(wall_ms())
            folder.log.flush()
            folder.write_recovery_point()
            with storage_errors(target):
                _make(fs, folder.log, source, target)
            return folder.log.log_end_offset
        finally:
            folder.close(now_ms=wall_ms())


def _make(fs: FileSystem, log: Log, source: str, target: str) -> None:
    """Makes the copy; where the disk refuses, nothing is left of it.

    Raises:
        StorageError: It is on another disk.
        OSError: The disk failed or is full.
    """
    try:
        _link(fs, log, source, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            fs.remove_tree(f"{target}{FORKING_SUFFIX}")
        if error.errno == errno.EXDEV:
            reason = "is on another disk than the log, and a hard link cannot be. Name a folder beside the log"
            raise StorageError(f"{target} {reason}") from error
        raise


def _link(fs: FileSystem, log: Log, source: str, target: str) -> None:
    """Makes the folder of the copy under another name, and renames it when it is complete."""
    making = f"{target}{FORKING_SUFFIX}"
    if fs.exists(making):
        fs.remove_tree(making)
    fork = begin_fork(fs, log, partition_folder(making), log.log_end_offset)
    finish_fork(fs, fork)
    for name in fs.list_dir(source):
        if name not in _OF_ITS_OWN and not fs.is_dir(f"{source}/{name}"):
            copy_file(fs, f"{source}/{name}", f"{making}/{name}")
    fs.sync_dir(making)
    fs.sync_dir(parent_of(making))
    fs.rename(making, target)
    fs.sync_dir(parent_of(target))
