"""Writing to a local log: append, flush, truncate, maintain, follow, close.

One append is: check and encode in the caller's thread, write under the mutex (page cache, microseconds), then with
flush="always" wait for an fsync that all waiting threads share.

| crash (kill -9, power cut)                | what the next `open_log` finds                                               |
|-------------------------------------------|------------------------------------------------------------------------------|
| before the write                          | nothing of the record; it was not acknowledged                               |
| inside the write, or before the fsync     | the record whole, or nothing of it; it was not acknowledged with "always"    |
| after the fsync                           | the record                                                                   |
| `truncate_before`: start not checkpointed | the old start, or on a full disk that of a later segment; it had not returned |
| `truncate_before`: start checkpointed     | the new start; segments below it go at the next maintenance                  |
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from replog.errors import BrokerClosedError, DiskFullError, OffsetOutOfRangeError, ReplogError, StorageError
from replog.local.config import LocalLogConfig
from replog.local.encoding import Group, GroupEncoder, RecordLike, record_input, record_inputs, wall_ms
from replog.local.folder import LogFolder
from replog.local.group_flush import GroupFlush
from replog.local.iterating import TailIterator
from replog.local.keeper import Keeper, KeeperThread
from replog.local.reading import ReadableLog, check_offset
from replog.local.write_behind import Watchers, WriteBehind
from replog.records import Buffer, Header, Record
from replog_checkpoints import FileSystem

_FIRST_EPOCH: Final = 0


class Written(NamedTuple):
    """What became of a group: everything in [base_offset, end_offset) is acknowledged; `error` met the rest."""

    base_offset: int
    end_offset: int
    error: ReplogError | None


class WritableLog(ReadableLog):
    """A durable log in a folder, open for writing in this process; thread-safe.  Callers know it as `LocalLog`.

    Invariants:
        - offsets rise by one from record to record, in the order of the writes;
        - with flush="always" an offset below `high_watermark` is never given to another record, whatever crashes;
        - after a failed write or fsync nothing is appended any more.
    """

    def __init__(self, fs: FileSystem, folder: LogFolder, config: LocalLogConfig) -> None:
        super().__init__(fs, folder.path, folder.log)
        self._folder = folder
        self._config = config
        self._process_id = os.getpid()
        self._leader_epoch = max(folder.log.last_epoch or 0, _FIRST_EPOCH)
        self._always = config.flush == "always"
        self._encoder = GroupEncoder(config.codec, config.batch_bytes)
        self._watchers = Watchers()
        self._flushes = GroupFlush(folder.log, self._mutex, self._publish)
        self._upkeep = threading.Lock()  # before the mutex, always; held while files are deleted or checkpoints written
        self._keeper = Keeper(folder, config, self._mutex, self._flushes)
        self._keeper_thread: KeeperThread | None = None
        self._durable_start = folder.log.log_start_offset  # at least; retention moves it up, too
        wake = self._wake_keeper if config.maintenance_interval_ms else None
        self._is_closing = False
        self._has_window = config.dirty_window_bytes > 0
        self._write_behind = WriteBehind(folder.log, self._mutex, self._publish, wake)
        if config.maintenance_interval_ms:
            self._keeper_thread = KeeperThread(self, config.maintenance_interval_ms)

    @property
    def config(self) -> LocalLogConfig:
        """Settings in force."""
        return self._config

    @property
    def failed(self) -> bool:
        """A write or an fsync failed: only reads work.  Close it, check the disk, and open it again."""
        return self._log.failed

    # Appending

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends one record; returns its offset once it is acknowledged (see `LocalLogConfig.flush`).

        Threads that append at the same time share fsyncs; tasks use `aio()`.

        Args:
            value: The payload, bytes-like; None is a tombstone for compaction.
            key: The key, bytes-like; None = no key.
            headers: The (name, value) pairs in order; names may repeat.
            timestamp_ms: The time in milliseconds since 1970, from 0; None = now.

        Raises:
            TypeError, InvalidRecordError, RecordTooLargeError: This record cannot be appended; nothing was.
            DiskFullError: There is no room; nothing was appended, and the same works once there is room.
            TooManyOpenFilesError: A kind of `DiskFullError`; where the text says that a flush did not begin or end, the
                record is in the log and counts after the next `flush` that succeeds, so do not append it again.
            StorageError: A write or an fsync failed, now or earlier: whether the record is there is unknown, and nothing
                is appended any more.
            BrokerClosedError: The log is closed, or belongs to the process that this one was forked from.
        """
        record = record_input(value, key, headers, timestamp_ms, self._config.batch_bytes)
        return self._append((self._encoder.one(record),)).base_offset

    def append_many(self, records: Iterable[RecordLike]) -> range:
        """Appends records with consecutive offsets; returns these once all are acknowledged, with one fsync.

        What fits into one batch (`max_batch_bytes`) is all or nothing, also in a crash.  Of more than that, a crash or an
        error may leave the first batches.

        Args:
            records: The values, (value, key) pairs, or `NewRecord`s; none at all is fine.

        Raises:
            ReplogError, TypeError: The errors of `append`; a record that is wrong is found before anything is written.
        """
        inputs = record_inputs(records, self._config.batch_bytes)
        if not inputs:
            return range(0)
        written = self._append(self._encoder.many(inputs))
        return range(written.base_offset, written.end_offset)

    def append_group(self, group: Group) -> Written:
        """Appends what many callers gave, checked records all of them, in order.  For `AsyncLocalLog`.

        Raises:
            StorageError: What was written could not be flushed.
            BrokerClosedError: The log is closed.
        """
        return self._write_and_flush(self._encoder.group(group))

    # Durability

    def flush(self) -> int:
        """Makes everything appended so far durable; returns `flushed_offset`.

        Raises:
            StorageError: It is not durable; nothing is appended any more.
        """
        self._check_process()
        with self._mutex:
            self._check_open()
            end_offset = self._log.log_end_offset
        self._flushes.flush_to(end_offset)
        return self.flushed_offset

    # Deleting

    def truncate_before(self, offset: int) -> int:
        """Forgets all records below `offset`, durably: `log_start_offset` is `offset` when it returns, for good.

        The disk space of whole segments below it is given back; the segment that holds `offset` stays as it is.  It works
        on a full disk: where not even a checkpoint finds room, whole segments are deleted first.

        Args:
            offset: The new log start, up to `high_watermark`; at or below the log start nothing happens.

        Returns:
            The log start offset.

        Raises:
            OffsetOutOfRangeError: The offset is above the high watermark, or negative.
            DiskFullError: There is no room, and no whole segment below `offset` whose end made some.  The log start is
                where `log_start_offset` says, and the same works once there is room.
            StorageError, BrokerClosedError: The errors of `append`.
        """
        check_offset("offset", offset)
        self._check_process()
        with self._upkeep:
            with self._mutex:
                self._check_open()
                self._log.require_writable()
                self._check_truncation(offset)
            self._flushes.flush_to(offset)  # flush="os": a start above the end would be left after a power cut
            if offset > self._durable_start:  # what memory says may be more than a step that failed has made durable
                start_offset = max(offset, self._log.log_start_offset)
                self._keeper.move_log_start(start_offset, wall_ms(), self._high_watermark)
                self._durable_start = start_offset
        return self.log_start_offset

    def maintain(self) -> None:
        """Carries out now what the maintenance thread does every `maintenance_interval_ms`: see `replog.local.keeper`.

        Raises:
            DiskFullError: There is no room for a checkpoint; the next time may find some.
            StorageError, BrokerClosedError: The errors of `append`.
        """
        self._check_process()
        with self._upkeep:
            with self._mutex:
                self._check_open()
            self._keeper.run_due(wall_ms(), self._high_watermark)

    def write_back(self) -> None:
        """Writes the dirty window back where one is due; what the maintenance thread does when an append wakes it."""
        if self._has_window and not self._is_closed:
            self._write_behind.run()

    # Following

    def tail(self, start_offset: int | None = None, *, timeout_s: float | None = None) -> Iterator[Record]:
        """Returns an iterator over every record from `start_offset` on, also those that are still to come.

        Args:
            start_offset: The first offset wanted; None = the high watermark as it is now: only what is new.
            timeout_s: The time without a new record that ends it, seconds; None = never.  Closing the log ends it too.

        Raises:
            ReplogError: The errors of `iterate`, after which it goes on, too.
            StorageError: Also when the log fails while this waits.
        """
        start, _ = self.range_of(self._high_watermark if start_offset is None else start_offset, None)

        def wait(offset: int) -> int | None:
            return self._high_watermark if self.wait_for(offset, timeout_s=timeout_s) else None

        return TailIterator(self.read_chunk, wait, start)

    def wait_for(self, offset: int, *, timeout_s: float | None = None) -> bool:
        """Waits until the record at `offset` can be read (`high_watermark` is above it).

        Returns:
            False: not within `timeout_s` seconds, or the log was closed.

        Raises:
            StorageError: The log failed: nothing will come any more.
        """
        check_offset("offset", offset)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._high_watermark <= offset:
            with self._mutex:
                if self._high_watermark > offset:
                    return True
                if self._is_closed:
                    return False
                self._check_not_failed()
                rest_s = None if deadline is None else deadline - time.monotonic()
                if rest_s is not None and rest_s <= 0:
                    return False
                waiter = self._watchers.register()
            self._watchers.wait(waiter, rest_s)
        return True

    def add_watcher(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever the high watermark moves, the log fails or is closed; it must only wake somebody."""
        with self._mutex:
            self._watchers.add(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        """Undoes `add_watcher`."""
        with self._mutex:
            self._watchers.remove(callback)

    # Its end

    def close(self) -> None:
        """Flushes and closes the log and drops its lock, so that it opens again without recovery.

        Appends under way in other threads end first.  Calling it again does nothing; in a forked child neither.

        Raises:
            StorageError: The log had failed, or not everything could be flushed; it is closed all the same.
        """
        if self._process_id != os.getpid():
            self._is_closed = True
            return
        if self._keeper_thread is not None:
            self._keeper_thread.stop()
        with self._upkeep:
            if self._is_closed and not self._is_closing:
                return
            self._is_closed = self._is_closing = True  # the second one stays where an interrupt keeps this from its end
            self._write_behind.end()
            self._flushes.when_idle(self._close_folder)
            self._is_closing = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "failed" if self.failed else f"flush={self._config.flush}"
        return f"<LocalLog {self._path}: offsets {self.log_start_offset} to {self._high_watermark}, {state}>"

    def __del__(self) -> None:
        if getattr(self, "_is_closed", True):  # an `__init__` that failed has left nothing to close
            return
        text = f"{self!r} was never closed; use `with` or call close()"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        with contextlib.suppress(Exception):  # as with a forgotten file: the lock must not outlive the object
            self.close()

    # Parts

    def _close_folder(self) -> None:
        try:
            self._folder.close(now_ms=wall_ms())
        finally:
            self._publish()
            self._watchers.notify()

    def _append(self, batches: Sequence[bytes]) -> Written:
        written = self._write_and_flush(batches)
        if written.error is not None:
            raise written.error
        return written

    def _write_and_flush(self, batches: Sequence[bytes]) -> Written:
        written = self._write(batches)
        if self._always and written.end_offset > written.base_offset:
            self._flushes.flush_to(written.end_offset)
        return written

    def _write(self, batches: Sequence[bytes]) -> Written:
        """Writes all batches, or those for which there is room.  The hot path of a single append: few calls."""
        if self._process_id != os.getpid():
            self._check_process()
        if self._has_window:
            self._write_behind.wait_for_room()
        with self._mutex:
            if self._is_closed:
                self._check_open()
            base_offset = self._log.log_end_offset
            count, error = self._append_all(batches)
            if isinstance(error, DiskFullError) and self._folder.has_room_again():
                _, error = self._append_all(batches[count:])
            if not self._always:
                self._publish()
            end_offset = self._log.log_end_offset
        if self._has_window:
            self._write_behind.note_append()
        return Written(base_offset, end_offset, error)

    def _append_all(self, batches: Sequence[bytes]) -> tuple[int, ReplogError | None]:
        """Appends batches; returns how many were, and what met the next: a full disk, which those behind it met too."""
        try:
            outcomes = self._log.append_all_as_leader(batches, leader_epoch=self._leader_epoch, now_ms=wall_ms())
        except StorageError:
            self._publish()
            raise
        for count, outcome in enumerate(outcomes):
            if isinstance(outcome, ReplogError):
                return count, outcome
        return len(outcomes), None

    def _publish(self) -> None:
        """Moves the high watermark to what counts now.  The mutex is held."""
        high_watermark = self._log.log_end_offset
        if self._always:
            high_watermark = min(high_watermark, self._log.flushed_offset)
        if high_watermark > self._high_watermark:
            self._watchers.tell_threads()  # first: interrupted before the next line, the next append tells them again
            self._high_watermark = high_watermark
            self._watchers.call_back()
        elif self._log.failed:
            self._watchers.notify()

    def _wake_keeper(self) -> None:
        if self._keeper_thread is not None:
            self._keeper_thread.wake()

    def _check_truncation(self, offset: int) -> None:
        if not 0 <= offset <= self._high_watermark:
            raise OffsetOutOfRangeError(
                f"{self._path} has acknowledged offsets {self.log_start_offset} to {self._high_watermark}; "
                f"it cannot start at {offset}",
                self.log_start_offset,
                self._high_watermark,
            )

    def _check_not_failed(self) -> None:
        if self._log.failed:
            raise StorageError(f"{self._path} failed: no record will come. Close it, check the disk, open it again")

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise BrokerClosedError(
                f"{self._path} was opened by process {self._process_id} before a fork; two processes must not write one "
                "log: open it after the fork, in one of them"
            )
