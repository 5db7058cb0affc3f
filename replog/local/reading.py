"""Reading a local log: by offset, by time, record by record, and as Arrow columns.

What readers see: records in [`log_start_offset`, `high_watermark`).  The high watermark is how far records are acknowledged:
the flushed offset with flush="always" (what a reader has seen no power cut takes away), the log end with flush="os".

Every read checks the CRC of the batches it decodes.  Bytes are fetched under the log's mutex and decoded outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

from replog.errors import (
    BrokerClosedError,
    ConfigError,
    CorruptRecordError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    StorageError,
    UnsupportedCompressionError,
)
from replog.local.iterating import RecordIterator
from replog.log import Log, ReadJob, is_disk_full
from replog.log.disk_space import disk_full
from replog.records import (
    DECOMPRESSED_BYTES_MAX,
    TRUSTED_DECOMPRESSED_BYTES_MAX,
    Buffer,
    Record,
    consecutive_end,
    decode_records,
    scan,
)
from replog_checkpoints import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

    from replog.records.arrow.columns import ArrowColumns

CHUNK_BYTES: Final = 1 << 20
"""How much is read at a time by iterators, and at most by one `read`, unless told otherwise."""

MAX_RECORDS: Final = 1_000
COLUMNS: Final = ("offset", "timestamp", "key", "value")
_DECODED_BYTES_MAX: Final = 64 << 20  # enough at a time where a few kilobytes on the disk are gigabytes
_RECORD_BYTES_GUESS: Final = 1_024  # to read a few records without reading a whole chunk
_FIRST_READ_BYTES_MIN: Final = 4_096
_T = TypeVar("_T")
_UNREADABLE: Final = (CorruptRecordError, InvalidRecordError, UnsupportedCompressionError)
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
        """Reads records from the first at or above `offset` on, in order, without waiting.

        Args:
            offset: The offset to begin at, from `log_start_offset` to `log_end_offset`.
            max_records: The most records, from 1.
            max_bytes: The most batch bytes that are read for it, from 1; a first batch larger than that is read whole.

        Returns:
            At most `max_records`, fewer at a limit or at the end; [] when nothing is acknowledged from `offset` on.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start (deleted) or above the log end.
            CorruptRecordError: A checksum does not fit; the error names file and byte.
            StorageError: The disk cannot read.
            BrokerClosedError: The log is closed.
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
            try:
                for found, next_offset in self._records_of(data, offset, end_offset):
                    records, offset = records + found, next_offset
                    if len(records) >= max_records or _value_bytes(found) > _DECODED_BYTES_MAX:
                        break
            except (CorruptRecordError, UnsupportedCompressionError):
                if records:
                    break  # the next read begins there and says so
                raise
            read_bytes += len(data)
        del records[max_records:]
        return records

    def iterate(self, start_offset: int | None = None, end_offset: int | None = None) -> Iterator[Record]:
        """Returns an iterator over every record with an offset in [start_offset, end_offset), in order.

        Args:
            start_offset: The first offset wanted; None = the log start, now.
            end_offset: The end, exclusive; None, or above it = the high watermark as it is now: later records are not
                part of it (`LocalLog.tail` waits for them).

        Raises:
            ReplogError: The errors of `read`; OffsetOutOfRangeError also when the log start passes the iterator (retention,
                `truncate_before`).  After any error, KeyboardInterrupt too, `next` goes on behind the last record given.
        """
        return RecordIterator(self.read_chunk, *self.range_of(start_offset, end_offset))

    def __iter__(self) -> Iterator[Record]:
        """Returns the loop of `iterate()`: everything acknowledged by now."""
        return iter(self.iterate())

    # By time

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Returns the offset of the first record with at least this timestamp.

        Timestamps need not rise with offsets; records behind that one may be older.

        Args:
            timestamp_ms: The time in milliseconds since 1970.

        Returns:
            None when no record is that late.
        """
        with self._mutex, self._reading():
            found = self._log.offset_for_timestamp(
                timestamp_ms, end_offset=self._high_watermark, max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX
            )
        return None if found is None else found[0]

    def read_from(
        self, timestamp_ms: int, *, max_records: int = MAX_RECORDS, max_bytes: int = CHUNK_BYTES
    ) -> list[Record]:
        """Reads as `read` from `offset_for_timestamp(timestamp_ms)` on; [] when no record is that late."""
        offset = self.offset_for_timestamp(timestamp_ms)
        return [] if offset is None else self.read(offset, max_records=max_records, max_bytes=max_bytes)

    # As columns

    def arrow_batches(
        self, start_offset: int | None = None, end_offset: int | None = None, *, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Returns the records of `iterate` as Arrow batches of about a megabyte, without a Python object per record.

        Args:
            start_offset, end_offset: The range, as in `iterate`.
            columns: The columns, in order; what is not named is not decoded.  **Shapes**: "offset" int64, "timestamp"
                timestamp[ms, UTC] (null = none), "timestamp_type" int32 (0 CreateTime, 1 LogAppendTime),
                "key" and "value" binary (nullable), "headers" list<struct<key: string, value: binary>>.

        Raises:
            ImportError: `pyarrow` is not installed; it says how to install it.
            ConfigError: A column is unknown or repeated, or none is named.
            ReplogError: The errors of `iterate`.
        """
        from replog.records.arrow.columns import ArrowColumns

        return self._arrow_batches(ArrowColumns(columns), *self.range_of(start_offset, end_offset))

    def to_arrow(
        self, start_offset: int | None = None, end_offset: int | None = None, *, columns: Sequence[str] = COLUMNS
    ) -> pa.Table:
        """Returns `arrow_batches` as one table, in memory."""
        from replog.records.arrow.columns import ArrowColumns

        batches = self.arrow_batches(start_offset, end_offset, columns=columns)
        return ArrowColumns(columns).table(batches)

    # For iterators

    def range_of(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Returns the range of an iterator, checked before the first record is asked for."""
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
        """Reads about `CHUNK_BYTES` below `end_offset`; returns records, and where to go on, at most `end_offset`."""
        data = self._fetch(offset, self._high_watermark, CHUNK_BYTES)  # the end may lie inside a batch
        if not data:
            return [], end_offset
        records: list[Record] = []
        for found, next_offset in self._records_of(data, offset, end_offset):
            records, offset = records + found, next_offset
            if _value_bytes(records) > _DECODED_BYTES_MAX:
                break
        return records, min(offset, end_offset)

    # Its end

    def close(self) -> None:
        """Closes the log.  Calling it again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Parts

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Refuses to read a closed log, and turns an OSError of a read under the mutex into an error of ours.

        It does not take the mutex itself: a generator that is interrupted on its way into the `with` keeps what it holds until
        the interrupt has been dealt with, and closing the log meanwhile would wait for ever.
        """
        self._check_open()
        try:
            yield
        except OSError as error:
            if is_disk_full(error):
                raise disk_full("a read did not begin", self._path, error) from error
            raise StorageError(f"{self._path} cannot be read: {error}. Check the disk") from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise BrokerClosedError(f"the log {self._path} is closed; open it again")

    def _fetch(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Reads whole batches from the one that holds `offset`, at least one; b"" at the end.

        Raises CorruptRecordError where offsets up to `end_offset` must be there, and are not: a flipped bit may have moved a
        batch away.  What stands behind the first batch must not hide it: after a failed fsync anything may be there.
        """
        try:
            data = self._fetch_batches(offset, end_offset, max_bytes)
        except CorruptRecordError:
            data = self._fetch_batches(offset, end_offset, _FIRST_BATCH_ONLY)
        if not data and offset < end_offset and self._is_complete_from(offset):
            raise self._located(data, _no_batch_at(0, offset))
        return data

    def _fetch_batches(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Reads batches from the page cache under the mutex, which takes microseconds, else from the disk without it:
        appends go on meanwhile.  Checksums are looked at where the batches are decoded.
        """
        job: ReadJob | None = None
        try:
            with self._mutex, self._reading():
                data = self._log.read_cached(
                    offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True, is_checked=False
                )
                if data is not None:
                    return data
                job = self._log.prepare_read(
                    offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True, is_checked=False
                )
            job.run()
        finally:
            if job is not None:
                with self._mutex:
                    data = self._log.complete_read(job)
        return data or b""

    def _ends(self, data: bytes, offset: int) -> tuple[list[tuple[int, int]], CorruptRecordError | None]:
        """Returns the (byte, offset) at which each batch ends, and what is wrong behind them.

        What lies at an end may be a control batch, or a gap that compaction left.  Batches must stand one behind the other
        and each above `offset`: no checksum covers offsets and lengths, and a wrong one must neither hide records nor send
        a reader in circles.  Of two that contradict each other either may be wrong: neither counts, unless each must
        begin where the one before it ended.
        """
        ends: list[tuple[int, int]] = []
        is_complete = self._is_complete_from(offset)
        try:
            for header in scan(data):
                is_apart = header.base_offset < offset and header.position > 0  # the first may begin below `offset`
                if is_complete and (is_apart or header.base_offset > offset):
                    return ends, _no_batch_at(header.position, offset)
                if is_apart or header.next_offset <= offset:
                    return ends[:-1], _no_batch_at(ends[-2][0] if len(ends) > 1 else header.position, offset)
                offset = header.next_offset
                ends.append((header.end_position, offset))
        except CorruptRecordError as error:
            return ends, error
        return ends, None if ends else _no_batch_at(0, offset)

    def _is_complete_from(self, offset: int) -> bool:
        """Whether no offset at or above `offset` may be missing."""
        complete_from = self._log.complete_from
        return complete_from is not None and offset >= complete_from

    def _decoded(
        self, data: bytes, offset: int, end_offset: int, decode: Callable[[Buffer, int], _T]
    ) -> Iterator[tuple[_T, int]]:
        """Yields (what `decode` makes of it, offset to go on with): everything at once, or else batch by batch.

        So what is good in front of damage comes first, and so does what is too much to be decoded at once.

        Args:
            data: The whole batches that were read for `offset`.
            offset: The offset below which everything was handed out.
            end_offset: The exclusive end of what is wanted.
            decode: Decodes batches; told the most bytes that one of them may become.

        Raises:
            CorruptRecordError, UnsupportedCompressionError: The first batch is unreadable; one further behind ends it
                silently, and the next read begins there.
        """
        next_offset = consecutive_end(data, next_offset=offset, is_complete=self._is_complete_from(offset))
        if next_offset >= 0:  # first: what it refuses must not be handed out
            try:
                whole = decode(data, DECOMPRESSED_BYTES_MAX)
            except _UNREADABLE:
                pass
            else:
                yield whole, next_offset
                return
        ends, damage = self._ends(data, offset)
        if not ends and damage is not None:
            raise self._located(data, damage) from damage
        yield from self._one_by_one(data, ends, end_offset, decode)

    def _one_by_one(
        self, data: bytes, ends: Sequence[tuple[int, int]], end_offset: int, decode: Callable[[Buffer, int], _T]
    ) -> Iterator[tuple[_T, int]]:
        start = 0
        for position, next_offset in ends:
            try:
                found = _decode_one(memoryview(data)[start:position], decode)
            except _UNREADABLE as error:
                if start:
                    return
                raise self._located(data, error) from error
            yield found, next_offset
            if next_offset >= end_offset:
                return
            start = position

    def _records_of(self, data: bytes, offset: int, end_offset: int) -> Iterator[tuple[list[Record], int]]:
        def decode(part: Buffer, max_bytes: int) -> list[Record]:
            return decode_records(part, start_offset=offset, end_offset=end_offset, max_decompressed_bytes=max_bytes)

        return self._decoded(data, offset, end_offset, decode)

    def _located(self, data: bytes, error: Exception) -> Exception:
        """Returns the error that the first batch in `data` met, with file and byte."""
        if isinstance(error, InvalidRecordError):  # whole, and nobody can decode it: damage all the same
            error = CorruptRecordError("", 0, str(error))
        return self._log.located(data, error) if isinstance(error, CorruptRecordError) else error

    def _arrow_batches(self, columns: ArrowColumns, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        offset = start_offset

        def decode(part: Buffer, max_bytes: int) -> list[pa.RecordBatch]:
            return columns.convert(part, start_offset=offset, end_offset=end_offset, max_decompressed_bytes=max_bytes)

        while offset < end_offset and (data := self._fetch(offset, self._high_watermark, CHUNK_BYTES)):
            for found, next_offset in self._decoded(data, offset, end_offset, decode):
                yield from found
                offset = next_offset


def _decode_one(batch: Buffer, decode: Callable[[Buffer, int], _T]) -> _T:
    """Decodes one batch: within the limits of every reader, or as large as older versions wrote it."""
    try:
        return decode(batch, DECOMPRESSED_BYTES_MAX)
    except InvalidRecordError:
        return decode(batch, TRUSTED_DECOMPRESSED_BYTES_MAX)


def _no_batch_at(position: int, offset: int) -> CorruptRecordError:
    return CorruptRecordError("", position, f"no batch that follows offset {offset - 1}")


def _value_bytes(records: Sequence[Record]) -> int:
    return sum(len(record.value or b"") for record in records)


def check_offset(name: str, offset: int) -> None:
    """Raises TypeError for anything but an integer; whether it is in the log is another question."""
    if type(offset) is not int:
        raise TypeError(f"{name} is an int, not {type(offset).__name__}")


def _check_positive(name: str, number: int) -> None:
    if type(number) is not int:
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if number < 1:
        raise ConfigError(name, number, f"{name} is {number}; it must be from 1")
