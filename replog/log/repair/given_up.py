"""Which offsets a repair has given up: the holes that it accepted, and the offsets behind the new end of the log.

    offsets     0 .. 9   10 .. 19   20 .. 24   25 .. 29        the `.log` of 10 to 19 is gone, the batch of 25 damaged
    given up             10 to 19              25 to 29        15 offsets, and the log ends at 25

If the log is compacted, some of these offsets may have had no record any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

OffsetRange: TypeAlias = tuple[int, int]
"""[start, end)."""


def ranges_given_up(
    holes: Iterable[OffsetRange], log_start_offset: int, end_offset_before: int, end_offset: int
) -> tuple[OffsetRange, ...]:
    """Returns the ranges of offsets that were in a log and are not any more, rising; no two of them touch.

    Args:
        holes: Ranges that were missing already; they may overlap.
        log_start_offset: The log start before the repair; records below were deleted on purpose.
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
