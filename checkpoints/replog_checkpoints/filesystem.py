"""The seam between replog and a disk: every byte the storage engine reads or writes passes through it.

Why: a crash, a full disk or a failed fsync can then be produced at any step by a simulated disk, while the log on
top stays the one and only implementation.  ``OsFileSystem`` is the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class OpenMode(Enum):
    """How a file is opened."""

    READ = "read"  # must exist
    WRITE = "write"  # must exist; reads allowed
    CREATE = "create"  # created empty, an existing file is an error; reads allowed
    REPLACE = "replace"  # created empty, an existing file is emptied; reads allowed


class File(Protocol):
    """An open file.  Positions and sizes are bytes; there is no file position of its own."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Current size in bytes."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` from `position`; returns the bytes read, fewer than asked only at the end of the file."""
        ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Writes all of `buffers` one after the other at `position`; returns the bytes written (always all).

        Raises:
            OSError: nothing is promised about how much was written.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when data and size are on stable storage (fdatasync or stronger)."""
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
        """Wall-clock time of the last change, in ms since 1970."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None:
        """Creates a directory and its parents; one that exists is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replaces `target`.  Durable only after `sync_dir` of the parent."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock file that the operating system drops when the process ends.

        Raises:
            BlockingIOError: another process holds it.
        """
        ...
