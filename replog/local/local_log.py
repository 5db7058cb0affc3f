"""`LocalLog` and `ReadOnlyLog`: what `replog.open_log` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.local.writing import WritableLog
from replog.log.disk_space import disk_full_errors

if TYPE_CHECKING:
    from replog.local.aio import AsyncLocalLog
from replog.errors import OffsetOutOfRangeError, StorageError
from replog.local.reading import ReadableLog
from replog.log.file_names import LOG_SUFFIX, parse_file_name
from replog.log.recovery.promises import read_promises
from replog_checkpoints import FileSystem


class LocalLog(WritableLog):
    """A durable log in a folder, open for writing in this process.  Made by `replog.open_log`; thread-safe.

    Invariants:
        - offsets rise by one from record to record, in the order of the writes;
        - with flush="always" an offset below `high_watermark` is never given to another record, whatever crashes;
        - after a failed write or fsync nothing is appended any more.
    """

    def aio(self) -> AsyncLocalLog:
        """Makes a view of this log for the running event loop; see `AsyncLocalLog`.  Closing it leaves this log open.

        Raises:
            TooManyOpenFilesError: Its code could not be loaded, which the first call does; the same works again.
        """
        with disk_full_errors("a view for tasks cannot be made", self._path):
            from replog.local.aio import AsyncLocalLog
        return AsyncLocalLog(self)


class ReadOnlyLog(ReadableLog):
    """A log as it was when it was opened, from `replog.open_log(path, read_only=True)`.

    Takes no lock and changes no byte, so it may be opened beside a process that writes: it shows what that process had
    written by then, and nothing later (open it again for that).  What the writer deletes meanwhile cannot be read any more:
    OffsetOutOfRangeError says where the log starts now.
    """

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Finds the offset of the first record that late, as `ReadableLog.offset_for_timestamp` does."""
        try:
            return super().offset_for_timestamp(timestamp_ms)
        except StorageError as error:
            self._refuse_deleted(self.log_start_offset, error)
            raise

    def _fetch_batches(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        try:
            return super()._fetch_batches(offset, end_offset, max_bytes)
        except StorageError as error:
            self._refuse_deleted(offset, error)
            raise

    def _refuse_deleted(self, offset: int, error: StorageError) -> None:
        """Raises OffsetOutOfRangeError if a file is gone because the writer's log starts above `offset` now."""
        if not isinstance(error.__cause__, FileNotFoundError):
            return
        start_offset = first_offset(self._fs, self._log.directory)
        if start_offset is not None and offset < start_offset:
            raise OffsetOutOfRangeError(
                f"{self._path} starts at {start_offset} now, {offset} was asked for: it was deleted since this reader "
                "opened the log. Open it again to see the log as it is",
                start_offset,
                max(start_offset, self.log_end_offset),
            ) from error

    def close(self) -> None:
        """Closes the files.  Calling it again does nothing."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                self._log.close(0)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"offsets {self.log_start_offset} to {self.high_watermark}"
        return f"<ReadOnlyLog {self._path}: {state}>"


def first_offset(fs: FileSystem, directory: str) -> int | None:
    """Returns the first offset of the log in a folder, as its files say now; None: there is no segment."""
    parsed = [parse_file_name(name) for name in fs.list_dir(directory)]
    bases = [found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX]
    return max(min(bases), read_promises(fs, directory).log_start_offset) if bases else None
