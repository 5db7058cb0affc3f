"""Index files and producer snapshots of a partition, transaction indexes among them."""

from __future__ import annotations

from collections.abc import Iterator

from replog.cli.dump.rows import Row, damage
from replog.errors import ReplogError
from replog.log.producers.snapshot import decode_snapshot
from replog.log.segments.index_entries import MemoryEntries
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from replog.log.segments.time_index import TIME_ENTRY_BYTES, TimeIndex
from replog.log.segments.transaction_index import TRANSACTION_ENTRY_BYTES, TransactionIndex


def dump_offset_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each entry; the zeros behind the last one, which Kafka preallocates, are left out."""
    index = OffsetIndex(base_offset, MemoryEntries(OFFSET_ENTRY_BYTES, data))
    for number in range(_used(data, OFFSET_ENTRY_BYTES)):
        entry = index.entry(number)
        yield {"kind": "index_entry", "offset": entry.offset, "position": entry.position}
    yield from _rest(data, OFFSET_ENTRY_BYTES)


def dump_time_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each entry, as in `dump_offset_index`."""
    index = TimeIndex(base_offset, MemoryEntries(TIME_ENTRY_BYTES, data))
    for number in range(_used(data, TIME_ENTRY_BYTES)):
        entry = index.entry(number)
        yield {"kind": "time_index_entry", "timestamp": entry.timestamp, "offset": entry.offset}
    yield from _rest(data, TIME_ENTRY_BYTES)


def dump_transaction_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each aborted transaction."""
    rest = len(data) % TRANSACTION_ENTRY_BYTES
    try:
        for transaction in TransactionIndex(base_offset, data[: len(data) - rest]):
            yield {"kind": "aborted_transaction"} | transaction._asdict()
    except ReplogError as error:
        yield damage(None, str(error))
    yield from _rest(data, TRANSACTION_ENTRY_BYTES)


def dump_snapshot(path: str, data: bytes) -> Iterator[Row]:
    """Yields a row for each producer."""
    try:
        for entry in decode_snapshot(path, data):
            yield {"kind": "producer"} | entry._asdict()
    except ReplogError as error:
        yield damage(None, str(error))


def _used(data: bytes, entry_bytes: int) -> int:
    """Counts the entries up to the last that is not all zeros."""
    return -(-len(data[: len(data) - len(data) % entry_bytes].rstrip(b"\0")) // entry_bytes)


def _rest(data: bytes, entry_bytes: int) -> Iterator[Row]:
    rest = len(data) % entry_bytes
    if rest:
        yield damage(len(data) - rest, f"{rest} bytes are left over: entries have {entry_bytes}")
