"""Deadlines of things that usually finish long before them: one bucket for each millisecond, a heap of the buckets.

A waiting produce, fetch or answer is nearly always completed, not expired, so removal must be cheap: it takes the entry out
of its bucket.  A bucket that is empty stays until it surfaces, or until most of the heap are such.  Beside a heap of entries
this spares a comparison of tuples at each level; beside a hierarchical timing wheel, which shares buckets among times that
are far away, it spares the wheels (`python -m bench run deadlines`).  Beside a `SortedDict` of the buckets, which would need
no compaction, adding and completing costs 0.5 us instead of 1.6 where every deadline has a bucket of its own.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Id = TypeVar("Id", bound=Hashable)

_COMPACT_FROM: Final = 64


class Deadlines(Generic[Id]):
    """One deadline for each id.

    Invariants:
        - there are at most twice as many buckets as deadlines (plus 64);
        - ids with the same deadline expire in the order of their addition.
    """

    __slots__ = ("_buckets", "_deadlines", "_due")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Id, None]] = {}  # deadline -> ids
        self._due: list[int] = []  # a heap of the deadlines that have a bucket
        self._deadlines: dict[Id, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def get(self, one: Id) -> int | None:
        """Returns the deadline of an id, None without one."""
        return self._deadlines.get(one)

    def add(self, one: Id, deadline_ms: int) -> None:
        """Sets the deadline of an id that has none."""
        bucket = self._buckets.get(deadline_ms)
        if bucket is None:
            bucket = self._buckets[deadline_ms] = {}
            heapq.heappush(self._due, deadline_ms)
        bucket[one] = None
        self._deadlines[one] = deadline_ms

    def discard(self, one: Id) -> None:
        """Forgets the deadline of an id; does nothing if it has none."""
        deadline_ms = self._deadlines.pop(one, None)
        if deadline_ms is None:
            return
        del self._buckets[deadline_ms][one]
        self._drop_empty()

    def clear(self) -> None:
        """Forgets all of them."""
        self._buckets.clear()
        self._due.clear()
        self._deadlines.clear()

    def pop_expired(self, now_ms: int, count_max: int = sys.maxsize) -> list[Id]:
        """Removes and returns the ids whose deadline is at or before `now_ms`, earliest first, at most `count_max`."""
        expired: list[Id] = []
        while self._due and self._due[0] <= now_ms and len(expired) < count_max:
            bucket = self._buckets[self._due[0]]
            if len(bucket) > count_max - len(expired):
                some = list(itertools.islice(bucket, count_max - len(expired)))
                for one in some:
                    del bucket[one]
                expired += some
                break
            expired += bucket
            del self._buckets[heapq.heappop(self._due)]
        for one in expired:
            del self._deadlines[one]
        self._drop_empty()
        return expired

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline; None when there is none."""
        while self._due and not self._buckets[self._due[0]]:
            del self._buckets[heapq.heappop(self._due)]
        return self._due[0] if self._due else None

    def _drop_empty(self) -> None:
        if len(self._due) > 2 * len(self._deadlines) + _COMPACT_FROM:
            self._buckets = {deadline_ms: bucket for deadline_ms, bucket in self._buckets.items() if bucket}
            self._due = list(self._buckets)
            heapq.heapify(self._due)
