"""Producer snapshot file: the producers of a log as they were just before one offset (docs/KAFKA.md 1.9).

Why: without it every open would read the whole log to know what the last batch of each producer was.

**Shapes** of `00000000000000000013.snapshot`, big-endian::

    int16 version = 1 | uint32 CRC-32C of everything from byte 6 | int32 count | count entries of 46 bytes
    entry: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
           timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1 none)

No producers: `0001 48674bc7 00000000`.  An entry with last offset -1 has no batch.

| crash                     | what the next start finds                                                            |
|---------------------------|--------------------------------------------------------------------------------------|
| while it is written       | a file whose CRC fails: deleted, the next older one is used and the log is read from there |
| log lost behind it        | a snapshot above the log end: deleted                                                |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from replog.errors import CorruptCheckpointError
from replog.records._crc32c import crc32c

SNAPSHOT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_CRC_START: Final = 6
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class ProducerSnapshotEntry(NamedTuple):
    """One producer.  Offsets, sequences and epochs are -1 where there is none; `timestamp` is in ms."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def encode_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Returns the bytes of the file with these entries."""
    body = _COUNT.pack(len(entries)) + b"".join(_ENTRY.pack(*entry) for entry in entries)
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(path: str, data: bytes) -> list[ProducerSnapshotEntry]:
    """Returns the entries of a file.

    Raises:
        CorruptCheckpointError: Its version, length or CRC is wrong.
    """
    if len(data) < _HEADER.size:
        raise CorruptCheckpointError(path, 0, f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptCheckpointError(path, 0, f"version {version} is not supported, only {SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptCheckpointError(path, 0, "the checksum does not fit the content")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptCheckpointError(path, 0, f"{count} producers do not make {len(data)} bytes")
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :])]
