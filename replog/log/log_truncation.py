"""Truncation: a follower cuts what its leader does not have (KIP-101, kafka-reference 4.5).

Order, and what a crash after each step leaves:

| step                                             | after a crash                                                   |
|--------------------------------------------------|-----------------------------------------------------------------|
| 0 the `flushed-offset` file lowered, durable      | the same as after 1                                              |
| 1 recovery point (and log start) lowered, durable | the old tail, all valid; the leader is asked again where to cut |
| 2 producer snapshots above the cut deleted        | the same; the producers are rebuilt from older ones             |
| 3 epochs above the cut deleted                    | the same; the scan past the recovery point finds the epochs again |
| - the first MiB of what is cut copied beside the log | the same                                                      |
| 4 later segments deleted, last one first          | a shorter log without a hole                                    |
| 5 the segment cut and fsynced                     | done                                                            |
"""

from __future__ import annotations

from replog.errors import CorruptIndexError, CorruptRecordError, DiskFullError, StorageError
from replog.log.cut_bytes import FOLLOWER_CUT_BYTES_MAX, CutPiece, keep_cut, tell_cut
from replog.log.disk_space import disk_full, is_disk_full
from replog.log.log_state import LogState
from replog.log.producer_files import rebuild_producers, remove_snapshots
from replog.log.segment import LogSegment


class LogTruncation(LogState):
    """The part of a log that is cut."""

    __slots__ = ()

    def truncate_to(self, offset: int) -> bool:
        """Cuts the batch that holds `offset` and everything after it (KIP-101).

        The lowered recovery point is durable before anything is cut, and the cut before this returns: so a batch
        appended later is never taken for a flushed one, and an old tail never comes back behind a new one.

        An epoch that began at the log end and never wrote is forgotten even when nothing is cut: a follower that led
        once and appended nothing would find the same divergence for ever.

        Returns:
            False when the log ends at or below `offset` already.

        Raises:
            CorruptRecordError, CorruptIndexError: what stays is damaged; the log cannot be used any more, its disk can.
            StorageError: the disk failed.
        """
        self._check_available()
        if offset >= self._log_end_offset:
            self._forget_empty_epochs(offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self._truncate_segments(offset)
        except (CorruptRecordError, CorruptIndexError) as error:
            self._note_failure(error)
            raise
        except (OSError, StorageError) as error:
            self._fail("a truncation failed", error)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; the next record gets `offset`, which is the log start too.

        The new log start is durable first: whatever a crash leaves of the old segments then either lies below it, or is
        an old tail that the leader is asked about again; with no segment left the log begins there.

        Nothing of it is kept: the leader has deleted these records on purpose, or gives all of the log anew.
        """
        self._check_available()
        log_start_offset, log_end_offset = self._log_start_offset, self._log_end_offset
        pieces = self._pieces_from(0, 0)
        try:
            self._complete.raise_to(offset)
            self._promise_nothing()
            self._log_start_offset = offset
            self._promise_no_more_than(offset, is_emptied=True)
            self._epochs.clear()
            while len(self._segments):
                self._segments.remove_last()
                self._fs.sync_dir(self._directory)
            self._segments.append(LogSegment.create(self._fs, self._directory, offset, self._config, self._wall_ms))
            self._fs.sync_dir(self._directory)
            self._recovery_point = offset
            self._after_cut(offset)
            why = f"it begins anew at offset {offset}"
            tell_cut(self._topic_partition, pieces, f"{log_start_offset} to {log_end_offset}", why, 0)
        except DiskFullError:  # only the checkpoints need room, and nothing was cut before they were written
            self._log_start_offset = log_start_offset
            raise
        except (OSError, StorageError) as error:
            self._fail("a truncation failed", error)

    def _truncate_segments(self, offset: int) -> None:
        number = self._segments.number_for(offset)
        segment = self._segments[number]
        found = segment.find(offset)
        position = found.position if found else segment.size_bytes
        end_offset = found.previous_end if found else segment.end_offset()
        log_start_offset = self._log_start_offset
        self._log_start_offset = min(log_start_offset, end_offset)
        try:
            self._promise_no_more_than(end_offset, is_emptied=False)
            self._epochs.truncate_from_end(end_offset)
        except DiskFullError:  # promised less than is true; nothing was cut
            self._log_start_offset = log_start_offset
            raise
        log_end_offset, pieces = self._log_end_offset, self._pieces_from(number, position)
        kept_bytes = keep_cut(self._fs, self._directory, pieces, FOLLOWER_CUT_BYTES_MAX)
        while len(self._segments) > number + 1:
            self._segments.remove_last()
            self._fs.sync_dir(self._directory)
        if not segment.is_active:
            segment.activate(self._config)
        segment.truncate(position, end_offset)
        self._after_cut(end_offset)
        why = "its leader, or whoever repairs it, says that the log ends there"
        tell_cut(self._topic_partition, pieces, f"{end_offset} to {log_end_offset}", why, kept_bytes)

    def _pieces_from(self, number: int, position: int) -> list[CutPiece]:
        """What is behind a byte of a segment."""
        segment = self._segments[number]
        later = [self._segments[behind] for behind in range(number + 1, len(self._segments))]
        pieces = [CutPiece(segment.path, position, segment.size_bytes)]
        return pieces + [CutPiece(one.path, 0, one.size_bytes) for one in later]

    def _forget_empty_epochs(self, end_offset: int) -> None:
        try:
            self._epochs.truncate_from_end(end_offset)
        except OSError as error:
            self._fail("the leader-epoch checkpoint cannot be written", error)
        self._last_epoch = self._epochs.latest_epoch

    def _promise_nothing(self) -> None:
        """The recovery point goes before the log start: one above the log end is believed only where nothing is promised."""
        self._lower_flushed_offset(0)
        self._log_start_offset = self.checkpointed_log_start_offset  # it may have been raised above what is flushed
        self._recovery_point = 0
        if self._checkpoint is None:
            return
        self._is_emptied = True  # the log start is written although it is above the recovery point now
        try:
            self._checkpoint()
        finally:
            self._is_emptied = False

    def _promise_no_more_than(self, end_offset: int, *, is_emptied: bool) -> None:
        """Lowers what a crash would take as a promise about bytes that are about to go."""
        self._touched = True
        self._generation += 1
        self._reader.forget_places()
        self._lower_flushed_offset(0 if is_emptied else end_offset)
        is_lowered = self._recovery_point > end_offset or self._log_start_offset >= end_offset
        self._recovery_point = 0 if is_emptied else min(self._recovery_point, end_offset)
        self._first_dirty_offset = min(self._first_dirty_offset, end_offset)
        if (is_lowered or is_emptied) and self._checkpoint is not None:
            self._is_emptied = is_emptied
            try:
                self._checkpoint()
            finally:
                self._is_emptied = False
        if remove_snapshots(self._fs, self._directory, above=-1 if is_emptied else end_offset):
            self._fs.sync_dir(self._directory)

    def _lower_flushed_offset(self, end_offset: int) -> None:
        try:
            self._flushed_file.lower_to(end_offset)
        except OSError as error:
            if is_disk_full(error):
                raise disk_full("the log cannot be cut", self._directory, error) from error
            raise

    def _after_cut(self, end_offset: int) -> None:
        self._log_end_offset = end_offset
        self._window.restart(self._segments, self._generation)
        self._last_epoch = self._epochs.latest_epoch
        rebuild_producers(
            self._fs,
            self._directory,
            self._producers,
            self._segments,
            self._config,
            self._wall_ms,
            flushed_offset=self._recovery_point,
        )
