"""Work that would hold the loop if it were done at once: it goes on a step at a time, one step for all of it, with a pause.

A work is a generator that yields what each step leads to.  The state may change between two steps, and records of a step may be
taken back: each step looks at what is there, and takes nothing for done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Final, TypeAlias

from msgspec import Struct

from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.runtime.messages import ReplyError
from replog.errors import CoordinatorLoadInProgressError, InternalError, InvariantViolationError, ReplogError

Work: TypeAlias = Generator[Outcome, None, None]

PAUSE_MS: Final = 2
"""How long others have their turn between two steps, each of which takes a millisecond or two."""
REQUESTS_MAX: Final = 100
"""The requests that are worked at; each holds what it has found so far."""


class StepTimer(Struct, frozen=True):
    """The next step is due."""


class _Item(Struct):
    """A work.

    Attributes:
        work: The work.
        request_id: The request that it ends with an answer to; None for work that nobody waits for.
    """

    work: Work
    request_id: int | None = None

    def is_over(self, outcome: Outcome) -> bool:
        """Whether the request has its answer."""
        return self.request_id is not None and any(each.request_id == self.request_id for each in outcome.answers)


class Background:
    """What a shard works at, in turns.

    Args:
        timers: The timers of the shard.

    Attributes:
        moment: The time of the step that is made.
    """

    def __init__(self, timers: Timers) -> None:
        self.moment = Moment(0, 0)
        self._timers = timers
        self._items: deque[_Item] = deque()

    def add(self, work: Work, moment: Moment) -> None:
        """Begins a work that nobody waits for."""
        self._items.append(_Item(work))
        self._timers.set_if_none(StepTimer(), moment.now_ms)

    def answer(self, request_id: int, work: Work, moment: Moment) -> Outcome:
        """Begins a work that ends with the answer to a request; most need no second step.

        Returns:
            What the first step leads to.

        Raises:
            CoordinatorLoadInProgressError: There are as many such requests as there may be.
        """
        if sum(each.request_id is not None for each in self._items) >= REQUESTS_MAX:
            raise CoordinatorLoadInProgressError(
                f"{REQUESTS_MAX} requests that take long are worked at; ask again a little later"
            )
        self.moment = moment
        item = _Item(work, request_id)
        outcome = next(work)
        if not item.is_over(outcome):
            self._items.append(item)
            self._timers.set_if_none(StepTimer(), moment.now_ms + PAUSE_MS)
        return outcome

    def step(self, moment: Moment) -> Outcome:
        """Makes a step of what has waited longest; what it raises ends that work alone.

        Raises:
            InvariantViolationError: A bug of ours: the node must stop.
            Exception: The work of which nobody waits for an answer has failed.
        """
        if not self._items:
            return Outcome()
        item = self._items.popleft()
        if self._items:
            self._timers.set(StepTimer(), moment.now_ms + PAUSE_MS)
        self.moment = moment
        try:
            outcome = next(item.work, None)
        except InvariantViolationError:
            raise
        except Exception as cause:
            if item.request_id is None:
                raise
            error = cause if isinstance(cause, ReplogError) else InternalError("a request", cause)
            return Outcome(answers=(ReplyError(item.request_id, error),))
        if outcome is None:
            return Outcome()
        if not item.is_over(outcome):
            self._items.append(item)
            self._timers.set(StepTimer(), moment.now_ms + PAUSE_MS)
        return outcome

    def give_up_requests(self) -> list[int]:
        """Ends what requests wait for where it is; returns the ids of these."""
        given_up = [each for each in self._items if each.request_id is not None]
        self._items = deque(each for each in self._items if each.request_id is None)
        for each in given_up:
            each.work.close()
        return [each.request_id for each in given_up if each.request_id is not None]

    def stop(self) -> list[int]:
        """Forgets everything; returns the ids of the requests that wait."""
        waiting = self.give_up_requests()
        self._items.clear()
        return waiting
