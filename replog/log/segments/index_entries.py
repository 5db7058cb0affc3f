"""Fixed-size index entries, in memory or mapped from a file, behind one small interface.

Why two: the active segment's indexes grow and live in memory; those of sealed segments never change, may be many, and
are searched where they lie, so that a thousand idle segments cost no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from replog_checkpoints import Buffer


class Entries(Protocol):
    """Entries of one width, one after the other."""

    @property
    def data(self) -> Buffer:
        """The bytes of at least `count` entries; entry `n` starts at `n` times the width."""
        ...

    @property
    def count(self) -> int: ...


class MemoryEntries:
    """Entries of the active segment; their bytes are the bytes of the file to be."""

    __slots__ = ("_width", "data")

    def __init__(self, width: int, data: bytes | bytearray = b"") -> None:
        self._width = width
        self.data = bytearray(data)

    @property
    def count(self) -> int:
        return len(self.data) // self._width

    def append(self, entry: bytes) -> None:
        self.data += entry

    def truncate(self, count: int) -> None:
        del self.data[count * self._width :]

    def to_bytes(self) -> bytes:
        return bytes(self.data)


class MappedEntries:
    """Entries of a sealed segment, in its file."""

    __slots__ = ("count", "data")

    def __init__(self, width: int, data: memoryview) -> None:
        self.data = data
        self.count = len(data) // width


def floor_entry(count: int, target: int, key: Callable[[int], int]) -> int:
    """Returns the number of the last entry whose key is at most `target`, or -1.

    Args:
        count: Number of entries to search.
        target: The key to look for.
        key: A function: entry number -> key; keys must not fall (a file with garbage gives some entry, which callers
            verify).
    """
    return bisect_right(range(count), target, key=key) - 1


def without_trailing_zeros(data: bytes, width: int) -> bytes:
    """Returns the entries before the zeros at the end of Kafka's preallocated files after a kill.

    No entry is all zeros.

    A time index may begin with one (timestamp 0, offset 0): leaving it out loses nothing that a search could find.
    """
    if len(data) % width or not data.endswith(bytes(width)):
        return data
    length = len(data.rstrip(b"\0"))
    return data[: -(-length // width) * width]
