"""Maintenance: what a log needs now and then, and the thread that sees to it.

| what                                            | when                                                     |
|-------------------------------------------------|----------------------------------------------------------|
| fsync with flush="os"                           | every `flush_interval_ms`; a sealed segment at once       |
| recovery point checkpoint                       | every minute, and when it has reached another segment     |
| dirty window                                    | when an append has filled it                              |
| retention, and removal of deleted files         | every time                                               |

All of it is optional for correctness: a log that is never maintained loses nothing, it grows and takes longer to recover.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from typing import Final, Protocol

from replog.errors import DiskFullError, ReplogError, StorageError
from replog.local.config import LocalLogConfig
from replog.local.folder import LogFolder
from replog.local.group_flush import GroupFlush
from replog.log import Log
from replog.log.deletion import FileDeletionJob

RECOVERY_POINT_INTERVAL_MS: Final = 60_000  # Kafka's log.flush.offset.checkpoint.interval.ms
_log = logging.getLogger(__name__)


class Keeper:
    """Decides what is due and does it.  One call at a time.

    Args:
        folder: The folder of the log.
        config: The settings of the log.
        mutex: The lock that guards the log; taken here for short moments.
        flushes: The fsyncs of the log.
    """

    def __init__(self, folder: LogFolder, config: LocalLogConfig, mutex: threading.Lock, flushes: GroupFlush) -> None:
        self._folder = folder
        self._log: Log = folder.log
        self._config = config
        self._mutex = mutex
        self._flushes = flushes
        self._flushed_ms = self._checkpointed_ms = _monotonic_ms()
        self._checkpointed_segment = self._segment_of_recovery_point()
        self._deletion: FileDeletionJob | None = None  # under way, or left behind by a call that was interrupted

    def run_due(self, now_ms: int, high_watermark: int) -> None:
        """Flushes, deletes old segments, looks for room on a full disk, and writes a checkpoint, as far as that is due.

        Args:
            now_ms: The wall time.
            high_watermark: The high watermark of the log; nothing that reaches above it is deleted.

        Raises:
            StorageError: The disk failed.
            DiskFullError: There is no room for a checkpoint; the next time may find some.
        """
        self._maybe_flush()
        self.delete_old_segments(now_ms, high_watermark)
        self._folder.has_room_again()
        self._maybe_checkpoint()

    def move_log_start(self, offset: int, now_ms: int, high_watermark: int) -> None:
        """Moves the log start up to `offset`, durably, and deletes what lies below.

        Where a segment begins at `offset`, its name says so and no checkpoint is needed.  Else the checkpoint comes first,
        so that nobody sees a start that a crash would undo.  One that finds no room comes after the deletion of whole
        segments, which needs none and makes some.

        Args:
            offset: The new log start: above the old one, at most the high watermark, and flushed.
            now_ms: The wall time.
            high_watermark: The high watermark of the log.

        Raises:
            DiskFullError: There is no room; the log start is what memory and disk say alike.
            StorageError: The disk failed.
        """
        with self._mutex:
            if offset == self._log.log_end_offset:  # no record is left in any segment
                self._log.replace_active_segment(now_ms)
            base_offset = max(base for base in self._log.segment_base_offsets if base <= offset)
        if base_offset < offset:
            try:
                self._folder.write_log_start_offset(offset)
            except DiskFullError:
                self._start_at(base_offset, now_ms, high_watermark)
                self._folder.write_log_start_offset(offset)
        self._start_at(offset, now_ms, high_watermark)

    def _start_at(self, offset: int, now_ms: int, high_watermark: int) -> None:
        with self._mutex:
            self._log.set_log_start_offset(offset)
        self.delete_old_segments(now_ms, high_watermark)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> None:
        """Deletes what retention asks for and what lies below the log start.

        Freeing large files takes a while: it is not done under the mutex.

        Raises:
            StorageError: The disk failed.
        """
        self._remove_files()  # of a call that was interrupted
        with self._mutex:
            self._log.delete_old_segments(now_ms, high_watermark)
            self._deletion = self._log.prepare_file_deletion(now_ms)
        self._remove_files()

    def _remove_files(self) -> None:
        if self._deletion is None:
            return
        try:
            self._deletion.run()
        except OSError as error:
            self._deletion = None  # the next start removes them
            raise StorageError(
                f"{self._folder.path}: a deleted file cannot be removed: {error}. Check the disk"
            ) from error
        self._deletion = None

    def _maybe_flush(self) -> None:
        """Flushes what is due by `flush_interval_ms`, and sealed segments at once.

        So what recovery scans after a crash stays bounded (docs/KAFKA.md 3.6).
        """
        now = _monotonic_ms()
        interval_ms = self._config.flush_interval_ms
        is_due = self._config.flush == "os" and 0 < interval_ms <= now - self._flushed_ms
        if is_due or self._log.has_unflushed_segment:
            self._flushed_ms = now
            self._flushes.flush_to(self._log.log_end_offset)

    def _maybe_checkpoint(self) -> None:
        now = _monotonic_ms()
        segment = self._segment_of_recovery_point()
        if segment == self._checkpointed_segment and now - self._checkpointed_ms < RECOVERY_POINT_INTERVAL_MS:
            return
        self._folder.write_recovery_point()
        self._checkpointed_ms, self._checkpointed_segment = now, segment

    def _segment_of_recovery_point(self) -> int:
        with self._mutex:
            point = self._log.flushed_offset
            return max((base for base in self._log.segment_base_offsets if base <= point), default=0)


class Maintained(Protocol):
    """A log as the thread that maintains it knows it."""

    @property
    def path(self) -> str:
        """Its folder."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it needs the thread no more."""
        ...

    @property
    def failed(self) -> bool:
        """Whether nothing can be written any more."""
        ...

    def write_back(self) -> None:
        """Writes the dirty window back where one is due."""

    def maintain(self) -> None:
        """Carries out what is due."""


