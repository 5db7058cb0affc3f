"""The log of one partition replica: segments, indexes, leader epochs and producers behind one owner.

Why one class: what must hold between the parts holds here.  A batch is in the log when its bytes are in the active
segment, its epoch is in the cache (written before the batch), and its producer is updated; the log end offset moves last.

    log_start_offset <= recovery_point <= log_end_offset

| crash                                         | what the next start finds                                             |
|-----------------------------------------------|-----------------------------------------------------------------------|
| inside an append                              | a torn batch above the recovery point: cut                            |
| after a roll, before a flush                  | two segments, the recovery point in the first: both are scanned        |
| truncation: recovery point lowered, log not cut | the old tail, valid: the leader is asked again where to cut           |
| truncation: some segments deleted             | a shorter log without a hole: they are deleted from the end, one by one |

Not thread-safe: one owner, the event loop.  Only `FlushJob.run` may run in another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from uuid import UUID

from replog.errors import OffsetOutOfRangeError, StorageError
from replog.log.config import LogConfig
from replog.log.file_names import deleted_dir_name, stray_dir_name
from replog.log.loader import LogLoader
from replog.log.log_append import LogAppending
from replog.log.log_truncation import LogTruncation
from replog.log.producer_files import remove_snapshot
from replog.log.retention import segments_to_delete
from replog_checkpoints import FileSystem, make_durable_dirs, parent_of


class Log(LogAppending, LogTruncation):
    """One partition replica's log.  Made by `Log.open`.

    Invariants:
        - offsets strictly rise, leader epochs never fall;
        - nothing is appended after a write or an fsync failed.
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        topic_partition: str,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        checkpoint: Callable[[], None] | None = None,
    ) -> Log:
        """Opens the log in `directory`, creating it when it is not there; recovers what a crash left.

        Args:
            fs: the disk.
            directory: of this replica.
            config: settings.
            topic_partition: for messages, such as "flights-3".
            recovery_point: everything below it was flushed; as checkpointed, 0 = unknown: check the whole log.
            log_start_offset: as checkpointed, 0 = unknown: the first segment's base offset.
            clean: the last stop was clean and `recovery_point` was written by it.
            now_ms: wall time.
            checkpoint: makes `recovery_point` and `log_start_offset` of this log durable before it returns; called when
                a truncation has lowered them.  None: the caller does not keep a recovery point (it passes 0 to `open`).

        Raises:
            CorruptRecordError: bytes below the recovery point are damaged or gone; nothing was changed.
            StorageError: the disk failed, or the directory needs Kafka to finish a compaction.
        """
        try:
            make_durable_dirs(fs, directory)
            loader = LogLoader(fs, directory, config, recovery_point, log_start_offset, clean, now_ms)
            return cls(fs, directory, config, topic_partition, loader.load(), checkpoint, now_ms)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}. Check the disk, then start again") from error

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool) -> bytes:
        """Whole batches from the one that holds `offset` (its first records may lie below).

        Args:
            offset: where to begin.
            max_bytes: limit of the answer.
            end_offset: exclusive ceiling: no batch that ends above it is returned.
            min_one_batch: return a first batch larger than `max_bytes` whole.

        Returns:
            Batches of one segment; b"" when nothing is there.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
            CorruptRecordError: the file does not hold batches where it should.
        """
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self._topic_partition} has offsets {self._log_start_offset} to {self._log_end_offset}, "
                f"{offset} was asked for",
                self._log_start_offset,
                self._log_end_offset,
            )
        ceiling = min(end_offset, self._log_end_offset)
        if offset >= ceiling:
            return b""
        return self._reader.read(
            offset,
            max_bytes=max_bytes,
            ceiling=ceiling,
            log_end_offset=self._log_end_offset,
            flushed_offset=self._recovery_point,
            min_one_batch=min_one_batch,
        )

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `end_offset` with at least this timestamp; None: there is none."""
        return self._reader.offset_for_timestamp(
            timestamp_ms,
            start_offset=self._log_start_offset,
            end_offset=min(end_offset, self._log_end_offset),
            flushed_offset=self._recovery_point,
        )

    def set_log_start_offset(self, offset: int) -> None:
        """Moves the log start up: what is below may be deleted.  Lower offsets are ignored.

        Not durable by itself: after a crash the log may start lower again, and its leader epochs are still known then
        (they are forgotten with the segments, unlike in Kafka).

        Raises:
            OffsetOutOfRangeError: above the log end.
        """
        self._check_available()
        if offset > self._log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self._topic_partition} ends at {self._log_end_offset}, it cannot start at {offset}",
                self._log_start_offset,
                self._log_end_offset,
            )
        self._log_start_offset = max(self._log_start_offset, offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Deletes the oldest segments that retention or the log start makes superfluous.

        Never the active segment, never one that reaches above the high watermark.  One by one, each durably: a crash
        leaves a later start, never a hole.

        Returns:
            How many.
        """
        self._check_available()
        count = segments_to_delete(self._segments, self._config, now_ms, high_watermark, self._log_start_offset)
        if count:
            self._reader.forget_places()
            self.set_log_start_offset(self._segments[count].base_offset)
        try:
            for _ in range(count):
                base_offset = self._segments[0].base_offset
                self._segments.remove_first()
                remove_snapshot(self._fs, self._directory, base_offset)
                self._fs.sync_dir(self._directory)
            self._epochs.truncate_from_start(self._segments[0].base_offset)
        except OSError as error:
            self._fail("deleting old segments failed", error)
        return count

    def delete(self) -> None:
        """Deletes the log.  The directory gets another name first, so that half a log is never opened.

        Raises:
            StorageError: the disk failed; what is left under the other name is removed at the next start.
        """
        self._close_files()
        delete_directory(self._fs, self._directory)

    def set_aside(self, unique_id: UUID) -> str:
        """Closes the log and renames its directory to a `-stray` one, which nothing opens; returns the new path.

        Raises:
            StorageError: the disk failed.
        """
        self._close_files()
        parent = parent_of(self._directory)
        target = f"{parent}/{stray_dir_name(PurePosixPath(self._directory).name, unique_id)}"
        try:
            self._fs.rename(self._directory, target)
            self._fs.sync_dir(parent)
        except OSError as error:
            raise StorageError(f"{self._directory} cannot be set aside: {error}. Check the disk") from error
        return target


def delete_directory(fs: FileSystem, directory: str) -> None:
    """Deletes a replica's directory; see `Log.delete`."""
    parent = parent_of(directory)
    target = f"{parent}/{deleted_dir_name(PurePosixPath(directory).name)}"
    try:
        if fs.is_dir(target):
            fs.remove_tree(target)
        fs.rename(directory, target)
        fs.sync_dir(parent)
        fs.remove_tree(target)
    except OSError as error:
        raise StorageError(f"{directory} cannot be deleted: {error}. Check the disk") from error
