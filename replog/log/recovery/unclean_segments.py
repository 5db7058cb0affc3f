"""Which segments must be read when a log is opened, and how much is cut behind the first damage.

After a clean stop nothing is scanned but the few batches behind the last index entry, and the last segment where it does
not end at the recovery point.  Otherwise every segment from the
one with the recovery point on is read and checked::

    recovery point                                      first damage
         |                                                   |
    -----+--------------------- good batches ----------------+ x x x x   -> cut here; later segments deleted

    first damage        flushed offset
         |                    |
    -----+ x x x x x x x x x -+-----------------            -> bytes that were flushed have changed or are gone:
                                                               CorruptRecordError, nothing is touched

The flushed offset is the one in the file of that name (see `flushed_offset`), or the recovery point if that is higher.

| crash during recovery                             | what the next start finds                             |
|---------------------------------------------------|-------------------------------------------------------|
| while what is cut is copied beside the log        | the same                                              |
| while later segments are deleted (log not cut yet) | the same damage at the same place: same decision      |
| after the cut, before new indexes are written     | no usable index and a low recovery point: scanned again |
"""

from __future__ import annotations

from replog.errors import CorruptIndexError, CorruptRecordError
from replog.log.disk_space import is_disk_full
from replog.log.recovery.completeness import hole
from replog.log.recovery.cut_bytes import CutPiece, keep_cut, tell_cut
from replog.log.recovery.loader_scan import SegmentScanning
from replog.log.recovery.plausibility import epochs_fit
from replog.log.segments.offset_index import RELATIVE_OFFSET_MAX
from replog.log.segments.promised_end import promised_end_offset
from replog.log.segments.scan import scan_headers
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog.records import describe_epoch


