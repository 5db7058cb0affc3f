"""Deadlines of things that usually finish long before them: one bucket for each millisecond, a heap of the buckets.

A waiting produce or fetch is nearly always completed, not expired, so removal must be cheap: it takes the entry out of its
bucket.  A bucket that is empty stays until it surfaces, or until most of the heap are such.  Beside a heap of entries this
spares a comparison of tuples at each level; beside a hierarchical timing wheel, which shares buckets among times that are
far away, it spares the wheels (`python -m bench run deadlines`).
"""

from __future__ import annotations

import heapq
from typing import Final

_COMPACT_FROM: Final = 64


class Deadlines:
    """Deadlines by integer id.

    Invariants:
        - there are at most twice as many buckets as live deadlines (plus 64);
        - ids with the same deadline expire in the order of their addition.
    """

    __slots__ = ("_buckets", "_deadlines", "_due")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, None]] = {}  # deadline -> ids
        self._due: list[int] = []  # a heap of the deadlines that have a bucket
        self._deadlines: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, operation_id: int, deadline_ms: int) -> None:
        """Sets the deadline of `operation_id`, which has none yet."""
        bucket = self._buckets.get(deadline_ms)
        if bucket is None:
            bucket = self._buckets[deadline_ms] = {}
            heapq.heappush(self._due, deadline_ms)
        bucket[operation_id] = None
        self._deadlines[operation_id] = deadline_ms

    def discard(self, operation_id: int) -> None:
        """Forgets the deadline; does nothing if there is none."""
        deadline_ms = self._deadlines.pop(operation_id, None)
        if deadline_ms is None:
            return
        del self._buckets[deadline_ms][operation_id]
        if len(self._due) > 2 * len(self._deadlines) + _COMPACT_FROM:
            self._buckets = {deadline_ms: bucket for deadline_ms, bucket in self._buckets.items() if bucket}
            self._due = list(self._buckets)
            heapq.heapify(self._due)

    def pop_expired(self, now_ms: int) -> list[int]:
        """Removes and returns the ids whose deadline is at or before `now_ms`, earliest first."""
        expired: list[int] = []
        while self._due and self._due[0] <= now_ms:
            expired.extend(self._buckets.pop(heapq.heappop(self._due)))
        for operation_id in expired:
            del self._deadlines[operation_id]
        return expired

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None when there is none."""
        while self._due and not self._buckets[self._due[0]]:
            del self._buckets[heapq.heappop(self._due)]
        return self._due[0] if self._due else None
