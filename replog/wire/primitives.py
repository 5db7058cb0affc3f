"""Reads and writes the primitive types of Kafka's messages: requests, answers, and records of its internal topics.

Texts, bytes and arrays have two shapes: with a length of fixed width, or, in the versions of an API that are `flexible`
(KIP-482), with an unsigned varint that is one larger than the length.  A flexible struct ends in tagged fields.

Whatever a peer sends ends in a value or in a `MalformedFrameError`: a length is compared with the bytes that are left
before anything is made of it, and an array's count with the least size of as many elements.  An element of three bytes
becomes objects of hundreds, in the event loop's time: how many a message may have is bounded for itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from replog.errors import MalformedFrameError

VARINT_BYTES_MAX = 5
"""Length of an unsigned varint of 32 bits."""

SMALL_BYTES_MAX = 4096
"""Longer bytes of a message are not copied: they are a buffer of their own in what a `Writer` returns."""

TEXT_BYTES_MAX = 2**15 - 1
"""Length of a text, in whichever version: elsewhere than in flexible ones its length has 16 bits."""

SHORT_TEXT_BYTES = 127
"""Texts below this have a length of one byte that counts, in whichever version."""

ELEMENTS_MAX = 2**17
"""How many elements the arrays of one message may have together, its tagged fields counted among them."""

_int8, _int16, _int32 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i")


class Reader:
    """Reads one message from front to back.

    Args:
        data: The message's bytes; records are returned as views of them.
        elements_max: The most elements that its arrays may have together.
    """

    __slots__ = ("_at", "_data", "_elements", "_elements_max", "_end")

    def __init__(self, data: memoryview, elements_max: int = ELEMENTS_MAX) -> None:
        self._data = data
        self._elements_max = elements_max
        self._at = 0
        self._end = len(data)
        self._elements = [0]  # how many there were; the readers of tagged fields share it

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return self._end - self._at

    def finish(self) -> None:
        """Ends the message.  Raises: MalformedFrameError: Bytes are left over."""
        if self.left:
            raise MalformedFrameError(f"{self.left} bytes are left over behind the message")

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Returns the values of adjacent fields of fixed width.  Raises: MalformedFrameError: The message ends in them."""
        return layout.unpack_from(self._data, self._take(layout.size))

    def uvarint(self) -> int:
        """Returns an unsigned varint.  Raises: MalformedFrameError: It has more than 32 bits, or the message ends in it."""
        at = self._at
        if (
            at < self._end and (only := self._data[at]) < 0x80
        ):  # nearly all: counts, lengths, and that there are no tags
            self._at = at + 1
            return only
        value = shift = 0
        for _ in range(VARINT_BYTES_MAX):
            byte = self._data[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        else:
            raise MalformedFrameError("a varint has more than 5 bytes")
        if value >> 32:
            raise MalformedFrameError("a varint has more than 32 bits")
        return value

    def nullable_text(self, flexible: bool) -> str | None:
        """Returns a text, or None.  Raises: MalformedFrameError: It is no UTF-8, or too long."""
        length = self._length(flexible, _int16)
        return None if length is None else self._decoded(length)

    def text(self, flexible: bool) -> str:
        """Returns a text.  Raises: MalformedFrameError: As `nullable_text`, or it is null."""
        return self._decoded(self._not_null(self._length(flexible, _int16)))

    def nullable_view(self, flexible: bool) -> memoryview | None:
        """Returns bytes as a view of the message, or None.  Raises: MalformedFrameError: The message ends in them."""
        length = self._length(flexible, _int32)
        if length is None:
            return None
        at = self._take(length)
        return self._data[at : at + length]

    def nullable_raw(self, flexible: bool) -> bytes | None:
        """Returns bytes, or None.  Raises: MalformedFrameError: The message ends in them."""
        view = self.nullable_view(flexible)
        return None if view is None else bytes(view)

    def raw(self, flexible: bool) -> bytes:
        """Returns bytes.  Raises: MalformedFrameError: As `nullable_raw`, or they are null."""
        return bytes(self._not_null(self.nullable_view(flexible)))

    def uuid(self) -> UUID:
        """Returns an id.  Raises: MalformedFrameError: The message ends in it."""
        at = self._take(16)
        return UUID(bytes=bytes(self._data[at : at + 16]))

    def nullable_count(self, flexible: bool, least_bytes: int) -> int | None:
        """Returns how many elements an array has, or None.

        Args:
            flexible: Whether the version is a flexible one.
            least_bytes: The size of the smallest element.

        Raises:
            MalformedFrameError: What is left cannot hold that many, or the message has more than `ELEMENTS_MAX`.
        """
        count = self._length(flexible, _int32)
        if count is not None:
            if count * least_bytes > self.left:
                raise MalformedFrameError(f"an array of {count} elements is said to be in {self.left} bytes")
            self._add_elements(count)
        return count

    def count(self, flexible: bool, least_bytes: int) -> int:
        """Returns how many elements an array has.  Raises: MalformedFrameError: As `nullable_count`, or it is null."""
        count: int = self._not_null(self.nullable_count(flexible, least_bytes))
        return count

    def numbers(self, count: int, code: str) -> list[int]:
        """Returns integers that follow one another.

        Args:
            count: How many they are.
            code: The letter of their type in `struct`.

        Raises:
            MalformedFrameError: The message ends in them.
        """
        layout = struct.Struct(f">{count}{code}")
        return list(layout.unpack_from(self._data, self._take(layout.size)))

    def is_present(self) -> bool:
        """Whether a struct that may be null follows."""
        return bool(self.fixed(_int8)[0] >= 0)

    def is_present_in_tag(self) -> bool:
        """Whether the struct of a tagged field follows that may be null."""
        return self.uvarint() > 0

    def tagged(self) -> list[tuple[int, Reader]]:
        """Returns the tagged fields, each with a reader of its value.

        Raises:
            MalformedFrameError: Tags do not rise, the message ends in them, or has more than `ELEMENTS_MAX` elements.
        """
        count = self.uvarint()
        if not count:
            return []
        fields: list[tuple[int, Reader]] = []
        last = -1
        self._add_elements(count)
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            if tag <= last:
                raise MalformedFrameError(f"tag {tag} follows tag {last}")
            last = tag
            at = self._take(size)
            value = Reader(self._data[at : at + size], self._elements_max)
            value._elements = self._elements
            fields.append((tag, value))
        return fields

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _take(self, size: int) -> int:
        at = self._at
        if size > self._end - at:
            raise MalformedFrameError(f"{size} bytes are said to follow where {self._end - at} are left")
        self._at = at + size
        return at

    def _add_elements(self, count: int) -> None:
        self._elements[0] += count
        if self._elements[0] > self._elements_max:
            raise MalformedFrameError(
                f"a message has at least {self._elements[0]} elements in its arrays, and may have {self._elements_max}: "
                "ask for fewer topics or partitions at a time"
            )

    def _length(self, flexible: bool, layout: struct.Struct) -> int | None:
        length: int = self.uvarint() - 1 if flexible else self.fixed(layout)[0]
        if length >= 0:
            return length
        if length != -1:
            raise MalformedFrameError(f"a length is {length}")
        return None

    @staticmethod
    def _not_null(value: Any) -> Any:
        if value is None:
            raise MalformedFrameError("a value is null that must not be")
        return value

    def _decoded(self, length: int) -> str:
        if length > TEXT_BYTES_MAX:
            raise MalformedFrameError(f"a text of {length} bytes is longer than {TEXT_BYTES_MAX}")
        at = self._take(length)
        try:
            return str(self._data[at : at + length], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError(f"a text is no UTF-8: {error.reason}") from None


class Writer:
    """Writes one message from front to back; its values are ours, so that one out of range is a bug."""

    __slots__ = ("_full", "_tail")

    def __init__(self) -> None:
        self._full: list[bytes | bytearray | memoryview] = []
        self._tail = bytearray()

    def buffers(self) -> list[bytes | bytearray | memoryview]:
        """Returns what was written, in order; long values are the very buffers that were given."""
        return [*self._full, self._tail] if self._tail else list(self._full)

    def joined(self) -> bytes:
        """Returns a copy of what was written."""
        return b"".join(self.buffers())

    def written(self, data: bytes) -> None:
        """Writes what another one has written."""
        self._append(data)

    def fixed(self, layout: struct.Struct, *values: Any) -> None:
        """Writes adjacent fields of fixed width."""
        self._tail += layout.pack(*values)

    def uvarint(self, value: int) -> None:
        """Writes an unsigned varint."""
        while value > 0x7F:
            self._tail.append((value & 0x7F) | 0x80)
            value >>= 7
        self._tail.append(value)

    def nullable_text(self, text: str | None, flexible: bool) -> None:
        """Writes a text.  Raises: ValueError: It is longer than `TEXT_BYTES_MAX`."""
        encoded = None if text is None else text.encode()
        if encoded is not None and len(encoded) > TEXT_BYTES_MAX:
            raise ValueError(f"a text of {len(encoded)} bytes is longer than {TEXT_BYTES_MAX}")
        self._length(encoded, flexible, _int16)
        if encoded is not None:
            self._tail += encoded

    def text(self, text: str | None, flexible: bool) -> None:
        """Writes a text.  Raises: ValueError: It is None, or too long."""
        self.nullable_text(_given(text), flexible)

    def texts(self, texts: Iterable[str], flexible: bool) -> None:
        """Writes many texts, as `text` would one by one; of up to 126 bytes, as nearly all are, in a fraction of the time."""
        for text in texts:
            encoded = text.encode()
            size = len(encoded)
            if size >= SHORT_TEXT_BYTES:
                self.text(text, flexible)
            elif flexible:
                self._tail += b"%c%b" % (size + 1, encoded)
            else:
                self._tail += b"\0%c%b" % (size, encoded)

    def nullable_raw(self, data: bytes | bytearray | memoryview | None, flexible: bool) -> None:
        """Writes bytes, or null."""
        self._length(data, flexible, _int32)
        if data is not None:
            self._append(data)

    def raw(self, data: bytes | bytearray | memoryview | None, flexible: bool) -> None:
        """Writes bytes.  Raises: ValueError: They are None."""
        self.nullable_raw(_given(data), flexible)

    def uuid(self, value: UUID) -> None:
        """Writes an id."""
        self._tail += value.bytes

    def nullable_count(self, elements: Sequence[object] | None, flexible: bool) -> None:
        """Writes how many elements follow, or null."""
        self._length(elements, flexible, _int32)

    def count(self, elements: Sequence[object] | None, flexible: bool) -> None:
        """Writes how many elements follow.  Raises: ValueError: There is no array."""
        self._length(_given(elements), flexible, _int32)

    def numbers(self, values: Sequence[int], code: str) -> None:
        """Writes integers, whose type has the letter `code` in `struct`."""
        self._tail += struct.pack(f">{len(values)}{code}", *values)

    def presence(self, value: object) -> None:
        """Writes whether a struct that may be None follows."""
        self._tail += b"\xff" if value is None else b"\x01"

    def presence_in_tag(self, value: object) -> None:
        """Writes whether the struct of a tagged field follows that may be None."""
        self.uvarint(0 if value is None else 1)

    def tagged(self, fields: Iterable[tuple[int, Writer]] = ()) -> None:
        """Writes tagged fields, in the order of their tags."""
        present = tuple(fields)
        self.uvarint(len(present))
        for tag, value in present:
            parts = value.buffers()
            self.uvarint(tag)
            self.uvarint(sum(map(len, parts)))
            for part in parts:
                self._append(part)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _length(self, value: Sequence[object] | memoryview | None, flexible: bool, layout: struct.Struct) -> None:
        length = -1 if value is None else len(value)
        if flexible:
            self.uvarint(length + 1)
        else:
            self._tail += layout.pack(length)

    def _append(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) <= SMALL_BYTES_MAX:
            self._tail += data
            return
        if self._tail:
            self._full.append(self._tail)
        self._full.append(data)
        self._tail = bytearray()


def _given(value: Any) -> Any:
    if value is None:
        raise ValueError("a value is None that must not be")
    return value
