"""Answers that wait for the metadata log to commit, in order of the offset they wait for (kafka-reference 6.1)."""

from __future__ import annotations

import heapq
from typing import TypeAlias

from replog.controller.messages import Reply, ReplyError
from replog.errors import InvariantViolationError, NotControllerError, RequestTimedOutError

_STALE_DEADLINES_MAX = 64


_Parked: TypeAlias = tuple[int, int, Reply | ReplyError]
"""End offset, deadline, answer; a tuple because there is one for every request."""


class DeferredReplies:
    """Holds each answer until its offset commits, its deadline passes or leadership is lost.

    Invariants:
        - every request leaves exactly once;
        - offsets never decrease from one answer to the next.
    """

    def __init__(self) -> None:
        self._parked: dict[int, _Parked] = {}
        self._deadlines: list[tuple[int, int]] = []  # heap of (deadline, request id); may name requests that are gone

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, end_offset: int, deadline_ms: int, answer: Reply | ReplyError) -> None:
        """Keep `answer` until everything below `end_offset` has committed.

        Raises:
            InvariantViolationError: the request id waits already.
        """
        if answer.request_id in self._parked:
            raise InvariantViolationError(f"request {answer.request_id} waits already")
        self._parked[answer.request_id] = (end_offset, deadline_ms, answer)
        heapq.heappush(self._deadlines, (deadline_ms, answer.request_id))
        if len(self._deadlines) > 2 * len(self._parked) + _STALE_DEADLINES_MAX:
            self._deadlines = [(parked[1], request_id) for request_id, parked in self._parked.items()]
            heapq.heapify(self._deadlines)

    def complete_up_to(self, end_offset: int) -> tuple[Reply | ReplyError, ...]:
        """The answers whose offset has committed, oldest first."""
        done: list[Reply | ReplyError] = []
        for parked_end_offset, _, answer in self._parked.values():
            if parked_end_offset > end_offset:
                break
            done.append(answer)
        for answer in done:
            del self._parked[answer.request_id]
        return tuple(done)

    def expire(self, now_ms: int) -> tuple[ReplyError, ...]:
        """Timeouts for the requests whose deadline has come; what they changed may still commit."""
        expired: list[ReplyError] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, request_id = heapq.heappop(self._deadlines)
            del self._parked[request_id]
            expired.append(
                ReplyError(request_id, RequestTimedOutError("the change was not committed in time; it may still be"))
            )
        return tuple(expired)

    def fail_all(self) -> tuple[ReplyError, ...]:
        """Leadership is lost: every request fails, whether what it changed survives or not."""
        failed = tuple(
            ReplyError(
                request_id, NotControllerError("leadership was lost before the change committed; it may survive")
            )
            for request_id in self._parked
        )
        self._parked.clear()
        self._deadlines.clear()
        return failed

    def next_deadline_ms(self) -> int | None:
        """Deadline of the request that times out first, None when nothing waits."""
        while self._deadlines:
            deadline_ms, request_id = self._deadlines[0]
            parked = self._parked.get(request_id)
            if parked is not None and parked[1] == deadline_ms:
                return deadline_ms
            heapq.heappop(self._deadlines)
        return None
