"""Answers that wait for the metadata log to commit, in order of the offset they wait for (docs/KAFKA.md 6.1)."""

from __future__ import annotations

from typing import TypeAlias

from replog.controller.messages import Reply, ReplyError
from replog.deadlines import Deadlines
from replog.errors import InvariantViolationError, NotControllerError, ReplogError, RequestTimedOutError

_Parked: TypeAlias = tuple[int, Reply | ReplyError]
"""End offset and answer; a tuple because there is one for every request."""


class DeferredReplies:
    """Holds each answer until its offset commits, its deadline passes or leadership is lost.

    Invariants:
        - every request leaves exactly once;
        - offsets never decrease from one answer to the next.
    """

    def __init__(self) -> None:
        self._parked: dict[int, _Parked] = {}
        self._deadlines = Deadlines[int]()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, end_offset: int, deadline_ms: int, answer: Reply | ReplyError) -> None:
        """Keeps `answer` until everything below `end_offset` has committed.

        Raises:
            InvariantViolationError: The request id waits already.
        """
        if answer.request_id in self._parked:
            raise InvariantViolationError(f"request {answer.request_id} waits already")
        self._parked[answer.request_id] = (end_offset, answer)
        self._deadlines.add(answer.request_id, deadline_ms)

    def complete_up_to(self, end_offset: int) -> tuple[Reply | ReplyError, ...]:
        """Takes out and returns the answers whose offset has committed, oldest first."""
        done: list[Reply | ReplyError] = []
        for parked_end_offset, answer in self._parked.values():
            if parked_end_offset > end_offset:
                break
            done.append(answer)
        for answer in done:
            del self._parked[answer.request_id]
            self._deadlines.discard(answer.request_id)
        return tuple(done)

    def expire(self, now_ms: int) -> tuple[ReplyError, ...]:
        """Takes out the requests whose deadline has come; returns their time-outs: the changes may still commit."""
        expired = self._deadlines.pop_expired(now_ms)
        for request_id in expired:
            del self._parked[request_id]
        return tuple(
            ReplyError(request_id, RequestTimedOutError("the change was not committed in time; it may still be"))
            for request_id in expired
        )

    def fail_all(self) -> tuple[ReplyError, ...]:
        """Fails every request, whether what it changed survives or not: leadership is lost."""
        failed = tuple(
            ReplyError(
                request_id, NotControllerError("leadership was lost before the change committed; it may survive")
            )
            for request_id in self._parked
        )
        self._parked.clear()
        self._deadlines.clear()
        return failed

    def fail_beyond(self, end_offset: int, error: ReplogError) -> tuple[ReplyError, ...]:
        """Fails the answers that were made of what was replayed beyond `end_offset` and is taken back."""
        failed = [request_id for request_id, (parked, _) in self._parked.items() if parked > end_offset]
        for request_id in failed:
            del self._parked[request_id]
            self._deadlines.discard(request_id)
        return tuple(ReplyError(request_id, error) for request_id in failed)

    def next_deadline_ms(self) -> int | None:
        """Returns the deadline of the request that times out first; None when nothing waits."""
        return self._deadlines.next_deadline_ms()
