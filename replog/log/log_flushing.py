"""Flushing: moving the recovery point up, and closing in order.

The recovery point moves only after an fsync of every log, index and snapshot file below it and of the directory.  The same
offset is then written beside the log, before anybody is told that it is flushed: see `flushed_offset`.
"""

from __future__ import annotations

import contextlib
from typing import Final

from replog.errors import BrokerClosedError, InvariantViolationError
from replog.log.disk_space import disk_full, is_out_of_files
from replog.log.flush import FlushJob
from replog.log.log_part import LogPart
from replog.log.producers.files import write_snapshot
from replog_checkpoints import File

_UNFLUSHED: Final = (
    "What was appended since the last flush is in the log, and counts as soon as a flush succeeds: appended again it would be "
    "there twice"
)


class LogFlushing(LogPart):
    """The part of a log that becomes durable."""

    __slots__ = ()

    def prepare_flush(self) -> FlushJob | None:
        """Captures what is dirty.  Every job must be run once and handed to `complete_flush`; None: nothing is dirty.

        Raises:
            TooManyOpenFilesError: A segment cannot be opened now; nothing was changed.
            StorageError: The disk failed, now or earlier.
        """
        self._state.guard.check()
        directory_dirty = self._state.name_changes > self._state.name_changes_synced
        if (
            self._state.recovery_point >= self._state.log_end_offset
            and not self._state.unsynced
            and not directory_dirty
        ):
            return None
        first = self._state.segments.number_for(self._state.recovery_point)
        try:
            files = [self._state.segments[number].file for number in range(first, len(self._state.segments))]
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("a flush did not begin", self._state.directory, error, _UNFLUSHED) from error
            self._state.guard.fail("a segment cannot be opened", error)
        files += self._state.unsynced
        self._state.closer.hold(files)
        return FlushJob(
            self._state.fs,
            files,
            self._state.directory if directory_dirty else None,
            end_offset=self._state.log_end_offset,
            generation=self._state.generation,
            era=self._state.flushed_file.era,
            beside=tuple(self._state.unsynced),
            directory_changes=self._state.name_changes,
            window_end=self._window.end(),
            on_error=self._state.guard.note_failure,
            on_flushed=self._note_flushed,
            gate=self._window.gate,
        )

    def _note_flushed(self, job: FlushJob) -> None:
        """Writes down how far the log is flushed, unless it failed meanwhile.  May run in the thread of the flush."""
        if self._state.guard.refusal is None:
            self._state.flushed_file.raise_to(job.end_offset, job.era)

    def complete_flush(self, job: FlushJob) -> None:
        """Takes the result of a job: the recovery point moves up.

        A job from before a truncation moves nothing: what it synced may be gone.  Nor does one of a log that failed
        meanwhile: a write-back may have been told the error of a page that this fsync covers.

        Raises:
            TooManyOpenFilesError: The directory could not be opened; nothing was lost, the next flush does it all.
            StorageError: The job failed, or the log has.
            BrokerClosedError: The log was closed or deleted meanwhile; its files are closed now.
        """
        self._state.closer.let_go(job.files)
        if job.refused is not None and self._state.guard.refusal is None:
            raise disk_full("a flush did not end", self._state.directory, job.refused, _UNFLUSHED) from job.refused
        if not job.finished or self._state.guard.refusal is not None:
            self._state.guard.check()
            raise InvariantViolationError(f"{self._state.topic_partition}: a flush was completed that never ran")
        for file in job.beside:
            if file in self._state.unsynced:
                self._state.unsynced.remove(file)
                self._state.closer.close(file)
        self._state.name_changes_synced = max(self._state.name_changes_synced, job.directory_changes)
        self._window.note_flushed(job.window_end, job.generation)
        if job.generation == self._state.generation and job.end_offset > self._state.recovery_point:
            flushed_before, self._state.recovery_point = self._state.recovery_point, job.end_offset
            self._state.segments.release_flushed(flushed_before, self._state.recovery_point)

    def flush(self) -> None:
        """Makes everything appended so far durable, blocking.

        Raises:
            StorageError: Not everything is durable; the log refuses appends from now on.
        """
        job = self.prepare_flush()
        if job is not None:
            with contextlib.suppress(OSError):  # complete_flush raises what it means
                job.run()
            self.complete_flush(job)

    def release_files(self) -> bool:
        """Closes the descriptors of an idle log; each is opened again when it is needed.

        Returns:
            False: there are unflushed writes, whose errors only these descriptors tell; flush first.
        """
        if (
            self._state.guard.refusal is not None
            or self._state.recovery_point < self._state.log_end_offset
            or self._state.unsynced
        ):
            return False
        self._state.segments.release_all()
        return True

    def write_producer_snapshot(self) -> None:
        """Writes a snapshot of the producers at the log end; durable with the next flush."""
        self._state.guard.check()
        try:
            self._state.unsynced.append(
                write_snapshot(self._state.fs, self._state.directory, self._state.log_end_offset, self._state.producers)
            )
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("a producer snapshot cannot be written", self._state.directory, error) from error
            self._state.guard.fail("a producer snapshot cannot be written", error)
        self._state.name_changes += 1

    def close(self, now_ms: int) -> None:
        """Flushes, completes the indexes, writes a producer snapshot, closes every file.  No flush may be running.

        A failed log is only closed: what is on disk is for recovery to judge.

        Raises:
            TooManyOpenFilesError, StorageError: Not everything could be written; the files are closed all the same, and
                the stop was not clean.
        """
        if isinstance(self._state.guard.refusal, BrokerClosedError):
            return
        try:
            if self._state.guard.refusal is None:
                self._close_cleanly(now_ms)
        finally:
            self._close_files()

    def _close_cleanly(self, now_ms: int) -> None:
        self.flush()
        if not self._state.is_touched:
            return
        self._state.producers.expire(now_ms, self._state.config.producer_id_expiration_ms)
        files: list[File] = []
        try:
            files += self._state.segments.active.write_indexes()
            files.append(
                write_snapshot(self._state.fs, self._state.directory, self._state.log_end_offset, self._state.producers)
            )
            for file in files:
                file.sync()
            self._state.fs.sync_dir(self._state.directory)
        except OSError as error:
            if is_out_of_files(error):  # everything is flushed: the next start makes the rest again
                outcome = "Every record is on the disk, and the next start makes the rest again"
                raise disk_full("the log was not closed in order", self._state.directory, error, outcome) from error
            self._state.guard.fail("closing failed", error)
        finally:
            for file in files:
                file.close()

    def _close_files(self) -> None:
        self._state.flushed_file.close()
        if self._compaction is not None:
            self._compaction.cancel()
        for file in self._state.unsynced:
            self._state.closer.close(file)
        self._state.unsynced.clear()
        self._state.deleted.release_all()
        self._state.segments.release_all()
        if self._state.guard.refusal is None:
            self._state.guard.refusal = BrokerClosedError(f"{self._state.topic_partition} is closed")
