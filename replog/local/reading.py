"""Reading a local log: by offset, by time, record by record, and as Arrow columns.

What readers see: records in [`log_start_offset`, `high_watermark`).  The high watermark is how far records are acknowledged:
the flushed offset with flush="always" (what a reader has seen no power cut takes away), the log end with flush="os".

Every read checks the CRC of the batches it decodes.  Bytes are fetched under the log's mutex and decoded outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, Self

from replog.errors import BrokerClosedError, ConfigError, CorruptRecordError, OffsetOutOfRangeError, StorageError
from replog.local.damage import located
from replog.log import Log
from replog.log.file_names import LOG_SUFFIX, parse_file_name
from replog.log.promises import read_promises
from replog.records import Record, decode_records, scan
from replog_checkpoints import FileSystem

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from replog.local.arrow import ArrowColumns

CHUNK_BYTES: Final = 1 << 20
"""How much is read at a time by iterators, and at most by one `read`, unless told otherwise."""

MAX_RECORDS: Final = 1_000
COLUMNS: Final = ("offset", "timestamp", "key", "value")
_RECORD_BYTES_GUESS: Final = 1_024  # to read a few records without reading a whole chunk
_FIRST_READ_BYTES_MIN: Final = 4_096
_FIRST_BATCH_ONLY: Final = 1  # bytes: the log answers with one batch whatever its size


class ReadableLog:
    """What can be done with any open log, whoever writes it.  Thread-safe."""

    def __init__(self, fs: FileSystem, path: str, log: Log) -> None:
        self._fs = fs
        self._path = path
        self._log = log
        self._mutex = threading.Lock()  # guards `_log`; held for memory and page cache, never while an fsync runs
        self._high_watermark = log.log_end_offset
        self._is_closed = False

    # Where it is

    @property
    def path(self) -> str:
        """The folder, absolute."""
        return self._path

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read, inclusive.  Rises by `truncate_before` and by retention."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets, exclusive end of what is written."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is acknowledged, and so of what readers see."""
        return self._high_watermark

    @property
    def flushed_offset(self) -> int:
        """Exclusive end of what is known to be on the disk; a power cut cannot reach below it."""
        return self._log.flushed_offset

    @property
    def size_bytes(self) -> int:
        """Of all segment files together, indexes not counted."""
        with self._mutex:
            return self._log.size_bytes

    @property
    def closed(self) -> bool:
        """`close` was called."""
        return self._is_closed

    # By offset

    def read(self, offset: int, *, max_records: int = MAX_RECORDS, max_bytes: int = CHUNK_BYTES) -> list[Record]:
        """Records from the first at or above `offset` on, in order, without waiting.

        Args:
            offset: from `log_start_offset` to `log_end_offset`.
            max_records: limit, from 1.
            max_bytes: limit of batch bytes that are read for it, from 1; a first batch larger than that is read whole.

        Returns:
            At most `max_records`, fewer at a limit or at the end; [] when nothing is acknowledged from `offset` on.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start (deleted) or above the log end.
            CorruptRecordError: a checksum does not fit; names file and byte.
            StorageError: the disk cannot read.
            BrokerClosedError: the log is closed.
        """
        _check_positive("max_records", max_records)
        _check_positive("max_bytes", max_bytes)
        check_offset("offset", offset)
        end_offset = self._high_watermark
        records: list[Record] = []
        read_bytes = 0
        while len(records) < max_records and read_bytes < max_bytes:
            guess = max(_FIRST_READ_BYTES_MIN, (max_records - len(records)) * _RECORD_BYTES_GUESS)
            data = self._fetch(offset, end_offset, min(max_bytes - read_bytes, guess))
            if not data or (read_bytes and read_bytes + len(data) > max_bytes):
                break
            next_offset = self._next_offset(data, offset)  # first: what it refuses must not be handed out
            records += self._decode(data, offset, end_offset)
            read_bytes += len(data)
            offset = next_offset
        del records[max_records:]
        return records

    def iterate(self, start_offset: int | None = None, end_offset: int | None = None) -> Iterator[Record]:
        """Every record with an offset in [start_offset, end_offset), in order.

        Args:
            start_offset: None = the log start, now.
            end_offset: exclusive; None, or above it = the high watermark as it is now: records that come later are not
                part of it (`LocalLog.tail` waits for them).

        Raises:
            As `read`; OffsetOutOfRangeError also when the log start passes the iterator (retention, `truncate_before`).
        """
        return self._records(*self.range_of(start_offset, end_offset))

    def __iter__(self) -> Iterator[Record]:
        """`iterate()`: everything acknowledged by now."""
        return self.iterate()

    # By time

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Offset of the first record with at least this timestamp.

        Timestamps need not rise with offsets; records behind that one may be older.

        Args:
            timestamp_ms: milliseconds since 1970.

        Returns:
            None when no record is that late.
        """
        with self._reading():
            found = self._log.offset_for_timestamp(timestamp_ms, end_offset=self._high_watermark)
        return None if found is None else found[0]

    def read_from(
        self, timestamp_ms: int, *, max_records: int = MAX_RECORDS, max_bytes: int = CHUNK_BYTES
    ) -> list[Record]:
        """`read` from `offset_for_timestamp(timestamp_ms)` on; [] when no record is that late."""
        offset = self.offset_for_timestamp(timestamp_ms)
        return [] if offset is None else self.read(offset, max_records=max_records, max_bytes=max_bytes)

    # As columns

    def arrow_batches(
        self, start_offset: int | None = None, end_offset: int | None = None, *, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """The records of `iterate` as Arrow record batches of about a megabyte, without a Python object per record.

        Args:
            start_offset, end_offset: as in `iterate`.
            columns: which, in this order; what is not named is not decoded.  **Shapes**: "offset" int64, "timestamp"
                timestamp[ms, UTC] (null = none), "key" and "value" binary (nullable), "headers"
                list<struct<key: string, value: binary>>.

        Raises:
            ImportError: pyarrow is not installed; it says how to install it.
            ConfigError: an unknown column.
            As `iterate`.
        """
        from replog.local.arrow import ArrowColumns

        return self._arrow_batches(ArrowColumns(columns), *self.range_of(start_offset, end_offset))

    def to_arrow(
        self, start_offset: int | None = None, end_offset: int | None = None, *, columns: Sequence[str] = COLUMNS
    ) -> pa.Table:
        """`arrow_batches` as one table, in memory."""
        from replog.local.arrow import ArrowColumns, to_table

        return to_table(ArrowColumns(columns).schema, self.arrow_batches(start_offset, end_offset, columns=columns))

    # For iterators

    def range_of(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """The range of an iterator, checked before the first record is asked for."""
        start = self.log_start_offset if start_offset is None else start_offset
        check_offset("start_offset", start)
        end = self._high_watermark
        if end_offset is not None:
            check_offset("end_offset", end_offset)
            end = min(end, end_offset)
        self._check_open()
        log_start_offset, log_end_offset = self.log_start_offset, self.log_end_offset
        if not log_start_offset <= start <= log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self._path} has offsets {log_start_offset} to {log_end_offset}, {start} was asked for",
                log_start_offset,
                log_end_offset,
            )
        return start, end

    def read_chunk(self, offset: int, end_offset: int) -> tuple[list[Record], int]:
        """(records, offset to go on with) of about `CHUNK_BYTES` below `end_offset`.  For `AsyncLocalLog`."""
        data = self._fetch(offset, self._high_watermark, CHUNK_BYTES)
        if not data:
            return [], end_offset
        next_offset = self._next_offset(data, offset)
        return self._decode(data, offset, end_offset), next_offset

    # Its end

    def close(self) -> None:
        """Closes the log.  Calling it again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Parts

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._mutex:
            self._check_open()
            try:
                yield
            except OSError as error:
                raise StorageError(f"{self._path} cannot be read: {error}. Check the disk") from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise BrokerClosedError(f"the log {self._path} is closed; open it again")

    def _fetch(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one; b"" at the end.

        What stands behind the first batch must not hide it: after a failed fsync anything may be there.
        """
        try:
            return self._fetch_batches(offset, end_offset, max_bytes)
        except CorruptRecordError:
            return self._fetch_batches(offset, end_offset, _FIRST_BATCH_ONLY)

    def _fetch_batches(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """From the page cache under the mutex, which takes microseconds; what must come from the disk is read without it, so
        that appends go on meanwhile.  Checksums are looked at where the batches are decoded.
        """
        with self._reading():
            data = self._log.read_cached(
                offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True, is_checked=False
            )
            if data is not None:
                return data
            job = self._log.prepare_read(
                offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True, is_checked=False
            )
        try:
            job.run()
        finally:
            with self._mutex:
                data = self._log.complete_read(job)
        return data or b""

    def _chunks(self, start_offset: int, end_offset: int) -> Iterator[tuple[bytes, int]]:
        """(batches, offset they were read for) until the end."""
        offset = start_offset
        while offset < end_offset:
            data = self._fetch(offset, self._high_watermark, CHUNK_BYTES)  # the end may lie inside a batch
            if not data:
                return
            next_offset = self._next_offset(data, offset)
            yield data, offset
            offset = next_offset

    def _records(self, start_offset: int, end_offset: int) -> Iterator[Record]:
        for data, offset in self._chunks(start_offset, end_offset):
            yield from self._decode(data, offset, end_offset)

    def _next_offset(self, data: bytes, offset: int) -> int:
        """The offset after the last batch: what lies there may be a control batch, or a gap that compaction left.

        Always above `offset`, and batches one behind the other: no checksum covers offsets and lengths, and a wrong one
        must neither hide records nor send a reader in circles.
        """
        next_offset = offset
        try:
            for header in scan(data):
                is_apart = (
                    header.base_offset < next_offset and header.position > 0
                )  # the first may begin below `offset`
                if is_apart or header.next_offset <= next_offset:
                    _refuse_place(header.position, next_offset)
                next_offset = header.next_offset
            if next_offset <= offset:
                _refuse_place(0, offset)
        except CorruptRecordError as error:
            raise located(self._fs, self._log, data, error) from error
        return next_offset

    def _decode(self, data: bytes, start_offset: int, end_offset: int) -> list[Record]:
        try:
            return decode_records(data, start_offset=start_offset, end_offset=end_offset)
        except CorruptRecordError as error:
            raise located(self._fs, self._log, data, error) from error

    def _arrow_batches(self, columns: ArrowColumns, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        for data, offset in self._chunks(start_offset, end_offset):
            try:
                yield from columns.convert(data, start_offset=offset, end_offset=end_offset)
            except CorruptRecordError as error:
                raise located(self._fs, self._log, data, error) from error


def _refuse_place(position: int, offset: int) -> NoReturn:
    raise CorruptRecordError("", position, f"no batch that follows offset {offset - 1}")


def first_offset(fs: FileSystem, directory: str) -> int | None:
    """The first offset of the log in a folder, as its files say now; None: there is no segment."""
    parsed = [parse_file_name(name) for name in fs.list_dir(directory)]
    bases = [found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX]
    return max(min(bases), read_promises(fs, directory).log_start_offset) if bases else None


def check_offset(name: str, offset: int) -> None:
    """Raises TypeError for anything but an integer; whether it is in the log is another question."""
    if type(offset) is not int:
        raise TypeError(f"{name} is an int, not {type(offset).__name__}")


def _check_positive(name: str, number: int) -> None:
    if type(number) is not int:
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if number < 1:
        raise ConfigError(name, number, f"{name} is {number}; it must be from 1")


class ReadOnlyLog(ReadableLog):
    """A log as it was when it was opened, from `replog.open_log(path, read_only=True)`.

    Takes no lock and changes no byte, so it may be opened beside a process that writes: it shows what that process had
    written by then, and nothing later (open it again for that).  What the writer deletes meanwhile cannot be read any more:
    OffsetOutOfRangeError says where the log starts now.
    """

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """As `ReadableLog.offset_for_timestamp`."""
        try:
            return super().offset_for_timestamp(timestamp_ms)
        except StorageError as error:
            self._refuse_deleted(self.log_start_offset, error)
            raise

    def _fetch_batches(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        try:
            return super()._fetch_batches(offset, end_offset, max_bytes)
        except StorageError as error:
            self._refuse_deleted(offset, error)
            raise

    def _refuse_deleted(self, offset: int, error: StorageError) -> None:
        """Raises OffsetOutOfRangeError if a file is gone because the writer's log starts above `offset` now."""
        if not isinstance(error.__cause__, FileNotFoundError):
            return
        start_offset = first_offset(self._fs, self._log.directory)
        if start_offset is not None and offset < start_offset:
            raise OffsetOutOfRangeError(
                f"{self._path} starts at {start_offset} now, {offset} was asked for: it was deleted since this reader "
                "opened the log. Open it again to see the log as it is",
                start_offset,
                max(start_offset, self.log_end_offset),
            ) from error

    def close(self) -> None:
        """Closes the files.  Calling it again does nothing."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                self._log.close(0)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"offsets {self.log_start_offset} to {self.high_watermark}"
        return f"<ReadOnlyLog {self._path}: {state}>"
