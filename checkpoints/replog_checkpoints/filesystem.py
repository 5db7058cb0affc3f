"""The seam between replog and a disk: every byte the storage engine reads or writes passes through it.

Why: a crash, a full disk or a failed fsync can then be produced at any step by a simulated disk, while the log on
top stays the one and only implementation.  ``OsFileSystem`` is the real one.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct

Buffer: TypeAlias = bytes | bytearray | memoryview


class OpenMode(Enum):
    """How a file is opened."""

    READ = "read"  # must exist
    WRITE = "write"  # must exist; reads allowed
    CREATE = "create"  # created empty, an existing file is an error; reads allowed
    REPLACE = "replace"  # created empty, an existing file is emptied; reads allowed


class DiskUsage(Struct, frozen=True):
    """Room on a disk.

    Attributes:
        total_bytes: The size of the file system, used or not.
        free_bytes: The bytes that an ordinary user may still write.
    """

    total_bytes: int
    free_bytes: int


class File(Protocol):
    """An open file.  Positions and sizes are bytes; there is no file position of its own."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Returns the current size in bytes."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Reads up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_cached(self, length: int, position: int) -> bytes | None:
        """Reads exactly `length` bytes from `position` if that does not wait for the disk; returns None if it would.

        Returns None also where the file ends before.  A disk that cannot tell answers like `pread`.
        """
        ...

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` from `position`; returns the bytes read, fewer than asked only at the end of the file."""
        ...

    def map_read(self) -> memoryview:
        """Maps the whole content, read-only, as it is now; pages come in when they are touched.  Valid after `close`.

        Only for files that are never written, cut or emptied again (replaced by a rename at most): touching a page that
        the file no longer has ends the process with SIGBUS.
        """
        ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Writes all of `buffers` one after the other at `position`; returns the bytes written (always all).

        Raises:
            OSError: Nothing is promised about how much was written.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Makes the file at least `size` bytes long, with real blocks behind every byte of it.

        Raises:
            OSError: There is not that much room (ENOSPC); how long the file is then is not promised.
        """
        ...

    def start_write_back(self, position: int, length: int) -> None:
        """Begins to write what is dirty in a range; returns before it is written.  Promises nothing: see `sync`.

        Does nothing where the system has no such call.
        """
        ...

    def wait_write_back(self, position: int, length: int) -> None:
        """Returns when every page of a range that was dirty has been handed to the disk.

        Not durable afterwards: neither the file's size nor its blocks' places need be on the disk, nor its cache flushed.
        Does nothing where the system has no such call.

        Raises:
            OSError: Pages were not written.  As after a failed `sync`, they may be gone; no later call says so again.
        """
        ...

    def drop_cache(self, position: int, length: int) -> None:
        """Tells the page cache that a range will not be needed soon.  What is dirty stays; reads stay right."""
        ...

    def sync(self) -> None:
        """Returns when data and size are on stable storage (fdatasync or stronger).

        Raises:
            OSError: They are not on stable storage, and what could not be written never will be: the kernel forgets it
                and lets the next `sync` succeed.  Never with ENOSPC, see `lost_in_fsync`.  The page cache of the file
                has been dropped, so that whoever reads it now, in this process or the next, sees what the disk has.
                Never call it again; open the log anew.
        """
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held directory lock."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What the storage engine needs of a disk.  Paths are plain strings; errors are `OSError` subclasses."""

    def open(self, path: str, mode: OpenMode) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Returns the wall-clock time of the last change, in ms since 1970."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        ...

    def make_dirs(self, path: str, *, is_private: bool = False) -> None:
        """Creates a directory and its parents; one that exists is fine.

        Args:
            path: The directory.
            is_private: Whether only its owner may open it, where it is created now.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Gives a file or a directory another name, in one step; replaces `target` where it is.

        Durable only after `sync_dir` of the parent.
        """
        ...

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name, a hard link, on the same disk: what is written by one name is read by the other.

        Durable only after `sync_dir` of the parent of `target`.

        Raises:
            FileExistsError: There is something of the name `target`.
            OSError: With EXDEV: it is on another disk.
        """
        ...

    def links_count(self, path: str) -> int:
        """Returns how many names a file has."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def disk_usage(self, path: str) -> DiskUsage:
        """Returns the room on the disk that holds `path`, which exists.

        Takes about a microsecond where the disk answers at all.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable.

        Raises:
            OSError: The fsync failed; never with ENOSPC (see `lost_in_fsync`).
        """
        ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock of a file and of the folder that it is in; the operating system drops it with the process.

        The folder too: a file that somebody removes and makes again is another one.

        Raises:
            BlockingIOError: Another process holds it.
        """
        ...


def lost_in_fsync(error: OSError, path: str) -> OSError:
    """Returns the error of an fsync as a `FileSystem` raises it: a full disk that an fsync finds is a failed one (EIO).

    What it could not write is lost, not refused, and must not be tried again as a write that found no room may be.
    """
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OSError(errno.EIO, f"fsync failed: {error.strerror}", path)
    return error
