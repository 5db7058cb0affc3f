"""Calls that not every system has, each with what stands in for it: Linux has all of them, macOS only some.

| call | what is done without it |
|---|---|
| `fdatasync` | `F_FULLFSYNC` of macOS, which its disks need to empty their own caches; where a file system has none, `fsync` |
| `posix_fallocate` | zeros are written |
| `posix_fadvise` | nothing: it is advice |
| `preadv`, `pwritev` | `pread` and `pwrite`, for a copy |
| locks of open file descriptions | `flock`, which excludes other processes of replog, and not Kafka's |
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Sequence
from typing import Final

from replog_checkpoints.filesystem import Buffer

_HAS_PREADV: Final = hasattr(os, "preadv")
_HAS_PWRITEV: Final = hasattr(os, "pwritev")
_HAS_DESCRIPTION_LOCKS: Final = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")
_FULL_FSYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULL_FSYNC: Final = frozenset({errno.EINVAL, errno.ENOTTY, errno.ENOTSUP})
_ZEROS_BYTES: Final = 1 << 20  # written at a time where blocks cannot be allocated


def read_into(fd: int, view: memoryview, position: int) -> int:
    """Reads into a view of bytes, once; returns how many bytes, 0 at the end of the file."""
    if _HAS_PREADV:
        return os.preadv(fd, [view], position)
    data = os.pread(fd, len(view), position)
    view[: len(data)] = data
    return len(data)


def write_from(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes buffers one after the other, once; returns how many bytes of them."""
    return os.pwritev(fd, buffers, position) if _HAS_PWRITEV else os.pwrite(fd, b"".join(buffers), position)


def allocate(fd: int, size: int) -> None:
    """Makes a file at least `size` bytes long, whose blocks the disk has; zeros are added.

    Raises:
        OSError: There is no room for it.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
            return
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:  # file systems that cannot: write what is missing
            raise
    end = os.fstat(fd).st_size
    while end < size:
        end += os.pwrite(fd, bytes(min(_ZEROS_BYTES, size - end)), end)


def read_ahead(fd: int, position: int, length: int) -> None:
    """Lets the system read these bytes of a file into memory meanwhile, where it takes advice."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)


def drop_cache(fd: int, position: int, length: int) -> None:
    """Lets the system forget these bytes of a file, where it takes advice; a length of 0 is up to the end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)


def sync_data(fd: int) -> None:
    """Returns when data and size of a file are on stable storage.  Raises: OSError: They are not."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_all(fd)


def sync_all(fd: int) -> None:
    """Returns when a file or a folder is on stable storage.  Raises: OSError: It is not."""
    if _FULL_FSYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_FSYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_FSYNC:
                raise
        else:
            return
    os.fsync(fd)


def lock_file(fd: int) -> None:
    """Locks the whole file for this open descriptor, without waiting.

    An open-file-description lock, because it is refused where a Java process holds its `FileChannel` lock (and the
    other way round), yet belongs to the descriptor: closing another descriptor of the file, as with plain POSIX locks,
    does not silently drop it.

    Raises:
        BlockingIOError: Another descriptor holds the lock, here or in another process.
    """
    _set_lock(fd, fcntl.F_WRLCK, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock_file(fd: int) -> None:
    """Ends what `lock_file` did, for copies of the descriptor too."""
    _set_lock(fd, fcntl.F_UNLCK, fcntl.LOCK_UN)


def _set_lock(fd: int, kind: int, flock_operation: int) -> None:
    try:
        if _HAS_DESCRIPTION_LOCKS:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
            return
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    fcntl.flock(fd, flock_operation)  # also in sandboxes without them: still excludes ourselves
