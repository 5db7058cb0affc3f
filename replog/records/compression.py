"""Compression of the records section in the framing Kafka uses (docs/KAFKA.md 1.4), bounded both ways in.

gzip is in the standard library; snappy, lz4 and zstd need the extra `replog[compression]`.

**Bounds.** A few kilobytes from the network may claim to be gigabytes, so nothing is allocated on the word of compressed
bytes.  One section may become at most

    min(max_bytes, max(32 MiB, 1024 x its compressed size))        see `decompressed_bytes_limit`

The other direction obeys the same rule: what readers would refuse is stored as it is, not compressed (`compress_readable`).

**Levels** are those of Kafka's clients: gzip 1 to 9 or -1, zlib's own default; zstd -131072 to 22, by default 3.  lz4 has one,
Kafka's default of 9, which means the fast compressor: the library offers no slower one.

The absolute cap is the caller's; the ratio keeps small input from large memory, and leaves alone what honest batches
reach: below 32 MiB any ratio is allowed, and gzip cannot pass 1032, lz4 255, snappy 22.  The output buffer starts small
and grows no further than the limit; zstd and lz4 write into a buffer of ours, because `max_output_size` and the like are
allocation hints to their libraries, not limits.

**Streams.** Several gzip members, lz4 or zstd frames, or snappy streams may follow each other.  Anything else behind a
stream, a stream cut short, and a checksum that does not fit are refused.  lz4 frames with linked blocks are read, although
Kafka refuses them, and never written.
"""

from __future__ import annotations

import struct
import zlib

from replog.errors import UnsupportedCompressionError
from replog.records._crc32c import crc32c
from replog.records.frames import compress_lz4, compress_snappy, damaged, decompress_snappy, library, too_large
from replog.records.model import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRUSTED_DECOMPRESSED_BYTES_MAX,
    Buffer,
    Codec,
)

RATIO_FREE_BYTES = 32 * 1024 * 1024
"""Up to this size no ratio is too high: a batch of equal records shrinks to almost nothing."""

RATIO_MAX = 1024
"""Largest growth above `RATIO_FREE_BYTES`."""

GZIP_MEMBERS_MAX = 1024
"""Most gzip members in one section; each costs a decompressor, and Kafka writes one."""

_GZIP_WINDOW_BITS = 31  # 15 bits of window + 16: RFC 1952 wrapper
_GZIP_PIECE_BYTES = 64 * 1024
GZIP_LEVEL = -1
"""What zlib takes for its default, 6."""

ZSTD_LEVEL = 3
_WITH_LIBRARY = frozenset({Codec.SNAPPY, Codec.LZ4, Codec.ZSTD})
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 16
"""How much larger the next attempt's output buffer is where a library cannot tell the size beforehand."""


