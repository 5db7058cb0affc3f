"""One segment: a `.log` file of batches and its two indexes (kafka-reference 1.5 to 1.7).

    00000000000000001024.log         batch | batch | batch ...
    00000000000000001024.index       (last offset, position) about every 4 KiB
    00000000000000001024.timeindex   (largest timestamp so far, offset)

Only the last segment of a log is active: it grows, and its indexes live in memory.  Sealing writes them with `pwrite`.

| crash                                | what the next start finds                                          |
|--------------------------------------|--------------------------------------------------------------------|
| while the segment is active          | batches up to some byte, no usable index: cut and rebuilt           |
| while the indexes are written        | the recovery point is still below: scanned again, indexes rebuilt   |

Descriptors are opened when first needed and closed by the log; an idle sealed segment costs three integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from replog.errors import CorruptIndexError, CorruptRecordError
from replog.log.config import LogConfig
from replog.log.file_names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, file_path
from replog.log.flush import FileCloser
from replog.log.index_entries import FileEntries
from replog.log.offset_index import OFFSET_ENTRY_BYTES, ActiveOffsetIndex, OffsetIndex
from replog.log.segment_scan import FRAME_BYTES, Frame, parse_frame, read_header, scan_headers
from replog.log.time_index import NO_TIMESTAMP, TIME_ENTRY_BYTES, ActiveTimeIndex, TimeIndex
from replog.records import HEADER_BYTES
from replog_checkpoints import Buffer, File, FileSystem, OpenMode

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
POSITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
_SEARCH_CHUNK_BYTES: Final = 16 * 1024


class Found(NamedTuple):
    """The first batch that ends at or above an offset.

    Attributes:
        position: byte at which it starts.
        base_offset: its base offset.
        previous_end: exclusive end of the batch before it; the segment's base offset for the first one.
    """

    position: int
    base_offset: int
    previous_end: int


class SegmentRead(NamedTuple):
    """Whole batches, and where the next one starts (`next_position`, first offset not in `data`)."""

    data: bytes
    next_offset: int
    next_position: int


class LogSegment:
    """One segment of a log.

    Args:
        fs: the disk.
        directory: of the log.
        base_offset: no batch in it has a lower offset.
        size_bytes: of its `.log` file, which exists.
        created_ms: wall time, for rolling a segment whose records carry no timestamps.
    """

    __slots__ = (
        "_bytes_since_index",
        "_created_ms",
        "_directory",
        "_file",
        "_first_timestamp",
        "_fs",
        "_index_interval_bytes",
        "_largest_timestamp",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_file",
        "_offset_index",
        "_time_index",
        "base_offset",
        "size_bytes",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, size_bytes: int, created_ms: int) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self._created_ms = created_ms
        self._file: File | None = None
        self._offset_file: File | None = None
        self._offset_index: ActiveOffsetIndex | None = None
        self._time_index: ActiveTimeIndex | None = None
        self._index_interval_bytes = 0
        self._bytes_since_index = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._largest_timestamp: int | None = None

    @classmethod
    def create(cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> LogSegment:
        """A new, empty, active segment; durable once the directory is fsynced."""
        segment = cls(fs, directory, base_offset, 0, now_ms)
        segment._file = fs.open(segment.path, OpenMode.CREATE)
        segment.start_indexes(config)
        return segment

    @property
    def path(self) -> str:
        """Of the `.log` file."""
        return file_path(self._directory, self.base_offset, LOG_SUFFIX)

    @property
    def file(self) -> File:
        """The `.log` file, opened when first needed."""
        if self._file is None:
            self._file = self._fs.open(self.path, OpenMode.WRITE)
        return self._file

    @property
    def is_active(self) -> bool:
        """Its indexes are in memory; it can be appended to."""
        return self._offset_index is not None

    # Writing: the active segment

    def should_roll(
        self, config: LogConfig, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch belongs in a new segment (kafka-reference 1.5)."""
        offset_index, time_index = self._indexes()
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size_bytes == 0:
            return False
        if self.size_bytes > config.segment_bytes - batch_bytes or offset_index.is_full or time_index.is_full:
            return True
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self._first_timestamp = read_header(self.file, 0).max_timestamp
        age_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self._created_ms
        return age_ms > config.segment_ms

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Appends bytes; `note_batch` must follow for each batch in them.

        Raises:
            OSError: how much was written is unknown.
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

    def truncate(self, position: int, end_offset: int) -> None:
        """Cuts the active segment to `position` bytes, durably; `end_offset` is the first offset that is gone."""
        offset_index, time_index = self._indexes()
        self.file.truncate(position)
        self.file.sync()
        self.size_bytes = position
        offset_index.truncate_to(end_offset)
        time_index.truncate_to(end_offset)
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

    def load_indexes(self, config: LogConfig) -> int:
        """Becomes active with the indexes on disk.

        Returns:
            The offset after the last batch, or the base offset of an empty segment.

        Raises:
            CorruptIndexError: an index is missing or does not fit the log: rebuild it.
            CorruptRecordError: behind the last index entry there is something else than whole batches.
        """
        try:
            offset_data = self._read_index(INDEX_SUFFIX)
            time_data = self._read_index(TIME_INDEX_SUFFIX)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self.path}: an index file is missing") from error
        offset_index = ActiveOffsetIndex(self.base_offset, config.segment_index_bytes, offset_data)
        time_index = ActiveTimeIndex(self.base_offset, config.segment_index_bytes, time_data)
        self._check_indexes(offset_index, time_index)
        self._offset_index, self._time_index = offset_index, time_index
        self._index_interval_bytes = config.index_interval_bytes
        return self._resume()

    def activate(self, config: LogConfig) -> None:
        """A sealed segment becomes active again, because what came after it is gone."""
        try:
            self.load_indexes(config)
        except CorruptIndexError:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self.start_indexes(config)
            for _, header in scan_headers(self.file, 0, size_bytes):
                self.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)

    def write_indexes(self) -> list[File]:
        """Completes the time index and writes both indexes beside the log.

        Returns:
            The two files, open, to be synced and closed by the caller.
        """
        offset_index, time_index = self._indexes()
        if self._max_timestamp >= 0:
            time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._largest_timestamp = time_index.last().timestamp
        contents = ((INDEX_SUFFIX, offset_index.to_bytes()), (TIME_INDEX_SUFFIX, time_index.to_bytes()))
        return [self._write_index(suffix, data) for suffix, data in contents]

    def drop_indexes(self) -> None:
        """Becomes sealed: the indexes on disk are searched from now on."""
        self._offset_index = None
        self._time_index = None

    def has_usable_indexes(self) -> bool:
        """Whether both index files exist and have whole entries; their content is verified at each use."""
        for suffix, width in ((INDEX_SUFFIX, OFFSET_ENTRY_BYTES), (TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES)):
            path = file_path(self._directory, self.base_offset, suffix)
            if not self._fs.exists(path) or self._fs.size(path) % width:
                return False
        return self._fs.size(path) > 0 or not self._has_timestamps()  # the time index comes last

    # Reading

    def find(self, offset: int) -> Found | None:
        """The first batch that ends at or above `offset`; None when all batches end below it.

        Raises:
            CorruptRecordError: bytes on the way are no batch.
        """
        position, previous_end = self._seek(offset)
        for at, frame in self._frames(position):
            if frame.last_offset >= offset:
                return Found(at, frame.base_offset, previous_end)
            previous_end = frame.last_offset + 1
        return None

    def end_offset(self) -> int:
        """The offset after the last batch, or the base offset of an empty segment."""
        position, end_offset = self._seek(OFFSET_MAX)
        for _, frame in self._frames(position):
            end_offset = frame.last_offset + 1
        return end_offset

    def read(
        self, position: int, *, max_bytes: int, ceiling: int, segment_end_offset: int, min_one_batch: bool
    ) -> SegmentRead:
        """Whole batches from the one that starts at byte `position`.

        Args:
            position: start of a batch.
            max_bytes: limit, from 0; passed only by a first batch, and only with `min_one_batch`.
            ceiling: no batch that reaches this offset.
            segment_end_offset: all batches of this segment end at or below it.
            min_one_batch: return the first batch whatever its size.
        """
        rest_bytes = self.size_bytes - position
        buffer = self.file.pread(min(rest_bytes, max(max_bytes, HEADER_BYTES)), position)
        if len(buffer) == rest_bytes <= max_bytes and ceiling >= segment_end_offset:
            return SegmentRead(buffer, segment_end_offset, self.size_bytes)
        length, next_offset = self._cut(buffer, position, max_bytes, ceiling)
        if length == 0 and min_one_batch:
            first = self._frame_in(buffer, 0, position)
            if first.last_offset < ceiling:
                buffer, length = self.file.pread(first.size_bytes, position), first.size_bytes
                next_offset = first.last_offset + 1
        data = buffer if length == len(buffer) else buffer[:length]
        return SegmentRead(data, next_offset, position + length)

    def position_for_timestamp(self, timestamp: int, start_offset: int) -> int:
        """A byte position at or before the first batch from `start_offset` on with a record of at least `timestamp`."""
        entry = self._read_time_index().lookup(timestamp)
        return self._seek(max(entry.offset, start_offset))[0]

    def tail_position(self, tail_bytes: int) -> int:
        """Start of a batch that leaves at least `tail_bytes` behind it, or 0."""
        index = self._read_offset_index()
        if index is None or tail_bytes >= self.size_bytes:
            return 0
        entry = index.lookup_position(self.size_bytes - tail_bytes)
        return entry.position if entry.position > 0 and self._is_batch(entry.offset, entry.position) else 0

    def largest_timestamp(self) -> int:
        """Largest record timestamp, ms; -1 when no record has one."""
        if self._time_index is not None:
            return self._max_timestamp
        if self._largest_timestamp is None:
            self._largest_timestamp = self._read_time_index().last().timestamp
        return self._largest_timestamp

    def modified_ms(self) -> int:
        """Wall time of the last write to the file."""
        return self._fs.modified_ms(self.path)

    # Files

    def release(self, closer: FileCloser) -> None:
        """Closes its descriptors; they are opened again when needed."""
        files = (self._file, self._offset_file)
        self._file = self._offset_file = None
        for file in files:
            if file is not None:
                closer.close(file)

    def remove(self, closer: FileCloser) -> None:
        """Deletes its files, the log first: an index without a log is swept at the next start."""
        self.release(closer)
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._fs.remove(file_path(self._directory, self.base_offset, suffix))
            except FileNotFoundError:
                continue

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
        """Reads on behind the last index entry: largest timestamp so far, end offset."""
        offset_index, time_index = self._indexes()
        self._max_timestamp, self._max_timestamp_offset = time_index.last()
        self._bytes_since_index = 0
        end_offset = self.base_offset
        for _, header in scan_headers(self.file, offset_index.last().position, self.size_bytes):
            end_offset = header.next_offset
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        return end_offset

    def _check_indexes(self, offset_index: ActiveOffsetIndex, time_index: ActiveTimeIndex) -> None:
        last = offset_index.last()
        rises = offset_index.count < 2 or offset_index.entry(0).offset < last.offset
        if not rises or (offset_index.count and not self._is_batch(last.offset, last.position)):
            raise CorruptIndexError(f"{self.path}: the last offset index entry {tuple(last)} is not in the log")
        if time_index.count > 1 and time_index.entry(0).timestamp >= time_index.last().timestamp:
            raise CorruptIndexError(f"{self.path}: time index entries do not rise")
        if time_index.count == 0 and self._has_timestamps():
            raise CorruptIndexError(f"{self.path}: the time index is empty, the records have timestamps")
        if self.size_bytes == 0 and (offset_index.count or time_index.count):
            raise CorruptIndexError(f"{self.path}: index entries for an empty log")

    def _has_timestamps(self) -> bool:
        """Whether the first batch has one, so that a completed time index has an entry."""
        return self.size_bytes >= HEADER_BYTES and read_header(self.file, 0).max_timestamp >= 0

    def _is_batch(self, last_offset: int, position: int) -> bool:
        data = self.file.pread(FRAME_BYTES, position)
        return len(data) == FRAME_BYTES and parse_frame(data, 0).last_offset == last_offset

    def _read_offset_index(self) -> OffsetIndex | None:
        if self._offset_index is not None:
            return self._offset_index
        if self._offset_file is None:
            path = file_path(self._directory, self.base_offset, INDEX_SUFFIX)
            try:
                self._offset_file = self._fs.open(path, OpenMode.READ)
            except FileNotFoundError:
                return None  # searched from the start, and rebuilt at the next open
        return OffsetIndex(self.base_offset, FileEntries(OFFSET_ENTRY_BYTES, self._offset_file))

    def _read_time_index(self) -> TimeIndex:
        if self._time_index is not None:
            return self._time_index
        try:
            return ActiveTimeIndex(self.base_offset, POSITION_MAX, self._read_index(TIME_INDEX_SUFFIX))
        except (FileNotFoundError, CorruptIndexError):
            return self._time_index_from_log()

    def _time_index_from_log(self) -> TimeIndex:
        index = ActiveTimeIndex(self.base_offset, POSITION_MAX)
        for _, header in scan_headers(self.file, 0, self.size_bytes):
            if header.max_timestamp > index.last().timestamp:
                index.maybe_append(header.max_timestamp, header.last_offset)
        return index

    def _read_index(self, suffix: str) -> bytes:
        file = self._fs.open(file_path(self._directory, self.base_offset, suffix), OpenMode.READ)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _write_index(self, suffix: str, data: bytes) -> File:
        file = self._fs.open(file_path(self._directory, self.base_offset, suffix), OpenMode.REPLACE)
        if data:
            file.pwrite([data], 0)
        return file

    def _seek(self, offset: int) -> tuple[int, int]:
        """(position, end offset before it) of a batch at or before the one that holds `offset`.

        An index entry that does not fit the log is not used: the search begins at byte 0 instead.
        """
        index = self._read_offset_index()
        if index is not None and offset > self.base_offset:
            entry = index.lookup(offset - 1)
            if entry.position > 0 and entry.offset < offset and self._is_batch(entry.offset, entry.position):
                return entry.position, self.base_offset
        return 0, self.base_offset

    def _frames(self, position: int) -> Iterator[tuple[int, Frame]]:
        buffer, buffer_start = b"", position
        while position < self.size_bytes:
            within = position - buffer_start
            if within + FRAME_BYTES > len(buffer):
                length = min(_SEARCH_CHUNK_BYTES, self.size_bytes - position)
                buffer, buffer_start, within = self.file.pread(length, position), position, 0
            frame = self._frame_in(buffer, within, position)
            yield position, frame
            position += frame.size_bytes

    def _frame_in(self, buffer: bytes, within: int, position: int) -> Frame:
        if within + FRAME_BYTES > len(buffer):
            raise CorruptRecordError(self.path, position, "the file ends inside a batch header")
        frame = parse_frame(buffer, within)
        if frame.size_bytes < HEADER_BYTES or frame.last_offset < frame.base_offset:
            raise CorruptRecordError(
                self.path, position, f"no batch: {frame.size_bytes} bytes, offset {frame.base_offset}"
            )
        return frame

    def _cut(self, buffer: bytes, position: int, max_bytes: int, ceiling: int) -> tuple[int, int]:
        """(length, next offset) of the whole batches in `buffer` that stay within `max_bytes` and below `ceiling`."""
        limit = min(len(buffer), max_bytes)
        length = self._jump(buffer, position, limit, ceiling)
        next_offset = self._frame_in(buffer, length, position).base_offset if length else self.base_offset
        while length + FRAME_BYTES <= limit:
            frame = self._frame_in(buffer, length, position + length)
            if frame.last_offset >= ceiling or length + frame.size_bytes > limit:
                break
            length += frame.size_bytes
            next_offset = frame.last_offset + 1
        return length, next_offset

    def _jump(self, buffer: bytes, position: int, limit: int, ceiling: int) -> int:
        """Length of a prefix of whole batches below `ceiling`, from the index, so that not every header is walked."""
        index = self._read_offset_index() if limit > _SEARCH_CHUNK_BYTES else None  # below, walking is cheaper
        if index is None:
            return 0
        below = index.lookup(ceiling - 1)
        inside = index.lookup_position(position + limit - FRAME_BYTES)
        entry = below if below.position < inside.position else inside
        length = entry.position - position
        if length > 0 and entry.offset < ceiling and parse_frame(buffer, length).last_offset == entry.offset:
            return length
        return 0
