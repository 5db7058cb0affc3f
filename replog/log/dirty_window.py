"""The dirty window: appended bytes go to the disk in a steady stream, and their pages are used again.

Why: left alone, the kernel collects dirty pages for half a minute and then writes them all at once, and every append
touches fresh pages of memory, which on virtual machines costs more than the copy itself.  With a
window of a few MiB the same pages are filled again and again (bench/RESULTS.md).

::

    bytes of the log    ...dropped | kept for readers | clean | being written back | dirty | <- end
                                                              |<------- at most a few windows ------>|

Duties of the host, which appends to the log:

1. After an append call `Log.prepare_write_back`; run the job, if there is one, in another thread, then `complete_write_back`,
   then ask again.
2. While `Log.is_behind_write_back`, append nothing: the disk is slower than the writers.

Rules (docs/KAFKA.md 3.6): it never moves the recovery point; an error is a failed fsync; pages are dropped only after a
successful wait, and only behind the pages that tail readers still need.  A window is a matter of speed: positions that a truncation,
compaction or deletion made wrong write back or drop other bytes, which harms nothing.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from replog.log.reading.reader import LogReader
from replog.log.state import LogState
from replog_checkpoints import File

BEHIND_WINDOWS: Final = 4
"""Dirty windows at which a writer should wait for the disk."""

KEPT_WINDOWS: Final = 8
"""Clean windows that are kept at most for readers that are close behind the end."""

READER_AGE_MS: Final = 30_000
"""Time after which a reader that did not go on is forgotten."""


class FileRange(Struct, frozen=True):
    """Bytes [position, position + length) of a file."""

    file: File
    position: int
    length: int


class WriteBackJob:
    """Writes back a part of the dirty window and drops clean pages that are not needed.

    Attributes:
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        written_to: The end of its write-back, in bytes of the window's own counting.
        dropped_to: The end of the pages that it drops, in the same counting.
        finished: Whether `run` returned without an error.
    """

    __slots__ = (
        "__weakref__",
        "_drops",
        "_gate",
        "_on_error",
        "_writes",
        "dropped_to",
        "finished",
        "generation",
        "written_to",
    )

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
        """Writes pages back, waits for them, drops clean pages that are not needed.  Any thread; once.

        Raises:
            OSError: The content of the disk is unknown; the log directory must go offline.  Never run it again.
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
            with contextlib.suppress(OSError):  # advice only; the pages are written
                part.file.drop_cache(part.position, part.length)
        self.finished = True


