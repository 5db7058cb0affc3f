"""The 61-byte batch header: all a broker ever looks at (docs/KAFKA.md 1.1).

A batch travels from producer to disk to consumer as one opaque buffer. What routing, offsets, idempotence and recovery
need stands in its first 61 bytes, so nothing on that way decodes records.

**Shapes**, big-endian::

    off size field                      off size field
      0    8 base offset                 27    8 base timestamp (or the delete horizon, attribute bit 6)
      8    4 length after this field     35    8 max timestamp
     12    4 partition leader epoch      43    8 producer id
     16    1 magic = 2                   51    2 producer epoch
     17    4 CRC-32C of [21, end)        53    4 base sequence
     21    2 attributes                  57    4 records count
     23    4 last offset delta           61    . records

The CRC leaves out the first 21 bytes, which is why a leader can stamp offset and epoch without reading the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from replog.errors import CorruptRecordError, UnsupportedCompressionError
from replog.records._crc32c import crc32c
from replog.records.model import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    Codec,
    TimestampType,
)

MAGIC = 2
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
OFFSET_MAX = 2**63 - 2  # so that the offset behind it is one, too
SEQUENCE_MODULUS = 2**31

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_PREFIX = struct.Struct(">qii")
_LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1
_PRODUCER_POSITION = 43
_PRODUCER = struct.Struct(">qhi")


class BatchHeader(NamedTuple):
    """One parsed header and where its batch stands in the buffer it was read from.

    A tuple, because every append, fetch and scan makes one for each batch: a frozen dataclass takes five times as long.

    Attributes:
        position: The byte position of the batch in that buffer.
        base_offset: The offset of the first record of the original batch; survives compaction.
        size_bytes: The size of the whole batch, including the 12 bytes that its length field leaves out.
        partition_leader_epoch: The epoch of the leader that appended it, -1 before that.
        crc: The CRC-32C of attributes to end, as stored.
        attributes: The attributes as stored; only the low byte has meaning.
        last_offset_delta: The last offset minus the base offset; also the last sequence minus the base sequence.
        base_timestamp: The base timestamp in ms; the delete horizon when `has_delete_horizon`.
        max_timestamp: The largest timestamp in ms; the time of every record when the type is LOG_APPEND_TIME.
        records_count: The number of records; fewer than `last_offset_delta + 1` after compaction.
    """

    position: int
    base_offset: int
    size_bytes: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def end_position(self) -> int:
        """Byte position just after this batch: where the next one starts."""
        return self.position + self.size_bytes

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch had when it was written."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Exclusive end of the batch: the offset of whatever follows it."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2^31 - 1 to 0; -1 for a producer without idempotence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def codec(self) -> Codec:
        """Compression of the records.

        Raises:
            UnsupportedCompressionError: The id is one of 5 to 7, which no version of the format defines.
        """
        codec_id = self.attributes & CODEC_MASK
        try:
            return Codec(codec_id)
        except ValueError:
            raise UnsupportedCompressionError(
                f"batch at offset {self.base_offset} names compression codec {codec_id}; the format knows 0 to 4"
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Written inside a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Carries control records (markers, leader changes), which clients never see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Compaction put the delete horizon into `base_timestamp`."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        """An idempotent or transactional producer wrote it."""
        return self.producer_id != NO_PRODUCER_ID


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`; the records behind it need not be in the buffer.

    Raises:
        CorruptRecordError: There are fewer than 61 bytes, the magic is not 2, or no batch can have this length.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptRecordError("", position, f"a batch header has {HEADER_BYTES} bytes, the buffer ends before that")
    base_offset, length, epoch, magic, crc, *rest = HEADER.unpack_from(buffer, position)
    if length < LENGTH_MIN:
        raise CorruptRecordError("", position, f"batch length {length} is below the minimum of {LENGTH_MIN}")
    if magic != MAGIC:
        raise CorruptRecordError("", position, f"magic {magic} is not {MAGIC}")
    return BatchHeader(position, base_offset, length + LOG_OVERHEAD_BYTES, epoch, crc, *rest)


def scan(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Walks the headers of all whole batches from `position`; a torn last batch ends the walk quietly.

    Checksums are not looked at: see `check_crc`.

    Raises:
        CorruptRecordError: A header cannot be one, for example with a negative offset, delta or count.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = parse_header(buffer, position)
        if header.end_position > end:
            return
        check_header(header)
        yield header
        position = header.end_position


def check_header(header: BatchHeader) -> None:
    """Refuses values that the arithmetic of offsets cannot work with.

    Raises:
        CorruptRecordError: A base offset, offset delta or count is negative, or an offset is beyond 2^63 - 2.
    """
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > OFFSET_MAX:
        raise CorruptRecordError(
            "",
            header.position,
            f"base offset {header.base_offset} + last delta {header.last_offset_delta} is no offset",
        )
    if not 0 <= header.records_count <= header.last_offset_delta + 1:
        raise CorruptRecordError(
            "",
            header.position,
            f"{header.records_count} records cannot stand in {header.last_offset_delta + 1} offsets",
        )


def check_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Compares the stored checksum with the bytes, compressed as they are.

    Args:
        buffer: The buffer that `header.position` refers to; the whole batch is in it.
        header: The header from `parse_header` or `scan`.

    Raises:
        CorruptRecordError: The bytes differ, or the batch is cut short.
    """
    if header.end_position > len(buffer):
        raise CorruptRecordError(
            "", header.position, f"{header.size_bytes} bytes announced, the buffer ends before that"
        )
    actual = crc32c(memoryview(buffer)[header.position + ATTRIBUTES_POSITION : header.end_position])
    if actual != header.crc:
        raise CorruptRecordError("", header.position, f"checksum {actual:#010x}, the header says {header.crc:#010x}")


def restamped_prefix(header_source: Buffer, position: int, base_offset: int, leader_epoch: int) -> bytes:
    """Returns the first 16 bytes of a batch with the leader's offset and epoch in them; the length stays.

    A leader writes `[prefix, batch[16:]]` with one `writev`: the records are not copied and the CRC still holds.

    Args:
        header_source: The buffer with the batch as the producer sent it; not changed.
        position: The position where the batch starts in it.
        base_offset: The offset its first record gets.
        leader_epoch: The epoch of the appending leader.
    """
    (length,) = _LENGTH.unpack_from(header_source, position + 8)
    return _PREFIX.pack(base_offset, length, leader_epoch)


def with_producer(
    batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
) -> bytes:
    """Returns the batch of another producer, or of another sequence: its records, compressed as they are, a new checksum.

    Args:
        batch: Exactly one batch whose checksum is right (a wrong one would be made right here); not changed.
        producer_id, producer_epoch, base_sequence: The producer and its sequence.
        is_transactional: Whether the batch is part of a transaction of that producer.
    """
    stamped = bytearray(batch)
    attributes = stamped[_LOW_ATTRIBUTES_POSITION]
    stamped[_LOW_ATTRIBUTES_POSITION] = (
        attributes | TRANSACTIONAL_BIT if is_transactional else attributes & ~TRANSACTIONAL_BIT
    )
    _PRODUCER.pack_into(stamped, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    stamped[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(memoryview(stamped)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return bytes(stamped)
