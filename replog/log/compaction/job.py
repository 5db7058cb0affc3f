"""One pass over one log, for a thread of its own.

Why a job: a pass reads and writes gigabytes, and the owner of a log must not wait.  The owner prepares it
(`Log.prepare_compaction`), any thread runs it while the owner goes on appending, rolling, deleting, cutting; the owner
takes the result (`Log.complete_compaction`), and only then anything in the log changes.

    1  sweep       `.cleaned` files that an earlier pass left
    2  fill        the offset map from the dirty segments, until they end or the map is full
    3  rewrite     every segment from the oldest to the end of 2, group by group, to `.cleaned` files; fsync each
    4  fsync       the directory

Step 3 begins at the oldest segment, because records that the dirty part supersedes may be anywhere before it.

A crash leaves `.cleaned` files, which the next start sweeps.  Changes that the owner makes meanwhile are judged when the job is
completed.  Until then the job reads files that may be gone or cut, and keeps any error for later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from replog.errors import ConfigError, CorruptRecordError
from replog.log.compaction.output import CleanedSegments
from replog.log.compaction.planning import SourceSegment, group_sources
from replog.log.compaction.transactions import CleanedTransactions
from replog.log.config import LogConfig
from replog.log.file_names import CLEANED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_path
from replog.log.segments.scan import read_header
from replog.log.segments.segment import LogSegment
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import DECOMPRESSED_BYTES_MAX
from replog.records.compaction import (
    SLOT_BYTES,
    FillProgress,
    OffsetMap,
    RewriteRules,
    Rewritten,
    fill_offset_map,
    rewrite_batches,
)
from replog_checkpoints import File, FileSystem, OpenMode


class _Worked(Protocol):
    @property
    def size_bytes(self) -> int: ...


WorkedT = TypeVar("WorkedT", bound=_Worked)


def walk_source(
    fs: FileSystem,
    source: SourceSegment,
    io_buffer_bytes: int,
    work: Callable[[bytes, bool], WorkedT],
    account: Callable[[int], None],
) -> Iterator[WorkedT]:
    """Hands the segment to `work` piece by piece, and yields its result for the whole batches in each.

    The owner may delete, cut or exchange the file meanwhile; bytes that are read then are thrown away with the job.

    Args:
        fs: The disk.
        source: The segment.
        io_buffer_bytes: Size of a piece; a larger batch is read whole.
        work: A function: (bytes that begin with a batch, whether the segment ends with them) -> its result, which says
            how many bytes were whole batches; the rest is handed over again with the next piece.
        account: A function that is told the bytes of every read.

    Raises:
        CorruptRecordError: The file does not hold batches to its end.
        OSError: The disk failed, or the file is gone.
    """
    file = fs.open(source.path, OpenMode.READ)
    try:
        position, piece_bytes = 0, io_buffer_bytes
        while position < source.size_bytes:
            buffer = file.pread(min(piece_bytes, source.size_bytes - position), position)
            account(len(buffer))
            try:
                worked = work(buffer, position + len(buffer) == source.size_bytes)
            except CorruptRecordError as error:
                raise CorruptRecordError(source.path, position + error.position, error.reason) from error
            yield worked
            if worked.size_bytes == 0:  # a batch that is larger than the piece
                piece_bytes = _larger_piece(file, position, piece_bytes, source.size_bytes)
                continue
            position += worked.size_bytes
            piece_bytes = io_buffer_bytes
    finally:
        file.close()


def _larger_piece(file: File, position: int, piece_bytes: int, end: int) -> int:
    """Returns the size of the batch at `position`, which did not fit into `piece_bytes`."""
    size_bytes = read_header(file, position).size_bytes
    if size_bytes <= piece_bytes or position + size_bytes > end:
        raise CorruptRecordError(
            file.path, position, f"a batch of {size_bytes} bytes, {end - position} are left in the segment"
        )
    return size_bytes


class Throttle:
    """One rate for all jobs that share it.

    Worked example, 1,000 bytes a second, never more than one second's worth saved up::

        at 0.0 s  take 1000   no wait: the bucket begins full
        at 0.1 s  take  600   100 have come in; 500 are missing: wait 0.5 s

    Args:
        bytes_per_second: The rate, above 0.
        clock: A function that tells monotonic seconds.
        sleep: A function that waits for seconds, in the thread of the job.

    Attributes:
        slept_seconds: Time slept in all.
    """

    __slots__ = ("_available", "_clock", "_rate", "_sleep", "_updated", "slept_seconds")

    def __init__(self, bytes_per_second: float, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._available = bytes_per_second
        self._updated = clock()
        self.slept_seconds = 0.0

    def take(self, size_bytes: int) -> None:
        """Accounts for bytes that were read or written, and sleeps if they came too early."""
        now = self._clock()
        self._available = min(self._rate, self._available + (now - self._updated) * self._rate) - size_bytes
        self._updated = now
        if self._available < 0:
            seconds = -self._available / self._rate
            self._sleep(seconds)
            self.slept_seconds += seconds


_MIB: Final = 1024 * 1024
_RANGES: Final = {
    "dedupe_buffer_bytes": (1024, 64 * 1024 * _MIB),
    "dedupe_buffer_load_factor": (0.1, 0.99),
    "io_buffer_bytes": (4096, 1024 * _MIB),
    "max_decompressed_bytes": (1, 2**31 - 1),
}


class CompactionSettings(Struct, frozen=True):
    """The settings of one pass.  Its memory is the two buffers, one batch, and its decompressed records.

    Raises:
        ConfigError: A value is out of range.
    """

    dedupe_buffer_bytes: int = 128 * _MIB
    """Room for the offset map, bytes, 1 KiB to 64 GiB; 24 bytes a key (`log.cleaner.dedupe.buffer.size`). Too small for
    the keys of the dirty part: several passes, each of which reads the log again."""

    dedupe_buffer_load_factor: float = 0.9
    """How full the map may get, 0.1 to 0.99 (`log.cleaner.io.buffer.load.factor`). Large: fewer passes, slower look-ups."""

    io_buffer_bytes: int = 512 * 1024
    """How much is read and worked on at once, bytes, 4 KiB to 1 GiB (`log.cleaner.io.buffer.size`). Large: other threads of
    the process wait longer for their turn."""

    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    """A batch that decompresses to more is refused, bytes."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(name, value, f"{name} is {value}; it must be from {low} to {high}")


