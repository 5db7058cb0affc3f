"""Frames around compressed blocks that no library makes as Kafka does, LZ4 and xerial snappy; the optional library itself."""

from __future__ import annotations

import struct
from types import ModuleType

from replog.errors import InvalidRecordError, UnsupportedCompressionError
from replog.host.extras import install_command
from replog.records.model import Buffer, Codec


def library(codec: Codec) -> ModuleType:
    """Imports cramjam, which has snappy, lz4 and zstd.

    Raises:
        UnsupportedCompressionError: It is not installed; the message names the codec and what to install.
    """
    try:
        import cramjam
    except ImportError:
        raise UnsupportedCompressionError(
            f"{codec.name.lower()} compression needs a library that is not installed: {install_command('compression')}"
        ) from None
    return cramjam


def too_large(limit: int) -> InvalidRecordError:
    """Returns the error for records that would pass `limit` bytes."""
    return InvalidRecordError(f"the records decompress to more than {limit} bytes; refused")


def damaged(codec: Codec, reason: object) -> InvalidRecordError:
    """Returns the error for compressed bytes that are no stream of this codec."""
    return InvalidRecordError(f"damaged {codec.name.lower()} data: {reason}")


# ---- lz4 -------------------------------------------------------------------------------------------------------------

LZ4_BLOCK_BYTES = 64 * 1024

_LZ4_HEADER = bytes.fromhex("04224d18604082")
_STORED_BIT = 1 << 31
_END_MARK = bytes(4)


def compress_lz4(data: Buffer) -> bytes:
    """Compresses into one LZ4 frame 1.5.1 of independent blocks of 64 KiB, as Kafka's own producer does (docs/KAFKA.md 1.4).

    Why not the library's frame writer: Kafka reads neither linked blocks nor frames that need a dictionary, older readers
    trip over block checksums, and a reader allocates a buffer of the block size that the header names.

    **Shape**, numbers little-endian::

        04 22 4d 18 | FLG 60 | BD 40 | HC 82 | { length uint32 | block }* | 00 00 00 00

    FLG 60: version 1, independent blocks, no checksums, no content size.  BD 40: blocks of at most 64 KiB.  HC is the second
    byte of the XXH32 of FLG and BD, here always 82.  The highest bit of a length marks a block that is stored as it is.

    Raises:
        UnsupportedCompressionError: The library is not installed.
    """
    lz4 = library(Codec.LZ4).lz4
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), LZ4_BLOCK_BYTES):
        plain = bytes(data[start : start + LZ4_BLOCK_BYTES])
        block = bytes(lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little") + block
        else:
            out += (len(plain) | _STORED_BIT).to_bytes(4, "little") + plain
    return bytes(out + _END_MARK)


# ---- snappy ----------------------------------------------------------------------------------------------------------

MAGIC = b"\x82SNAPPY\x00"
VERSION = 1
SNAPPY_BLOCK_BYTES = 32 * 1024
"""Largest block that is written; any size is read."""

_SNAPPY_HEADER = MAGIC + struct.pack(">ii", VERSION, VERSION)
_GROWTH_MAX = 32
"""A snappy element of three bytes writes at most 64: a block that claims more than this is a lie."""


def compress_snappy(data: Buffer) -> bytes:
    """Frames and compresses as snappy-java, the only way Kafka writes (docs/KAFKA.md 1.4); an empty section is a header alone.

    **Shape**::

        82 53 4e 41 50 50 59 00 | version int32 = 1 | compatible version int32 = 1 | { length int32 | raw snappy block }*

    A raw block begins with its decompressed size as a plain varint.  Streams may follow each other: where a length is
    expected, the first four bytes of the magic, which no length can have, begin a new header.  Kafka's reader also takes one
    bare block without the framing, as some clients write it, and so do we.
    """
    snappy = library(Codec.SNAPPY).snappy
    out = bytearray(_SNAPPY_HEADER)
    for start in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(bytes(data[start : start + SNAPPY_BLOCK_BYTES])))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def decompress_snappy(data: bytes, limit: int) -> bytes:
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
    end = position + len(_SNAPPY_HEADER)
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
