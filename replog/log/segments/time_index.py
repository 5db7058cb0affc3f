"""Time index: from a timestamp to an offset near its first record (docs/KAFKA.md 1.7).

An entry says: the largest timestamp so far in this segment is this, and the batch that brought it ends with this offset.

**Shapes**: 12 bytes an entry, big-endian, no header: timestamp in ms (int64), last offset minus the segment's base
offset (int32).  Base 100, largest timestamp 1700000000000 in the batch that ends at 105::

    0000018bcfe56800 00000005

When a segment is sealed a last entry is added, so that the last entry always has the segment's largest timestamp.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from replog.errors import CorruptIndexError, InvariantViolationError
from replog.log.segments.index_entries import Entries, MemoryEntries, floor_entry

TIME_ENTRY_BYTES: Final = 12
NO_TIMESTAMP: Final = -1
_ENTRY: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """The batch ending with `offset` is the first to reach `timestamp` (ms)."""

    timestamp: int
    offset: int


class TimeIndex:
    """Look-ups over entries in memory or on disk.

    Invariants:
        - timestamps strictly rise, offsets never fall.
    """

    __slots__ = ("_base_offset", "_entries")

    def __init__(self, base_offset: int, entries: Entries) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @property
    def count(self) -> int:
        """Number of entries."""
        return self._entries.count

    def entry(self, number: int) -> TimestampOffset:
        """Returns entry `number`, 0 to count - 1."""
        timestamp, relative_offset = _ENTRY.unpack_from(self._entries.data, number * TIME_ENTRY_BYTES)
        return TimestampOffset(timestamp, self._base_offset + relative_offset)

    def last(self) -> TimestampOffset:
        """Returns the last entry, or (-1, base offset) when there is none."""
        return self.entry(self.count - 1) if self.count else self.start()

    def start(self) -> TimestampOffset:
        """Returns (-1, base offset): the result of a search that finds no entry."""
        return TimestampOffset(NO_TIMESTAMP, self._base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry with a timestamp of at most `timestamp`, or (-1, base offset)."""
        data = self._entries.data
        number = floor_entry(self.count, timestamp, lambda i: _ENTRY.unpack_from(data, i * TIME_ENTRY_BYTES)[0])
        return self.entry(number) if number >= 0 else self.start()


class ActiveTimeIndex(TimeIndex):
    """The growing index of the active segment, in memory.

    Args:
        base_offset: Base offset of the segment.
        size_bytes_max: Limit of the file; one entry is kept free for the one added at sealing.
        data: The entries so far, as in the file.

    Raises:
        CorruptIndexError: `data` is not whole entries.
    """

    __slots__ = ("_full_bytes", "_memory")

    def __init__(self, base_offset: int, size_bytes_max: int, data: bytes | bytearray = b"") -> None:
        if len(data) % TIME_ENTRY_BYTES:
            raise CorruptIndexError(f"time index of {len(data)} bytes is not a multiple of {TIME_ENTRY_BYTES}")
        self._memory = MemoryEntries(TIME_ENTRY_BYTES, data)
        self._full_bytes = (size_bytes_max // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES
        super().__init__(base_offset, self._memory)

    @property
    def is_full(self) -> bool:
        """Whether only the entry for sealing fits any more."""
        return len(self._memory.data) >= self._full_bytes

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry unless its timestamp is already reached.

        Raises:
            InvariantViolationError: The timestamp or the offset falls.
        """
        last = self.last()
        if self.count and (timestamp < last.timestamp or offset < last.offset):
            raise InvariantViolationError(f"time index entry ({timestamp}, {offset}) falls below {tuple(last)}")
        if timestamp > last.timestamp:
            self._memory.append(_ENTRY.pack(timestamp, offset - self._base_offset))

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        self._memory.truncate(floor_entry(self.count, offset - 1, lambda i: self.entry(i).offset) + 1)

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        return self._memory.to_bytes()
