"""What a repair gives up of a log, decided from what was found; and which offsets that were.

    offsets     0 .. 9   10 .. 19   20 .. 24   25 .. 29        the `.log` of 10 to 19 is gone, the batch of 25 damaged
    given up             10 to 19              25 to 29        15 offsets, and the log ends at 25

Where a log is compacted, some of these offsets may have had no record any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from replog.errors import CorruptRecordError
from replog.log.repair.log_offsets import LogOffsets
from replog.log.repair.verification import Finding, FindingKind

OffsetRange: TypeAlias = tuple[int, int]
"""[start, end)."""


class RepairPlan(Struct, frozen=True):
    """What a repair gives up, and what it promises of the log before it opens it.

    Attributes:
        lost_offset: The offset from which on everything is given up; None: nothing that was flushed is.
        holes_end_offset: The end of the missing offsets that are given up, exclusive; None: none are.
        recovery_point: The recovery point with which the log is opened.
        log_start_offset: The log start with which the log is opened.
        note_max: The most that the log's own file may say then; None: anything.
        forgets_note: Whether that file is removed.
        is_compacted: Whether a cleaner has been there: its gaps are no holes, whatever `complete-from` says.
    """

    lost_offset: int | None
    holes_end_offset: int | None
    recovery_point: int
    log_start_offset: int
    note_max: int | None
    forgets_note: bool
    is_compacted: bool

    @property
    def gives_up(self) -> bool:
        """Whether anything that was flushed is."""
        return self.lost_offset is not None or self.holes_end_offset is not None

    def bounded(self, noted: int | None) -> int | None:
        """Returns what the log's own file, which says `noted` now, says after the repair has lowered or removed it."""
        if noted is None or self.forgets_note:
            return None
        return noted if self.note_max is None else min(noted, self.note_max)


def make_plan(
    found: tuple[Finding, ...],
    holes: Sequence[OffsetRange],
    offsets: LogOffsets,
    *,
    forgets_note: bool,
    is_compacted: bool,
) -> RepairPlan:
    """Decides what is given up, and what may be promised before the log is opened: nothing from the damage on."""
    lost_offset = _first_lost_offset(found, offsets.flushed_offset)
    kept_holes = [end for start, end in holes if lost_offset is None or start < lost_offset]
    holes_end = max(kept_holes, default=None)
    recovery_point, note_max = offsets.recovery_point, offsets.flushed_offset
    if lost_offset is not None:
        is_below_start = lost_offset <= (offsets.log_start_offset or 0)  # then nothing at all is promised
        note_max = 0 if is_below_start else lost_offset
        recovery_point = note_max if recovery_point is None else min(recovery_point, note_max)
        holes_end = None if holes_end is None else min(holes_end, lost_offset)
    if holes_end is not None:  # above the recovery point a hole would be a torn tail
        recovery_point = max(recovery_point or 0, holes_end)
    return RepairPlan(
        lost_offset,
        holes_end,
        recovery_point or 0,
        offsets.log_start_offset or 0,
        note_max,
        forgets_note,
        is_compacted,
    )


def _first_lost_offset(found: tuple[Finding, ...], flushed_offset: int | None) -> int | None:
    """Returns the first damaged offset; None: nothing that was flushed is damaged."""
    damaged = (finding for finding in found if finding.offset is not None and finding.kind is not FindingKind.MISSING)
    offset = min((finding.offset for finding in damaged if finding.offset is not None), default=None)
    return None if offset is None or (flushed_offset is not None and offset >= flushed_offset) else offset


def refusal(found: tuple[Finding, ...], flushed_offset: int | None) -> CorruptRecordError:
    """Makes the error of a repair that would give up flushed records, which nobody has allowed."""
    first = next(finding for finding in found if finding.offset is not None)
    promised = (
        "how far it was flushed is not known"
        if flushed_offset is None
        else f"everything below offset {flushed_offset} was flushed"
    )
    return CorruptRecordError(
        first.path,
        first.position or 0,
        f"{first.reason} (offset {first.offset}), and {promised}. Nothing was changed: restore the file, copy the replica "
        f"from another broker, or give up the records from offset {first.offset} on with --accept-loss; where Apache Kafka or "
        "an older replog has cut the log since the last run, --forget-flushed-offset",
    )


def ranges_given_up(
    holes: Iterable[OffsetRange], log_start_offset: int, end_offset_before: int, end_offset: int
) -> tuple[OffsetRange, ...]:
    """Returns the ranges of offsets that were in a log and are not any more, rising; no two of them touch.

    Args:
        holes: Ranges that were missing already; they may overlap.
        log_start_offset: Where the log began before the repair; what is below was deleted on purpose.
        end_offset_before: Where it ended, exclusive.
        end_offset: Where it ends now, exclusive.
    """
    lost = [(max(start, log_start_offset), end) for start, end in (*holes, (end_offset, end_offset_before))]
    merged: list[OffsetRange] = []
    for start, end in sorted(one for one in lost if one[0] < one[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return tuple(merged)
