"""One read by offset: its request, its beginning, and its outcome.

Its data are captured beforehand, so that it may run in any thread, while the owner of the log goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from replog.log.segments.reader import SegmentRead, SegmentReader
from replog_checkpoints import File


class ReadRequest(Struct, frozen=True):
    """The request for one read.

    Attributes:
        offset: The offset to begin with; the batch that holds it is the first.
        max_bytes: Limit of the answer.
        ceiling: Exclusive end: no batch that reaches above it is returned.
        log_end_offset: End of the log when it was asked.
        min_one_batch: Whether a first batch larger than `max_bytes` is returned whole.
        is_checked: Whether checksums are looked at where it does not go on from another read.
    """

    offset: int
    max_bytes: int
    ceiling: int
    log_end_offset: int
    min_one_batch: bool
    is_checked: bool = True


class BatchPlace(Struct, frozen=True):
    """The batch that holds an offset (or will) starts at byte `position` of the segment with this base offset."""

    base_offset: int
    position: int
    read_ms: int  # wall time of the read that ended here


class Part(NamedTuple):
    """One segment as it is now; all batches in it end at or below `end_offset`."""

    reader: SegmentReader
    end_offset: int


class Start(Struct, frozen=True):
    """The place in a segment where a read begins.

    Attributes:
        position: The byte at which a batch starts.
        previous_end: The exclusive end of the batch before it, the segment's base offset for the first one; None: not looked
            at, since the read goes on from another one.
    """

    position: int
    previous_end: int | None


class ReadOutcome(Struct, frozen=True):
    """The outcome of a read in the segment with this base offset, and where it began there."""

    found: SegmentRead
    base_offset: int
    start: Start


class CapturedRead(Struct, frozen=True):
    """All that a read in another thread needs; the owner keeps `files` open until it has ended."""

    request: ReadRequest
    parts: tuple[Part, ...]
    place: BatchPlace | None
    files: tuple[File, ...]
    version: int

    def read(self) -> ReadOutcome | None:
        """Reads, in any thread; None: there is nothing below the ceiling."""
        return read_first(self.parts, self.request, self.place)


def read_first(parts: Iterable[Part], request: ReadRequest, place: BatchPlace | None) -> ReadOutcome | None:
    for reader, end_offset in parts:
        start = _start(reader, request.offset, place)
        if start is None:  # all of it lies below the offset: a gap that compaction left
            continue
        found = reader.read(
            start.position,
            max_bytes=request.max_bytes,
            ceiling=request.ceiling,
            segment_end_offset=end_offset,
            min_one_batch=request.min_one_batch,
        )
        must_check = place is None and request.is_checked
        return ReadOutcome(reader.checked(start.position, found) if must_check else found, reader.base_offset, start)
    return None


def _start(reader: SegmentReader, offset: int, place: BatchPlace | None) -> Start | None:
    if place is not None and place.base_offset == reader.base_offset and place.position < reader.size_bytes:
        return Start(place.position, None)
    if offset <= reader.base_offset:
        return Start(0, reader.base_offset) if reader.size_bytes else None
    found = reader.find(offset)
    return Start(found.position, found.previous_end) if found else None


class ReadJob:
    """One read.

    Why a job: a read beyond the page cache takes from 0.1 ms to a second, and the owner of a log must not wait.  The owner
    prepares it (`Log.prepare_read`), any thread runs it while the owner goes on appending, rolling, deleting or cutting, the
    owner takes the result (`Log.complete_read`).

    | meanwhile the owner           | the job                                                                       |
    |-------------------------------|-------------------------------------------------------------------------------|
    | appends, rolls                | sees the log as it was when it was prepared                                   |
    | deletes or compacts segments  | reads on: its files stay open until it is completed                           |
    | truncates                     | may read anything, or fail: its result is thrown away                         |
    | closes or deletes the log     | reads on; completing it says that the log is closed, and closes the files     |

    Attributes:
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        finished: Whether `run` has returned.
        error: The error that the read met; raised when the job is completed, unless the log was cut meanwhile.
        outcome: The outcome of the read; None: there is none.
    """

    __slots__ = ("__weakref__", "captured", "error", "finished", "generation", "outcome")

    def __init__(self, captured: CapturedRead, generation: int) -> None:
        self.captured = captured
        self.generation = generation
        self.finished = False
        self.error: Exception | None = None
        self.outcome: ReadOutcome | None = None

    @property
    def offset(self) -> int:
        """The offset where it begins."""
        return self.captured.request.offset

    @property
    def files(self) -> tuple[File, ...]:
        """The files it reads; open until the job is completed."""
        return self.captured.files

    def raise_error(self) -> None:
        """Raises the error of the read, if there was one, and does not keep it."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it has passed this frame

    def run(self) -> None:
        """Reads, in any thread, once; keeps an error for the owner and raises nothing."""
        try:
            self.outcome = self.captured.read()
        except Exception as error:  # noqa: BLE001 -- after a truncation anything can be in the way; the owner judges
            self.error = error
        self.finished = True