def decompressed_bytes_limit(compressed_bytes: int, max_bytes: int) -> int:
    """Returns the most that a section of `compressed_bytes` may become, in bytes; see the module.

    Args:
        compressed_bytes: The size of the section.
        max_bytes: The absolute cap.  TRUSTED_DECOMPRESSED_BYTES_MAX, and no other number, says that the bytes are from
            a file of this machine and not from the network: then the ratio does not count.
    """
    if max_bytes == TRUSTED_DECOMPRESSED_BYTES_MAX:
        return max_bytes
    return min(max_bytes, max(RATIO_FREE_BYTES, RATIO_MAX * compressed_bytes))


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Returns the records section as it was before compression.

    Args:
        codec: The codec that the batch header names.
        data: The compressed section; read only.
        max_bytes: The absolute cap.

    Raises:
        InvalidRecordError: The data is damaged, cut short, followed by something else, or too large when decompressed.
        UnsupportedCompressionError: The library for this codec is not installed.
    """
    limit = decompressed_bytes_limit(len(data), max_bytes)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(memoryview(data), limit)
        case Codec.SNAPPY:
            return decompress_snappy(bytes(data), limit)
        case Codec.LZ4 | Codec.ZSTD:
            return _decompress_growing(codec, bytes(data), limit)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compresses a records section.

    Args:
        codec: The codec to compress with.
        data: The section; read only.
        level: The level of gzip or zstd, see the module; None: Kafka's default.  The others have none.

    Raises:
        UnsupportedCompressionError: The library for this codec is not installed.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW_BITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return compress_snappy(data)
        case Codec.LZ4:
            return compress_lz4(data)
        case Codec.ZSTD:
            return bytes(library(codec).zstd.compress(bytes(data), ZSTD_LEVEL if level is None else level))


def compress_readable(codec: Codec, data: Buffer, level: int | None = None) -> bytes | None:
    """Compresses a records section that every reader takes back; None: readers would refuse it, so store it as it is.

    Why here: who writes a batch and who reads it have one limit, `decompressed_bytes_limit`, wherever batches are made.

    Raises:
        UnsupportedCompressionError: The library for this codec is not installed.
    """
    section = compress(codec, data, level) if len(data) <= DECOMPRESSED_BYTES_MAX else b""
    return section if len(data) <= decompressed_bytes_limit(len(section), DECOMPRESSED_BYTES_MAX) else None


def compress_batch(batch: bytes, codec: Codec) -> bytes:
    """Replaces the records of an uncompressed batch by their compressed form: new attributes, length and CRC.

    Args:
        batch: The one uncompressed batch; not changed, and returned as it is for `Codec.NONE` and where readers would
            refuse the compressed form.
        codec: The codec to compress with.
    """
    section = None if codec is Codec.NONE else compress_readable(codec, memoryview(batch)[HEADER_BYTES:])
    return batch if section is None else with_section(batch, codec, section)


def shrink_batch(batch: bytes, codec: Codec, level: int | None = None) -> bytes:
    """Compresses the records of an uncompressed batch where that makes it smaller; else returns it as it is.

    Why not always, as Kafka's own client does: a batch that fits into `max.message.bytes` fits afterwards, too, and nobody
    decompresses for nothing.  Readers take both.

    Args:
        batch: The one uncompressed batch; not changed, and returned as it is also where readers would refuse the
            compressed form.
        codec: The codec to compress with.
        level: The level, as for `compress`.

    Raises:
        UnsupportedCompressionError: The library for this codec is not installed.
    """
    plain = memoryview(batch)[HEADER_BYTES:]
    section = compress_readable(codec, plain, level)
    return batch if section is None or len(section) >= len(plain) else with_section(batch, codec, section)


def with_section(header_source: Buffer, codec: Codec, section: Buffer) -> bytes:
    """Returns a batch with the header of another one and a new records section: codec bits, length and CRC fit it.

    Args:
        header_source: Bytes that begin with the header to take the rest from.
        codec: The codec that `section` is compressed with.
        section: The records, compressed.
    """
    out = bytearray(header_source[:HEADER_BYTES])
    out[22] = out[22] & ~0x07 | codec
    out += section
    struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


def require_codec(codec_id: int) -> None:
    """Finds out before any record is accepted whether a batch could be compressed at all.

    Raises:
        UnsupportedCompressionError: There is no such codec, or its library is not installed.
    """
    try:
        codec = Codec(codec_id)
    except ValueError:
        raise UnsupportedCompressionError(
            f"compression codec {codec_id} does not exist; the format knows 0 to 4"
        ) from None
    if codec in _WITH_LIBRARY:
        library(codec)


def _gunzip(data: memoryview, limit: int) -> bytes:
    """Decompresses concatenated gzip members, as RFC 1952 allows; zlib checks each member's checksum and length."""
    parts: list[bytes] = []
    size, position = 0, 0
    while position < len(data):
        if len(parts) >= GZIP_MEMBERS_MAX:
            raise damaged(Codec.GZIP, f"more than {GZIP_MEMBERS_MAX} members")
        member, position = _gunzip_member(data, position, limit - size)
        parts.append(member)
        size += len(member)
    if not parts:
        raise damaged(Codec.GZIP, "nothing there")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gunzip_member(data: memoryview, position: int, limit: int) -> tuple[bytes, int]:
    """Decompresses one member; returns it and the position behind it.

    The member is fed in pieces: zlib copies whatever follows its end.
    """
    stream = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    parts: list[bytes] = []
    size = 0
    while not stream.eof:
        piece = data[position : position + _GZIP_PIECE_BYTES]
        if not piece:
            raise damaged(Codec.GZIP, "cut short")
        try:
            part = stream.decompress(piece, limit - size + 1)  # one more than allowed tells "too much" from "all of it"
        except zlib.error as error:
            raise damaged(Codec.GZIP, error) from None
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        position += len(piece) - len(stream.unused_data)
    return parts[0] if len(parts) == 1 else b"".join(parts), position


def _decompress_growing(codec: Codec, data: bytes, limit: int) -> bytes:
    """Tries growing output buffers, never beyond the limit: lz4 and zstd do not say how large the result is."""
    cramjam = library(codec)
    module = cramjam.lz4 if codec is Codec.LZ4 else cramjam.zstd
    size = min(limit, max(_FIRST_GUESS_BYTES, len(data) * _GROWTH))
    while True:
        out = bytearray(size)
        try:
            written = module.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):  # anything but a full output buffer is damage
                raise damaged(codec, error) from None
        else:
            return bytes(memoryview(out)[:written])
        if size >= limit:
            raise too_large(limit)
        size = min(limit, size * _GROWTH)