class LogRecovery(SegmentScanning):
    """The part of opening a log that decides which bytes are believed, read and cut."""

    def _refuse_hole(self, segment: LogSegment, end_offset: int, next_base_offset: int) -> None:
        """Refuses a segment that does not reach to the next one although no offset was ever left out."""
        start_offset = max(end_offset, self._complete.offset or 0, self.log_start_offset)
        if self._complete.offset is not None and start_offset < next_base_offset and not self.opens_holes:
            raise hole(segment.path, segment.size_bytes, start_offset, next_base_offset)

    def _check_empty(self) -> int:
        if self._flushed_offset > self.log_start_offset:
            raise self._lost(self.directory, 0, self.log_start_offset, "there are no segment files")
        return self.log_start_offset

    def _recover(self, segments: list[LogSegment]) -> int:
        """Checks the segments that must be checked, leaves the last one active; returns the log end offset."""
        scan_from = self.recovery_point if self.scan_from is None else self.scan_from
        first_scanned = len(segments) if self.clean else _number_for(segments, scan_from)
        if first_scanned < len(segments):  # the log's own epochs there replace those of the checkpoint
            self._epochs.truncate_from_end(segments[first_scanned].base_offset)
        self._bytes_total = sum(segment.size_bytes for segment in segments[first_scanned:])
        self._doubt_epochs(segments, first_scanned)
        self._believes_epochs = first_scanned > 0 and not self.report.epochs_rebuilt
        end_offset, number = segments[0].base_offset, 0
        while number < len(segments):
            segment, is_last = segments[number], number == len(segments) - 1
            end_offset = max(end_offset, segment.base_offset)
            next_base_offset = OFFSET_MAX if is_last else segments[number + 1].base_offset
            promised = base_offset = segment.base_offset
            if number < first_scanned and not is_last:
                promised = promised_end_offset(self.fs, self.directory, base_offset, next_base_offset)
            trusted_end = None
            if number < first_scanned and self._ends_at(segment, promised, next_base_offset, is_last=is_last):
                trusted_end = self._trusted_end(segment, is_last=is_last)
            if trusted_end is not None:
                end_offset = trusted_end
            else:
                if number < first_scanned:
                    self._bytes_total += segment.size_bytes
                end_offset, damaged = self._scan(segments, number, end_offset)
                if not is_last and next_base_offset < end_offset and self._is_flushed(next_base_offset):
                    reason = f"it reaches up to offset {end_offset}, into the next segment"
                    raise self._lost(segment.path, segment.size_bytes, next_base_offset, reason)
                if end_offset < promised and self._is_flushed(end_offset):
                    reason = f"its indexes know of offset {promised - 1}, the segment ends here"
                    raise self._lost(segment.path, segment.size_bytes, end_offset, reason)
                if damaged or self._is_hole(segments, number, end_offset):
                    why = self._damage if damaged else "the segment ends before the next one begins"
                    self._cut(segments, number, end_offset, why)
                elif not is_last:
                    self._seal(segment)
            number += 1
        if self._is_flushed(end_offset):
            raise self._lost(segments[-1].path, segments[-1].size_bytes, end_offset, "the log ends here")
        return end_offset

    def _doubt_epochs(self, segments: list[LogSegment], first_scanned: int) -> None:
        """Forgets the epochs of a checkpoint that contradicts the batches: they are made again from the log."""
        if self.report.epochs_rebuilt or first_scanned == 0:
            return
        trusted = segments[:first_scanned]
        last = trusted[-1]
        end_offset = segments[first_scanned].base_offset if first_scanned < len(segments) else None
        try:
            end_offset = last.end_offset() if end_offset is None else end_offset
            fits = epochs_fit(self._epochs.entries, trusted, self.log_start_offset, end_offset)
        except CorruptRecordError:
            fits = False
        for segment in trusted:
            segment.release(self._closer)
        if not fits:
            self.report.epochs_rebuilt = True
            self._epochs.clear()

    def _ends_at(self, segment: LogSegment, promised: int, next_base_offset: int, *, is_last: bool) -> bool:
        """Whether a segment begins within itself, and a sealed one reaches what its indexes promise and not into the next.

        Raises:
            CorruptRecordError: It does, and offsets behind it are missing.
        """
        try:
            begins = segment.base_offset <= segment.first_offset() < next_base_offset
            end_offset = next_base_offset if is_last else segment.end_offset()
        except CorruptRecordError:
            return is_last  # its indexes are looked at before it is trusted
        finally:
            if not is_last:
                segment.release(self._closer)
        fits = begins and promised <= end_offset <= next_base_offset
        if fits and not is_last:
            self._refuse_hole(segment, end_offset, next_base_offset)
        return fits

    def _trusted_end(self, segment: LogSegment, *, is_last: bool) -> int | None:
        """Returns the end offset of a segment that need not be scanned (a sealed one: its base offset); None: scan it."""
        if is_last:
            try:
                end_offset = segment.load_indexes(self.config)
            except (CorruptIndexError, CorruptRecordError):
                return None
            if end_offset != self.recovery_point:  # a clean stop leaves it there: the last batch is in doubt
                return None
        elif segment.has_usable_indexes(self._names):
            end_offset = segment.base_offset
        else:
            return None
        if self.report.epochs_rebuilt:
            for position, header in scan_headers(segment.file, 0, segment.size_bytes):
                epoch = header.partition_leader_epoch
                reason = describe_epoch(epoch, self._last_epoch)
                if reason is not None and self._is_flushed(header.base_offset):
                    raise self._lost(segment.path, position, header.base_offset, reason)
                self._note_epoch(epoch, header.base_offset)
            segment.release(self._closer)
        return end_offset

    def _is_hole(self, segments: list[LogSegment], number: int, end_offset: int) -> bool:
        """Whether a power cut took the end of this segment, at the border of a batch, but not the next segment.

        A segment begins where the one before it ended, unless compaction has been there since, and that happens below
        the recovery point only.
        """
        if number == len(segments) - 1:
            return False
        if segments[number + 1].base_offset <= max(end_offset, self.recovery_point):
            self._refuse_hole(segments[number], end_offset, segments[number + 1].base_offset)
            return False
        if segments[number + 1].base_offset - segments[number].base_offset > RELATIVE_OFFSET_MAX + 1:
            return False  # a follower met a wide gap, and flushed first (`ActiveSegment.make_room`)
        if self._is_flushed(end_offset):
            raise self._lost(segments[number].path, segments[number].size_bytes, end_offset, "the segment ends here")
        return True

    def _cut(self, segments: list[LogSegment], number: int, end_offset: int, why: str) -> None:
        """Cuts a torn tail: later segments first, so that a crash in between finds the same damage again."""
        segment = segments[number]
        pieces = [CutPiece(segment.path, segment.size_bytes, segment.file.size())]
        pieces += [CutPiece(later.path, 0, later.size_bytes) for later in segments[number + 1 :]]
        kept_bytes = 0 if self.is_read_only else keep_cut(self.fs, self.directory, pieces)
        self._remove_from(segments, number + 1)
        segment.truncate(segment.size_bytes, end_offset)
        if not self.is_read_only:
            tell_cut(self.directory, pieces, f"from {end_offset} on", why, kept_bytes)

    def _seal(self, segment: LogSegment) -> None:
        """Makes a scanned segment durable, with its rebuilt indexes: the recovery point may pass it then.

        Not left to the next flush, which would need a descriptor for every segment that a lost checkpoint brought back.
        """
        segment.file.sync()
        try:
            for file in segment.write_indexes():
                file.sync()
                file.close()
        except OSError as error:
            if not is_disk_full(error):
                raise
            segment.needs_rewrite = True  # made in memory until there is room: opening is the way to make some
        segment.drop_indexes()
        segment.release(self._closer)
        self._directory_changed = True


def _number_for(segments: list[LogSegment], offset: int) -> int:
    """Returns the number of the segment that may hold `offset`."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)
