"""A disk in memory behind the `FileSystem` seam, which can lose power, fill up, fail and rot.

Why: the log on top is the one implementation there is; what tests replace is the disk.  Every step at which a real
machine could stop can be tried in microseconds, and the same seed gives the same outcome.

::

    disk = SimulatedFileSystem()
    disk.make_dirs("/logs")
    replace_file(disk, "/logs/a", b"old")
    disk.faults.cut_power_after(2)  # the third change never happens
    with pytest.raises(PowerCutError):
        replace_file(disk, "/logs/a", b"new")
    disk.crash(random.Random(4711))  # power is back; locks and open files are gone

What a crash leaves is described in `simulated_disk`.  The same contract tests run on this and on `OsFileSystem`.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache

from replog.testing.simulated_disk import DirectoryNode, Disk, EntryChange, FileNode, Node
from replog.testing.simulated_faults import Faults, Operation
from replog_checkpoints import Buffer, DiskUsage, OpenMode, lost_in_fsync

ENDLESS_BYTES = 1 << 50
"""What a disk without a capacity says it has."""


class SimulatedFileSystem:
    """One machine's disk.  Relative paths start at the root; ".." is not understood.

    Attributes:
        capacity_bytes: The sum of all file sizes above which writes fail with ENOSPC; None means endless.
        faults: The faults that are still to come.
    """

    def __init__(self, *, capacity_bytes: int | None = None, now_ms: Callable[[], int] = lambda: 0) -> None:
        """Creates an empty disk.

        Args:
            capacity_bytes: The sum of all file sizes above which writes fail; may be changed at any time.
            now_ms: The wall clock for `modified_ms`, in ms since 1970.
        """
        self.capacity_bytes = capacity_bytes
        self.faults = Faults()
        self._now_ms = now_ms
        self._disk = Disk()
        self._files: dict[int, _SimulatedFile] = {}  # open ones, by handle number
        self._locks: dict[Node, _SimulatedLock] = {}
        self._handle_count = 0
        self._mutex = threading.RLock()  # a flush may sync in a thread of its own

    # Crashes and damage

    def crash(self, rng: random.Random) -> None:
        """Cuts the power and restarts the machine: see `simulated_disk`.  Faults are cleared."""
        with self._mutex:
            self.kill()
            self._disk.crash(rng)
            self.faults.clear()

    def kill(self) -> None:
        """Ends the process (kill -9), while the machine lives: open files and locks are gone, every byte is kept."""
        with self._mutex:
            for file in list(self._files.values()):
                file.close()
            self._locks.clear()

    def wipe(self, directory: str | None = None) -> None:
        """Puts an empty disk in the place of this one, under a process that is gone: see `kill`.  Faults are cleared.

        Args:
            directory: The path where the disk is mounted, while others stay as they are; None: there is one disk.
        """
        with self._mutex:
            self.kill()
            if directory is None:
                self._disk = Disk()
            else:
                parent, name = self._parent(directory)
                parent.written[name] = parent.durable[name] = DirectoryNode()
            self.faults.clear()

    def copied(self) -> SimulatedFileSystem:
        """Copies the disk, written and durable, to another machine, so that several crashes can begin at one moment.

        Open files, locks and faults stay with this one.
        """
        with self._mutex:
            other = SimulatedFileSystem(capacity_bytes=self.capacity_bytes, now_ms=self._now_ms)
            other._disk = self._disk.copied()
            return other

    def image(self) -> dict[str, bytes]:
        """Returns path -> content of every file as reads see it; directories end with "/" and are empty."""
        with self._mutex:
            return dict(self._disk.contents())

    def durable_content(self, path: str) -> bytes | None:
        """Returns what is on the disk for certain under a name that is there for certain; None: there is no such file.

        A crash may leave more of what was written since.
        """
        with self._mutex:
            node: Node | None = self._disk.root
            for name in _parts(path):
                node = node.durable.get(name) if isinstance(node, DirectoryNode) else None
            return bytes(node.durable) if isinstance(node, FileNode) else None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flips a bit in one byte of a file, as bit rot does, unseen by whoever has it open."""
        self._file_node(path).flip_bit(position, bit)

    def used_bytes(self) -> int:
        """Returns the sum of all file sizes, removed files that are still open included."""
        nodes = {*self._disk.files(), *(file.node for file in self._files.values())}
        return sum(len(node.written) for node in nodes)

    # FileSystem

    def open(self, path: str, mode: OpenMode) -> _SimulatedFile:
        with self._mutex:
            node = self._find(path)
            creates = mode is OpenMode.REPLACE or mode is OpenMode.CREATE
            self.faults.check(Operation.CREATE if creates else Operation.OPEN, path)
            if node is None and creates:
                directory, name = self._parent(path)
                node = FileNode(self._now_ms())
                self._disk.change(EntryChange(directory, name, node))
            elif node is None:
                raise _error(errno.ENOENT, path)
            elif mode is OpenMode.CREATE:
                raise _error(errno.EEXIST, path)
            elif isinstance(node, DirectoryNode):
                raise _error(errno.EISDIR, path)
            elif mode is OpenMode.REPLACE:
                node.truncate(0)
            self._handle_count += 1
            file = _SimulatedFile(self, path, node, self._handle_count, writable=mode is not OpenMode.READ)
            self._files[self._handle_count] = file
            return file

    def exists(self, path: str) -> bool:
        return self._find_or_none(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find_or_none(path), DirectoryNode)

    def size(self, path: str) -> int:
        self.faults.check(Operation.STAT, path)
        return len(self._file_node(path).written)

    def modified_ms(self, path: str) -> int:
        self.faults.check(Operation.STAT, path)
        return self._file_node(path).modified_ms

    def list_dir(self, path: str) -> list[str]:
        self.faults.check(Operation.LIST, path)
        return sorted(self._directory(path).written)

    def make_dirs(self, path: str, *, is_private: bool = False) -> None:  # noqa: ARG002 -- a disk of one user
        with self._mutex:
            directory = self._disk.root
            for name in _parts(path):
                node = directory.written.get(name)
                if node is None:
                    self.faults.check(Operation.CREATE, path)
                    node = DirectoryNode()
                    self._disk.change(EntryChange(directory, name, node))
                if not isinstance(node, DirectoryNode):
                    raise _error(errno.EEXIST, path)
                directory = node

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            node = self._existing(source)
            replaced = self._find(target)
            self.faults.check(Operation.RENAME, target)
            _check_replaceable(node, replaced, target)
            if node is replaced:
                return
            source_directory, source_name = self._parent(source)
            target_directory, target_name = self._parent(target)
            self._disk.change(
                EntryChange(source_directory, source_name, None), EntryChange(target_directory, target_name, node)
            )

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            node = self._file_node(source)
            if self._find(target) is not None:
                raise _error(errno.EEXIST, target)
            self.faults.check(Operation.CREATE, target)
            directory, name = self._parent(target)
            self._disk.change(EntryChange(directory, name, node))

    def links_count(self, path: str) -> int:
        with self._mutex:
            return self._disk.names_count(self._file_node(path))

    def remove(self, path: str) -> None:
        with self._mutex:
            self._file_node(path)
            self._unlink(path)

    def remove_tree(self, path: str) -> None:
        with self._mutex:
            for name, node in sorted(self._directory(path).written.items()):
                child = f"{path}/{name}"
                if isinstance(node, DirectoryNode):
                    self.remove_tree(child)
                else:
                    self._unlink(child)
            self._unlink(path)

    def disk_usage(self, path: str) -> DiskUsage:
        with self._mutex:
            self._existing(path)
            total = ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
            return DiskUsage(total, max(0, total - self.used_bytes()))

    def sync_dir(self, path: str) -> None:
        with self._mutex:
            directory = self._directory(path)
            try:
                self.faults.check(Operation.SYNC_DIR, path)
            except OSError as error:
                raise lost_in_fsync(error, path) from error
            if not self.faults.syncs_lie:
                self._disk.sync_directory(directory)

    def lock(self, path: str) -> _SimulatedLock:
        with self._mutex:
            if self._find(path) is None:
                self.open(path, OpenMode.CREATE).close()
            nodes = (self._file_node(path), self._parent(path)[0])
            if any(node in self._locks for node in nodes):
                raise _error(errno.EAGAIN, path)
            return _SimulatedLock(self._locks, nodes)

    # For the open files

    def read_file_bytes(self, file: _SimulatedFile, length: int, position: int) -> bytes:
        with self._mutex:
            self.faults.check(Operation.READ, file.path)
            file.node.warm(position, length)
            return bytes(memoryview(file.node.written)[position : position + length])

    def is_cached(self, file: _SimulatedFile, length: int, position: int) -> bool:
        with self._mutex:
            return position + length <= len(file.node.written) and file.node.is_cached(position, length)

    def wait_write_back(self, file: _SimulatedFile, position: int, length: int) -> None:
        """Makes nothing durable, as nothing is promised; an error is that of a failed fsync."""
        with self._mutex:
            try:
                self.faults.check(Operation.WRITE_BACK, file.path)
            except OSError:
                file.node.forget_pending()
                raise
            file.node.write_back(position, length)

    def drop_cache(self, file: _SimulatedFile, position: int, length: int) -> None:
        with self._mutex:
            file.node.drop_cache(position, length)

    def write_file_bytes(self, file: _SimulatedFile, data: bytes, position: int) -> None:
        """Writes what fits; the rest of a full disk is an error, as on a real one."""
        with self._mutex:
            self.faults.check(Operation.WRITE, file.path)
            room = self._room_bytes(file.node, position, len(data))
            file.node.write(position, data[:room])
            file.node.modified_ms = self._now_ms()
            if room < len(data):
                raise _error(errno.ENOSPC, file.path)

    def truncate_file(self, file: _SimulatedFile, size: int) -> None:
        with self._mutex:
            self.faults.check(Operation.TRUNCATE, file.path)
            file.node.truncate(size)
            file.node.modified_ms = self._now_ms()

    def allocate_file_bytes(self, file: _SimulatedFile, size: int) -> None:
        with self._mutex:
            self.faults.check(Operation.WRITE, file.path)
            missing = max(0, size - len(file.node.written))
            if self._room_bytes(file.node, len(file.node.written), missing) < missing:
                raise _error(errno.ENOSPC, file.path)
            file.node.truncate(len(file.node.written) + missing)

    def sync_file(self, file: _SimulatedFile) -> None:
        with self._mutex:
            try:
                self.faults.check(Operation.SYNC, file.path)
            except OSError as error:
                file.node.forget_pending()
                raise lost_in_fsync(error, file.path) from error
            if not self.faults.syncs_lie:
                file.node.sync()

    def forget_file(self, handle: int) -> None:
        self._files.pop(handle, None)

    # Names

    def _find(self, path: str) -> Node | None:
        """Returns the node at `path`; None if only its last part is missing."""
        node: Node | None = self._disk.root
        for name in _parts(path):
            if not isinstance(node, DirectoryNode):
                raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
            node = node.written.get(name)
        return node

    def _find_or_none(self, path: str) -> Node | None:
        try:
            return self._find(path)
        except OSError:
            return None

    def _existing(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _file_node(self, path: str) -> FileNode:
        node = self._existing(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._existing(path)
        if not isinstance(node, DirectoryNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self._directory("/".join(parts[:-1])), parts[-1]

    def _unlink(self, path: str) -> None:
        self.faults.check(Operation.REMOVE, path)
        directory, name = self._parent(path)
        self._disk.change(EntryChange(directory, name, None))

    def _room_bytes(self, node: FileNode, position: int, length: int) -> int:
        """Returns how many of `length` bytes can be written at `position`."""
        if self.capacity_bytes is None:
            return length
        free = self.capacity_bytes - self.used_bytes()
        return max(0, min(length, len(node.written) + free - position))


class _SimulatedFile:
    """An open file; every use after `close`, `kill` or `crash` is EBADF."""

    def __init__(self, fs: SimulatedFileSystem, path: str, node: FileNode, handle: int, *, writable: bool) -> None:
        self.node = node
        self._fs = fs
        self._path = path
        self._handle = handle
        self._writable = writable
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._check_open(self._open)
        return len(self.node.written)

    def pread(self, length: int, position: int) -> bytes:
        self._check_open(self._open)
        return self._fs.read_file_bytes(self, length, position)

    def pread_cached(self, length: int, position: int) -> bytes | None:
        self._check_open(self._open)
        return self.pread(length, position) if self._fs.is_cached(self, length, position) else None

    def start_write_back(self, position: int, length: int) -> None:  # noqa: ARG002 -- nothing is seen of it
        self._check_open(self._open)

    def wait_write_back(self, position: int, length: int) -> None:
        self._check_open(self._open)
        self._fs.wait_write_back(self, position, length)

    def drop_cache(self, position: int, length: int) -> None:
        self._check_open(self._open)
        self._fs.drop_cache(self, position, length)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self.pread(len(view), position)
            view[: len(data)] = data
        return len(data)

    def map_read(self) -> memoryview:
        return memoryview(self.pread(len(self.node.written), 0))

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check_open(self._open and self._writable)
        data = b"".join(buffers)
        self._fs.write_file_bytes(self, data, position)
        return len(data)

    def truncate(self, size: int) -> None:
        self._check_open(self._open)
        if not self._writable:
            raise _error(errno.EINVAL, self._path)
        self._fs.truncate_file(self, size)

    def allocate(self, size: int) -> None:
        self._check_open(self._open and self._writable)
        self._fs.allocate_file_bytes(self, size)

    def sync(self) -> None:
        self._check_open(self._open)
        self._fs.sync_file(self)

    def close(self) -> None:
        self._open = False
        self._fs.forget_file(self._handle)

    def _check_open(self, usable: bool) -> None:
        if not usable:
            raise _error(errno.EBADF, self._path)


class _SimulatedLock:
    """A lock that ends with `release`, `kill` or `crash`."""

    def __init__(self, locks: dict[Node, _SimulatedLock], nodes: Sequence[Node]) -> None:
        self._locks = locks
        self._nodes = nodes
        locks.update(dict.fromkeys(nodes, self))

    def release(self) -> None:
        for node in self._nodes:
            if self._locks.get(node) is self:
                del self._locks[node]


def _error(error_number: int, path: str) -> OSError:
    """Returns an error, which Python makes the fitting subclass, such as `FileNotFoundError`."""
    return OSError(error_number, os.strerror(error_number), path)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in parts:
        raise ValueError(f"{path}: '..' is not understood")
    return parts


def _check_replaceable(node: Node, replaced: Node | None, target: str) -> None:
    """Refuses what rename(2) refuses."""
    if replaced is None or node is replaced:
        return
    if isinstance(node, DirectoryNode):
        if not isinstance(replaced, DirectoryNode):
            raise _error(errno.ENOTDIR, target)
        if replaced.written:
            raise _error(errno.ENOTEMPTY, target)
    elif isinstance(replaced, DirectoryNode):
        raise _error(errno.EISDIR, target)
