"""Flushing: how the recovery point moves up, and the files that an orderly stop writes.

The recovery point moves only after an fsync of every log, index and snapshot file below it and of the directory.  The same
offset is then written beside the log, before it is told as flushed: see `flushed_offset`.

Why a job: an fsync takes from 0.2 ms to seconds, and the owner of a log must not wait.  The owner captures dirty files
(`Log.prepare_flush`), any thread runs the job, the owner takes the result (`Log.complete_flush`).

A failed fsync is never retried: the kernel may have dropped the dirty pages and would report success the second time.
The log refuses every later append from the moment the job fails.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from replog.errors import InvariantViolationError
from replog.log.dirty_window import DirtyWindow
from replog.log.disk_space import disk_full, is_out_of_files
from replog.log.producers.files import write_snapshot
from replog.log.state import LogState
from replog_checkpoints import File, FileSystem

_UNFLUSHED: Final = (
    "What was appended since the last flush is in the log, and counts as soon as a flush succeeds: appended again it would be "
    "there twice"
)


class FlushJob:
    """Everything that must reach stable storage for `end_offset` to count.

    Attributes:
        files: The files that it syncs; they stay open until the job is completed.
        end_offset: Log end offset when the job was prepared, exclusive.
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        beside: Those of the files that belong to this flush alone (indexes, snapshots) and are closed after it.
        name_changes: Number of changes of names in the directory that the job covers.
        window_end: End of the dirty window that the job covers.
        era: Era of the log's `flushed-offset` file when the job was prepared.
        finished: Whether `run` returned without an error.
        refused: The error with which the directory could not be opened because too many files are open; None: there is
            none.
    """

    __slots__ = (
        "__weakref__",
        "_directory",
        "_fs",
        "_gate",
        "_on_error",
        "_on_flushed",
        "beside",
        "end_offset",
        "era",
        "files",
        "finished",
        "generation",
        "name_changes",
        "refused",
        "window_end",
    )

    def __init__(
        self,
        fs: FileSystem,
        files: Sequence[File],
        directory: str | None,
        *,
        end_offset: int,
        generation: int,
        era: int,
        beside: tuple[File, ...],
        name_changes: int,
        window_end: int,
        on_error: Callable[[OSError], None],
        on_flushed: Callable[[FlushJob], None],
        gate: threading.Lock,
    ) -> None:
        self._fs = fs
        self.files = files
        self._directory = directory
        self._on_error = on_error
        self._on_flushed = on_flushed
        self._gate = gate
        self.end_offset = end_offset
        self.generation = generation
        self.era = era
        self.beside = beside
        self.name_changes = name_changes
        self.window_end = window_end
        self.finished = False
        self.refused: OSError | None = None

    def run(self) -> None:
        """Syncs the files, then the directory if names in it changed.  Any thread; once.

        Raises:
            OSError: The content of the disk is unknown; the log directory must go offline.  Never run it again.
        """
        try:
            for file in self.files:
                file.sync()
            if self._directory is not None:
                self._fs.sync_dir(self._directory)
        except OSError as error:
            if is_out_of_files(error):  # no fsync was tried on a file that could not be opened: the next flush does
                self.refused = error
            else:
                self._on_error(error)
            raise
        with self._gate:  # a write-back under way may have been told the error instead: then it is noted now
            try:
                self._on_flushed(self)
            except OSError as error:
                self._on_error(error)
                raise
            self.finished = True


class Flusher:
    """Makes appended batches durable.

    Args:
        state: The state of the log.
        window: The dirty window of the log: an fsync covers the bytes that it counts.
    """

    __slots__ = ("_state", "_window")

    def __init__(self, state: LogState, window: DirtyWindow) -> None:
        self._state = state
        self._window = window

    def prepare_flush(self) -> FlushJob | None:
        """Captures the dirty files.  Every job must be run once and handed to `complete_flush`; None: nothing is dirty.

        Raises:
            TooManyOpenFilesError: A segment cannot be opened now; nothing was changed.
            StorageError: The disk failed, now or earlier.
        """
        state, segments = self._state, self._state.segments
        state.guard.check()
        if state.recovery_point >= state.log_end_offset and not state.unsynced and not state.has_unsynced_names:
            return None
        first = segments.number_for(state.recovery_point)
        try:
            files = [segments[number].file for number in range(first, len(segments))]
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("a flush did not begin", state.directory, error, _UNFLUSHED) from error
            state.guard.fail("a segment cannot be opened", error)
        files += state.unsynced
        job = FlushJob(
            state.fs,
            files,
            state.directory if state.has_unsynced_names else None,
            end_offset=state.log_end_offset,
            generation=state.generation,
            era=state.flushed_file.era,
            beside=tuple(state.unsynced),
            name_changes=state.name_changes,
            window_end=self._window.end(),
            on_error=state.guard.note_failure,
            on_flushed=self._note_flushed,
            gate=self._window.gate,
        )
        state.closer.hold(job)
        return job

    def _note_flushed(self, job: FlushJob) -> None:
        """Writes down how far the log is flushed, unless it failed meanwhile.  May run in the thread of the flush."""
        if self._state.guard.refusal is None:
            self._state.flushed_file.raise_to(job.end_offset, job.era)

    def complete_flush(self, job: FlushJob) -> None:
        """Takes the result of a job: the recovery point moves up.

        A job from before a truncation moves nothing: the bytes it synced may be gone.  Nor does one of a log that failed
        meanwhile: a write-back may have been told the error of a page that this fsync covers.

        Raises:
            TooManyOpenFilesError: The directory could not be opened; nothing was lost, the next flush does it all.
            StorageError: The job failed, or the log has.
            BrokerClosedError: The log was closed or deleted meanwhile; its files are closed now.
        """
        state = self._state
        state.closer.let_go(job)
        if job.refused is not None and state.guard.refusal is None:
            raise disk_full("a flush did not end", state.directory, job.refused, _UNFLUSHED) from job.refused
        if not job.finished or state.guard.refusal is not None:
            state.guard.check()
            raise InvariantViolationError(f"{state.topic_partition}: a flush was completed that never ran")
        state.drop_unsynced(job.beside)
        state.note_names_synced(job.name_changes)
        self._window.note_flushed(job.window_end, job.generation)
        if job.generation == state.generation and job.end_offset > state.recovery_point:
            state.raise_recovery_point(job.end_offset)

    def flush(self) -> None:
        """Makes everything appended so far durable, blocking.

        Raises:
            StorageError: Not everything is durable; the log refuses appends from now on.
        """
        job = self.prepare_flush()
        if job is not None:
            with contextlib.suppress(OSError):  # complete_flush raises the right error
                job.run()
            self.complete_flush(job)

    def flush_before_close(self, now_ms: int) -> None:
        """Flushes, and writes indexes and a producer snapshot, which spare the next start a look at every batch.

        Raises:
            TooManyOpenFilesError, StorageError: Not everything could be written: the stop is not clean.
        """
        self.flush()
        state = self._state
        if not state.is_touched:
            return
        state.producers.expire(now_ms, state.config.producer_id_expiration_ms)
        files: list[File] = []
        try:
            files += state.segments.active.write_indexes()
            files.append(write_snapshot(state.fs, state.directory, state.log_end_offset, state.producers))
            for file in files:
                file.sync()
            state.fs.sync_dir(state.directory)
        except OSError as error:
            if is_out_of_files(error):  # everything is flushed: the next start makes the rest again
                outcome = "Every record is on the disk, and the next start makes the rest again"
                raise disk_full("the log was not closed in order", state.directory, error, outcome) from error
            state.guard.fail("closing failed", error)
        finally:
            for file in files:
                file.close()

    def release_files(self) -> bool:
        """Closes the descriptors of an idle log; each is opened again when it is needed.

        Returns:
            False: there are unflushed writes, whose errors only these descriptors tell; flush first.
        """
        state = self._state
        if state.guard.refusal is not None or state.recovery_point < state.log_end_offset or state.unsynced:
            return False
        state.segments.release_all()
        return True
