"""A directory in which changes stay in memory: with it a log is opened without changing a byte on disk.

Why a file system and not a second way of opening: recovery, with all its rules, runs as always.  It cuts, renames and
rebuilds in this view, and the log then reads through it::

    disk                                    view after opening
    00000000000000000000.log  1000 bytes    the same file, of which the first 900 bytes are seen (a torn batch was cut)
    00000000000000000000.index              bytes in memory (rebuilt)
    00000000000000000900.log.swap           00000000000000000900.log, the same file (a swap was completed)
    00000000000000000000.log.deleted        gone

Rebuilt indexes cost about half a percent of the log bytes that had none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final, NoReturn

from replog_checkpoints import Buffer, DiskUsage, File, FileSystem, Lock, OpenMode

_NO_LIMIT: Final = -1


class _Node:
    """The content of a name: a file on disk of which at most `limit` bytes are seen, or bytes in memory."""

    __slots__ = ("data", "limit", "path")

    def __init__(self, path: str, data: bytearray | None = None) -> None:
        self.path = path
        self.data = data
        self.limit = _NO_LIMIT


class ReadOnlyView:
    """One directory of a file system as it was when this was made; changes to its names and bytes stay in memory.

    Everything outside of the directory can be read, and not changed.  Bytes that another process appends to a file
    appear; a log reads only up to the size that it found.

    Args:
        fs: The disk.
        directory: The folder whose names may be changed here; it exists.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._prefix = f"{directory}/"
        self._directory = directory
        self._listed = fs.list_dir(directory)
        self._nodes = {f"{directory}/{name}": _Node(f"{directory}/{name}") for name in self._listed}

    def is_outdated(self) -> bool:
        """Whether files have come or gone on the disk since this was made.

        Raises:
            OSError: The disk failed.
        """
        return self._listed != self._fs.list_dir(self._directory)

    def open(self, path: str, mode: OpenMode) -> File:
        if not path.startswith(self._prefix):
            if mode is not OpenMode.READ:
                _refuse(path)
            return self._fs.open(path, mode)
        node = self._nodes.get(path)
        if mode is OpenMode.REPLACE or (mode is OpenMode.CREATE and node is None):
            node = self._nodes[path] = _Node(path, bytearray())
        elif node is None:
            raise _error(errno.ENOENT, path)
        elif mode is OpenMode.CREATE:
            raise _error(errno.EEXIST, path)
        if node.data is not None:
            return _MemoryFile(path, node, node.data)
        return _DiskFile(node, self._fs.open(node.path, OpenMode.READ))

    def exists(self, path: str) -> bool:
        return path in self._nodes if path.startswith(self._prefix) else self._fs.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._fs.is_dir(path)

    def size(self, path: str) -> int:
        if not path.startswith(self._prefix):
            return self._fs.size(path)
        node = self._node(path)
        if node.data is not None:
            return len(node.data)
        size = self._fs.size(node.path)
        return size if node.limit == _NO_LIMIT else min(size, node.limit)

    def modified_ms(self, path: str) -> int:
        if not path.startswith(self._prefix):
            return self._fs.modified_ms(path)
        node = self._node(path)
        return self._fs.modified_ms(self._directory if node.data is not None else node.path)

    def list_dir(self, path: str) -> list[str]:
        if path != self._directory:
            return self._fs.list_dir(path)
        return sorted(name.removeprefix(self._prefix) for name in self._nodes)

    def make_dirs(self, path: str, *, is_private: bool = False) -> None:  # noqa: ARG002 -- nothing is made
        if not self._fs.is_dir(path):
            _refuse(path)

    def rename(self, source: str, target: str) -> None:
        if not (source.startswith(self._prefix) and target.startswith(self._prefix)):
            _refuse(target)
        self._nodes[target] = self._node(source)
        del self._nodes[source]

    def link(self, source: str, target: str) -> None:  # noqa: ARG002 -- of a file system
        _refuse(target)

    def links_count(self, path: str) -> int:
        """Returns 1: what is changed here is changed in memory, which is this view's alone."""
        self._node(path)
        return 1

    def remove(self, path: str) -> None:
        self._node(path)
        del self._nodes[path]

    def remove_tree(self, path: str) -> None:
        _refuse(path)

    def disk_usage(self, path: str) -> DiskUsage:
        return self._fs.disk_usage(path)

    def sync_dir(self, path: str) -> None:
        """Leaves the disk alone: nothing of this view is on it."""

    def lock(self, path: str) -> Lock:
        _refuse(path)

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node


class _DiskFile:
    """A file on disk, open for reading; cutting it changes the part that is seen."""

    __slots__ = ("_file", "_node")

    def __init__(self, node: _Node, file: File) -> None:
        self._node = node
        self._file = file

    @property
    def path(self) -> str:
        return self._node.path

    def size(self) -> int:
        return self._limited(self._file.size())

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(self._limited(position + length) - position, position)

    def pread_cached(self, length: int, position: int) -> bytes | None:
        return (
            self._file.pread_cached(length, position) if self._limited(position + length) - position == length else None
        )

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        with memoryview(buffer) as view:
            return self._file.pread_into(view[: self._limited(position + len(view)) - position], position)

    def map_read(self) -> memoryview:
        view = self._file.map_read()
        return view[: self._limited(len(view))]

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:  # noqa: ARG002 - as `File` says
        _refuse(self.path)

    def truncate(self, size: int) -> None:
        self._node.limit = self._limited(size)

    def allocate(self, size: int) -> None:  # noqa: ARG002 - as `File` says
        _refuse(self.path)

    def start_write_back(self, position: int, length: int) -> None:
        """Returns at once: nothing was written to the disk."""

    def wait_write_back(self, position: int, length: int) -> None:
        """Returns at once: nothing was written to the disk."""

    def drop_cache(self, position: int, length: int) -> None:
        """Keeps the page cache as it is: another process may need it."""

    def sync(self) -> None:
        """Returns at once: nothing was written to the disk."""

    def close(self) -> None:
        self._file.close()

    def _limited(self, size: int) -> int:
        """Returns `size`, or the size that is seen of the file if that is less."""
        return size if self._node.limit == _NO_LIMIT else max(0, min(size, self._node.limit))


class _MemoryFile:
    """A file of the view alone."""

    __slots__ = ("_data", "_node", "path")

    def __init__(self, path: str, node: _Node, data: bytearray) -> None:
        self.path = path
        self._node = node
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self._data[position : position + length])

    def pread_cached(self, length: int, position: int) -> bytes | None:
        data = self.pread(length, position)
        return data if len(data) == length else None

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        with memoryview(buffer) as view:
            found = self._data[position : position + len(view)]
            view[: len(found)] = found
            return len(found)

    def map_read(self) -> memoryview:
        return memoryview(bytes(self._data))

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        self.allocate(position)
        self._data[position : position + len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self.allocate(size)

    def allocate(self, size: int) -> None:
        self._data.extend(bytes(max(0, size - len(self._data))))

    def start_write_back(self, position: int, length: int) -> None:
        """Returns at once: nothing was written to the disk."""

    def wait_write_back(self, position: int, length: int) -> None:
        """Returns at once: nothing was written to the disk."""

    def drop_cache(self, position: int, length: int) -> None:
        """Leaves the page cache alone: the bytes are not in it."""

    def sync(self) -> None:
        """Returns at once: the bytes are never on disk."""

    def close(self) -> None:
        """Keeps the bytes: the file stays in the view."""


def _error(error_number: int, path: str) -> OSError:
    return OSError(error_number, os.strerror(error_number), path)


def _refuse(path: str) -> NoReturn:
    raise _error(errno.EROFS, path)
