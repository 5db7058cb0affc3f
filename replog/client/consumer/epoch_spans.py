"""In which leader epochs the records were written that a consumer has fetched of a partition.  Pure.

Why: an offset alone does not say whose record is meant.  After an unclean election the same offsets may be of other records;
whoever names the epoch of the last record that it knows is told (KIP-320).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replog.records import BatchHeader

NO_EPOCH = -1

SPANS_MAX: Final = 100
"""Of how many epochs is remembered where they were; of offsets before them the epoch is not known any more."""


class EpochSpans:
    """Invariants:
        - spans are in order of offset and epoch, there is one for each epoch, and `SPANS_MAX` at most.

    Args:
        offset: The offset at which reading begins.
        epoch: The leader epoch of the record before it, as somebody has committed it; -1 where it is not known.
    """

    def __init__(self, offset: int, epoch: int = NO_EPOCH) -> None:
        self._told = [(epoch, offset - 1, offset)] if epoch >= 0 else []
        self._spans = self._told.copy()  # epoch, first offset, exclusive end

    @property
    def is_told(self) -> bool:
        """Whether nothing is known but what was committed."""
        return bool(self._spans) and self._spans == self._told

    def add(self, headers: Sequence[BatchHeader]) -> None:
        """Takes in batches that were fetched, in order, one at least; they follow those of before."""
        first, last = headers[0], headers[-1]
        if self._spans and self._spans[-1][0] == first.partition_leader_epoch == last.partition_leader_epoch:
            self._spans[-1] = (*self._spans[-1][:2], last.next_offset)  # as nearly always
            return
        for header in headers:
            epoch, first_offset = header.partition_leader_epoch, header.base_offset
            if self._spans and self._spans[-1][0] == epoch:
                first_offset = self._spans.pop()[1]
            if epoch >= 0:
                self._spans.append((epoch, first_offset, header.next_offset))
        del self._spans[:-SPANS_MAX]

    def parting(self, epoch: int, end_offset: int) -> int:
        """Returns the offset from which on nothing of what was fetched is in a log.

        Args:
            epoch: The last epoch of the log that is not later than that of the last record that was fetched.
            end_offset: Where it ends there. What was fetched of later epochs is not there, wherever it was.
        """
        firsts = [max(first_offset, 0) for later, first_offset, _ in self._spans if later > epoch]
        return min([end_offset, *firsts])

    def cut(self, offset: int) -> None:
        """Forgets what was fetched from an offset on."""
        self._spans = [(epoch, first, min(end, offset)) for epoch, first, end in self._spans if first < offset]

    def before(self, offset: int) -> int:
        """Returns the epoch of the record before an offset; -1 where that was not fetched."""
        for epoch, first_offset, end_offset in reversed(self._spans):
            if first_offset < offset <= end_offset:
                return epoch
        return NO_EPOCH
