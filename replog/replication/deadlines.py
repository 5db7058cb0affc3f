"""Deadlines of things that usually finish long before them: a heap with lazy removal.

A waiting produce or fetch is nearly always completed, not expired, so removal must be cheap: it only forgets the
entry, and the heap drops forgotten entries when they surface or when they are more than half of it.
"""

from __future__ import annotations

import heapq
from typing import Final

_COMPACT_FROM: Final = 64


class Deadlines:
    """Deadlines by integer id.

    Invariants:
        - the heap holds at most twice as many entries as there are live deadlines (plus 64);
        - ids with the same deadline expire in the order of their addition.
    """

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []
        self._live: dict[int, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def add(self, operation_id: int, deadline_ms: int) -> None:
        """Sets the deadline of `operation_id`, which has none yet."""
        self._sequence += 1
        self._live[operation_id] = self._sequence
        heapq.heappush(self._heap, (deadline_ms, self._sequence, operation_id))

    def discard(self, operation_id: int) -> None:
        """Forgets the deadline; does nothing if there is none."""
        if self._live.pop(operation_id, None) is not None and len(self._heap) > 2 * len(self._live) + _COMPACT_FROM:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)

    def pop_expired(self, now_ms: int) -> list[int]:
        """Removes and returns the ids whose deadline is at or before `now_ms`, earliest first."""
        expired: list[int] = []
        self._drop_forgotten()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, operation_id = heapq.heappop(self._heap)
            del self._live[operation_id]
            expired.append(operation_id)
            self._drop_forgotten()
        return expired

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None when there is none."""
        self._drop_forgotten()
        return self._heap[0][0] if self._heap else None

    def _drop_forgotten(self) -> None:
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_live(self, entry: tuple[int, int, int]) -> bool:
        _, sequence, operation_id = entry
        return self._live.get(operation_id) == sequence
