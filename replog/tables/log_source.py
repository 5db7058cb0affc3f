"""A log in a folder that is read once, for a scan or an export: opened without a lock, read a little at a time; decoding verifies every checksum.

What ends it is the end of the log as recovery finds it.  Half a batch behind it (being written right now, or torn
by a crash) is left out and counted; whole bytes that fail their checks are an error, since good records may stand behind.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replog.errors import CorruptRecordError, InvalidRecordError, OffsetOutOfRangeError, StorageError
from replog.log import Log
from replog.log.recovery.promises import read_promises
from replog.records import (
    HEADER_BYTES,
    TRUSTED_DECOMPRESSED_BYTES_MAX,
    check_crc,
    decode_columns,
    parse_header,
    scan,
)
from replog.tables.committed import CommittedOnly, Everything
from replog.tables.tail import damage_behind
from replog_checkpoints import OsFileSystem

CHUNK_BYTES: Final = 256 << 10
"""Of batches that are decoded at a time; compressed ones may become a hundred times that."""
_FIRST_BATCH_ONLY: Final = 1  # bytes: the log answers with one batch whatever its size


class Run(Struct, frozen=True):
    """Neighbouring data batches of one leader epoch, and the offsets in them that are wanted: [start, end)."""

    data: bytes
    leader_epoch: int
    start_offset: int
    end_offset: int


@dataclass(slots=True)
class LogSource:
    """One log, opened for reading only.

    Args:
        directory: The partition folder of the log.
        is_committed: Whether only records of no or of committed transactions are read, below the last stable offset.

    Raises:
        CorruptRecordError: Flushed bytes at the end are damaged or gone.
        StorageError: The disk cannot read.
    """

    directory: Path
    is_committed: bool
    log: Log = field(init=False)
    high_watermark: int | None = field(init=False)
    _fs: OsFileSystem = field(init=False, default_factory=OsFileSystem)

    def __post_init__(self) -> None:
        path = str(self.directory.resolve())
        promises = read_promises(self._fs, path)
        self.high_watermark = promises.high_watermark
        self.log = Log.open_read_only(self._fs, path, now_ms=time.time_ns() // 1_000_000, promises=promises)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended."""
        return self.log.last_stable_offset(self.log.log_end_offset)

    @property
    def torn_bytes(self) -> int:
        """The bytes of half a batch behind the end."""
        return self.log.recovery.bytes_cut

    def range_of(self, from_offset: int | None, to_offset: int | None) -> tuple[int, int]:
        """Returns the range that is exported, exclusive end.

        Raises:
            OffsetOutOfRangeError: The log has no such offsets.
            CorruptRecordError: The range reaches bytes that are no batches.
        """
        start_offset, log_end_offset = self.log.log_start_offset, self.log.log_end_offset
        first = start_offset if from_offset is None else from_offset
        last = log_end_offset if to_offset is None else to_offset
        if self.torn_bytes and (to_offset is None or to_offset > log_end_offset):
            damage = damage_behind(self._fs, self.log)
            if damage is not None:
                raise damage
        for offset in (first, last):
            if not start_offset <= offset <= log_end_offset:
                reason = f"{self.directory} has offsets {start_offset} to {log_end_offset}, {offset} was asked for"
                raise OffsetOutOfRangeError(reason, start_offset, log_end_offset)
        return first, min(last, max(first, self.last_stable_offset)) if self.is_committed else last

    def runs(self, start_offset: int, end_offset: int) -> Iterator[Run]:
        """Yields all data batches with offsets in [start, end), in order.

        Raises:
            CorruptRecordError: A header is damaged, or batches do not follow each other.
            CorruptIndexError: Only committed records are read, and a transaction index does not name what was aborted.
        """
        choice: CommittedOnly | Everything = Everything()
        if self.is_committed:
            choice = CommittedOnly(self.log.aborted_transactions(start_offset, end_offset))
        offset = start_offset
        while offset < end_offset and (data := self._read(offset)):
            try:
                limit = self._segment_end(data, offset)
                next_offset = _next_offset(data, offset, end_offset, limit, is_first=offset == start_offset)
                yield from self._runs_of(data, offset, end_offset, choice)
            except CorruptRecordError as error:
                raise self.log.located(data, error) from error
            offset = next_offset

    def count_aborted(self, start_offset: int, end_offset: int) -> int | None:
        """Counts the aborted transactions with records in [start, end); None: their index cannot be read."""
        try:
            return len(self.log.aborted_transactions(start_offset, end_offset))
        except StorageError:
            return None

    def offset_at(self, timestamp_ms: int, end_offset: int) -> int | None:
        """Returns the offset of the first record at or after a time, in milliseconds since 1970; None: none below `end_offset` is."""
        found = self.log.offset_for_timestamp(
            timestamp_ms, end_offset=end_offset, max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX
        )
        return None if found is None else found[0]

    def batches_of(self, run: Run) -> Iterator[Run]:
        """Yields the batches of a run, each alone."""
        for header in scan(run.data):
            yield replace(run, data=run.data[header.position : header.end_position])

    def found_in(self, run: Run, error: CorruptRecordError | InvalidRecordError) -> Exception:
        """Returns the error that decoding a run met, as that of the first batch in it that cannot be decoded."""
        for batch in self.batches_of(run):
            try:
                decode_columns(batch.data)
            except (CorruptRecordError, InvalidRecordError) as found:
                return self.located(batch, found)
        return self.located(run, error)

    def located(self, run: Run, error: CorruptRecordError | InvalidRecordError) -> Exception:
        """Returns the error that decoding a run met, with file and byte, or with the offset of the run."""
        if isinstance(error, CorruptRecordError):
            return self.log.located(run.data, error)
        first = next(header.base_offset for header in scan(run.data))
        return InvalidRecordError(f"{self.directory}: in the batches from offset {first} on: {error}")

    def close(self) -> None:
        """Closes the files."""
        self.log.close(0)

    def _read(self, offset: int) -> bytes:
        """Reads whole batches.  What is behind the first one must not hide it, for it may not be exported at all."""
        end_offset = self.log.log_end_offset
        try:
            return self._unchecked(offset, end_offset, CHUNK_BYTES)
        except CorruptRecordError:
            return self._unchecked(offset, end_offset, _FIRST_BATCH_ONLY)

    def _unchecked(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Reads without a look at checksums: they are checked where what was read is put out."""
        return self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True, is_checked=False)

    def _segment_end(self, data: bytes, offset: int) -> int:
        """Returns the exclusive end of the segment that `data` is from: that of `offset`, or a later one behind a gap.

        Raises:
            CorruptRecordError: The first batch is from neither, so its offsets are wrong.
        """
        bases = self.log.segment_base_offsets
        asked = bisect_right(bases, offset) - 1
        found = max(asked, bisect_right(bases, parse_header(data).base_offset) - 1)
        if found > asked and data[:HEADER_BYTES] != self._read(bases[found])[:HEADER_BYTES]:
            raise CorruptRecordError("", 0, f"a batch from beyond its segment, where offset {offset} was expected")
        return bases[found + 1] if found + 1 < len(bases) else self.log.log_end_offset

    def _runs_of(
        self, data: bytes, start_offset: int, end_offset: int, choice: CommittedOnly | Everything
    ) -> Iterator[Run]:
        begin = end = epoch = 0  # the run so far is data[begin:end]; control batches in it are left out by the decoder
        for header in scan(data):
            if header.base_offset >= end_offset:
                break
            if header.is_control:
                check_crc(data, header)  # what is not decoded; a wrong attribute would hide records
                choice.note_control(header, data[header.position : header.end_position])
                continue
            is_wanted = not choice.is_aborted(header)
            if begin < end and not (is_wanted and header.partition_leader_epoch == epoch):
                yield Run(data[begin:end], epoch, start_offset, end_offset)
                begin = end
            if not is_wanted:
                check_crc(data, header)
            else:
                begin = begin if begin < end else header.position
                end, epoch = header.end_position, header.partition_leader_epoch
        if begin < end:
            yield Run(data[begin:end], epoch, start_offset, end_offset)


def _next_offset(data: bytes, offset: int, end_offset: int, limit: int, *, is_first: bool) -> int:
    """Returns the offset behind the batches in `data`, or one from `end_offset` on: the rest does not matter.

    Args:
        data: The batches read for `offset`.
        offset: The offset below which everything was exported.
        end_offset: The end of the export.
        limit: The offset that no batch in the segment goes beyond.
        is_first: Whether the export begins here, perhaps in the middle of a batch.

    Raises:
        CorruptRecordError: The batches are not one behind the other, or leave their segment: no checksum covers
            offsets, and a wrong one would hide records.
    """
    expected, position = offset, 0
    for header in scan(data):
        is_apart = header.base_offset < expected and not (is_first and position == 0)
        if is_apart or not expected < header.next_offset <= limit:
            break
        expected, position = header.next_offset, header.end_position
        if expected >= end_offset:
            return expected
    if position < len(data):
        raise CorruptRecordError("", position, f"no batch that follows offset {expected - 1}")
    return expected
