"""The part of a log that is read: at once, from the page cache only, or in another thread."""

from __future__ import annotations

from replog.errors import BrokerClosedError, OffsetOutOfRangeError, ReplogError, StorageError
from replog.log.disk_space import disk_full, is_out_of_files
from replog.log.log_reader import ReadRequest
from replog.log.log_state import LogState
from replog.log.read_job import ReadJob
from replog.log.tail_cache import LogTail, TailCache


class LogReading(LogState):
    """The part of a log that is read."""

    __slots__ = ()

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes:
        """Whole batches from the one that holds `offset` (its first records may lie below); may wait for the disk.

        Args:
            offset: where to begin.
            max_bytes: limit of the answer.
            end_offset: exclusive ceiling: no batch that ends above it is returned.
            min_one_batch: return a first batch larger than `max_bytes` whole.
            is_checked: see `ReadRequest`; False: the caller looks at every checksum.

        Returns:
            Batches of one segment, or of the tail; b"" when nothing is there.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
            CorruptRecordError: the file does not hold batches where it should.
            StorageError: the disk does not give the bytes.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            found = self._reader.read(request, flushed_offset=self._recovery_point, now_ms=self._wall_ms)
        except OSError as error:
            raise self._unreadable(error) from error
        return found or b""

    def read_cached(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes | None:
        """The same without waiting for the disk.

        Args:
            offset, max_bytes, end_offset, min_one_batch, is_checked: as of `read`.

        Returns:
            None: not all of it is in the page cache; read it in a thread (`prepare_read`).

        Raises: as `read`.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            return self._reader.read(
                request, flushed_offset=self._recovery_point, now_ms=self._wall_ms, cached_only=True
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def keep_tail(self, cache: TailCache | None) -> None:
        """From now on what is appended as the leader is kept for those who read right behind; None: no more."""
        self._reader.tail = None if cache is None else LogTail(cache)

    def prepare_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> ReadJob:
        """The same for another thread.  Every job must be handed to `complete_read`, whether it ran or not.

        Args: as of `read_cached`.

        Raises:
            OffsetOutOfRangeError: as `read`.
            StorageError: a file cannot be opened.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            captured = self._reader.capture(request, flushed_offset=self._recovery_point)
        except OSError as error:
            raise self._unreadable(error) from error
        self._closer.hold(captured.files)
        return ReadJob(captured, self._generation)

    def complete_read(self, job: ReadJob) -> bytes | None:
        """Takes the result of a job: what `read` would have answered when it was prepared.

        Returns:
            None: the log was cut meanwhile (or the job never ran): what it read, or failed to read, says nothing.

        Raises:
            OffsetOutOfRangeError: the log start has passed the offset meanwhile.
            CorruptRecordError, StorageError: as `read`.
            BrokerClosedError: the log was closed or deleted meanwhile.
        """
        self._closer.let_go(job.files)
        try:
            if isinstance(self._unavailable, BrokerClosedError):
                self._check_available()
            if not job.finished or job.generation != self._generation:
                return None
            if job.offset < self._log_start_offset:
                raise self._out_of_range(job.offset)
            job.raise_error()
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            job.error = None  # its traceback has what was read, and leads back to the job
        return self._reader.note_captured(job.captured, job.outcome, self._wall_ms)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `end_offset` with at least this timestamp; None: there is none.

        Raises:
            CorruptRecordError, StorageError: as `read`.
        """
        try:
            return self._reader.offset_for_timestamp(
                timestamp_ms,
                start_offset=self._log_start_offset,
                end_offset=min(end_offset, self._log_end_offset),
                flushed_offset=self._recovery_point,
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def offset_of_max_timestamp(self, *, end_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None: no record has one.

        Args:
            end_offset: exclusive ceiling: batches that end above it are not looked at.

        Raises:
            CorruptRecordError, StorageError: as `read`.
        """
        try:
            return self._reader.offset_of_max_timestamp(
                start_offset=self._log_start_offset,
                end_offset=min(end_offset, self._log_end_offset),
                flushed_offset=self._recovery_point,
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def _request(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, *, is_checked: bool = True
    ) -> ReadRequest:
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise self._out_of_range(offset)
        ceiling = min(end_offset, self._log_end_offset)
        return ReadRequest(offset, max_bytes, ceiling, self._log_end_offset, min_one_batch, is_checked)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self._topic_partition} has offsets {self._log_start_offset} to {self._log_end_offset}, "
            f"{offset} was asked for",
            self._log_start_offset,
            self._log_end_offset,
        )

    def _unreadable(self, error: OSError) -> ReplogError:
        if is_out_of_files(error):
            return disk_full(f"{self._topic_partition} cannot be read", self._directory, error)
        if isinstance(error, FileNotFoundError):
            return StorageError(
                f"{self._topic_partition} cannot be read: {error}. A file of an open log is gone: was its folder removed or "
                "renamed? Put it back, then open the log again"
            )
        return StorageError(f"{self._topic_partition} cannot be read: {error}. Check the disk")