_SEED_BYTES: Final = 16


class _CancelledError(Exception):
    """The owner does not want the result any more."""


class CompactionJob:
    """One pass.  Made by `Log.prepare_compaction`; run once; handed to `Log.complete_compaction` whether it ran or not.

    Attributes:
        sources: The segments to read, from the oldest of the log.
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        stats: The statistics so far; filled while it runs.
        segments: The segments that take the place of the first `stats.segments_before` sources; durable, under
            `.cleaned` names.
        finished: Whether `run` has returned.
        error: The error that it met; judged when the job is completed.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        settings: CompactionSettings,
        sources: Sequence[SourceSegment],
        aborted: Sequence[AbortedTransaction],
        *,
        first_dirty_offset: int,
        last_data_offsets: frozenset[int],
        marker_epochs: dict[int, int],
        generation: int,
        now_ms: int,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._config = config
        self._settings = settings
        self._aborted = aborted
        self._last_data_offsets = last_data_offsets
        self._marker_epochs = marker_epochs
        self._now_ms = now_ms
        self._throttle: Throttle | None = None
        self._cancelled = False
        self.sources = sources
        self.generation = generation
        self.stats = CompactionStats(first_dirty_offset=first_dirty_offset)
        self.segments: list[LogSegment] = []
        self.finished = False
        self.error: Exception | None = None

    def cancel(self) -> None:
        """Makes `run` stop soon.  Any thread."""
        self._cancelled = True

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def run(self, throttle: Throttle | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Sweeps, fills the map and rewrites, as the module says.  Any thread; once; raises nothing.

        Args:
            throttle: The throttle that slows reading and writing down; it may be shared with other jobs.
            clock: A function that tells monotonic seconds, for the statistics.
        """
        self._throttle = throttle
        slept_before = throttle.slept_seconds if throttle else 0.0
        try:
            self._sweep()
            started = clock()
            offset_map = self._fill()
            filled = clock()
            self.stats.map_seconds = filled - started
            self._rewrite(offset_map)
            self.stats.rewrite_seconds = clock() - filled
        except _CancelledError:
            self.discard()
        except Exception as error:  # noqa: BLE001 -- the log may have been cut or deleted under it; the owner judges
            self.error = error
            self.discard()
        self.stats.throttle_seconds = throttle.slept_seconds - slept_before if throttle else 0.0
        self.finished = True

    def discard(self) -> None:
        """Removes the written files; those that cannot be removed are swept later."""
        for segment in self.segments:
            for path in segment.file_names:
                try:
                    self._fs.remove(path)
                except OSError:
                    continue
        self.segments = []

    # Steps

    def _sweep(self) -> None:
        """Removes `.cleaned` files of an earlier pass: with them the next start would drop a finished swap (`swap`)."""
        names = [name for name in self._fs.list_dir(self._directory) if name.endswith(CLEANED_SUFFIX)]
        for name in names:
            self._fs.remove(f"{self._directory}/{name}")
        if names:
            self._fs.sync_dir(self._directory)

    def _fill(self) -> OffsetMap:
        settings, stats = self._settings, self.stats
        load_factor = settings.dedupe_buffer_load_factor
        offsets_count = self.sources[-1].end_offset - stats.first_dirty_offset  # there cannot be more keys
        enough_bytes = SLOT_BYTES * (int(offsets_count / load_factor) + 2)
        size_bytes = min(settings.dedupe_buffer_bytes, enough_bytes)
        offset_map = OffsetMap(size_bytes, load_factor, os.urandom(_SEED_BYTES))
        transactions = CleanedTransactions(
            [one for one in self._aborted if one.last_offset >= stats.first_dirty_offset]
        )

        def fill(buffer: bytes, _is_end: bool) -> FillProgress:
            return fill_offset_map(
                offset_map,
                buffer,
                start_offset=stats.first_dirty_offset,
                transactions=transactions,
                max_decompressed_bytes=settings.max_decompressed_bytes,
            )

        for source in self.sources:
            if source.end_offset <= stats.first_dirty_offset:
                continue
            stats.clean_end_offset = source.end_offset
            for progress in walk_source(self._fs, source, settings.io_buffer_bytes, fill, self._account):
                stats.map_bytes_read += progress.size_bytes
                if progress.is_full:
                    stats.map_is_full, stats.clean_end_offset = True, progress.end_offset
                    break
            if stats.map_is_full:
                break
        stats.keys_count = offset_map.count
        return offset_map

    def _rewrite(self, offset_map: OffsetMap) -> None:
        stats = self.stats
        sources = [source for source in self.sources if source.base_offset < stats.clean_end_offset]
        groups = group_sources(sources, [self._index_bytes(source) for source in sources], self._config)
        rules = RewriteRules(
            stats.clean_end_offset,
            self._now_ms,
            self._config.delete_retention_ms,
            self._last_data_offsets,
            self._marker_epochs,
        )
        transactions = CleanedTransactions(self._aborted)
        for group in groups:
            self._rewrite_group(group, offset_map, rules, transactions)
        self._fs.sync_dir(self._directory)
        stats.segments_before, stats.segments_after = len(sources), len(self.segments)

    def _rewrite_group(
        self,
        group: Sequence[SourceSegment],
        offset_map: OffsetMap,
        rules: RewriteRules,
        transactions: CleanedTransactions,
    ) -> None:
        output = CleanedSegments(self._fs, self._directory, group[0].base_offset, self._config, self._now_ms)
        try:
            for source in group:
                self._rewrite_source(source, source is group[-1], output, offset_map, rules, transactions)
            output.finish(transactions.take_kept())
        except BaseException:
            output.discard()
            raise
        self.segments += output.segments
        self.stats.bytes_written += output.size_bytes

    def _rewrite_source(
        self,
        source: SourceSegment,
        is_last: bool,
        output: CleanedSegments,
        offset_map: OffsetMap,
        rules: RewriteRules,
        transactions: CleanedTransactions,
    ) -> None:
        def rewrite(buffer: bytes, is_end: bool) -> Rewritten:
            return rewrite_batches(
                buffer,
                offset_map,
                rules,
                transactions=transactions,
                keeps_last=is_last and is_end,
                max_decompressed_bytes=self._settings.max_decompressed_bytes,
            )

        for rewritten in walk_source(self._fs, source, self._settings.io_buffer_bytes, rewrite, self._account):
            output.append(rewritten)
            self._account(len(rewritten.data))
            self.stats.bytes_read += rewritten.size_bytes
            self.stats.records_read += rewritten.records_read
            self.stats.records_kept += rewritten.records_kept

    # Parts

    def _account(self, size_bytes: int) -> None:
        if self._cancelled:
            raise _CancelledError
        if self._throttle is not None:
            self._throttle.take(size_bytes)

    def _index_bytes(self, source: SourceSegment) -> int:
        sizes = [0]
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = file_path(self._directory, source.base_offset, kind)
            if self._fs.exists(path):
                sizes.append(self._fs.size(path))
        return max(sizes)


