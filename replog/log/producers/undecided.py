"""The transactions of one log that are undecided: open, or ended by a marker that is not replicated yet.

Why: readers of committed records stop before the first of them, and every fetch asks where that is.  A broker may have thousands
of them open in a partition, so the first one is found without looking at the others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Final

ENDED_MAX: Final = 1000


class UndecidedTransactions:
    """See the module.

    Invariants:
        - `_open` is in the order in which its transactions began;
        - of `_ended` (first offset, offset of the marker) both rise: one that began later and ended earlier says nothing more.
    """

    __slots__ = ("_ended", "_open")

    def __init__(self, open_transactions: Iterable[tuple[int, int]] = ()) -> None:
        self._open = _in_order(open_transactions)
        self._ended: deque[tuple[int, int]] = deque()

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id -> first offset of its open transaction, the earliest first.  Read only."""
        return self._open

    @property
    def first_open_offset(self) -> int | None:
        """The offset where the earliest open transaction began; None: none is open."""
        return next(iter(self._open.values()), None)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Notes a transaction that begins behind all others."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """Notes the end of a transaction; returns where it began, None: there was none.

        Of a bounded number that ended: if very many were not asked for, the earliest two become one, which errs on the safe
        side.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = self._ended
        while ended and ended[-1][0] >= first_offset:
            ended.pop()
        ended.append((first_offset, marker_offset))
        if len(ended) > ENDED_MAX:
            (first, _), (_, last) = ended.popleft(), ended.popleft()
            ended.appendleft((first, last))
        return first_offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Returns where the earliest one begins that is open, or whose end is not below the high watermark; None: none is."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first_open, first_ended = self.first_open_offset, ended[0][0] if ended else None
        if first_open is None or first_ended is None:
            return first_ended if first_open is None else first_open
        return min(first_open, first_ended)

    def put_back(self, firsts: Mapping[int, int | None], end_offset: int) -> None:
        """Undoes beginnings and ends: these producers have transactions open again from their offsets on, or none (None).

        Args:
            firsts: Producer id -> the offset.
            end_offset: The end of the log: markers from there on were not written, and what is written there later is not theirs.
        """
        while self._ended and self._ended[-1][1] >= end_offset:
            self._ended.pop()
        found = dict(self._open)
        for producer_id, first_offset in firsts.items():
            found.pop(producer_id, None)
            if first_offset is not None:
                found[producer_id] = first_offset
        self._open = _in_order(found.items())


def _in_order(open_transactions: Iterable[tuple[int, int]]) -> OrderedDict[int, int]:
    return OrderedDict(sorted(open_transactions, key=lambda one: one[1]))
