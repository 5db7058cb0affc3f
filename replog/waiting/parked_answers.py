"""Answers that wait for a log to commit, in order of the offset they wait for (docs/KAFKA.md 6.1)."""

from __future__ import annotations

from typing import Generic, TypeVar

from replog.errors import InvariantViolationError
from replog.waiting.deadlines import Deadlines

A = TypeVar("A")


class ParkedAnswers(Generic[A]):
    """Holds each answer until its offset commits, its deadline passes, or the state behind it is taken back.

    Invariants:
        - every request leaves exactly once;
        - offsets never decrease from one answer to the next.
    """

    def __init__(self) -> None:
        self._parked: dict[int, tuple[int, A]] = {}  # request id -> end offset and answer
        self._deadlines = Deadlines[int]()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, request_id: int, end_offset: int, answer: A, deadline_ms: int | None) -> None:
        """Keeps `answer` until everything below `end_offset` has committed.

        Args:
            request_id: The id under which it leaves.
            end_offset: The offset that it waits for.
            answer: The answer.
            deadline_ms: The time at which it is given up; None where it waits as long as it takes.

        Raises:
            InvariantViolationError: The request id waits already.
        """
        if request_id in self._parked:
            raise InvariantViolationError(f"request {request_id} waits already")
        self._parked[request_id] = (end_offset, answer)
        if deadline_ms is not None:
            self._deadlines.add(request_id, deadline_ms)

    def complete_up_to(self, end_offset: int) -> list[A]:
        """Takes out and returns the answers whose offset has committed, oldest first."""
        done: list[tuple[int, A]] = []
        for request_id, (parked_end_offset, answer) in self._parked.items():
            if parked_end_offset > end_offset:
                break
            done.append((request_id, answer))
        for request_id, _ in done:
            self._forget(request_id)
        return [answer for _, answer in done]

    def expire(self, now_ms: int) -> list[A]:
        """Takes out and returns the answers whose deadline has come: the changes may still commit."""
        return [self._parked.pop(request_id)[1] for request_id in self._deadlines.pop_expired(now_ms)]

    def fail_all(self) -> list[A]:
        """Takes out and returns every answer, oldest first, whether the state behind it survives or not."""
        failed = [answer for _, answer in self._parked.values()]
        self._parked.clear()
        self._deadlines.clear()
        return failed

    def fail_beyond(self, end_offset: int) -> list[A]:
        """Takes out and returns the answers that rest on records beyond `end_offset`, oldest first."""
        failed = [(request_id, answer) for request_id, (end, answer) in self._parked.items() if end > end_offset]
        for request_id, _ in failed:
            self._forget(request_id)
        return [answer for _, answer in failed]

    def next_deadline_ms(self) -> int | None:
        """Returns the deadline of the request that times out first; None when nothing waits for one."""
        return self._deadlines.next_deadline_ms()

    def _forget(self, request_id: int) -> None:
        del self._parked[request_id]
        self._deadlines.discard(request_id)
