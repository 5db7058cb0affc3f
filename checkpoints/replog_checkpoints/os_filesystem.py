"""The real disk behind the `FileSystem` seam.

The only module of this library that touches the operating system (with `page_cache` and `system_calls`, its parts).  It adds nothing to the
system calls but what the protocol promises: partial reads and writes are continued, and a lock is one that Kafka's own
processes respect.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from replog_checkpoints import page_cache, system_calls
from replog_checkpoints.filesystem import Buffer, DiskUsage, OpenMode, lost_in_fsync

_OPEN_FLAGS: Final = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.WRITE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT | os.O_EXCL,
    OpenMode.REPLACE: os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}
_FILE_PERMISSIONS: Final = 0o644
_BUFFERS_PER_CALL_MAX: Final = 1024  # IOV_MAX on Linux
_CLOSED: Final = -1
_UNTRACKED: Final[dict[str, Any]] = (
    {"trackfd": False} if sys.version_info >= (3, 13) else {}
)  # no descriptor beside a map


class OsFile:
    """An open file descriptor.  Reads, writes and `sync` may run in any thread; `close` may not run beside them."""

    __slots__ = ("_can_tell_cached", "_fd", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._can_tell_cached = True

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        """Returns the descriptor, for calls that are not part of `File` (sendfile, fadvise); -1 once closed."""
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length and (data := os.pread(self._fd, length - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pread_cached(self, length: int, position: int) -> bytes | None:
        if self._can_tell_cached:
            try:
                return page_cache.read_cached(self._fd, length, position)
            except page_cache.UnsupportedError:  # tmpfs and the like, which have no disk to wait for
                self._can_tell_cached = False
        data = self.pread(length, position)
        return data if len(data) == length else None

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        with memoryview(buffer) as whole, whole.cast("B") as view:
            done = 0
            while done < len(view):
                count = system_calls.read_into(self._fd, view[done:], position + done)
                if count == 0:
                    break
                done += count
            return done

    def map_read(self) -> memoryview:
        size = os.fstat(self._fd).st_size
        if not size:  # an empty file cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ, **_UNTRACKED))

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        length = 0
        for buffer in buffers:  # a generator costs as much as a small write
            length += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        if len(buffers) <= _BUFFERS_PER_CALL_MAX:
            written = system_calls.write_from(self._fd, buffers, position)
            if written == length:
                return length
        else:
            written = 0
        return self._continue_write(buffers, position, written, length)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        if size:
            system_calls.allocate(self._fd, size)

    def start_write_back(self, position: int, length: int) -> None:
        page_cache.write_back(self._fd, position, length, page_cache.START)

    def wait_write_back(self, position: int, length: int) -> None:
        try:
            page_cache.write_back(self._fd, position, length, page_cache.START_AND_WAIT)
        except OSError:
            self._drop_pretended_pages()
            raise

    def drop_cache(self, position: int, length: int) -> None:
        if length > 0:  # 0 would mean "to the end" to the kernel
            system_calls.drop_cache(self._fd, position, length)

    def sync(self) -> None:
        if self._fd == _CLOSED:  # os.fdatasync answers a negative descriptor with ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        try:
            system_calls.sync_data(self._fd)
        except OSError as error:
            self._drop_pretended_pages()
            raise lost_in_fsync(error, self._path) from error

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)

    def _drop_pretended_pages(self) -> None:
        """Drops pages that could not be written: they count as clean, and a restarted process would believe its fsync."""
        with contextlib.suppress(OSError):  # the error of the fsync is the one to tell
            system_calls.drop_cache(self._fd, 0, 0)

    def _continue_write(self, buffers: Sequence[Buffer], position: int, written: int, length: int) -> int:
        """Writes the rest where a signal, a full disk or too many buffers ended a write early; returns `length`."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        start = 0  # of the first view, counted in bytes from `position`
        while written < length:
            while start + len(views[0]) <= written:
                start += len(views.pop(0))
            rest = [views[0][written - start :], *views[1:_BUFFERS_PER_CALL_MAX]]
            count = system_calls.write_from(self._fd, rest, position + written)
            if count == 0:  # does not happen on regular files; without this it would be an endless loop
                raise OSError(errno.EIO, "write made no progress", self._path)
            written += count
        return length


class OsLock:
    """A lock that ends with `release` or with the process, whichever comes first.

    A forked child has no part in it: the lock belongs to the open descriptor, and a copy in a child would hold it for as
    long as that lives.
    """

    __slots__ = ("_fd", "_folder_fd")

    def __init__(self, fd: int, folder_fd: int) -> None:
        self._fd = fd
        self._folder_fd = folder_fd
        _LOCKS.add(self)

    def release(self) -> None:
        """Unlocks for everybody, a child included that was forked this moment and has not closed its copy yet."""
        if self._fd != _CLOSED:
            with contextlib.suppress(OSError):  # closing it unlocks as well
                system_calls.unlock_file(self._fd)
            with contextlib.suppress(OSError):
                fcntl.flock(self._folder_fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Closes this process's descriptor; another process's copy goes on holding the lock."""
        _LOCKS.discard(self)
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)  # the file stays, for those that look only at it
            os.close(self._folder_fd)


_NO_FOLDER_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_LOCKS: Final[set[OsLock]] = set()
"""All that this process holds."""


def _close_in_child() -> None:
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


class OsFileSystem:
    """The file system of this machine."""

    __slots__ = ()

    def open(self, path: str, mode: OpenMode) -> OsFile:
        fd = os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, _FILE_PERMISSIONS)
        if mode is OpenMode.READ and stat.S_ISDIR(os.fstat(fd).st_mode):  # the other modes fail on their own
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return OsFile(path, fd)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_dir(self, path: str) -> bool:
        return Path(path).is_dir()

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def modified_ms(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns // 1_000_000

    def list_dir(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir())

    def make_dirs(self, path: str, *, is_private: bool = False) -> None:
        Path(path).mkdir(0o700 if is_private else 0o777, parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def links_count(self, path: str) -> int:
        return Path(path).stat().st_nlink

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def disk_usage(self, path: str) -> DiskUsage:
        usage = os.statvfs(path)
        return DiskUsage(usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            system_calls.sync_all(fd)
        except OSError as error:
            raise lost_in_fsync(error, path) from error
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_PERMISSIONS)
        try:
            folder_fd = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except BaseException:
            os.close(fd)
            raise
        lock = OsLock(fd, folder_fd)
        try:
            system_calls.lock_file(fd)
            _lock_folder(folder_fd)
        except BaseException:
            lock.release()
            raise
        return lock


def _lock_folder(fd: int) -> None:
    """Locks a folder for this open descriptor, without waiting, where its file system can.

    The file in it may be removed and made again, and then two processes hold locks of two files of one name.  A folder cannot
    be opened for writing, so this is `flock`, which some network file systems refuse for it.

    Raises:
        BlockingIOError: Another descriptor holds the lock, here or in another process.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_FOLDER_LOCKS:
            raise