class KeeperThread:
    """Calls `maintain` of a log until it is stopped, or until nobody holds the log any more.

    Args:
        log: The log, kept weakly, so that a forgotten one can go.
        interval_ms: The time between two calls.
    """

    def __init__(self, log: Maintained, interval_ms: int) -> None:
        self._orders = _Orders()
        arguments = (weakref.ref(log), self._orders, interval_ms / 1000)
        self._thread = threading.Thread(target=_keep, args=arguments, name="replog-log-keeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Makes the thread write back the dirty window now."""
        self._orders.tell()

    def stop(self) -> None:
        """Stops the thread; waits for the end of a call that is under way."""
        self._orders.stop = True
        self._orders.tell()
        if self._thread is not threading.current_thread():
            self._thread.join()


class _Orders:
    """What the thread is told.

    A bare lock, and no `threading.Event`: a Ctrl-C while an event is set may leave the lock inside of it taken for ever.
    """

    def __init__(self) -> None:
        self._nothing_new = threading.Lock()
        self._nothing_new.acquire()
        self.stop = False

    def tell(self) -> None:
        """Ends the wait that is under way, or else the next one."""
        with contextlib.suppress(RuntimeError):  # told already
            self._nothing_new.release()

    def wait(self, timeout_s: float) -> None:
        """Returns once it is told, or after `timeout_s` seconds.  In the thread."""
        self._nothing_new.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))


def _keep(reference: weakref.ref[Maintained], orders: _Orders, interval_s: float) -> None:
    due = time.monotonic() + interval_s
    while True:
        orders.wait(due - time.monotonic())
        log = reference()
        if orders.stop or log is None or log.closed:
            return
        log.write_back()
        if time.monotonic() >= due:
            due = time.monotonic() + interval_s
            if not _maintain(log):
                return
        del log


def _maintain(log: Maintained) -> bool:
    """Maintains the log once; returns whether to go on."""
    try:
        log.maintain()
    except ReplogError as error:  # a failed log tells every caller itself; a full disk may have room next time
        _log.warning("maintenance of %s: %s", log.path, error)
    return not log.failed


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
