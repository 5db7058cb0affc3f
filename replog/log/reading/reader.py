"""The part of a log that is read: at once, from the page cache only, or in another thread.

One read is one pread where it can be: a reader that goes on where its last read ended needs no index, because the place
is remembered; the end is found with the offset index and a few headers.

Checksums are checked if a read does not go on from another one.  A receiver checks the batches, and reads the same place again
when they are damaged; that read tells whether the file is damaged.  A read that goes on costs only a look at the headers.
That look is needed here, since only the log can tell a hole from a gap: no checksum covers offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

from replog.errors import CorruptRecordError, OffsetOutOfRangeError, ReplogError, StorageError
from replog.log.disk_space import disk_full, is_out_of_files
from replog.log.epoch_cache import epoch_path
from replog.log.reading.captured_read import (
    BatchPlace,
    CapturedRead,
    Part,
    ReadJob,
    ReadOutcome,
    ReadRequest,
    read_first,
)
from replog.log.reading.cuts import LogCut, find_cuts
from replog.log.reading.locating import FileSpan, locate_batches
from replog.log.reading.tail_cache import LogTail
from replog.log.reading.time_search import RecordTime, Search, SearchJob, search_by_time, search_from_offset
from replog.log.recovery.completeness import hole
from replog.log.segments.reader import NotCachedError, SegmentRead
from replog.log.segments.scan import read_header, scan_headers
from replog.log.segments.segment import LogSegment
from replog.log.state import LogState
from replog.records import DECOMPRESSED_BYTES_MAX, Buffer, consecutive_end, parse_header, scan

_PLACES_MAX: Final = 32

J = TypeVar("J")


class LogReader:
    """Reads whole batches; never decodes them, except the one that holds a timestamp asked for.

    Attributes:
        tail: The newest batches, for readers right behind; None: everything is read from the files.
    """

    __slots__ = ("_places", "_state", "_version", "tail")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.tail: LogTail | None = None
        self._places: dict[int, BatchPlace] = {}
        self._version = 0  # of the meaning of places

    @property
    def places(self) -> Iterable[BatchPlace]:
        """Where the latest reads ended, one for each reader that goes on there."""
        return self._places.values()

    def forget_places(self) -> None:
        """Forgets places and tail: the log was cut, or lost or exchanged segments, so that they may be wrong now."""
        self._places.clear()
        self._version += 1
        if self.tail is not None:
            self.tail.forget()

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        end_offset: int,
        min_one_batch: bool,
        is_checked: bool = True,
        cached_only: bool = False,
    ) -> bytes | None:
        """Returns whole batches from the one that holds `offset` (its first records may lie below).

        It may wait for the disk.

        Args:
            offset: The offset to begin with.
            max_bytes: Limit of the answer.
            end_offset: Exclusive ceiling: no batch that ends above it is returned.
            min_one_batch: Whether a first batch larger than `max_bytes` is returned whole.
            is_checked: Whether checksums are looked at where the read does not go on from another one; False: the
                caller looks at every one.
            cached_only: Whether to give up rather than wait for the disk.

        Returns:
            Batches of one segment, or of the tail; b"" when nothing is there; None: `cached_only`, and the page cache
            does not hold all of it.

        Raises:
            OffsetOutOfRangeError: The offset lies below the log start or above the log end.
            CorruptRecordError: The file does not hold batches where it should.
            StorageError: The disk does not give the bytes.
        """
        ceiling = self._ceiling(offset, end_offset)
        place = self._places.pop(offset, None)
        if self.tail is not None:
            newest = self.tail.read(offset, max_bytes=max_bytes, ceiling=ceiling)
            if newest is not None:
                self._remember(newest.next_offset, BatchPlace(*newest.end, self._state.wall_ms))
                return newest.data
        request = ReadRequest(offset, max_bytes, ceiling, self._state.log_end_offset, min_one_batch, is_checked)
        try:
            outcome = read_first(self._parts(request, cached_only=cached_only), request, place)
            self._check_hole(request, outcome)
        except NotCachedError:
            self._remember(offset, place)
            return None
        except OSError as error:
            raise unreadable(self._state, error) from error
        return self._note(request, place, outcome)

    def prepare_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> ReadJob:
        """Prepares the work of `read` for another thread.

        Every job must be handed to `complete_read`, whether it ran or not.  The arguments are those of `read`.

        Raises:
            OffsetOutOfRangeError: See `read`.
            StorageError: A file cannot be opened.
        """
        ceiling = self._ceiling(offset, end_offset)
        request = ReadRequest(offset, max_bytes, ceiling, self._state.log_end_offset, min_one_batch, is_checked)
        try:
            captured = self._capture(request)
        except OSError as error:
            raise unreadable(self._state, error) from error
        job = ReadJob(captured, self._state.generation)
        self._state.closer.hold(job)
        return job

    def complete_read(self, job: ReadJob) -> bytes | None:
        """Takes the result of a job: the answer that `read` would have given when it was prepared.

        Returns:
            None: the log was cut meanwhile (or the job never ran), so its result or error says nothing.

        Raises:
            OffsetOutOfRangeError: The log start has passed the offset meanwhile.
            CorruptRecordError, StorageError: See `read`.
            BrokerClosedError: The log was closed or deleted meanwhile.
        """
        state = self._state
        state.closer.let_go(job)
        try:
            if state.guard.is_closed:
                state.guard.check()
            if not job.finished or job.generation != state.generation:
                return None
            if job.offset < state.log_start_offset:
                raise self._out_of_range(job.offset)
            job.raise_error()
        except OSError as error:
            raise unreadable(state, error) from error
        finally:
            job.error = None  # its traceback has the bytes that were read, and leads back to the job
        return self._note_captured(job.captured, job.outcome)

    def offset_for_timestamp(
        self, timestamp_ms: int | None, *, end_offset: int, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    ) -> RecordTime | None:
        """Returns (offset, timestamp) of the first record with at least this timestamp, or None.

        Args:
            timestamp_ms: The timestamp; None: the largest one of the log.
            end_offset: Exclusive end of the search; None is returned if the first such record is not below it.
            max_decompressed_bytes: The most bytes that a batch may decompress to; for a larger one the header's time counts.

        Raises:
            CorruptRecordError, StorageError: See `read`.
        """
        return self._searched(
            self.prepare_search(timestamp_ms, end_offset=end_offset, max_decompressed_bytes=max_decompressed_bytes)
        )

    def first_record(self, start_offset: int, *, end_offset: int) -> RecordTime | None:
        """Returns (offset, timestamp) of the first record of data at or after an offset; None: none is below the end.

        Args:
            start_offset: The offset; one below the log start means the log start.
            end_offset: Exclusive end of the search.

        Raises:
            CorruptRecordError, StorageError: See `read`.
        """
        return self._searched(self.prepare_search_from(start_offset, end_offset=end_offset))

    def prepare_search(
        self, timestamp_ms: int | None, *, end_offset: int, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    ) -> SearchJob | None:
        """Prepares the work of `offset_for_timestamp` for another thread; None: there is no such record.

        Every job must be handed to `complete_search`.  The arguments are those of `offset_for_timestamp`.

        Raises:
            StorageError: A file cannot be opened, or an index not be read.
        """
        state = self._state
        try:
            wanted_ms = state.segments.largest_timestamp() if timestamp_ms is None else timestamp_ms
        except OSError as error:
            raise unreadable(state, error) from error
        if timestamp_ms is None and wanted_ms < 0:
            return None  # no record has a timestamp
        search = search_by_time(
            state.segments,
            wanted_ms,
            start_offset=state.log_start_offset,
            end_offset=min(end_offset, state.log_end_offset),
            flushed_offset=state.recovery_point,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        return self._begun(search)

    def prepare_search_from(self, start_offset: int, *, end_offset: int) -> SearchJob | None:
        """Prepares the work of `first_record` for another thread, as `prepare_search`."""
        state = self._state
        search = search_from_offset(
            state.segments,
            max(start_offset, state.log_start_offset),
            end_offset=min(end_offset, state.log_end_offset),
            flushed_offset=state.recovery_point,
            max_decompressed_bytes=DECOMPRESSED_BYTES_MAX,
        )
        return self._begun(search)

    def complete_search(self, job: SearchJob) -> SearchJob | RecordTime | None:
        """Takes the result of a job that has run.

        Returns:
            Another job, which is to be run; (offset, timestamp) of what was found; None: there is none, or the log was cut
            meanwhile, so that what the job found says nothing.

        Raises:
            CorruptRecordError, StorageError: See `read`.
            BrokerClosedError: The log was closed or deleted meanwhile.
        """
        state = self._state
        state.closer.let_go(job)
        if state.guard.is_closed:
            state.guard.check()
        if job.generation != state.generation:
            return None
        error, job.error = job.error, None
        try:
            if error is not None:
                raise error
            return self._held(job.next())
        except OSError as failure:
            raise unreadable(state, failure) from failure
        finally:
            del error  # its traceback leads back to the job

    def _begun(self, search: Search) -> SearchJob | None:
        try:
            step = next(search, None)
        except OSError as error:
            raise unreadable(self._state, error) from error
        return None if step is None else self._held(SearchJob(search, step, self._state.generation))

    def _held(self, found: J) -> J:
        if isinstance(found, SearchJob):
            self._state.closer.hold(found)
        return found

    def _searched(self, found: SearchJob | RecordTime | None) -> RecordTime | None:
        while isinstance(found, SearchJob):
            found.run()
            found = self.complete_search(found)
        return found

    def locate(self, start_offset: int, end_offset: int, *, spans_max: int) -> list[FileSpan]:
        """Returns where the batches with offsets in [start, end) stand, for a process that reads the files by itself.

        Everything that is told is in the files: an append writes before it moves the log end.  It may wait for the disk.

        Args:
            start_offset: The first offset that is wanted.
            end_offset: The exclusive end of the range.
            spans_max: The most spans to return; the rest is asked for again.

        Raises:
            OffsetOutOfRangeError: The start or the end lies below the log start or above the log end.
            CorruptRecordError, StorageError: See `read`.
        """
        state = self._state
        for offset in (start_offset, end_offset):
            self._ceiling(offset, offset)
        flushed_offset = state.recovery_point
        try:
            return locate_batches(
                state.segments, start_offset, end_offset, flushed_offset=flushed_offset, spans_max=spans_max
            )
        except OSError as error:
            raise unreadable(state, error) from error

    def check_epoch_in(self, data: Buffer, offset: int) -> None:
        """Looks as `check_epoch_before` does at what a read from `offset - 1` has given, without waiting for the disk.

        Raises:
            CorruptRecordError, StorageError: As there.
        """
        header = parse_header(data)
        if header.next_offset == offset:
            epoch = self._state.epochs.epoch_for_offset(header.base_offset)
            if epoch is not None and epoch != header.partition_leader_epoch:
                self.check_epoch_before(offset)  # says where

    def check_epoch_before(self, offset: int) -> None:
        """Looks whether the batch that ends at `offset` has the leader epoch that the checkpoint of epochs says.

        No checksum covers the epoch, so a reader takes a wrong one for true, and is refused by it when it goes on.  It may
        wait for the disk.

        Raises:
            CorruptRecordError: It has another one: one of the two is damaged.
            StorageError: The disk does not give the bytes.
        """
        state = self._state
        if not state.log_start_offset < offset <= state.log_end_offset:
            return
        segment = state.segments[state.segments.number_for(offset - 1)]
        try:
            with segment.opened_briefly():
                found = segment.find(offset - 1)
                header = None if found is None else read_header(segment.file, found.position)
        except OSError as error:
            raise unreadable(state, error) from error
        if found is None or header is None or header.next_offset != offset:
            return
        epoch = state.epochs.epoch_for_offset(header.base_offset)
        if epoch is not None and epoch != header.partition_leader_epoch:
            reason = (
                f"the batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, "
                f"{epoch_path(state.directory)} says {epoch}: one of the two is damaged. Nothing was changed: restore it; where "
                "the partition has other replicas, this one is fetched from its leader again"
            )
            raise CorruptRecordError(segment.path, found.position, reason)

    def find_cuts(self, start_offset: int, end_offset: int, *, target_bytes: int, cuts_max: int) -> list[LogCut]:
        """Cuts a range of offsets into parts of about equal size; see `cuts`.

        Raises:
            OffsetOutOfRangeError: The range is not in the log.
            StorageError: An index cannot be read.
        """
        state = self._state
        for offset in (start_offset, end_offset):
            self._ceiling(offset, offset)
        try:
            return find_cuts(
                state.segments,
                start_offset,
                end_offset,
                state.log_end_offset,
                target_bytes=target_bytes,
                cuts_max=cuts_max,
            )
        except OSError as error:
            raise unreadable(state, error) from error

    # Parts

    def _ceiling(self, offset: int, end_offset: int) -> int:
        """Returns the exclusive end of the records that a read of `offset` may give."""
        log_end_offset = self._state.log_end_offset
        if not self._state.log_start_offset <= offset <= log_end_offset:
            raise self._out_of_range(offset)
        return min(log_end_offset, end_offset)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        state = self._state
        return OffsetOutOfRangeError(
            f"{state.topic_partition} has offsets {state.log_start_offset} to {state.log_end_offset}, "
            f"{offset} was asked for",
            state.log_start_offset,
            state.log_end_offset,
        )

    def _parts(self, request: ReadRequest, *, cached_only: bool = False) -> Iterator[Part]:
        if request.offset >= request.ceiling:
            return
        segments, flushed_offset = self._state.segments, self._state.recovery_point
        for number in range(segments.number_for(request.offset), len(segments)):
            if not segments[number].size_bytes:
                continue  # of many in a row, each would close a file that a part before it reads
            segment = segments.touch(number, flushed_offset)
            end_offset = segments.end_offset(number, request.log_end_offset)
            yield Part(segment.reader(cached_only=cached_only), end_offset)

    def _capture(self, request: ReadRequest) -> CapturedRead:
        """Captures the data that the same read needs in another thread."""
        parts = tuple(islice(self._parts(request), 2))  # a record that the first lacks stands at the start of the next
        files = tuple(part.reader.file for part in parts)
        return CapturedRead(request, parts, self._places.get(request.offset), files, self._version)

    def _note_captured(self, captured: CapturedRead, outcome: ReadOutcome | None) -> bytes:
        """Takes the outcome of `captured.read()` and returns its bytes; the log was not cut meanwhile."""
        if captured.version != self._version:
            return outcome.found.data if outcome else b""
        self._check_hole(captured.request, outcome)
        place = self._places.pop(captured.request.offset, None)
        return self._note(captured.request, place, outcome)

    def _check_hole(self, request: ReadRequest, outcome: ReadOutcome | None) -> None:
        """Raises `CorruptRecordError` where records are missing that the log claims to have; other gaps are allowed.

        No checksum covers a batch's base offset: a first batch that does not begin where the one before it ends would be
        handed out under offsets that are not its own.
        """
        complete = self._state.complete
        if request.offset >= request.ceiling or complete.offset is None:
            return
        if outcome is not None and not outcome.found.data:
            return  # the batch is there, and does not fit below a limit
        found = request.ceiling if outcome is None else int.from_bytes(outcome.found.data[:8], "big", signed=True)
        first_claimed = max(request.offset, complete.offset)
        if found > first_claimed:
            segment = self._segment_of(request)
            position = segment.size_bytes if request.offset >= segment.base_offset else 0
            raise hole(segment.path, position, first_claimed, found)
        previous_end = None if outcome is None else outcome.start.previous_end
        if outcome is None or previous_end is None or previous_end == found:
            return
        if found > request.offset or not complete.covers(min(request.offset, previous_end)):
            return
        if not self._fits_what_follows(outcome.start.position, request):  # else it is the one before that is wrong
            segment = self._segment_of(request)
            reason = f"no batch that follows offset {previous_end - 1}: it says that it begins at {found}"
            raise CorruptRecordError(segment.path, outcome.start.position, reason)

    def _segment_of(self, request: ReadRequest) -> LogSegment:
        segments = self._state.segments
        return segments[segments.number_for(request.offset)]

    def _fits_what_follows(self, position: int, request: ReadRequest) -> bool:
        """Whether the batch at byte `position` of the request's segment ends where the next one begins, or the segment ends."""
        segments = self._state.segments
        number = segments.number_for(request.offset)
        segment = segments[number]
        with segment.opened_briefly():
            headers = [placed.header for placed in islice(scan_headers(segment.file, position, segment.size_bytes), 2)]
        end_offset = segments.end_offset(number, request.log_end_offset)
        return headers[0].next_offset == (headers[1].base_offset if len(headers) > 1 else end_offset)

    def _before_hole(self, request: ReadRequest, found: SegmentRead) -> SegmentRead:
        """Returns the outcome up to the first batch that does not begin where the one before it ends, if it must.

        The next read begins there, looks at the batches around it, and reports the damage.
        """
        complete_from = self._state.complete.offset
        if not found.data or not request.is_checked or complete_from is None or found.next_offset <= complete_from:
            return found
        if request.offset >= complete_from:
            end_offset = consecutive_end(found.data, next_offset=request.offset, is_complete=True)
            if end_offset == found.next_offset:
                return found
        length, end_offset = _consecutive(found.data, request.offset, complete_from)
        if not length or (length, end_offset) == (len(found.data), found.next_offset):
            return found
        return SegmentRead(found.data[:length], end_offset, None)

    def _note(self, request: ReadRequest, place: BatchPlace | None, outcome: ReadOutcome | None) -> bytes:
        if outcome is None:
            return b""
        found = self._before_hole(request, outcome.found)
        if found.next_position is None:
            return found.data
        if found.data:
            next_place = BatchPlace(outcome.base_offset, found.next_position, self._state.wall_ms)
            self._remember(found.next_offset, next_place)
        else:
            self._remember(request.offset, place)
        return found.data

    def _remember(self, offset: int, place: BatchPlace | None) -> None:
        if place is None:
            return
        if len(self._places) >= _PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[offset] = place


def _consecutive(data: bytes, offset: int, complete_from: int) -> tuple[int, int]:
    """Returns the length of the batches, from the one that holds `offset` on, between which nothing is missing, and their end.

    Only offsets from `complete_from` on can be missing.
    """
    length = 0
    with suppress(CorruptRecordError):
        for header in scan(data):
            expected = max(offset, complete_from)
            if length and (header.base_offset > expected or header.base_offset < offset == expected):
                break
            length, offset = header.end_position, header.next_offset
    return length, offset


def unreadable(state: LogState, error: OSError) -> ReplogError:
    """Returns the error that a reader is told for an error of the disk."""
    if is_out_of_files(error):
        return disk_full(f"{state.topic_partition} cannot be read", state.directory, error)
    if isinstance(error, FileNotFoundError):
        return StorageError(
            f"{state.topic_partition} cannot be read: {error}. A file of an open log is gone: was its folder removed or "
            "renamed? Put it back, then open the log again"
        )
    return StorageError(f"{state.topic_partition} cannot be read: {error}. Check the disk")
