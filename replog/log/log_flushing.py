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
from replog.log.log_state import LogState
from replog.log.producers.files import write_snapshot
from replog_checkpoints import File

_UNFLUSHED: Final = (
    "What was appended since the last flush is in the log, and counts as soon as a flush succeeds: appended again it would be "
    "there twice"
)


class LogFlushing(LogState):
    """The part of a log that becomes durable."""

    __slots__ = ()

    def prepare_flush(self) -> FlushJob | None:
        """Captures what is dirty.  Every job must be run once and handed to `complete_flush`; None: nothing is dirty.

        Raises:
            TooManyOpenFilesError: A segment cannot be opened now; nothing was changed.
            StorageError: The disk failed, now or earlier.
        """
        self._check_available()
        directory_dirty = self._directory_changes > self._directory_synced
        if self._recovery_point >= self._log_end_offset and not self._unsynced and not directory_dirty:
            return None
        first = self._segments.number_for(self._recovery_point)
        try:
            files = [self._segments[number].file for number in range(first, len(self._segments))]
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("a flush did not begin", self._directory, error, _UNFLUSHED) from error
            self._fail("a segment cannot be opened", error)
        files += self._unsynced
        self._closer.hold(files)
        return FlushJob(
            self._fs,
            files,
            self._directory if directory_dirty else None,
            end_offset=self._log_end_offset,
            generation=self._generation,
            era=self._flushed_file.era,
            beside=tuple(self._unsynced),
            directory_changes=self._directory_changes,
            window_end=self._window.end(self._segments, self._generation),
            on_error=self._note_failure,
            on_flushed=self._note_flushed,
            gate=self._write_back_gate,
        )

    def _note_flushed(self, job: FlushJob) -> None:
        """Writes down how far the log is flushed, unless it failed meanwhile.  May run in the thread of the flush."""
        if self._unavailable is None:
            self._flushed_file.raise_to(job.end_offset, job.era)

    def complete_flush(self, job: FlushJob) -> None:
        """Takes the result of a job: the recovery point moves up.

        A job from before a truncation moves nothing: what it synced may be gone.  Nor does one of a log that failed
        meanwhile: a write-back may have been told the error of a page that this fsync covers.

        Raises:
            TooManyOpenFilesError: The directory could not be opened; nothing was lost, the next flush does it all.
            StorageError: The job failed, or the log has.
            BrokerClosedError: The log was closed or deleted meanwhile; its files are closed now.
        """
        self._closer.let_go(job.files)
        if job.refused is not None and self._unavailable is None:
            raise disk_full("a flush did not end", self._directory, job.refused, _UNFLUSHED) from job.refused
        if not job.finished or self._unavailable is not None:
            self._check_available()
            raise InvariantViolationError(f"{self._topic_partition}: a flush was completed that never ran")
        for file in job.beside:
            if file in self._unsynced:
                self._unsynced.remove(file)
                self._closer.close(file)
        self._directory_synced = max(self._directory_synced, job.directory_changes)
        self._window.note_flushed(job.window_end, job.generation)
        if job.generation == self._generation and job.end_offset > self._recovery_point:
            flushed_before, self._recovery_point = self._recovery_point, job.end_offset
            self._segments.release_flushed(flushed_before, self._recovery_point)

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
        if self._unavailable is not None or self._recovery_point < self._log_end_offset or self._unsynced:
            return False
        self._segments.release_all()
        return True

    def write_producer_snapshot(self) -> None:
        """Writes a snapshot of the producers at the log end; durable with the next flush."""
        self._check_available()
        try:
            self._unsynced.append(write_snapshot(self._fs, self._directory, self._log_end_offset, self._producers))
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("a producer snapshot cannot be written", self._directory, error) from error
            self._fail("a producer snapshot cannot be written", error)
        self._directory_changes += 1

    def close(self, now_ms: int) -> None:
        """Flushes, completes the indexes, writes a producer snapshot, closes every file.  No flush may be running.

        A failed log is only closed: what is on disk is for recovery to judge.

        Raises:
            TooManyOpenFilesError, StorageError: Not everything could be written; the files are closed all the same, and
                the stop was not clean.
        """
        if isinstance(self._unavailable, BrokerClosedError):
            return
        try:
            if self._unavailable is None:
                self._close_cleanly(now_ms)
        finally:
            self._close_files()

    def _close_cleanly(self, now_ms: int) -> None:
        self.flush()
        if not self._touched:
            return
        self._producers.expire(now_ms, self._config.producer_id_expiration_ms)
        files: list[File] = []
        try:
            files += self._segments.active.write_indexes()
            files.append(write_snapshot(self._fs, self._directory, self._log_end_offset, self._producers))
            for file in files:
                file.sync()
            self._fs.sync_dir(self._directory)
        except OSError as error:
            if is_out_of_files(error):  # everything is flushed: the next start makes the rest again
                outcome = "Every record is on the disk, and the next start makes the rest again"
                raise disk_full("the log was not closed in order", self._directory, error, outcome) from error
            self._fail("closing failed", error)
        finally:
            for file in files:
                file.close()

    def _close_files(self) -> None:
        self._flushed_file.close()
        if self._compaction is not None:
            self._compaction.cancel()
        for file in self._unsynced:
            self._closer.close(file)
        self._unsynced.clear()
        self._deleted.release_all()
        self._segments.release_all()
        if self._unavailable is None:
            self._unavailable = BrokerClosedError(f"{self._topic_partition} is closed")
