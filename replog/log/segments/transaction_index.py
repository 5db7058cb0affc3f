"""Transaction index: the aborted transactions that ended in one segment (docs/KAFKA.md 1.8).

Why: a consumer that reads committed records only has to skip those of aborted transactions, and is told which they are
with the records, before it sees the marker.

**Shapes** of `00000000000000000000.txnindex`: 34 bytes an entry, big-endian, no header: version int16 = 0, producer id,
first offset, last offset (of the abort marker), last stable offset (all int64).  Producer 4242, offsets 100 to 110::

    0000 0000000000001092 0000000000000064 000000000000006e 000000000000006f

The last stable offset of an entry is where the earliest transaction that was still open began, or the offset after the
marker.  A reader that has it at or above its range can stop: no later entry concerns that range.

There is no file as long as no transaction was aborted.  It is written when the segment is sealed; after a crash it is
made again from the log, like the other indexes.

Without its entries readers are shown aborted records, and nothing else on disk says at a glance that some are missing.  The
file has no checksum and stays as Kafka has it, so another one stands beside it, `00000000000000000000.txnwitness`, which Kafka
does not look at::

    1                       version
    8d1f03c6                CRC-32C of the `.txnindex`, all its bytes

| what happened                                     | what a start, or a read, makes of it                       |
|---------------------------------------------------|------------------------------------------------------------|
| one of the two is damaged                         | they contradict each other: made again from the log        |
| the `.txnindex` is gone                           | the same: the witness says that there was one              |
| a crash between the two writes                    | an unclean stop: the segment is scanned in any case        |
| Kafka, or an older replog, wrote another index    | they contradict each other: made again from the log        |
| the witness is gone                               | the index is believed, as one of Kafka                     |
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from replog.errors import CorruptIndexError
from replog.records._crc32c import crc32c

TRANSACTION_ENTRY_BYTES: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_WITNESS: Final = re.compile(rb"1\n([0-9a-f]{8})\n")


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is its marker's, `last_stable_offset` the one after that (see above)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment.

    Args:
        base_offset: Base offset of the segment.
        data: The entries so far, as in the file.

    Invariants:
        - last offsets strictly rise and lie at or above the base offset.

    Raises:
        CorruptIndexError: `data` cannot be a transaction index.
    """

    __slots__ = ("_data",)

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        if len(data) % TRANSACTION_ENTRY_BYTES:
            raise CorruptIndexError(f"transaction index of {len(data)} bytes has half an entry")
        self._data = bytearray(data)
        end = base_offset - 1
        for version, _, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(data):
            rises = end < last_offset and 0 <= first_offset < last_offset  # its data comes before its marker
            if version != _VERSION or not rises or last_stable_offset > last_offset + 1:
                raise CorruptIndexError(
                    f"transaction index of segment {base_offset}: version {version}, offsets {first_offset} to "
                    f"{last_offset} behind offset {end}"
                )
            end = last_offset

    def __len__(self) -> int:
        return len(self._data) // TRANSACTION_ENTRY_BYTES

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return (AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(self._data))

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds the transaction that the latest marker aborted."""
        self._data += _ENTRY.pack(_VERSION, *transaction)

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries whose marker lies below `offset`."""
        kept = sum(transaction.last_offset < offset for transaction in self)
        del self._data[kept * TRANSACTION_ENTRY_BYTES :]

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Adds the entries that concern [start, end) to `found`; returns whether no later entry can concern it."""
        first = bisect_left(range(len(self)), start_offset, key=self._last_offset)
        entries = _ENTRY.iter_unpack(memoryview(self._data)[first * TRANSACTION_ENTRY_BYTES :])
        for _, producer_id, first_offset, last_offset, last_stable_offset in entries:
            if first_offset < end_offset:
                found.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
            if last_stable_offset >= end_offset:  # else one that was open for long had all of these walked over
                return True
        return False

    def _last_offset(self, number: int) -> int:
        return int(_ENTRY.unpack_from(self._data, number * TRANSACTION_ENTRY_BYTES)[3])

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        return bytes(self._data)


def index_checksum(data: bytes) -> int:
    """Returns the checksum of a transaction index, which its witness names."""
    return int(crc32c(data))


def format_witness(data: bytes) -> bytes:
    """Returns the witness of a transaction index (see above)."""
    return b"1\n%08x\n" % index_checksum(data)


def parse_witness(data: bytes) -> int:
    """Returns the checksum that a witness names.

    Raises:
        CorruptIndexError: It names none: then there was an index, and nobody knows which.
    """
    match = _WITNESS.fullmatch(data)
    if match is None:
        raise CorruptIndexError("its witness names no checksum")
    return int(match[1], 16)
