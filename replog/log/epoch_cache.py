"""Leader-epoch cache: which leader epoch began at which offset (docs/KAFKA.md 3.5, KIP-101).

Why: two replicas that compare the end of an epoch find the last offset they share.  A high watermark cannot do that: it
lags, and cutting there loses acknowledged records.

Worked example, entries (0, 0) (3, 120) in a log that ends at 150::

    end of epoch 0  -> (0, 120)     the next epoch began there
    end of epoch 2  -> (0, 120)     2 never wrote here; the last epoch before it ended at 120
    end of epoch 3  -> (3, 150)     the latest epoch ends where the log ends
    end of epoch 4  -> None         unknown here

Every change is written before the method returns (unlike Kafka, which lags after a truncation: an entry cut from memory
but not from the file would come back, above records of an older epoch written since).

| crash                          | what the next start finds                                                       |
|--------------------------------|---------------------------------------------------------------------------------|
| assign, before the append      | an entry at or above the log end: cut on open                                   |
| cut, before the log is cut     | an entry is missing; the recovery point was lowered first, so the scan adds it   |
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from replog.errors import InvariantViolationError


class EpochEndOffset(NamedTuple):
    """Where an epoch ended: `end_offset` is exclusive; `epoch` is the largest known one at or below the one asked."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """Ordered (epoch, start offset) entries of one log.

    Args:
        entries: The (epoch, start offset) entries as read from the checkpoint.
        write: A function that makes the given entries durable; called after every change.

    Invariants:
        - epochs and start offsets strictly rise.
    """

    __slots__ = ("_epochs", "_starts", "_write")

    def __init__(self, entries: Sequence[tuple[int, int]], write: Callable[[Sequence[tuple[int, int]]], None]) -> None:
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._write = write

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch that began here; None when there is none."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; entries that contradict it are removed.

        Raises:
            InvariantViolationError: The epoch or the offset is negative.
        """
        self.assign_all([(epoch, start_offset)])

    def assign_all(self, starts: Sequence[tuple[int, int]]) -> None:
        """Notes several epochs as `assign` does one, and writes once."""
        before = self._epochs.copy(), self._starts.copy()
        changed = [self._assign(epoch, start_offset) for epoch, start_offset in starts]
        if any(changed):
            self._write_or_restore(before)

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that began at or above `end_offset`."""
        if self._starts and self._starts[-1] >= end_offset:
            before = self._epochs.copy(), self._starts.copy()
            self._keep(sum(start < end_offset for start in self._starts))
            self._write_or_restore(before)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets what ended at or below `start_offset`; the epoch in force there now begins there."""
        dropped = bisect_right(self._starts, start_offset) - 1
        if dropped < 0 or (dropped == 0 and self._starts[0] == start_offset):
            return
        before = self._epochs, self._starts
        self._epochs = self._epochs[dropped:]
        self._starts = [start_offset, *self._starts[dropped + 1 :]]
        self._write_or_restore(before)

    def clear(self) -> None:
        """Forgets everything: the log was emptied."""
        if self._epochs:
            before = self._epochs.copy(), self._starts.copy()
            self._keep(0)
            self._write_or_restore(before)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        """Returns where `epoch` ended in a log that ends at `log_end_offset`; None when this log cannot know."""
        latest = self.latest_epoch
        if latest is None or epoch < 0 or epoch > latest:
            return None
        if epoch == latest:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        found = self._epochs[following - 1] if following else epoch  # before all entries: it ended where they begin
        return EpochEndOffset(found, self._starts[following])

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which `offset` was written; None below the first entry."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else None

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise InvariantViolationError(f"leader epoch {epoch} at offset {start_offset} cannot be")
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return False
        self._keep(sum(start < start_offset for start in self._starts))  # they never wrote a record
        if self._epochs and self._epochs[-1] == epoch:
            return True
        self._keep(bisect_left(self._epochs, epoch))
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def _write_or_restore(self, before: tuple[list[int], list[int]]) -> None:
        """Writes the entries, or puts back those of before: a full disk must leave memory as the file is."""
        try:
            self._write(self.entries)
        except BaseException:
            self._epochs, self._starts = before
            raise

    def _keep(self, count: int) -> None:
        del self._epochs[count:]
        del self._starts[count:]
