"""In which leader epochs the records were written that a consumer has fetched of a partition.  Pure.

Why: an offset alone does not say whose record is meant.  After an unclean election the same offsets may be of other records;
whoever names the epoch of the last record that it knows is told (KIP-320).
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.records import BatchHeader

NO_EPOCH = -1


class EpochSpans:
    """Invariants:
        - spans are in order of offset and epoch, and there is one for each epoch.

    Args:
        offset: The offset at which reading begins.
        epoch: The leader epoch of the record before it, as somebody has committed it; -1 where it is not known.

    Attributes:
        is_told: Whether nothing is known but what was committed.
    """

    def __init__(self, offset: int, epoch: int = NO_EPOCH) -> None:
        self.is_told = epoch >= 0
        self._spans: list[tuple[int, int, int]] = []  # epoch, first offset, exclusive end
        if epoch >= 0:
            self._spans.append((epoch, offset - 1, offset))

    def add(self, headers: Sequence[BatchHeader]) -> None:
        """Takes in batches that were fetched, in order, one at least; they follow those of before."""
        self.is_told = False
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

    def cut(self, offset: int) -> None:
        """Forgets what was fetched from an offset on."""
        self._spans = [(epoch, first, min(end, offset)) for epoch, first, end in self._spans if first < offset]

    def before(self, offset: int) -> int:
        """Returns the epoch of the record before an offset; -1 where that was not fetched."""
        for epoch, first_offset, end_offset in reversed(self._spans):
            if first_offset < offset <= end_offset:
                return epoch
        return NO_EPOCH
