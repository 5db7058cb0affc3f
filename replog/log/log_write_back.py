"""The part of a log that keeps its dirty window small; see `write_back`.

Duties of the host, whoever appends to the log:

1. After an append call `prepare_write_back`; run the job, if there is one, in another thread, then `complete_write_back`,
   then ask again.
2. While `is_behind_write_back`, let nobody append: the disk is slower than the writers.
"""

from __future__ import annotations

from replog.errors import BrokerClosedError
from replog.log.log_part import LogPart
from replog.log.write_back import BEHIND_WINDOWS, READER_AGE_MS, WriteBackJob


class LogWriteBack(LogPart):
    """The part of a log that is written back."""

    __slots__ = ()

    @property
    def dirty_bytes(self) -> int:
        """Bytes appended since the log was opened that no write-back and no flush has covered."""
        return self._window.dirty_bytes(self._state.segments, self._state.generation)

    @property
    def is_behind_write_back(self) -> bool:
        """Whether the dirty window is several times too large: wait with appends until a job has been completed."""
        window_bytes = self._state.config.dirty_window_bytes
        return window_bytes > 0 and self.dirty_bytes >= BEHIND_WINDOWS * window_bytes

    def prepare_write_back(self) -> WriteBackJob | None:
        """Returns a job when a window has been appended since the last one.  Each must be run once and completed."""
        window_bytes = self._state.config.dirty_window_bytes
        if not window_bytes or not self._window.is_due(self._state.segments, self._state.generation, window_bytes):
            return None
        if self._state.guard.refusal is not None:
            return None
        oldest_ms = self._state.wall_ms - READER_AGE_MS
        places = [place for place in self._reader.places if place.read_ms >= oldest_ms]
        job = self._window.prepare(
            self._state.segments,
            self._state.generation,
            window_bytes,
            places,
            self._state.guard.note_failure,
            self._write_back_gate,
        )
        self._state.closer.hold(job.files)
        return job

    def complete_write_back(self, job: WriteBackJob) -> None:
        """Takes the result of a job.  The recovery point stays where it is: only a flush moves it.

        Raises:
            StorageError: The job failed; as after a failed fsync, nothing is appended any more.
            BrokerClosedError: The log was closed or deleted meanwhile.
        """
        self._state.closer.let_go(job.files)
        self._window.complete(job)
        if not job.finished or isinstance(self._state.guard.refusal, BrokerClosedError):
            self._state.guard.check()
