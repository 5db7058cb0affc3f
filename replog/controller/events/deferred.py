"""The controller's answers that wait for the metadata log to commit, and what those are told that wait in vain."""

from __future__ import annotations

from replog.controller.messages import Reply, ReplyError
from replog.errors import NotControllerError, ReplogError, RequestTimedOutError
from replog.waiting.parked_answers import ParkedAnswers


class DeferredReplies:
    """Holds each answer until its offset commits, its deadline passes or leadership is lost."""

    def __init__(self) -> None:
        self._parked = ParkedAnswers[Reply | ReplyError]()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, end_offset: int, deadline_ms: int, answer: Reply | ReplyError) -> None:
        """Keeps `answer` until everything below `end_offset` has committed.

        Raises:
            InvariantViolationError: The request id waits already.
        """
        self._parked.park(answer.request_id, end_offset, answer, deadline_ms)

    def complete_up_to(self, end_offset: int) -> tuple[Reply | ReplyError, ...]:
        """Takes out and returns the answers whose offset has committed, oldest first."""
        return tuple(self._parked.complete_up_to(end_offset))

    def expire(self, now_ms: int) -> tuple[ReplyError, ...]:
        """Takes out the requests whose deadline has come; returns their time-outs: the changes may still commit."""
        return tuple(
            ReplyError(each.request_id, RequestTimedOutError("the change was not committed in time; it may still be"))
            for each in self._parked.expire(now_ms)
        )

    def fail_all(self) -> tuple[ReplyError, ...]:
        """Fails every request, whether what it changed survives or not: leadership is lost."""
        reason = "leadership was lost before the change committed; it may survive"
        return tuple(ReplyError(each.request_id, NotControllerError(reason)) for each in self._parked.fail_all())

    def fail_beyond(self, end_offset: int, error: ReplogError) -> tuple[ReplyError, ...]:
        """Fails the answers that were made of what was replayed beyond `end_offset` and is taken back."""
        return tuple(ReplyError(each.request_id, error) for each in self._parked.fail_beyond(end_offset))

    def next_deadline_ms(self) -> int | None:
        """Returns the deadline of the request that times out first; None when nothing waits."""
        return self._parked.next_deadline_ms()
