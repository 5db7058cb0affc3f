"""Leader epochs that cannot be: no checksum covers the epoch of a batch, as none covers its offset.

A bit that flips in one makes another epoch, mostly a valid one.  Two things tell::

    offsets       16  17  18  19  20  21  22         checkpoint: epoch 0 from 0 on, epoch 3 from 21 on
    batches        0   0   4   0   0   3   3         epochs never fall: that of 18 or that of 19 is wrong
    batches        0   0   0   0   2   3   3         20 is of epoch 0: the checkpoint says so, and the batch before agrees

The checkpoint is a witness only where the log confirms it, or a digit that flips in it would condemn good batches: the
batch before carries the epoch that it gives, and the border to the next epoch is not what is wrong.  Its last entry says
nothing about where that epoch ends.  Not covered are the first batch of an epoch and the last one of the log.

If two contradict each other, the later one counts as wrong: a disk that failed can leave an old tail behind one that was written
anew, and it must be cut if none of it was flushed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

UNKNOWN_EPOCH: Final = -1


def contradicts(entries: Sequence[tuple[int, int]] | None, epoch_before: int, epoch: int, offset: int) -> bool:
    """Whether the epoch of a batch is certainly wrong, as the leader-epoch checkpoint says.

    Args:
        entries: The checkpoint, (epoch, start offset), oldest first; None: it cannot be read, or is not believed.
        epoch_before: The epoch of the batch before it; -1: unknown.
        epoch: The epoch of the batch.
        offset: The base offset of the batch.
    """
    if not entries or epoch in {epoch_before, UNKNOWN_EPOCH}:
        return False
    number = bisect_right([start for _, start in entries], offset) - 1
    if not 0 <= number < len(entries) - 1:
        return False
    return entries[number][0] == epoch_before and entries[number + 1][0] != epoch


def first_contradiction(
    entries: Sequence[tuple[int, int]] | None, epoch_before: int, starts: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Returns the first (epoch, base offset) that is certainly wrong; None: there is none.

    Args:
        entries: The checkpoint, (epoch, start offset), oldest first; None: it cannot be read, or is not believed.
        epoch_before: The epoch of the last batch before them; -1: unknown.
        starts: Where another epoch than before begins in a row of batches, (epoch, base offset).
    """
    for epoch, offset in starts:
        if contradicts(entries, epoch_before, epoch, offset):
            return epoch, offset
        epoch_before = epoch
    return None
