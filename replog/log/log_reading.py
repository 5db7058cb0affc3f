"""The part of a log that is read: at once, from the page cache only, or in another thread."""

from __future__ import annotations

from replog.errors import BrokerClosedError, OffsetOutOfRangeError, ReplogError, StorageError
from replog.log.disk_space import disk_full, is_out_of_files
from replog.log.log_part import LogPart
from replog.log.log_reader import ReadRequest
from replog.log.read_job import ReadJob
from replog.log.tail_cache import LogTail, TailCache


class LogReading(LogPart):
    """The part of a log that is read."""

    __slots__ = ()

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes:
        """Returns whole batches from the one that holds `offset` (its first records may lie below).

        It may wait for the disk.

        Args:
            offset: The offset to begin with.
            max_bytes: Limit of the answer.
            end_offset: Exclusive ceiling: no batch that ends above it is returned.
            min_one_batch: Whether a first batch larger than `max_bytes` is returned whole.
            is_checked: Whether checksums are looked at, see `ReadRequest`; False: the caller looks at every one.

        Returns:
            Batches of one segment, or of the tail; b"" when nothing is there.

        Raises:
            OffsetOutOfRangeError: The offset lies below the log start or above the log end.
            CorruptRecordError: The file does not hold batches where it should.
            StorageError: The disk does not give the bytes.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            found = self._reader.read(request, flushed_offset=self._state.recovery_point, now_ms=self._state.wall_ms)
        except OSError as error:
            raise self._unreadable(error) from error
        return found or b""

    def read_cached(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> bytes | None:
        """Returns the same as `read`, without waiting for the disk.

        Args:
            offset: The same as for `read`.
            max_bytes: The same as for `read`.
            end_offset: The same as for `read`.
            min_one_batch: The same as for `read`.
            is_checked: The same as for `read`.

        Returns:
            None: not all of it is in the page cache; read it in a thread (`prepare_read`).

        Raises:
            OffsetOutOfRangeError, CorruptRecordError, StorageError: See `read`.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            return self._reader.read(
                request, flushed_offset=self._state.recovery_point, now_ms=self._state.wall_ms, cached_only=True
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def keep_tail(self, cache: TailCache | None) -> None:
        """Keeps what is appended as the leader from now on for those who read right behind; None: no more."""
        self._reader.tail = None if cache is None else LogTail(cache)

    def prepare_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, is_checked: bool = True
    ) -> ReadJob:
        """Prepares what `read` does for another thread.

        Every job must be handed to `complete_read`, whether it ran or not.  The arguments are those of `read`.

        Raises:
            OffsetOutOfRangeError: See `read`.
            StorageError: A file cannot be opened.
        """
        request = self._request(offset, max_bytes, end_offset, min_one_batch, is_checked=is_checked)
        try:
            captured = self._reader.capture(request, flushed_offset=self._state.recovery_point)
        except OSError as error:
            raise self._unreadable(error) from error
        self._state.closer.hold(captured.files)
        return ReadJob(captured, self._state.generation)

    def complete_read(self, job: ReadJob) -> bytes | None:
        """Takes the result of a job: what `read` would have answered when it was prepared.

        Returns:
            None: the log was cut meanwhile (or the job never ran): what it read, or failed to read, says nothing.

        Raises:
            OffsetOutOfRangeError: The log start has passed the offset meanwhile.
            CorruptRecordError, StorageError: See `read`.
            BrokerClosedError: The log was closed or deleted meanwhile.
        """
        self._state.closer.let_go(job.files)
        try:
            if isinstance(self._state.guard.refusal, BrokerClosedError):
                self._state.guard.check()
            if not job.finished or job.generation != self._state.generation:
                return None
            if job.offset < self._state.log_start_offset:
                raise self._out_of_range(job.offset)
            job.raise_error()
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            job.error = None  # its traceback has what was read, and leads back to the job
        return self._reader.note_captured(job.captured, job.outcome, self._state.wall_ms)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record below `end_offset` with at least this timestamp, or None.

        Raises:
            CorruptRecordError, StorageError: See `read`.
        """
        try:
            return self._reader.offset_for_timestamp(
                timestamp_ms,
                start_offset=self._state.log_start_offset,
                end_offset=min(end_offset, self._state.log_end_offset),
                flushed_offset=self._state.recovery_point,
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def offset_of_max_timestamp(self, *, end_offset: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record with the largest timestamp; None: no record has one.

        Args:
            end_offset: Exclusive ceiling: batches that end above it are not looked at.

        Raises:
            CorruptRecordError, StorageError: See `read`.
        """
        try:
            return self._reader.offset_of_max_timestamp(
                start_offset=self._state.log_start_offset,
                end_offset=min(end_offset, self._state.log_end_offset),
                flushed_offset=self._state.recovery_point,
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def _request(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, *, is_checked: bool = True
    ) -> ReadRequest:
        if not self._state.log_start_offset <= offset <= self._state.log_end_offset:
            raise self._out_of_range(offset)
        ceiling = min(end_offset, self._state.log_end_offset)
        return ReadRequest(offset, max_bytes, ceiling, self._state.log_end_offset, min_one_batch, is_checked)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self._state.topic_partition} has offsets {self._state.log_start_offset} to {self._state.log_end_offset}, "
            f"{offset} was asked for",
            self._state.log_start_offset,
            self._state.log_end_offset,
        )

    def _unreadable(self, error: OSError) -> ReplogError:
        if is_out_of_files(error):
            return disk_full(f"{self._state.topic_partition} cannot be read", self._state.directory, error)
        if isinstance(error, FileNotFoundError):
            return StorageError(
                f"{self._state.topic_partition} cannot be read: {error}. A file of an open log is gone: was its folder removed or "
                "renamed? Put it back, then open the log again"
            )
        return StorageError(f"{self._state.topic_partition} cannot be read: {error}. Check the disk")
