"""acks=all produces of one partition that wait for the high watermark, in offset order.

Nearly all of them complete together when a follower's fetch moves the high watermark, so they are kept sorted by
end offset.  (A retried duplicate waits for its original's offset and may come after higher ones: a queue in order of
arrival would not do.)  The number waiting is bounded by the broker's limit on open requests.
"""

from __future__ import annotations

from sortedcontainers import SortedList

from replog.errors import InvariantViolationError
from replog.waiting.deadlines import Deadlines


class WaitingProduces:
    """Requests that wait until an offset is below or at the high watermark.

    Request ids are never used twice.

    Invariants:
        - every request that was added leaves through exactly one of `pop_reached`, `pop_expired`, `pop_all`.
    """

    __slots__ = ("_by_offset", "_deadlines", "_waiting")

    def __init__(self) -> None:
        self._by_offset: SortedList[tuple[int, int]] = SortedList()  # end offset, request id
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
        self._by_offset.add((end_offset, request_id))
        self._deadlines.add(request_id, deadline_ms)

    def pop_reached(self, high_watermark: int) -> list[int]:
        """Removes and returns the requests whose end offset is at or below `high_watermark`, in offset order."""
        count = self._by_offset.bisect_left((high_watermark + 1, 0))
        reached = [request_id for _, request_id in self._by_offset[:count]]
        del self._by_offset[:count]
        for request_id in reached:
            del self._waiting[request_id]
            self._deadlines.discard(request_id)
        return reached

    def pop_expired(self, now_ms: int) -> list[int]:
        """Removes and returns the requests whose deadline has come, earliest first."""
        expired = self._deadlines.pop_expired(now_ms)
        for request_id in expired:
            self._by_offset.remove((self._waiting.pop(request_id), request_id))
        return expired

    def pop_all(self) -> list[int]:
        """Removes and returns everything, in offset order."""
        waiting = [request_id for _, request_id in self._by_offset]
        self._by_offset.clear()
        self._waiting.clear()
        self._deadlines.clear()
        return waiting

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline of a waiting request; None when nothing waits."""
        return self._deadlines.next_deadline_ms()
