"""Truncation: a follower cuts records that its leader does not have (KIP-101, docs/KAFKA.md 4.5).

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

If too many files are open, the steps before 4 change nothing that counts.  All that 4 and 5 need besides the directory is
opened before them.  The directory is fsynced, and the producers are rebuilt, before the next change of the log.
"""

from __future__ import annotations

import contextlib
from functools import partial

from replog.errors import CorruptIndexError, CorruptRecordError, DiskFullError, StorageError
from replog.log.dirty_window import DirtyWindow
from replog.log.disk_space import disk_full_errors, is_out_of_files
from replog.log.file_names import CLEANED_SUFFIX
from replog.log.producers.files import rebuild_producers, remove_snapshots
from replog.log.reading.aborted import aborted_in
from replog.log.reading.reader import LogReader
from replog.log.recovery.cut_bytes import FOLLOWER_CUT_BYTES_MAX, CutPiece, keep_cut, tell_cut
from replog.log.segments.segment import LogSegment
from replog.log.state import LogState


class Truncator:
    """Cuts a log.

    Args:
        state: The state of the log.
        reader: The reader of the log, whose places are wrong after a cut.
        window: The dirty window of the log, which begins to count anew after one.
    """

    __slots__ = ("_reader", "_state", "_window")

    def __init__(self, state: LogState, reader: LogReader, window: DirtyWindow) -> None:
        self._state = state
        self._reader = reader
        self._window = window

    def truncate_to(self, offset: int) -> bool:
        """Cuts the batch that holds `offset` and everything after it (KIP-101).

        The lowered recovery point is durable before anything is cut, and the cut before this returns: so a batch
        appended later is never taken for a flushed one, and an old tail never comes back behind a new one.

        An epoch that began at the log end and never wrote is forgotten even when nothing is cut: a follower that led
        once and appended nothing would find the same divergence for ever.

        Returns:
            False when the log ends at or below `offset` already.

        Raises:
            CorruptRecordError, CorruptIndexError: The part that stays is damaged; the log cannot be used any more, its disk can.
            DiskFullError: Nothing was cut; or, for want of descriptors, the cut is there and ends with the next change.
            StorageError: The disk failed.
        """
        state = self._state
        state.guard.check()
        if offset >= state.log_end_offset:
            self._forget_empty_epochs(offset)
            return False
        if offset < state.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            end_offset, is_durable = self._truncate_segments(offset)
        except (CorruptRecordError, CorruptIndexError) as error:
            state.guard.note_failure(error)
            raise
        except (OSError, StorageError) as error:
            state.guard.fail("a truncation failed", error)
        self._after_cut(end_offset, is_durable=is_durable)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; the next record gets `offset`, which is the log start too.

        The new log start is durable first: an old segment that a crash leaves then either lies below it, or is
        an old tail that the leader is asked about again; with no segment left the log begins there.

        Nothing of it is kept: the leader has deleted these records on purpose, or gives all of the log anew.

        Raises:
            DiskFullError: Nothing was cut; or, for want of descriptors, the log is empty, and that ends with the next
                change.
            StorageError: The disk failed.
        """
        state = self._state
        state.guard.check()
        log_start_offset, log_end_offset = state.log_start_offset, state.log_end_offset
        pieces = self._pieces_from(0, 0)
        try:
            first = self._prepare_emptying(offset)
            is_durable = self._remove_segments_from(0)
            first.change_suffix("")
            state.begin_segment(first)
            is_durable &= self._sync_names()
        except (OSError, StorageError) as error:
            state.guard.fail("a truncation failed", error)
        state.raise_recovery_point(offset)
        why = f"it begins anew at offset {offset}"
        tell_cut(state.topic_partition, pieces, f"{log_start_offset} to {log_end_offset}", why, 0)
        self._after_cut(offset, is_durable=is_durable)

    def _prepare_emptying(self, offset: int) -> LogSegment:
        """Takes the steps that want of room or descriptors may refuse; returns the segment that is to be the only one.

        A crash leaves it under a name that the next start sweeps.
        """
        state = self._state
        log_start_offset = state.log_start_offset
        first: LogSegment | None = None
        try:
            with disk_full_errors("the log cannot be emptied", state.directory):
                first = self._new_segment(offset)
                state.complete.raise_to(offset)
                self._promise_nothing()
                state.move_log_start(offset)
                self._promise_no_more_than(offset, is_emptied=True)
                state.forget_epochs()
        except DiskFullError:  # promised less than is true; nothing was cut
            state.move_log_start(log_start_offset)
            if first is not None:
                first.remove(state.closer)
            raise
        return first

    def _new_segment(self, base_offset: int) -> LogSegment:
        """Makes a segment named `.cleaned`, since one in use may have its base; replaces one of an earlier attempt."""
        state = self._state
        unused = LogSegment(state.fs, state.directory, base_offset, 0, state.wall_ms, CLEANED_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            state.fs.remove(unused.path)
        made = LogSegment.create(state.fs, state.directory, base_offset, state.config, state.wall_ms, CLEANED_SUFFIX)
        made.release(state.closer)  # it gets another name
        return made

    def _truncate_segments(self, offset: int) -> tuple[int, bool]:
        """Cuts the segments; returns where the log ends now, and whether the directory says so durably."""
        state = self._state
        number = state.segments.number_for(offset)
        segment = state.segments[number]
        was_active, log_start_offset = segment.is_active, state.log_start_offset
        try:
            with disk_full_errors("the log cannot be cut", state.directory):
                position, end_offset = self._prepare_cut(number, offset)
                state.move_log_start(min(log_start_offset, end_offset))
                self._promise_no_more_than(end_offset, is_emptied=False)
                state.forget_epochs_from(end_offset)
        except DiskFullError:  # promised less than is true; nothing was cut
            state.move_log_start(log_start_offset)
            if not was_active:
                segment.drop_indexes()
            raise
        log_end_offset, pieces = state.log_end_offset, self._pieces_from(number, position)
        kept_bytes = keep_cut(state.fs, state.directory, pieces, FOLLOWER_CUT_BYTES_MAX)
        is_durable = self._remove_segments_from(number + 1)
        segment.truncate(position, end_offset)
        why = "its leader, or whoever repairs it, says that the log ends there"
        tell_cut(state.topic_partition, pieces, f"{end_offset} to {log_end_offset}", why, kept_bytes)
        return end_offset, is_durable

    def _prepare_cut(self, number: int, offset: int) -> tuple[int, int]:
        """Returns byte and offset at which a segment will end; opens its file and takes its indexes into memory."""
        segment = self._state.segments[number]
        found = segment.find(offset)
        place = (found.position, found.previous_end) if found else (segment.size_bytes, segment.end_offset())
        if not segment.is_active:
            segment.activate(self._state.config, aborted_in(self._state, number))
        return place

    def _remove_segments_from(self, number: int) -> bool:
        """Deletes segment `number` and all later ones, the last one first; returns whether durably."""
        is_durable = True
        while len(self._state.segments) > number:
            self._state.remove_last_segment()
            is_durable = self._sync_names()
        return is_durable

    def _sync_names(self) -> bool:
        """Fsyncs the directory; returns False where it could not be opened for want of descriptors."""
        try:
            self._state.fs.sync_dir(self._state.directory)
        except OSError as error:
            if not is_out_of_files(error):
                raise
            return False
        return True

    def _pieces_from(self, number: int, position: int) -> list[CutPiece]:
        """Returns the pieces of the log from byte `position` of segment `number` on."""
        state = self._state
        segment = state.segments[number]
        later = [state.segments[behind] for behind in range(number + 1, len(state.segments))]
        pieces = [CutPiece(segment.path, position, segment.size_bytes)]
        return pieces + [CutPiece(one.path, 0, one.size_bytes) for one in later]

    def _forget_empty_epochs(self, end_offset: int) -> None:
        try:
            self._state.forget_epochs_from(end_offset)
        except OSError as error:
            self._state.guard.fail("the leader-epoch checkpoint cannot be written", error)

    def _promise_nothing(self) -> None:
        """Lowers the recovery point to 0, durably, before the log start moves.

        A log start above the log end is believed only where nothing is promised.
        """
        state = self._state
        state.flushed_file.lower_to(0)
        state.move_log_start(state.checkpointed_log_start_offset)  # it may have been raised above the flushed offset
        state.lower_recovery_point(0)
        state.write_checkpoint(is_emptied=True)

    def _promise_no_more_than(self, end_offset: int, *, is_emptied: bool) -> None:
        """Lowers the promises that a crash would leave about bytes that are about to go."""
        state = self._state
        state.begin_generation()
        self._reader.forget_places()
        state.flushed_file.lower_to(0 if is_emptied else end_offset)
        is_lowered = state.recovery_point > end_offset or state.log_start_offset >= end_offset
        state.lower_recovery_point(0 if is_emptied else end_offset)
        state.lower_first_dirty_offset(end_offset)
        if is_lowered or is_emptied:
            state.write_checkpoint(is_emptied=is_emptied)
        if remove_snapshots(state.fs, state.directory, above=-1 if is_emptied else end_offset):
            state.note_name_change()  # if this fsync does not come about, the next flush does it
            state.fs.sync_dir(state.directory)
            state.note_name_synced()

    def _after_cut(self, end_offset: int, *, is_durable: bool) -> None:
        self._state.end_at(end_offset)
        self._window.restart()
        self._state.guard.end("a truncation", partial(self._end_cut, is_durable=is_durable))

    def _end_cut(self, *, is_durable: bool) -> None:
        """Fsyncs the directory where that is still to be done, and builds the producers anew.

        Nothing may be appended before: an old tail must not come back behind it, nor producers of cut batches count.
        """
        state = self._state
        if not is_durable:
            state.fs.sync_dir(state.directory)
        rebuild_producers(
            state.fs,
            state.directory,
            state.producers,
            state.segments,
            state.config,
            state.wall_ms,
            flushed_offset=state.recovery_point,
        )
