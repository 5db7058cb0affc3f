"""Fixed-size index entries, in memory or on disk, behind one small interface.

Why two: the active segment's indexes grow and live in memory; those of sealed segments never change, may be many, and
are searched where they lie, a few preads per look-up, so that a thousand idle segments cost no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Protocol

from replog_checkpoints import File

MAX_TARGET: Final = 2**63 - 1


class Entries(Protocol):
    """Entries of one width, addressed by number."""

    @property
    def count(self) -> int: ...

    def read(self, number: int) -> bytes | bytearray:
        """The bytes of entry `number`, 0 to count - 1."""
        ...


class MemoryEntries:
    """Entries of the active segment; their bytes are the bytes of the file to be."""

    __slots__ = ("_data", "_width")

    def __init__(self, width: int, data: bytes = b"") -> None:
        self._width = width
        self._data = bytearray(data)

    @property
    def count(self) -> int:
        return len(self._data) // self._width

    def read(self, number: int) -> bytearray:
        return self._data[number * self._width : (number + 1) * self._width]

    def append(self, entry: bytes) -> None:
        self._data += entry

    def truncate(self, count: int) -> None:
        del self._data[count * self._width :]

    def to_bytes(self) -> bytes:
        return bytes(self._data)


class FileEntries:
    """Entries of a sealed segment, read from its file."""

    __slots__ = ("_count", "_file", "_width")

    def __init__(self, width: int, file: File) -> None:
        self._width = width
        self._file = file
        self._count = file.size() // width

    @property
    def count(self) -> int:
        return self._count

    def read(self, number: int) -> bytes:
        return self._file.pread(self._width, number * self._width)


def floor_entry(count: int, target: int, key: Callable[[int], int]) -> int:
    """Number of the last entry whose key is at most `target`, or -1.

    Args:
        count: entries to search.
        target: what to look for.
        key: entry number -> key; keys must not fall (a file with garbage gives some entry, which callers verify).
    """
    return bisect_right(range(count), target, key=key) - 1
