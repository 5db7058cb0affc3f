"""One segment: a `.log` file of batches and its two indexes (docs/KAFKA.md 1.5 to 1.7).

    00000000000000001024.log         batch | batch | batch ...
    00000000000000001024.index       (last offset, position) about every 4 KiB
    00000000000000001024.timeindex   (largest timestamp so far, offset)
    00000000000000001024.txnindex    aborted transactions; only where there are some
    00000000000000001024.txnwitness  checksum of the file before it

Only the last segment of a log is active: it grows, and its indexes live in memory.  Sealing writes them with `pwrite`.

| crash                                | what the next start finds                                          |
|--------------------------------------|--------------------------------------------------------------------|
| while the segment is active          | batches up to some byte, no usable index: cut and rebuilt           |
| while the indexes are written        | the recovery point is still below: scanned again, indexes rebuilt   |

Descriptors are opened when first needed and closed by the log; an idle sealed segment costs a few integers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from replog.errors import CorruptIndexError, CorruptRecordError
from replog.log.config import LogConfig
from replog.log.file_names import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
)
from replog.log.segments.index_entries import without_trailing_zeros
from replog.log.segments.offset_index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    ActiveOffsetIndex,
    OffsetIndex,
    OffsetPosition,
)
from replog.log.segments.reader import Found, SegmentReader
from replog.log.segments.scan import read_header, scan_headers
from replog.log.segments.sealed_indexes import SealedIndexes
from replog.log.segments.time_index import NO_TIMESTAMP, TIME_ENTRY_BYTES, ActiveTimeIndex, TimestampOffset
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex, format_witness
from replog.records import SegmentScan
from replog_checkpoints import Buffer, File, FileSystem, OpenMode

OFFSET_MAX: Final = 2**63 - 1


class LogSegment(SealedIndexes):
    """One segment of a log.

    Args:
        fs: The disk.
        directory: The partition folder.
        base_offset: The base offset: no batch in it has a lower offset.
        size_bytes: Size of its `.log` file, which exists.
        created_ms: Wall time of its creation, for rolling a segment whose records carry no timestamps.
        suffix: The end of its files' names beside the usual: "" in use, `.cleaned`, `.swap`, `.deleted`.
    """

    __slots__ = (
        "_bytes_since_index",
        "_created_ms",
        "_first_timestamp",
        "_index_interval_bytes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_time_index",
        "_transactions",
    )

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, size_bytes: int, created_ms: int, suffix: str = ""
    ) -> None:
        super().__init__(fs, directory, base_offset, size_bytes, suffix)
        self._created_ms = created_ms
        self._offset_index: ActiveOffsetIndex | None = None
        self._time_index: ActiveTimeIndex | None = None
        self._index_interval_bytes = 0
        self._bytes_since_index = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._transactions: TransactionIndex | None = None

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int, suffix: str = ""
    ) -> LogSegment:
        """Makes a new, empty, active segment; durable once the directory is fsynced."""
        segment = cls(fs, directory, base_offset, 0, now_ms, suffix)
        segment._file = fs.open(segment.path, OpenMode.CREATE)
        segment.start_indexes(config)
        return segment

    @property
    def is_active(self) -> bool:
        """Whether it can be appended to: its indexes are in memory."""
        return self._offset_index is not None

    # Writing: the active segment

    def should_roll(
        self, config: LogConfig, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch belongs in a new segment (docs/KAFKA.md 1.5)."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size_bytes == 0:
            return False
        if self.size_bytes > config.segment_bytes - batch_bytes:
            return True
        offset_index, time_index = self._indexes()
        if offset_index.is_full or time_index.is_full:
            return True
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self._first_timestamp = read_header(self.file, 0).max_timestamp
        age_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self._created_ms
        return age_ms > config.roll_ms

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Appends bytes; `note_batch` must follow for each batch in them.

        Raises:
            OSError: The disk failed or is full; how much was written is unknown.
        """
        self.file.pwrite(buffers, self.size_bytes)

    def note_batch(self, batch_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Accounts for the batch that starts at `size_bytes`: size, largest timestamp, indexes."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self.size_bytes == 0:
            self._first_timestamp = max_timestamp
        elif self._bytes_since_index > self._index_interval_bytes:
            self._add_index_entries(last_offset)
        self._bytes_since_index += batch_bytes
        self.size_bytes += batch_bytes

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Accounts for a transaction that the batch noted last aborted."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.base_offset)
        self._transactions.append(transaction)

    def truncate(self, position: int, end_offset: int) -> None:
        """Cuts the active segment to `position` bytes, durably; `end_offset` is the first offset that is gone."""
        offset_index, time_index = self._indexes()
        self.own()
        self.file.truncate(position)
        self.file.sync()
        self.size_bytes = position
        offset_index.truncate_to(end_offset)
        time_index.truncate_to(end_offset)
        if self._transactions is not None:
            self._transactions.truncate_to(end_offset)
        self._first_timestamp = None
        self._resume()

    # Indexes

    def start_indexes(self, config: LogConfig) -> None:
        """Becomes active with empty indexes, to be filled by `note_batch` for every batch from byte 0 on."""
        self._offset_index = ActiveOffsetIndex(self.base_offset, config.segment_index_bytes)
        self._time_index = ActiveTimeIndex(self.base_offset, config.segment_index_bytes)
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._largest_timestamp = None
        self._transactions = None
        self._transactions_checksum = None
        self._verified = 0
        self.drop_maps()

    def take_scan(self, scan: SegmentScan, config: LogConfig) -> None:
        """Becomes active with the findings of a scan from byte 0; aborted transactions are noted separately."""
        self.start_indexes(config)
        self._offset_index = ActiveOffsetIndex(self.base_offset, config.segment_index_bytes, scan.offset_entries)
        self._time_index = ActiveTimeIndex(self.base_offset, config.segment_index_bytes, scan.time_entries)
        self.size_bytes = scan.size_bytes
        self._bytes_since_index = scan.bytes_since_index
        self._max_timestamp, self._max_timestamp_offset = scan.max_timestamp, scan.max_timestamp_offset
        self._first_timestamp = scan.first_timestamp if scan.size_bytes else None

    def load_indexes(self, config: LogConfig) -> int:
        """Becomes active with the indexes on disk.

        Returns:
            The offset after the last batch, or the base offset of an empty segment.

        Raises:
            CorruptIndexError: An index is missing or does not fit the log: rebuild it.
            CorruptRecordError: Behind the last index entry there is something else than whole batches.
        """
        try:
            offset_data = without_trailing_zeros(self._read_index(INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
            time_data = without_trailing_zeros(self._read_index(TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self.path}: an index file is missing") from error
        offset_index = ActiveOffsetIndex(self.base_offset, config.segment_index_bytes, offset_data)
        time_index = ActiveTimeIndex(self.base_offset, config.segment_index_bytes, time_data)
        self._check_indexes(offset_index, time_index)
        self._transactions = self.read_transactions()
        self._verified = 0
        self.drop_maps()
        self._offset_index, self._time_index = offset_index, time_index
        self._index_interval_bytes = config.index_interval_bytes
        return self._resume()

    def activate(self, config: LogConfig, transactions: TransactionIndex | None) -> None:
        """Makes a sealed segment active again, because the segments after it are gone.

        Args:
            config: The settings of the log.
            transactions: The aborted transactions that ended here, from the index or from the log; None: there are none.
        """
        self.own()
        try:
            self.load_indexes(config)
        except CorruptIndexError:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self.start_indexes(config)
            for _, header in scan_headers(self.file, 0, size_bytes):
                self.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
        self._transactions = transactions

    def write_indexes(self) -> list[File]:
        """Completes the time index and writes the indexes beside the log.

        Returns:
            The files, open, to be synced and closed by the caller, which fsyncs the directory too.
        """
        offset_index, time_index = self._indexes()
        if self._max_timestamp >= 0:
            time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._largest_timestamp = time_index.last().timestamp
        contents = [(INDEX_SUFFIX, offset_index.to_bytes()), (TIME_INDEX_SUFFIX, time_index.to_bytes())]
        if self._transactions:
            data = self._transactions.to_bytes()
            contents += [(TRANSACTION_INDEX_SUFFIX, data), (TRANSACTION_WITNESS_SUFFIX, format_witness(data))]
        elif self.has_transactions:  # cut since
            for kind in (TRANSACTION_INDEX_SUFFIX, TRANSACTION_WITNESS_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.remove(self._path(kind))
            self.has_transactions = False
        self._transactions_checksum = None  # that of the witness counts from now on
        written = self._write_indexes(contents)
        self.has_transactions = bool(self._transactions)
        return written

    def drop_indexes(self) -> None:
        """Becomes sealed: the indexes on disk are searched from now on."""
        self._offset_index = None
        self._time_index = None
        self._transactions = None

    @property
    def may_have_aborted(self) -> bool:
        """Whether transactions may have been aborted here; looks at no file."""
        return bool(self._transactions) if self.is_active else self.has_transactions

    @property
    def transactions(self) -> TransactionIndex | None:
        """The aborted transactions that ended here; None: there are none.

        Raises:
            CorruptIndexError: The file of a sealed segment is missing, or cannot be a transaction index.
        """
        return self._transactions if self.is_active else self.read_transactions()

    # Reading

    def find(self, offset: int) -> Found | None:
        """Finds the first batch that ends at or above `offset`; None when all batches end below it.

        Raises:
            CorruptRecordError: Bytes on the way are no batch.
        """
        return self.reader().find(offset)

    def end_offset(self) -> int:
        """Returns the offset after the last batch, or the base offset of an empty segment."""
        return self.reader().end_offset()

    def first_offset(self) -> int:
        """Returns the base offset of the first batch, or of the segment where it is empty.

        Raises:
            CorruptRecordError: The file does not begin with a batch.
        """
        return read_header(self.file, 0).base_offset if self.size_bytes else self.base_offset

    def reader(self, *, cached_only: bool = False) -> SegmentReader:
        """Returns a reader of the segment as it is now.  Valid until the next `release` or `truncate`."""
        index = self._read_offset_index()
        return SegmentReader(self.file, self.base_offset, self.size_bytes, index, cached_only=cached_only)

    def floor_time_entry(self, timestamp: int) -> TimestampOffset:
        """Returns the last time index entry at or below `timestamp`, not compared with the log; timestamp -1: none."""
        index = self._time_index if self._time_index is not None else self._sealed_time_index()
        return index.lookup(timestamp)

    def entry_near(self, position: int) -> OffsetPosition:
        """Returns the last index entry whose batch starts at or before byte `position`, not compared with the log."""
        return self._read_offset_index().lookup_position(position)

    def position_near(self, offset: int) -> int:
        """Returns where a batch starts that ends at or below `offset`, close to it, by the index alone."""
        return min(self._read_offset_index().lookup(offset).position, self.size_bytes)

    def tail_position(self, tail_bytes: int) -> int:
        """Returns the start of a batch with at least `tail_bytes` from there to the end, or 0."""
        index = self._read_offset_index()
        if tail_bytes >= self.size_bytes:
            return 0
        entry = index.lookup_position(self.size_bytes - tail_bytes)
        return entry.position if entry.position > 0 and self._is_batch(entry.offset, entry.position) else 0

    def largest_timestamp(self) -> int:
        """Returns the largest record timestamp, ms; -1 when no record has one."""
        if self._time_index is not None:
            return self._max_timestamp
        return self._sealed_largest_timestamp()

    # Parts

    def _indexes(self) -> tuple[ActiveOffsetIndex, ActiveTimeIndex]:
        if self._offset_index is None or self._time_index is None:
            raise CorruptIndexError(f"{self.path}: a sealed segment was used as the active one")
        return self._offset_index, self._time_index

    def _add_index_entries(self, last_offset: int) -> None:
        offset_index, time_index = self._indexes()
        if not offset_index.is_full:
            offset_index.append(last_offset, self.size_bytes)
        if not time_index.is_full and self._max_timestamp >= 0:
            time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._bytes_since_index = 0

    def _resume(self) -> int:
        """Reads on behind the last index entry: notes the largest timestamp so far, returns the end offset.

        Raises:
            CorruptRecordError: There is something else than whole batches, or a timestamp that the time index would
                know.
        """
        offset_index, time_index = self._indexes()
        last = time_index.last()
        self._max_timestamp, self._max_timestamp_offset = last
        self._bytes_since_index = 0
        end_offset = self.base_offset
        for position, header in scan_headers(self.file, offset_index.last().position, self.size_bytes):
            end_offset = header.next_offset
            if header.max_timestamp > self._max_timestamp:
                if header.last_offset < last.offset:
                    reason = (
                        f"timestamp {header.max_timestamp}, the largest up to offset {last.offset} is {last.timestamp}"
                    )
                    raise CorruptRecordError(self.path, position, reason)
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        return end_offset

    def _check_indexes(self, offset_index: ActiveOffsetIndex, time_index: ActiveTimeIndex) -> None:
        last = offset_index.last()
        rises = offset_index.count < 2 or offset_index.entry(0).offset < last.offset
        if not rises or (offset_index.count and not self._is_batch(last.offset, last.position)):
            raise CorruptIndexError(f"{self.path}: the last offset index entry {tuple(last)} is not in the log")
        if time_index.count > 1 and time_index.entry(0).timestamp >= time_index.last().timestamp:
            raise CorruptIndexError(f"{self.path}: time index entries do not rise")
        if time_index.count and not self._is_entry(time_index.last()):
            raise CorruptIndexError(
                f"{self.path}: the last time index entry {tuple(time_index.last())} is not in the log"
            )
        if time_index.count == 0 and self._has_timestamps():
            raise CorruptIndexError(f"{self.path}: the time index is empty, the records have timestamps")
        if self.size_bytes == 0 and (offset_index.count or time_index.count):
            raise CorruptIndexError(f"{self.path}: index entries for an empty log")

    def _read_offset_index(self) -> OffsetIndex:
        return self._offset_index if self._offset_index is not None else self._sealed_offset_index()