class CompactionStats(Struct):
    """Counted while a job runs.

    Attributes:
        first_dirty_offset: The offset at which the part began that was read for the map.
        clean_end_offset: End of the part of the log that is compacted now, exclusive.
        map_is_full: Whether the map could not hold every key of the dirty part: then another pass goes on from there.
        keys_count: Number of keys in the map.
        map_bytes_read: Bytes read to fill the map.
        bytes_read: Bytes of the segments that were rewritten, without `map_bytes_read`.
        bytes_written: Bytes of the segments that took their place.
        records_read: Number of records in the segments that were rewritten.
        records_kept: Number of those records that were kept.
        segments_before: Number of segments that were replaced.
        segments_after: Number of segments that replaced them.
        map_seconds: Time to fill the map.
        rewrite_seconds: Time to rewrite, fsync included.
        throttle_seconds: Part of both times that the throttle slept.
    """

    first_dirty_offset: int = 0
    clean_end_offset: int = 0
    map_is_full: bool = False
    keys_count: int = 0
    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    segments_before: int = 0
    segments_after: int = 0
    map_seconds: float = 0.0
    rewrite_seconds: float = 0.0
    throttle_seconds: float = 0.0

    def describe(self) -> str:
        """Returns one line for a log file."""
        text = (
            f"compacted to offset {self.clean_end_offset}: {self.records_kept} of {self.records_read} records kept, "
            f"{self.bytes_read} bytes became {self.bytes_written} in {self.map_seconds + self.rewrite_seconds:.1f} s "
            f"({self.map_seconds:.1f} s for the map of {self.keys_count} keys, {self.throttle_seconds:.1f} s throttled)"
        )
        if self.map_is_full:
            text += "; the map was full, the rest follows: a larger log.cleaner.dedupe.buffer.size needs fewer passes"
        return text
