"""Kafka's flexible encoding, as far as control records need it (docs/KAFKA.md 1.3).

Lengths of arrays and strings are unsigned varints of n + 1 (0 = null); every struct ends in a count of tagged fields,
which is 0 in everything written here.
"""

from __future__ import annotations

import struct

_SHIFT_MAX = 28  # five bytes hold 32 bits


def unsigned_varint(number: int) -> bytes:
    """Returns `number` in groups of seven bits, the lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Returns a text as length + 1 and UTF-8."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


class FlexibleReader:
    """Reads one value from its start to its end.

    Every method raises `IndexError` where the value ends before, or a length cannot be right.
    """

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Reads fixed-size fields."""
        return layout.unpack(self.take(layout.size))

    def take(self, size: int) -> bytes:
        """Reads the next `size` bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise IndexError(f"{size} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def varint(self) -> int:
        """Reads an unsigned varint of at most 32 bits."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            if shift >= _SHIFT_MAX:
                raise IndexError("a varint of more than five bytes")
            shift += 7

    def count(self, element_bytes_min: int) -> int:
        """Reads the length of an array whose elements take at least `element_bytes_min` bytes each; null is empty."""
        count = max(0, self.varint() - 1)
        if count * element_bytes_min > len(self._data) - self._position:
            raise IndexError(f"{count} elements in {len(self._data) - self._position} bytes")
        return count

    def string(self) -> str:
        """Reads a compact string."""
        return self.take(self.varint() - 1).decode()

    def skip_tags(self) -> None:
        """Skips the tagged fields at the end of a struct, whatever they are."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())
