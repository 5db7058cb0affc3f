"""Offset index: from an offset to a byte position near it (docs/KAFKA.md 1.6).

An entry says: the batch that starts at this byte position ends with this offset.  Entries are sparse, one about every
`index.interval.bytes`; the search continues in the log from there.

**Shapes**: 8 bytes an entry, big-endian, no header: last offset minus the segment's base offset (int32), position
(int32).  Base 100, batches ending at 105 and 110 that start at bytes 4096 and 8200::

    00000005 00001000
    0000000a 00002008

An index is never the truth: after a crash it is rebuilt from the log, and a look-up verifies the entry it used.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from replog.errors import CorruptIndexError, InvariantViolationError
from replog.log.segments.index_entries import Entries, MemoryEntries, floor_entry

OFFSET_ENTRY_BYTES: Final = 8
_ENTRY: Final = struct.Struct(">ii")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    """A batch that starts at byte `position` and ends with `offset`; the segment's own start has the base offset."""

    offset: int
    position: int


class OffsetIndex:
    """Look-ups over entries in memory or on disk.

    Invariants:
        - offsets strictly rise, positions strictly rise.
    """

    __slots__ = ("_base_offset", "_entries")

    def __init__(self, base_offset: int, entries: Entries) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @property
    def count(self) -> int:
        """Number of entries."""
        return self._entries.count

    def entry(self, number: int) -> OffsetPosition:
        """Returns entry `number`, 0 to count - 1."""
        relative_offset, position = _ENTRY.unpack_from(self._entries.data, number * OFFSET_ENTRY_BYTES)
        return OffsetPosition(self._base_offset + relative_offset, position)

    def last(self) -> OffsetPosition:
        """Returns the last entry, or the segment's start when there is none."""
        return self.entry(self.count - 1) if self.count else self.start()

    def start(self) -> OffsetPosition:
        """Returns the segment's start: the result of a search that finds no entry."""
        return OffsetPosition(self._base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry whose offset is at most `offset`, or the segment's start."""
        data = self._entries.data
        number = floor_entry(
            self.count, offset - self._base_offset, lambda i: _ENTRY.unpack_from(data, i * OFFSET_ENTRY_BYTES)[0]
        )
        return self.entry(number) if number >= 0 else self.start()

    def lookup_position(self, position: int) -> OffsetPosition:
        """Returns the last entry whose batch starts at or before byte `position`, or the segment's start."""
        data = self._entries.data
        number = floor_entry(self.count, position, lambda i: _ENTRY.unpack_from(data, i * OFFSET_ENTRY_BYTES)[1])
        return self.entry(number) if number >= 0 else self.start()


class ActiveOffsetIndex(OffsetIndex):
    """The growing index of the active segment, in memory.

    Args:
        base_offset: Base offset of the segment.
        size_bytes_max: Limit of the file; a full index begins a new segment.
        data: The entries so far, as in the file.

    Raises:
        CorruptIndexError: `data` is not whole entries.
    """

    __slots__ = ("_memory", "_size_bytes_max")

    def __init__(self, base_offset: int, size_bytes_max: int, data: bytes | bytearray = b"") -> None:
        if len(data) % OFFSET_ENTRY_BYTES:
            raise CorruptIndexError(f"offset index of {len(data)} bytes is not a multiple of {OFFSET_ENTRY_BYTES}")
        self._memory = MemoryEntries(OFFSET_ENTRY_BYTES, data)
        self._size_bytes_max = size_bytes_max // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
        super().__init__(base_offset, self._memory)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return len(self._memory.data) >= self._size_bytes_max

    def append(self, last_offset: int, position: int) -> None:
        """Adds the batch that starts at `position` and ends with `last_offset`.

        Raises:
            InvariantViolationError: The index is full, or the offset not above the last entry or too far from the base.
        """
        relative_offset = last_offset - self._base_offset
        if self.is_full or not 0 <= relative_offset <= RELATIVE_OFFSET_MAX:
            raise InvariantViolationError(f"offset {last_offset} does not fit the index of segment {self._base_offset}")
        if self.count and self.last().offset >= last_offset:
            raise InvariantViolationError(f"index entry {last_offset} does not follow {self.last().offset}")
        self._memory.append(_ENTRY.pack(relative_offset, position))

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        self._memory.truncate(floor_entry(self.count, offset - 1, lambda i: self.entry(i).offset) + 1)

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        return self._memory.to_bytes()
