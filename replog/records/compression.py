"""Compression of the records section (kafka-reference 1.4), with a ceiling on what comes out.

gzip is in the standard library; snappy, lz4 and zstd need the extra `replog[compression]`. Decompression takes an
absolute limit, because a few kilobytes from the network may claim to be gigabytes.

Snappy is the stream framing of snappy-java: `82 53 4e 41 50 50 59 00`, two int32 version words, then per chunk an
int32 length and one raw snappy block. lz4 is the LZ4 frame with independent blocks, the only kind Kafka reads.
"""

from __future__ import annotations

import struct
import zlib
from types import ModuleType

from crc32c import crc32c

from replog.errors import InvalidRecordError, UnsupportedCompressionError
from replog.records.model import HEADER_BYTES, LOG_OVERHEAD_BYTES, Buffer, Codec

_GZIP_WINDOW_BITS = 31  # 15 bits of window + 16: RFC 1952 wrapper
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_WITH_LIBRARY = frozenset({Codec.SNAPPY, Codec.LZ4, Codec.ZSTD})
_GROWTH = 16
"""How much larger the next attempt's output buffer is where a library cannot tell the size beforehand."""


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Returns the records section as it was before compression.

    Args:
        codec: what the batch header names.
        data: the compressed section; read only.
        max_bytes: refuse to produce more than this.

    Raises:
        InvalidRecordError: damaged, cut short, or larger than `max_bytes` when decompressed.
        UnsupportedCompressionError: the library for this codec is not installed.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, max_bytes)
        case Codec.SNAPPY:
            return _unsnappy(bytes(data), max_bytes)
        case Codec.LZ4 | Codec.ZSTD:
            return _decompress_growing(codec, data, max_bytes)


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compresses a records section.

    Raises:
        UnsupportedCompressionError: the library for this codec is not installed.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            frame = _library(codec).lz4.Compressor(content_checksum=False, block_linked=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(_library(codec).zstd.compress(bytes(data)))


def compress_batch(batch: bytes, codec: Codec) -> bytes:
    """Replaces the records of an uncompressed batch by their compressed form: new attributes, length and CRC.

    Args:
        batch: exactly one uncompressed batch; not changed, and returned as it is for `Codec.NONE`.
        codec: what to compress with.
    """
    if codec is Codec.NONE:
        return batch
    out = bytearray(batch[:HEADER_BYTES])
    out[22] |= codec
    out += compress(codec, memoryview(batch)[HEADER_BYTES:])
    struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


def require_codec(codec_id: int) -> None:
    """Finds out before any record is accepted whether a batch could be compressed at all.

    Raises:
        UnsupportedCompressionError: no such codec, or its library is not installed.
    """
    try:
        codec = Codec(codec_id)
    except ValueError:
        raise UnsupportedCompressionError(
            f"compression codec {codec_id} does not exist; the format knows 0 to 4"
        ) from None
    if codec in _WITH_LIBRARY:
        _library(codec)


def _library(codec: Codec) -> ModuleType:
    try:
        import cramjam
    except ImportError:
        raise UnsupportedCompressionError(
            f"{codec.name.lower()} compression needs a library that is not installed: pip install 'replog[compression]'"
        ) from None
    return cramjam


def _too_large(max_bytes: int) -> InvalidRecordError:
    return InvalidRecordError(f"the records decompress to more than {max_bytes} bytes; refused")


def _damaged(codec: Codec, reason: object) -> InvalidRecordError:
    return InvalidRecordError(f"damaged {codec.name.lower()} data: {reason}")


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    """Concatenated gzip members, as RFC 1952 allows."""
    out = bytearray()
    rest: Buffer = data
    while len(rest) > 0:
        stream = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        try:
            out += stream.decompress(rest, max_bytes - len(out) + 1)
        except zlib.error as error:
            raise _damaged(Codec.GZIP, error) from None
        if len(out) > max_bytes:
            raise _too_large(max_bytes)
        if not stream.eof:
            raise _damaged(Codec.GZIP, "cut short")
        rest = stream.unused_data
    return bytes(out)


def _snappy(data: Buffer) -> bytes:
    snappy = _library(Codec.SNAPPY).snappy
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    snappy = _library(Codec.SNAPPY).snappy
    if not data.startswith(_XERIAL_MAGIC):  # librdkafka and others write one raw block without the stream framing
        return _unsnappy_block(snappy, data, max_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise _damaged(Codec.SNAPPY, f"a chunk of {size} bytes, {max(0, len(data) - position)} left")
        out += _unsnappy_block(snappy, data[position : position + size], max_bytes - len(out))
        position += size
    return bytes(out)


def _unsnappy_block(snappy: ModuleType, block: bytes, max_bytes: int) -> bytes:
    """One raw block; its length prefix (a plain varint) is checked before anything is allocated."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            break
    else:
        raise _damaged(Codec.SNAPPY, "no block length")
    if size > max_bytes:
        raise _too_large(max_bytes)
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:  # noqa: BLE001 - the library's error classes are not importable without it
        raise _damaged(Codec.SNAPPY, error) from None


def _decompress_growing(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """lz4 and zstd do not say how large the result is: try growing output buffers, never beyond the limit."""
    library = _library(codec)
    module = library.lz4 if codec is Codec.LZ4 else library.zstd
    source = bytes(data)
    size = min(max_bytes, max(64 * 1024, len(source) * _GROWTH))
    while True:
        out = bytearray(size)
        try:
            written = module.decompress_into(source, out)
        except library.DecompressionError as error:
            if "whole buffer" not in str(error):  # anything but a full output buffer is damage
                raise _damaged(codec, error) from None
        else:
            return bytes(memoryview(out)[:written])
        if size >= max_bytes:
            raise _too_large(max_bytes)
        size = min(max_bytes, size * _GROWTH)
