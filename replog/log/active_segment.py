"""The segment that grows: bytes go into it, and a new one takes its place.

| crash                              | what the next start finds                                          |
|------------------------------------|--------------------------------------------------------------------|
| inside a write                     | a torn batch above the recovery point: cut                         |
| after a roll, before a flush       | two segments, the recovery point in the first: both are scanned    |
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from replog.errors import StorageError
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.flush import Flusher
from replog.log.producers.files import write_snapshot
from replog.log.segments.offset_index import RELATIVE_OFFSET_MAX
from replog.log.segments.segment import LogSegment
from replog.log.state import LogState
from replog.records import Buffer
from replog_checkpoints import File

UNSYNCED_FILES_MAX: Final = 24
"""Indexes and snapshots that may wait for an fsync, three a segment; its log is open as long.  Then a roll flushes."""


class ActiveSegment:
    """Writes to the active segment of a log, and begins the next one.

    Args:
        state: The state of the log.
        flusher: The flusher of the log.
    """

    __slots__ = ("_flusher", "_state")

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher

    def is_due(self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether batches of this size, last offset and largest timestamp belong in a new segment.

        Raises:
            TooManyOpenFilesError, StorageError: The first batch's time cannot be read; nothing was changed.
        """
        state = self._state
        try:
            return state.segments.active.should_roll(state.config, size_bytes, last_offset, max_timestamp, now_ms)
        except OSError as error:
            if is_out_of_files(error):
                raise disk_full("an append did not begin", state.directory, error) from error
            raise StorageError(f"{state.topic_partition}: the active segment cannot be read: {error}") from error

    def make_room(
        self, base_offset: int, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment:
        """Returns the segment that batches go into: the active one, or a new one where that is due.

        A new one begins at the log end, so that recovery can tell a hole from a gap.  Only a gap too wide for relative
        offsets moves the base up to `base_offset`; the log before it is flushed first.
        """
        state = self._state
        if self.is_due(size_bytes, last_offset, max_timestamp, now_ms):
            if last_offset - state.log_end_offset <= RELATIVE_OFFSET_MAX:
                base_offset = state.log_end_offset
            else:
                self._flusher.flush()
            self._roll(base_offset, now_ms)
        return state.segments.active

    def write(self, segment: LogSegment, buffers: Sequence[Buffer]) -> None:
        """Appends to the segment's file.  A full disk leaves it as it was: the part that found room is cut off again.

        Durably, because all of the segment may be flushed already: after a roll no flush would sync it again, and bytes
        that a crash brought back would stand below the recovery point.

        Raises:
            DiskFullError: There is no room; the file is as it was.
            StorageError: The disk failed.
        """
        try:
            segment.write(buffers)
        except OSError as error:
            state = self._state
            if not is_disk_full(error):
                state.guard.fail("an append failed", error)
            if segment.open_log_file is None:
                raise disk_full("an append did not begin", state.directory, error) from error
            try:
                segment.file.truncate(segment.size_bytes)
                segment.file.sync()
            except OSError as failure:
                state.guard.fail("a half-written append cannot be cut off", failure)
            raise disk_full("an append found no room", state.directory, error) from error

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is empty."""
        self._state.guard.check()
        if self._state.segments.active.size_bytes:
            self._roll(self._state.log_end_offset, now_ms)

    def maybe_roll(self, now_ms: int) -> None:
        """Begins a new segment when the active one is due by size or age, without waiting for the next append."""
        self._state.guard.check()
        if self.is_due(0, self._state.log_end_offset, now_ms, now_ms):
            self.roll(now_ms)

    def replace(self, now_ms: int) -> bool:
        """Begins an empty segment so that the active one, which is not needed any more, can be deleted.

        Its indexes are not written: where a crash keeps it, they are made again.  The producers are, durably, because
        the batches that tell of them are about to go.

        Returns:
            False: it is empty already, or the disk has no room.

        Raises:
            StorageError: The disk failed.
        """
        state = self._state
        state.guard.check()
        sealed = state.segments.active
        if not sealed.size_bytes:
            return False
        state.note_name_change()
        state.touch()
        state.guard.begin(partial(self._end_roll, sealed, state.log_end_offset))
        try:
            state.producers.expire(now_ms, state.config.producer_id_expiration_ms)
            if state.producers.producers:
                self._write_durable_snapshot()
            active = LogSegment.create(state.fs, state.directory, state.log_end_offset, state.config, now_ms)
        except OSError as error:
            state.guard.done()
            if is_disk_full(error):
                return False
            state.guard.fail("a new segment cannot be created", error)
        state.begin_segment(active)
        sealed.drop_indexes()
        state.guard.done()
        return True

    def _write_durable_snapshot(self) -> None:
        state = self._state
        snapshot = write_snapshot(state.fs, state.directory, state.log_end_offset, state.producers)
        try:
            snapshot.sync()
        finally:
            snapshot.close()

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Seals the active segment and begins a new one at `base_offset`.

        A full disk leaves the log as it is: the active segment goes on, and the next append rolls again.

        Files that were written until then do no harm: indexes beside an active segment are written anew when it is sealed and
        never believed after a crash, and a snapshot is right or has a wrong checksum.
        """
        state = self._state
        if len(state.unsynced) >= UNSYNCED_FILES_MAX:
            self._flusher.flush()
        sealed = state.segments.active
        state.producers.expire(now_ms, state.config.producer_id_expiration_ms)
        written: list[File] = []
        state.note_name_change()  # first: an interrupt after this must not leave a name without an fsync
        state.touch()
        state.guard.begin(partial(self._end_roll, sealed, base_offset))
        try:
            written += sealed.write_indexes()
            written.append(write_snapshot(state.fs, state.directory, base_offset, state.producers))
            active = LogSegment.create(state.fs, state.directory, base_offset, state.config, now_ms)
        except OSError as error:
            state.guard.done()
            for file in written:
                state.closer.close(file)
            if is_disk_full(error):
                raise disk_full("a new segment cannot be created", state.directory, error) from error
            state.guard.fail("a new segment cannot be created", error)
        state.begin_segment(active, written)
        sealed.drop_indexes()
        state.guard.done()

    def _end_roll(self, sealed: LogSegment, base_offset: int) -> None:
        """Ends a roll that was interrupted (Ctrl-C): an unknown empty file must not stand inside the segment before."""
        if self._state.segments.active is not sealed:
            sealed.drop_indexes()
            return
        with contextlib.suppress(FileNotFoundError):
            self._state.fs.remove(file_path(self._state.directory, base_offset, LOG_SUFFIX))