class DirtyWindow:
    """Counts the bytes appended since the log was opened, and how far they are written back and dropped.

    Why its own counting: one number for a place in a log of many files.  Appends do not touch it; it looks at the
    segments when it is asked.

    Args:
        state: The state of the log.
        reader: The reader of the log, which knows the pages that are still needed.

    Attributes:
        gate: A lock that is held while a write-back may take, and until it has noted, an error.

    Invariants:
        - dropped <= written back <= end; at most one job is out.
    """

    __slots__ = (
        "_clean_to",
        "_dropped_to",
        "_generation",
        "_marked_to",
        "_out",
        "_reader",
        "_starts",
        "_state",
        "gate",
    )

    def __init__(self, state: LogState, reader: LogReader) -> None:
        self._state = state
        self._reader = reader
        self.gate = threading.Lock()
        self._out: weakref.ref[WriteBackJob] | None = None  # the caller may be interrupted and never run a prepared job
        self._starts: list[tuple[int, int]] = []  # (count at byte 0, base offset) of segments, the active one last
        self._clean_to = self._dropped_to = self._marked_to = 0
        self._generation = 0
        self.restart()

    @property
    def dirty_bytes(self) -> int:
        """Bytes appended since the log was opened that no write-back and no flush has covered."""
        return self.end() - self._clean_to

    @property
    def is_behind(self) -> bool:
        """Whether the dirty window is several times too large: wait with appends until a job has been completed."""
        window_bytes = self._state.config.dirty_window_bytes
        return window_bytes > 0 and self.end() - self._clean_to >= BEHIND_WINDOWS * window_bytes

    def prepare_write_back(self) -> WriteBackJob | None:
        """Returns a job when a window has been appended since the last one.  Each must be run once and completed.

        It covers everything but the newer half of a window.
        """
        state, window_bytes = self._state, self._state.config.dirty_window_bytes
        is_out = self._out is not None and self._out() is not None
        if not window_bytes or is_out or self.end() - self._marked_to < window_bytes:
            return None
        if state.guard.refusal is not None:
            return None
        written_to = self.end() - window_bytes // 2
        dropped_to = self._needed_from(written_to, window_bytes)
        job = WriteBackJob(
            self._ranges(self._clean_to, written_to),
            self._ranges(self._dropped_to, dropped_to),
            written_to=written_to,
            dropped_to=dropped_to,
            generation=state.generation,
            on_error=state.guard.note_failure,
            gate=self.gate,
        )
        self._out = weakref.ref(job)
        self._marked_to = written_to
        state.closer.hold(job)
        return job

    def complete_write_back(self, job: WriteBackJob) -> None:
        """Takes the result of a job.  The recovery point stays where it is: only a flush moves it.

        Raises:
            StorageError: The job failed; as after a failed fsync, nothing is appended any more.
            BrokerClosedError: The log was closed or deleted meanwhile.
        """
        self._state.closer.let_go(job)
        self._out = None
        if job.finished and job.generation == self._generation:  # one from before a cut moves nothing
            self._clean_to = max(self._clean_to, job.written_to)
            self._dropped_to = max(self._dropped_to, job.dropped_to)
            while len(self._starts) > 1 and self._starts[1][0] <= self._dropped_to:
                del self._starts[0]
        if not job.finished or self._state.guard.is_closed:
            self._state.guard.check()

    def end(self) -> int:
        """Returns the log end in this counting; follows the log where it has rolled or was cut."""
        active = self._state.segments.active
        if self._state.generation != self._generation or self._starts[-1][1] != active.base_offset:
            self._follow()
        return self._starts[-1][0] + active.size_bytes

    def note_flushed(self, end: int, generation: int) -> None:
        """Notes that an fsync has covered everything below `end`, as `end()` said when it was prepared."""
        if generation == self._generation:
            self._clean_to = max(self._clean_to, end)

    def restart(self) -> None:
        """Begins to count anew: the log was opened, or cut and fsynced, and its content counts as clean now."""
        active = self._state.segments.active
        self._starts = [(0, active.base_offset)]
        self._clean_to = self._dropped_to = self._marked_to = active.size_bytes
        self._generation = self._state.generation

    def _follow(self) -> None:
        """Counts in the segments that the log has begun since the last look; where it was cut, begins anew."""
        segments = self._state.segments
        start, base_offset = self._starts[-1]
        number = segments.number_for(base_offset)
        if self._state.generation != self._generation or segments[number].base_offset != base_offset:
            self.restart()
            return
        for later in range(number + 1, len(segments)):
            start += segments[later - 1].size_bytes
            self._starts.append((start, segments[later].base_offset))

    def _needed_from(self, written_to: int, window_bytes: int) -> int:
        """Returns how far pages can go: up to the last reader that is close behind, but only so far behind."""
        oldest_ms = self._state.wall_ms - READER_AGE_MS
        starts = {base_offset: start for start, base_offset in self._starts}
        places = (place for place in self._reader.places if place.read_ms >= oldest_ms and place.base_offset in starts)
        counts = (starts[place.base_offset] + place.position for place in places)
        needed = min((count for count in counts if count >= self._dropped_to), default=written_to)
        return max(self._dropped_to, min(needed, written_to), written_to - KEPT_WINDOWS * window_bytes)

    def _ranges(self, begin: int, end: int) -> list[FileRange]:
        """Returns the parts of open files that [begin, end) means; a segment that is not open any more is clean."""
        segments = self._state.segments
        ends = [start for start, _ in self._starts[1:]] + [end]
        found: list[FileRange] = []
        for (start, base_offset), segment_end in zip(self._starts, ends, strict=True):
            low, high = max(begin, start), min(end, segment_end)
            segment = segments[segments.number_for(base_offset)]
            file = segment.open_log_file if segment.base_offset == base_offset else None
            if low < high and file is not None:
                found.append(FileRange(file, low - start, high - low))
        return found
