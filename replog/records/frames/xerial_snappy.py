"""Snappy in the stream framing of snappy-java, the only one Kafka writes (docs/KAFKA.md 1.4).

**Shape**::

    82 53 4e 41 50 50 59 00 | version int32 = 1 | compatible version int32 = 1 | { length int32 | raw snappy block }*

A raw block begins with its decompressed size as a plain varint.  Streams may follow each other: where a length is
expected, the first four bytes of the magic, which no length can have, begin a new header.  Kafka's reader also takes one
bare block without the framing, as some clients write it, and so do we.
"""

from __future__ import annotations

import struct
from types import ModuleType

from replog.records.compression_library import damaged, library, too_large
from replog.records.model import Buffer, Codec

MAGIC = b"\x82SNAPPY\x00"
VERSION = 1
BLOCK_BYTES = 32 * 1024
"""Largest block that is written; any size is read."""

_HEADER = MAGIC + struct.pack(">ii", VERSION, VERSION)
_GROWTH_MAX = 32
"""A snappy element of three bytes writes at most 64: a block that claims more than this is a lie."""


def compress(data: Buffer) -> bytes:
    """Frames and compresses; an empty section is a header alone."""
    snappy = library(Codec.SNAPPY).snappy
    out = bytearray(_HEADER)
    for start in range(0, len(data), BLOCK_BYTES):
        block = bytes(snappy.compress_raw(bytes(data[start : start + BLOCK_BYTES])))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def decompress(data: bytes, limit: int) -> bytes:
    """Decompresses a stream or a raw block to at most `limit` bytes.

    Raises:
        InvalidRecordError: The data is damaged, cut short, or becomes more than `limit` bytes.
        UnsupportedCompressionError: The library is not installed.
    """
    snappy = library(Codec.SNAPPY).snappy
    if not data.startswith(MAGIC):
        return _block(snappy, data, limit)
    parts: list[bytes] = []
    size, position = 0, 0
    while position < len(data):
        if data.startswith(MAGIC, position):
            position = _skip_header(data, position)
            continue
        start, position = _chunk(data, position)
        block = _block(snappy, data[start:position], limit - size)
        parts.append(block)
        size += len(block)
    return b"".join(parts)


def _skip_header(data: bytes, position: int) -> int:
    end = position + len(_HEADER)
    if end > len(data):
        raise damaged(Codec.SNAPPY, "the stream header is cut short")
    (compatible_version,) = struct.unpack_from(">i", data, end - 4)
    if compatible_version > VERSION:
        raise damaged(Codec.SNAPPY, f"a stream for readers of version {compatible_version}, {VERSION} is known")
    return end


def _chunk(data: bytes, position: int) -> tuple[int, int]:
    """Returns start and end of the block whose length stands at `position`."""
    start = position + 4
    length = int.from_bytes(data[position:start], "big", signed=True)
    if start > len(data) or not 0 <= length <= len(data) - start:
        raise damaged(Codec.SNAPPY, f"a chunk of {length} bytes, {max(0, len(data) - start)} left")
    return start, start + length


def _block(snappy: ModuleType, block: bytes, limit: int) -> bytes:
    """Decompresses one raw block; its size is checked before anything is allocated for it."""
    size = _claimed_bytes(block)
    if size > limit:
        raise too_large(limit)
    if size > _GROWTH_MAX * len(block):
        raise damaged(Codec.SNAPPY, f"{len(block)} bytes claim to become {size}")
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:  # noqa: BLE001 - the library's error classes are not importable without it
        raise damaged(Codec.SNAPPY, error) from None


def _claimed_bytes(block: bytes) -> int:
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return size
    raise damaged(Codec.SNAPPY, "no block length")
