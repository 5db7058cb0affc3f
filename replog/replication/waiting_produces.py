"""acks=all produces of one partition that wait for the high watermark, in offset order.

Nearly all of them complete together when a follower's fetch moves the high watermark, so they are kept in a heap by
end offset.  (A retried duplicate waits for its original's offset and may come after higher ones: a queue in order of
arrival would not do.)  The number waiting is bounded by the broker's limit on open requests.
"""

from __future__ import annotations

import heapq
from typing import Final

from replog.deadlines import Deadlines
from replog.errors import InvariantViolationError

_COMPACT_FROM: Final = 64


class WaitingProduces:
    """Requests that wait until an offset is below or at the high watermark.

    Request ids are never used twice.

    Invariants:
        - the heap holds at most twice as many entries as there are requests (plus 64);
        - every request that was added leaves through exactly one of `pop_reached`, `pop_expired`, `pop_all`.
    """

    __slots__ = ("_by_offset", "_deadlines", "_waiting")

    def __init__(self) -> None:
        self._by_offset: list[tuple[int, int]] = []
        self._waiting: dict[int, int] = {}
        self._deadlines = Deadlines[int]()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request_id: int, end_offset: int, deadline_ms: int) -> None:
        """Lets `request_id` wait for `end_offset` (exclusive) until `deadline_ms`.

        Raises:
            InvariantViolationError: `request_id` waits already.
        """
        if request_id in self._waiting:
            raise InvariantViolationError(f"produce request {request_id} waits already for {self._waiting[request_id]}")
        self._waiting[request_id] = end_offset
        heapq.heappush(self._by_offset, (end_offset, request_id))
        self._deadlines.add(request_id, deadline_ms)

    def pop_reached(self, high_watermark: int) -> list[int]:
        """Removes and returns the requests whose end offset is at or below `high_watermark`, in offset order."""
        reached: list[int] = []
        while self._by_offset and self._by_offset[0][0] <= high_watermark:
            end_offset, request_id = heapq.heappop(self._by_offset)
            if self._waiting.get(request_id) != end_offset:
                continue  # it expired; this is its leftover
            del self._waiting[request_id]
            self._deadlines.discard(request_id)
            reached.append(request_id)
        return reached

    def pop_expired(self, now_ms: int) -> list[int]:
        """Removes and returns the requests whose deadline has come, earliest first."""
        expired = self._deadlines.pop_expired(now_ms)
        for request_id in expired:
            del self._waiting[request_id]
        if len(self._by_offset) > 2 * len(self._waiting) + _COMPACT_FROM:
            self._by_offset = [(offset, request_id) for request_id, offset in self._waiting.items()]
            heapq.heapify(self._by_offset)
        return expired

    def pop_all(self) -> list[int]:
        """Removes and returns everything, in offset order."""
        waiting = sorted(self._waiting, key=lambda request_id: (self._waiting[request_id], request_id))
        self._by_offset, self._waiting, self._deadlines = [], {}, Deadlines[int]()
        return waiting

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline of a waiting request; None when nothing waits."""
        return self._deadlines.next_deadline_ms()
