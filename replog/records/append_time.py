"""LogAppendTime: the leader's clock instead of the producer's (docs/KAFKA.md 1.1, 4.1).

Why: where `message.timestamp.type=LogAppendTime`, readers see the time of the append on every record.  Kafka writes it
into one place, the header's max timestamp, and leaves the records as they are: no record is decoded, recompressed or
moved.  Attributes and max timestamp stand under the checksum, so the batch gets a new one.
"""

from __future__ import annotations

import struct

from replog.errors import InvalidRecordError
from replog.records._crc32c import crc32c
from replog.records.header import ATTRIBUTES_POSITION, CRC_POSITION, LOG_APPEND_TIME_BIT
from replog.records.model import HEADER_BYTES

_LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1
_MAX_TIMESTAMP_POSITION = 35
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


def stamp_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Turns one batch into a LogAppendTime batch, in place: attribute bit 3, max timestamp, checksum.

    Args:
        batch: Exactly one batch whose checksum was found right (a wrong one would be made right here); writable.
        timestamp_ms: The wall time of the append, ms since 1970, from 0: what every record reads as from now on.

    Raises:
        InvalidRecordError: `batch` is shorter than a header, or `timestamp_ms` is no time.
    """
    if len(batch) < HEADER_BYTES:
        raise InvalidRecordError(f"{len(batch)} bytes are no batch; a header alone has {HEADER_BYTES}")
    if not 0 <= timestamp_ms < 2**63:
        raise InvalidRecordError(f"append time {timestamp_ms} ms is no time since 1970")
    batch[_LOW_ATTRIBUTES_POSITION] |= LOG_APPEND_TIME_BIT
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
