"""The dirty window: appended bytes go to the disk in a steady stream, and their pages are used again.

Why: left alone, the kernel collects dirty pages for half a minute and then writes them all at once, and every append
touches pages of memory that nobody has touched before, which on virtual machines costs more than the copy itself.  With a
window of a few MiB the same pages are filled again and again (bench/RESULTS.md).

::

    bytes of the log    ...dropped | kept for readers | clean | being written back | dirty | <- end
                                                              |<------- at most a few windows ------>|

Rules (docs/KAFKA.md 3.6): it never moves the recovery point; an error is a failed fsync; pages are dropped only after a
successful wait, and only behind what tail readers still need.  A window is a matter of speed: positions that a truncation,
compaction or deletion made wrong write back or drop other bytes, which harms nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from replog.log.reading.captured_read import Place
from replog.log.segments.segment_list import SegmentList
from replog_checkpoints import File

BEHIND_WINDOWS: Final = 4
"""Dirty windows at which whoever appends should wait for the disk."""

KEPT_WINDOWS: Final = 8
"""Clean windows that are kept at most for readers that are close behind the end."""

READER_AGE_MS: Final = 30_000
"""Time after which a reader that did not go on is forgotten."""


class FileRange(NamedTuple):
    """Bytes [position, position + length) of a file."""

    file: File
    position: int
    length: int


class WriteBackJob:
    """Writes back a part of the dirty window and drops what is clean and not needed.

    Attributes:
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        written_to: End of what it writes back, in bytes of the window's own counting.
        dropped_to: End of what it drops, in the same counting.
        finished: Whether `run` returned without an error.
    """

    __slots__ = ("_drops", "_gate", "_on_error", "_writes", "dropped_to", "finished", "generation", "written_to")

    def __init__(
        self,
        writes: Sequence[FileRange],
        drops: Sequence[FileRange],
        *,
        written_to: int,
        dropped_to: int,
        generation: int,
        on_error: Callable[[OSError], None],
        gate: threading.Lock,
    ) -> None:
        self._writes = writes
        self._drops = drops
        self._on_error = on_error
        self._gate = gate
        self.written_to = written_to
        self.dropped_to = dropped_to
        self.generation = generation
        self.finished = False

    @property
    def files(self) -> list[File]:
        """The files it works on; open until the job is completed."""
        return [part.file for part in (*self._writes, *self._drops)]

    def run(self) -> None:
        """Writes pages back, waits for them, drops what is clean and not needed.  Any thread; once.

        Raises:
            OSError: What is on disk is unknown; the log directory must go offline.  Never run it again.
        """
        with self._gate:  # a descriptor tells an error once: a flush beside this counts only when it is noted
            try:
                for part in self._writes:
                    part.file.start_write_back(part.position, part.length)
                for part in self._writes:
                    part.file.wait_write_back(part.position, part.length)
            except OSError as error:
                self._on_error(error)
                raise
        for part in self._drops:
            with contextlib.suppress(OSError):  # advice; what was written is written
                part.file.drop_cache(part.position, part.length)
        self.finished = True


class DirtyWindow:
    """Counts the bytes appended since the log was opened, and how far they are written back and dropped.

    Why its own counting: one number for a place in a log of many files.  Appends do not touch it; it looks at the
    segments when it is asked.

    Invariants:
        - dropped <= written back <= end; at most one job is out.
    """

    __slots__ = ("_clean_to", "_dropped_to", "_generation", "_in_flight", "_marked_to", "_starts")

    def __init__(self, segments: SegmentList) -> None:
        self._in_flight = False
        self._starts: list[tuple[int, int]] = []  # (count at byte 0, base offset) of segments, the active one last
        self._clean_to = self._dropped_to = self._marked_to = 0
        self._generation = 0
        self.restart(segments, 0)

    def dirty_bytes(self, segments: SegmentList, generation: int) -> int:
        """Returns the number of bytes that no write-back or flush has covered."""
        return self.end(segments, generation) - self._clean_to

    def end(self, segments: SegmentList, generation: int) -> int:
        """Returns the log end in this counting; follows the log where it has rolled or was cut."""
        if generation != self._generation or self._starts[-1][1] != segments.active.base_offset:
            self._follow(segments, generation)
        return self._starts[-1][0] + segments.active.size_bytes

    def is_due(self, segments: SegmentList, generation: int, window_bytes: int) -> bool:
        """Whether a window has been appended since the last job, and none is out."""
        return not self._in_flight and self.end(segments, generation) - self._marked_to >= window_bytes

    def prepare(
        self,
        segments: SegmentList,
        generation: int,
        window_bytes: int,
        places: Iterable[Place],
        on_error: Callable[[OSError], None],
        gate: threading.Lock,
    ) -> WriteBackJob:
        """Returns a job for everything but the newer half of a window."""
        written_to = self.end(segments, generation) - window_bytes // 2
        dropped_to = self._needed_from(places, written_to, window_bytes)
        job = WriteBackJob(
            self._ranges(segments, self._clean_to, written_to),
            self._ranges(segments, self._dropped_to, dropped_to),
            written_to=written_to,
            dropped_to=dropped_to,
            generation=generation,
            on_error=on_error,
            gate=gate,
        )
        self._in_flight = True
        self._marked_to = written_to
        return job

    def complete(self, job: WriteBackJob) -> None:
        """Takes the result of a job that has ended; one that failed, or from before a cut, moves nothing."""
        self._in_flight = False
        if not job.finished or job.generation != self._generation:
            return
        self._clean_to = max(self._clean_to, job.written_to)
        self._dropped_to = max(self._dropped_to, job.dropped_to)
        while len(self._starts) > 1 and self._starts[1][0] <= self._dropped_to:
            del self._starts[0]

    def note_flushed(self, end: int, generation: int) -> None:
        """Notes that an fsync has covered everything below `end`, as `end()` said when it was prepared."""
        if generation == self._generation:
            self._clean_to = max(self._clean_to, end)

    def restart(self, segments: SegmentList, generation: int) -> None:
        """Begins to count anew: the log was opened, or cut and fsynced, and what is there now counts as clean."""
        active = segments.active
        self._starts = [(0, active.base_offset)]
        self._clean_to = self._dropped_to = self._marked_to = active.size_bytes
        self._generation = generation

    def _follow(self, segments: SegmentList, generation: int) -> None:
        """Counts in the segments that the log has begun since the last look; where it was cut, begins anew."""
        start, base_offset = self._starts[-1]
        number = segments.number_for(base_offset)
        if generation != self._generation or segments[number].base_offset != base_offset:
            self.restart(segments, generation)
            return
        for later in range(number + 1, len(segments)):
            start += segments[later - 1].size_bytes
            self._starts.append((start, segments[later].base_offset))

    def _needed_from(self, places: Iterable[Place], written_to: int, window_bytes: int) -> int:
        """Returns how far pages can go: up to the last reader that is close behind, but only so far behind."""
        starts = {base_offset: start for start, base_offset in self._starts}
        counts = [starts[place.base_offset] + place.position for place in places if place.base_offset in starts]
        needed = min((count for count in counts if count >= self._dropped_to), default=written_to)
        return max(self._dropped_to, min(needed, written_to), written_to - KEPT_WINDOWS * window_bytes)

    def _ranges(self, segments: SegmentList, begin: int, end: int) -> list[FileRange]:
        """Returns the parts of open files that [begin, end) means; a segment that is not open any more is clean."""
        ends = [start for start, _ in self._starts[1:]] + [end]
        found: list[FileRange] = []
        for (start, base_offset), segment_end in zip(self._starts, ends, strict=True):
            low, high = max(begin, start), min(end, segment_end)
            segment = segments[segments.number_for(base_offset)]
            file = segment.open_log_file if segment.base_offset == base_offset else None
            if low < high and file is not None:
                found.append(FileRange(file, low - start, high - low))
        return found
