"""Look-ups in a segment that does not grow any more: its index files, mapped, and never believed without a check.

| what is wrong                                             | noticed                       | then                          |
|-----------------------------------------------------------|-------------------------------|-------------------------------|
| a file is missing, has half an entry, or does not rise    | when it is mapped             | made again from the headers   |
| its last entry is not in the log                          | when it is mapped             | made again from the headers   |
| it ends before the segment's largest timestamp            | when it is mapped             | made again from the headers   |
| another entry is not in the log                           | when it is used               | the search begins at byte 0   |
| the `.txnindex` is not the one that its witness names     | at the start, and at each use | made again from the log       |

Indexes that were made again are held in memory until `rewrite_indexes` puts them on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replog.errors import CorruptIndexError, CorruptRecordError
from replog.log.file_names import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
)
from replog.log.segments.files import SegmentFiles
from replog.log.segments.index_cache import INDEX_CACHE
from replog.log.segments.index_entries import MappedEntries
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, ActiveOffsetIndex, OffsetIndex
from replog.log.segments.reader import SegmentReader
from replog.log.segments.scan import PlacedHeader, read_header, scan_headers
from replog.log.segments.time_index import TIME_ENTRY_BYTES, ActiveTimeIndex, TimeIndex, TimestampOffset
from replog.log.segments.transaction_index import TransactionIndex, index_checksum, parse_witness
from replog.records import HEADER_BYTES
from replog_checkpoints import File, FileSystem

_INDEX_BYTES_MAX: Final = 2**31 - 1
_REBUILT_INTERVAL_BYTES: Final = 4096
_OFFSETS_VERIFIED: Final = 1
_TIMES_VERIFIED: Final = 2


class SealedIndexes(SegmentFiles):
    """The indexes of a sealed segment.

    Attributes:
        needs_rewrite: Whether an index on disk is missing or wrong.
        has_transactions: Whether there is a `.txnindex` file, or a witness that there was one.
    """

    __slots__ = ("_largest_timestamp", "_transactions_checksum", "_verified", "has_transactions", "needs_rewrite")

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, size_bytes: int, suffix: str) -> None:
        super().__init__(fs, directory, base_offset, size_bytes, suffix)
        self._largest_timestamp: int | None = None
        self._verified = 0
        self._transactions_checksum: int | None = None  # of the right content, once it is known
        self.needs_rewrite = False
        self.has_transactions = False

    def has_usable_indexes(self, names: set[str]) -> bool:
        """Whether its index files exist and have whole entries; the rest is looked at when they are used.

        Args:
            names: Names of all files in the partition folder.
        """
        sizes = []
        for kind, width in ((INDEX_SUFFIX, OFFSET_ENTRY_BYTES), (TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES)):
            path = self._path(kind)
            if path.rpartition("/")[2] not in names:
                return False
            sizes.append(self._fs.size(path))
            if sizes[-1] % width:
                return False
        if sizes[1] == 0 and self._has_timestamps():
            return False
        try:
            self.read_transactions()
        except CorruptIndexError:
            return False
        return True

    def read_transactions(self) -> TransactionIndex | None:
        """Reads the aborted transactions that ended here; None: there are none.

        Raises:
            CorruptIndexError: The file is missing, cannot be a transaction index, or is not the one that was written.
        """
        if not self.has_transactions:
            return None
        try:
            data = self._read_index(TRANSACTION_INDEX_SUFFIX)
            if not data:  # written only with its first entry
                raise CorruptIndexError("the file is empty")  # noqa: TRY301  the path is added below, as for the others
            index = TransactionIndex(self.base_offset, data)
            self._require_witnessed(index_checksum(data))
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self._path(TRANSACTION_INDEX_SUFFIX)} is missing") from error
        except CorruptIndexError as error:
            raise CorruptIndexError(f"{self._path(TRANSACTION_INDEX_SUFFIX)}: {error}") from error
        return index

    def _require_witnessed(self, checksum: int) -> None:
        """Refuses a transaction index that is not the one that was written; without a witness the first one is believed."""
        known = self._transactions_checksum
        if known is None:
            known = self._read_witness()
        if known is not None and known != checksum:
            raise CorruptIndexError(f"its checksum is {checksum:08x}, {known:08x} was written")
        self._transactions_checksum = checksum

    def _read_witness(self) -> int | None:
        try:
            return parse_witness(self._read_index(TRANSACTION_WITNESS_SUFFIX))
        except FileNotFoundError:
            return None

    def rewrite_indexes(self) -> list[File]:
        """Replaces index files that were found wrong; returns them open, to be synced and closed by the caller."""
        written = self._write_indexes(list(zip((INDEX_SUFFIX, TIME_INDEX_SUFFIX), self._rebuild(), strict=True)))
        self.needs_rewrite = False
        self._verified = 0
        return written

    def _sealed_offset_index(self) -> OffsetIndex:
        content = INDEX_CACHE.get(self, INDEX_SUFFIX)
        if content is None:
            content = self._map_offset_index()
        return OffsetIndex(self.base_offset, MappedEntries(OFFSET_ENTRY_BYTES, content))

    def _read_offset_index(self) -> OffsetIndex:
        """Returns the offset index in force; an active segment has it in memory."""
        return self._sealed_offset_index()

    def _sealed_time_index(self) -> TimeIndex:
        content = INDEX_CACHE.get(self, TIME_INDEX_SUFFIX)
        if content is None:
            content = self._map_time_index()
        return TimeIndex(self.base_offset, MappedEntries(TIME_ENTRY_BYTES, content))

    def _sealed_largest_timestamp(self) -> int:
        if self._largest_timestamp is None:
            with self.opened_briefly():
                self._largest_timestamp = self._sealed_time_index().last().timestamp
        return self._largest_timestamp

    def _map_offset_index(self) -> memoryview:
        try:
            content = self._map_file(INDEX_SUFFIX)
        except FileNotFoundError:
            content = None
        if content is None or not (self._verified & _OFFSETS_VERIFIED or self._fits_offsets(content)):
            self.needs_rewrite = True
            content = memoryview(self._rebuild(until_damage=True)[0])
        else:
            self._verified |= _OFFSETS_VERIFIED
        return INDEX_CACHE.put(self, INDEX_SUFFIX, content)

    def _map_time_index(self) -> memoryview:
        try:
            content = self._map_file(TIME_INDEX_SUFFIX)
        except FileNotFoundError:
            content = None
        if content is None or not (self._verified & _TIMES_VERIFIED or self._fits_times(content)):
            self.needs_rewrite = True
            content = memoryview(self._rebuild()[1])
        else:
            self._verified |= _TIMES_VERIFIED
        return INDEX_CACHE.put(self, TIME_INDEX_SUFFIX, content)

    def _fits_offsets(self, content: memoryview) -> bool:
        if len(content) % OFFSET_ENTRY_BYTES:
            return False
        index = OffsetIndex(self.base_offset, MappedEntries(OFFSET_ENTRY_BYTES, content))
        last = index.last()
        if index.count > 1 and index.entry(0).offset >= last.offset:
            return False
        return index.count == 0 or (last.position > 0 and self._is_batch(last.offset, last.position))

    def _fits_times(self, content: memoryview) -> bool:
        """Whether a time index fits the log, and the segment's last batches are not newer than it knows."""
        if len(content) % TIME_ENTRY_BYTES:
            return False
        index = TimeIndex(self.base_offset, MappedEntries(TIME_ENTRY_BYTES, content))
        if index.count == 0:
            return not self._has_timestamps()
        last = index.last()
        if (index.count > 1 and index.entry(0).timestamp >= last.timestamp) or not self._is_entry(last):
            return False
        tail = self._sealed_offset_index().last().position
        headers = scan_headers(self.file, tail, self.size_bytes)
        return all(header.max_timestamp <= last.timestamp for _, header in headers)

    def _rebuild(self, *, until_damage: bool = False) -> tuple[bytes, bytes]:
        """Builds both indexes from the headers of the log, without checksums: a sealed segment was checked before.

        Args:
            until_damage: Whether to end at a damaged batch instead of raising: offsets before it can be found all the
                same.  A time index that knows only a part would let retention delete too early.

        Raises:
            CorruptRecordError: Something on the way is no batch, or one that cannot stand there.
        """
        offset_index = ActiveOffsetIndex(self.base_offset, _INDEX_BYTES_MAX)
        time_index = ActiveTimeIndex(self.base_offset, _INDEX_BYTES_MAX)
        bytes_since_index, largest = 0, time_index.last()
        try:
            for position, header in self._headers_in_order():
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
                if position and bytes_since_index > _REBUILT_INTERVAL_BYTES:
                    offset_index.append(header.last_offset, position)
                    time_index.maybe_append(*largest)
                    bytes_since_index = 0
                bytes_since_index += header.size_bytes
        except CorruptRecordError:
            if not until_damage:
                raise
        if largest.timestamp >= 0:
            time_index.maybe_append(*largest)
        return offset_index.to_bytes(), time_index.to_bytes()

    def _headers_in_order(self) -> Iterator[PlacedHeader]:
        """Walks over all headers; raises CorruptRecordError at one whose offsets an index cannot hold."""
        next_offset = self.base_offset
        for position, header in scan_headers(self.file, 0, self.size_bytes):
            if header.base_offset < next_offset or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                reason = f"offsets {header.base_offset} to {header.last_offset} cannot stand here"
                raise CorruptRecordError(self.file.path, position, reason)
            next_offset = header.next_offset
            yield PlacedHeader(position, header)

    def _is_entry(self, entry: TimestampOffset) -> bool:
        """Whether the batch that ends with this offset brought this timestamp."""
        if not self.base_offset <= entry.offset:
            return False
        try:
            index = self._read_offset_index()
            found = SegmentReader(self.file, self.base_offset, self.size_bytes, index).find(entry.offset)
            if found is None:
                return False
            header = read_header(self.file, found.position)
        except CorruptRecordError:
            return False  # the record path will say so; an index entry proves nothing here
        return header.last_offset == entry.offset and header.max_timestamp == entry.timestamp

    def _has_timestamps(self) -> bool:
        """Whether the first batch has one, so that a completed time index has an entry."""
        return self.size_bytes >= HEADER_BYTES and read_header(self.file, 0).max_timestamp >= 0

    def _is_batch(self, last_offset: int, position: int) -> bool:
        return SegmentReader(self.file, self.base_offset, self.size_bytes, None).is_batch(last_offset, position)
