"""One ordered queue for everything a controller does (docs/KAFKA.md 6.1), without threads and without a clock.

Whoever owns it asks for the next event that is due and runs it; the queue decides only the order:

1. what is due by time, earliest first: deferred events, and the end of queued ones that waited too long;
2. queued events, first come first served, while the queue is not held.

A deferred event has a tag: deferring the tag again replaces it, so that a periodic task is never there twice.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

Run: TypeAlias = Callable[[int], None]
"""Told the time in monotonic milliseconds."""

_STALE_MAX = 64


class Event:
    """A place in the queue; `cancel` takes it back."""

    __slots__ = ("deadline_ms", "is_live", "on_timeout", "run")

    def __init__(self, run: Run, deadline_ms: int | None, on_timeout: Run | None) -> None:
        self.run = run
        self.deadline_ms = deadline_ms
        self.on_timeout = on_timeout
        self.is_live = True


class EventQueue:
    """Events in order.

    Invariants:
        - an event is handed out once, or times out, or is cancelled;
        - at most one deferred event per tag.

    Attributes:
        is_held: Whether queued events stay where they are; what is due by time does not.
    """

    def __init__(self) -> None:
        self.is_held = False
        self._queued: deque[Event] = deque()
        self._queued_count = 0  # live ones
        self._deferred: dict[str, Event] = {}
        self._timed: list[tuple[int, int, Event]] = []  # heap; may hold events that are gone
        self._sequence = count()

    def __len__(self) -> int:
        """Counts the events that are queued; deferred ones do not count."""
        return self._queued_count

    # ---- in ---------------------------------------------------------------------------------------------------------

    def append(self, run: Run, deadline_ms: int | None = None, on_timeout: Run | None = None) -> Event:
        """Queues an event behind everything that is queued.

        Args:
            run: The event.
            deadline_ms: The time from which on it is not run any more.
            on_timeout: The event that is run instead then.
        """
        return self._put(self._queued.append, Event(run, deadline_ms, on_timeout))

    def prepend(self, run: Run) -> Event:
        """Queues an event in front of all that is queued: the activation, which all requests have to wait for."""
        return self._put(self._queued.appendleft, Event(run, None, None))

    def defer(self, tag: str, deadline_ms: int, run: Run) -> Event:
        """Lets an event run once `deadline_ms` has come; one that was deferred under this tag before is forgotten."""
        self.cancel_deferred(tag)
        event = self._deferred[tag] = Event(run, deadline_ms, None)
        self._time(deadline_ms, event)
        return event

    # ---- back -------------------------------------------------------------------------------------------------------

    def cancel(self, event: Event) -> bool:
        """Takes a queued event back; returns whether it was still there."""
        if not event.is_live:
            return False
        event.is_live = False
        self._queued_count -= 1
        return True

    def cancel_deferred(self, tag: str) -> bool:
        """Takes back what is deferred under a tag; returns whether there was something."""
        event = self._deferred.pop(tag, None)
        if event is None:
            return False
        event.is_live = False
        return True

    def clear(self) -> list[Event]:
        """Forgets everything.

        Returns:
            The events that were queued, in order, for their owner to tell whoever waits for them.
        """
        queued = [event for event in self._queued if event.is_live]
        for event in (*queued, *self._deferred.values()):
            event.is_live = False
        self._queued.clear()
        self._queued_count = 0
        self._deferred.clear()
        self._timed.clear()
        return queued

    # ---- out --------------------------------------------------------------------------------------------------------

    def take_due(self, now_ms: int) -> Run | None:
        """Takes the next thing to run out of the queue; None when nothing is due."""
        while self._timed:
            deadline_ms, _, event = self._timed[0]
            if event.is_live and deadline_ms > now_ms:
                break
            heapq.heappop(self._timed)
            if event.is_live:
                return self._take_timed(event)
        return None if self.is_held else self._take_queued()

    def next_deadline_ms(self) -> int | None:
        """Returns when something is due by time, which may lie in the past; None where nothing is."""
        while self._timed and not self._timed[0][2].is_live:
            heapq.heappop(self._timed)
        return self._timed[0][0] if self._timed else None

    def _take_timed(self, event: Event) -> Run:
        event.is_live = False
        for tag, deferred in self._deferred.items():
            if deferred is event:
                del self._deferred[tag]
                return event.run
        self._queued_count -= 1
        return event.on_timeout or _nothing

    def _take_queued(self) -> Run | None:
        while self._queued:
            event = self._queued.popleft()
            if event.is_live:
                event.is_live = False
                self._queued_count -= 1
                return event.run
        return None

    def _put(self, put: Callable[[Event], None], event: Event) -> Event:
        put(event)
        self._queued_count += 1
        if event.deadline_ms is not None:
            self._time(event.deadline_ms, event)
        return event

    def _time(self, deadline_ms: int, event: Event) -> None:
        heapq.heappush(self._timed, (deadline_ms, next(self._sequence), event))
        if len(self._timed) > 2 * (self._queued_count + len(self._deferred)) + _STALE_MAX:
            self._timed = [timed for timed in self._timed if timed[2].is_live]
            heapq.heapify(self._timed)


def _nothing(_now_ms: int) -> None:
    """Lets an event without `on_timeout` just go."""
