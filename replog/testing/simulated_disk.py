"""Two images of everything on a simulated disk: what was written, and what a power cut leaves.

A file has its written bytes, its durable bytes, and the changes in between, oldest first.  A directory has its written and
durable entries; the changes in between stand in one journal for the whole disk, because a rename between two directories
changes both or neither.

What a power cut leaves, as far as POSIX allows and ext4, XFS and their like do:

- of each file, the durable bytes plus a random prefix of the later changes; the first change that is lost may be torn at
  a sector boundary (512 bytes); writes behind it, up to the next change of size, may be there although it is not (the
  kernel writes pages in any order): what is missing in front of them reads as it did before, or as zeros;
- of each directory, the durable entries plus a random prefix of the later changes: fsync of a file does not save its name;
- after a failed fsync the changes it covered are gone for good, and the next fsync succeeds (what Linux does with dirty
  pages it could not write); reads show what the disk has, because `File.sync` drops the page cache then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

SECTOR_BYTES = 512
PAGE_BYTES = 4096


class _Write(Struct, frozen=True):
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> _Write:
        """Returns a part of the write: everything before a random sector boundary, which may be nothing."""
        first = self.position // SECTOR_BYTES + 1
        last = (self.position + len(self.data) - 1) // SECTOR_BYTES
        cut = rng.randint(first - 1, last) * SECTOR_BYTES
        return _Write(self.position, self.data[: max(0, cut - self.position)])


class _Truncate(Struct, frozen=True):
    size: int

    def apply(self, content: bytearray) -> None:
        if self.size < len(content):
            del content[self.size :]
        else:
            content.extend(bytes(self.size - len(content)))


class FileNode:
    """A file's content, whatever names it has."""

    __slots__ = ("_cold", "_dirty", "_pending", "durable", "modified_ms", "written")

    def __init__(self, modified_ms: int) -> None:
        self.written = bytearray()
        self.durable = bytearray()
        self.modified_ms = modified_ms
        self._pending: list[_Write | _Truncate] = []
        self._cold: set[int] = set()  # numbers of pages that are not in the page cache
        self._dirty: set[int] = set()  # and of those that must not leave it

    def write(self, position: int, data: bytes) -> None:
        if data:
            self._change(_Write(position, data))

    def truncate(self, size: int) -> None:
        if size != len(self.written):
            self._change(_Truncate(size))

    def sync(self) -> None:
        """Makes every change so far durable."""
        pending, self._pending = self._pending, []
        self._dirty.clear()
        for change in pending:
            change.apply(self.durable)

    def forget_pending(self) -> None:
        """Loses the changes, as a failed fsync does: never written and no longer read; the size in memory stays."""
        self._pending = []
        size = len(self.written)
        self.written = self.durable[:size] + bytes(max(0, size - len(self.durable)))

    def drop_cache(self, position: int, length: int) -> None:
        """Drops whole pages in the range from the page cache, unless they are dirty."""
        end = position + length
        if end >= len(self.written):  # the last page goes although it is not full
            end = -(-len(self.written) // PAGE_BYTES) * PAGE_BYTES
        self._cold |= set(range(-(-position // PAGE_BYTES), end // PAGE_BYTES)) - self._dirty

    def write_back(self, position: int, length: int) -> None:
        """Hands a range to the disk, which promises nothing: only its pages may leave the page cache now."""
        self._dirty -= _pages(position, min(length, len(self.written) - position))

    def is_cached(self, position: int, length: int) -> bool:
        """Whether reading a range does not wait for the disk."""
        return self._cold.isdisjoint(_pages(position, length))

    def warm(self, position: int, length: int) -> None:
        """Notes that a range was read or written: it is in the page cache now."""
        if self._cold:
            self._cold -= _pages(position, length)

    def flip_bit(self, position: int, bit: int) -> None:
        """Flips a bit, as bit rot does, of what is read now and, where it is already there, of what is on the disk."""
        self.written[position] ^= 1 << bit
        if position < len(self.durable):
            self.durable[position] ^= 1 << bit

    def crash(self, rng: random.Random) -> None:
        kept = _prefix_length(rng, len(self._pending))
        for change in self._pending[:kept]:
            change.apply(self.durable)
        if kept < len(self._pending) and rng.random() < 0.5:
            lost = self._pending[kept]
            if isinstance(lost, _Write) and (torn := lost.torn(rng)).data:
                torn.apply(self.durable)
        if rng.random() < 0.25:
            self._keep_some_of(self._pending[kept + 1 :], rng)
        self._pending = []
        self.written = bytearray(self.durable)

    def copied(self) -> FileNode:
        """Copies both images and what is between them; changes are shared, as they never change."""
        other = FileNode(self.modified_ms)
        other.written, other.durable = bytearray(self.written), bytearray(self.durable)
        other._pending, other._cold, other._dirty = list(self._pending), set(self._cold), set(self._dirty)
        return other

    def _keep_some_of(self, later: list[_Write | _Truncate], rng: random.Random) -> None:
        """Writes that reached the disk before an earlier one, which did not."""
        for change in later:
            if isinstance(change, _Truncate):
                break
            if rng.random() < 0.5:
                change.apply(self.durable)

    def _change(self, change: _Write | _Truncate) -> None:
        if isinstance(change, _Write):
            self.warm(change.position, len(change.data))
            self._dirty |= _pages(change.position, len(change.data))
        change.apply(self.written)
        self._pending.append(change)


class DirectoryNode(Struct, eq=False):
    """A directory's names.  Compared by identity."""

    written: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = FileNode | DirectoryNode


class EntryChange(Struct, frozen=True):
    """One name in one directory gets a new meaning, or none."""

    directory: DirectoryNode
    name: str
    node: Node | None

    def apply(self, entries: dict[str, Node]) -> None:
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node

    def copied(self, copies: dict[Node, Node]) -> EntryChange:
        """Returns the same change of the copied nodes."""
        node = None if self.node is None else _node_copied(self.node, copies)
        return EntryChange(_directory_copied(self.directory, copies), self.name, node)


class Disk:
    """The tree of a file system in both images, and the journal between them."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self._journal: list[tuple[EntryChange, ...]] = []  # each item: all or nothing

    def change(self, *changes: EntryChange) -> None:
        """Applies changes to the written image; durable after `sync_directory` of any directory they name."""
        for change in changes:
            change.apply(change.directory.written)
        self._journal.append(changes)

    def sync_directory(self, directory: DirectoryNode) -> None:
        """Makes all changes of this directory durable, with what they depend on in others."""
        needed = {directory}
        selected: list[tuple[EntryChange, ...]] = []
        rest: list[tuple[EntryChange, ...]] = []
        for changes in reversed(self._journal):
            touched = {change.directory for change in changes}
            if needed.isdisjoint(touched):
                rest.append(changes)
            else:
                needed |= touched
                selected.append(changes)
        for changes in reversed(selected):
            _make_durable(changes)
        self._journal = rest[::-1]

    def crash(self, rng: random.Random) -> None:
        """Replaces the written image by what a power cut leaves."""
        keep_chance = rng.choice((0.0, 0.5, 0.9, 1.0))
        ended: set[DirectoryNode] = set()  # directories whose prefix is over
        for changes in self._journal:
            touched = {change.directory for change in changes}
            if ended.isdisjoint(touched) and rng.random() < keep_chance:
                _make_durable(changes)
            else:
                ended |= touched
        self._journal = []
        _restart_from_durable(self.root, rng)

    def copied(self) -> Disk:
        """Copies both images and the journal; what stands in several of them is one node in the copy, too."""
        other = Disk()
        copies: dict[Node, Node] = {}
        other.root = _directory_copied(self.root, copies)
        other._journal = [tuple(change.copied(copies) for change in changes) for changes in self._journal]
        return other

    def files(self) -> Iterator[FileNode]:
        """Yields every file that has a name in the written image."""
        directories = [self.root]
        while directories:
            for node in directories.pop().written.values():
                if isinstance(node, DirectoryNode):
                    directories.append(node)
                else:
                    yield node

    def names_count(self, node: FileNode) -> int:
        """Returns how many names a file has in the written image."""
        return sum(each is node for each in self.files())

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yields (path, content) of everything in the written image; a directory's path ends with "/"."""
        directories = [("", self.root)]
        while directories:
            folder, directory = directories.pop()
            for name, node in directory.written.items():
                path = f"{folder}/{name}"
                if isinstance(node, DirectoryNode):
                    directories.append((path, node))
                    yield f"{path}/", b""
                else:
                    yield path, bytes(node.written)


def _pages(position: int, length: int) -> set[int]:
    """Returns the numbers of the pages that a range touches."""
    return set(range(position // PAGE_BYTES, -(-(position + length) // PAGE_BYTES)))


def _node_copied(node: Node, copies: dict[Node, Node]) -> Node:
    """Returns the copy of a node, which is made once."""
    if isinstance(node, DirectoryNode):
        return _directory_copied(node, copies)
    if node not in copies:
        copies[node] = node.copied()
    return copies[node]


def _directory_copied(directory: DirectoryNode, copies: dict[Node, Node]) -> DirectoryNode:
    """Returns the copy of a directory, with copies of all that it names in either image."""
    known = copies.get(directory)
    if isinstance(known, DirectoryNode):
        return known
    other = copies[directory] = DirectoryNode()
    other.written = {name: _node_copied(node, copies) for name, node in directory.written.items()}
    other.durable = {name: _node_copied(node, copies) for name, node in directory.durable.items()}
    return other


def _make_durable(changes: tuple[EntryChange, ...]) -> None:
    for change in changes:
        change.apply(change.directory.durable)


def _restart_from_durable(directory: DirectoryNode, rng: random.Random) -> None:
    directory.written = dict(directory.durable)
    for _, node in sorted(directory.durable.items()):  # sorted: the same seed gives the same crash
        if isinstance(node, DirectoryNode):
            _restart_from_durable(node, rng)
        else:
            node.crash(rng)


def _prefix_length(rng: random.Random, length: int) -> int:
    """Draws a length from 0 to `length`; nothing and everything come up often, however long it is."""
    match rng.randrange(4):
        case 0:
            return 0
        case 1:
            return length
        case _:
            return rng.randint(0, length)
