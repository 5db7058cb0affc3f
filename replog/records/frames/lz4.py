"""Writing lz4 as Kafka's own producer does: LZ4 frame 1.5.1, independent blocks of 64 KiB (docs/KAFKA.md 1.4).

Why not the library's frame writer: Kafka reads neither linked blocks nor frames that need a dictionary, older readers
trip over block checksums, and a reader allocates a buffer of the block size that the header names.

**Shape**, numbers little-endian::

    04 22 4d 18 | FLG 60 | BD 40 | HC 82 | { length uint32 | block }* | 00 00 00 00

FLG 60: version 1, independent blocks, no checksums, no content size.  BD 40: blocks of at most 64 KiB.  HC is the second
byte of the XXH32 of FLG and BD, here always 82.  The highest bit of a length marks a block that is stored as it is.
"""

from __future__ import annotations

from replog.records.compression_library import library
from replog.records.model import Buffer, Codec

BLOCK_BYTES = 64 * 1024

_HEADER = bytes.fromhex("04224d18604082")
_STORED_BIT = 1 << 31
_END_MARK = bytes(4)


def compress(data: Buffer) -> bytes:
    """Compresses into one frame, by the fast compressor, as Kafka's default level has it.

    Raises:
        UnsupportedCompressionError: The library is not installed.
    """
    lz4 = library(Codec.LZ4).lz4
    out = bytearray(_HEADER)
    for start in range(0, len(data), BLOCK_BYTES):
        plain = bytes(data[start : start + BLOCK_BYTES])
        block = bytes(lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little") + block
        else:
            out += (len(plain) | _STORED_BIT).to_bytes(4, "little") + plain
    return bytes(out + _END_MARK)
