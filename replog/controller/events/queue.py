"""One ordered queue for everything a controller does (docs/KAFKA.md 6.1), without threads and without a clock.

Whoever owns it asks for the next event that is due and runs it; the queue decides only the order:

1. what is due by time, earliest first: deferred events, and the end of queued ones that waited too long;
2. queued events, first come first served, while the queue is not held.

A deferred event has a tag: deferring the tag again replaces it, so that a periodic task is never there twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from replog.waiting.deadlines import Deadlines

Run: TypeAlias = Callable[[int], None]
"""Told the time in monotonic milliseconds."""


class Event:
    """A place in the queue; `cancel` takes it back."""

    __slots__ = ("on_timeout", "run", "tag")

    def __init__(self, run: Run, on_timeout: Run | None = None, tag: str | None = None) -> None:
        self.run = run
        self.on_timeout = on_timeout
        self.tag = tag


class EventQueue:
    """Events in order.

    Invariants:
        - an event is handed out once, or times out, or is cancelled;
        - at most one deferred event per tag;
        - what is due by time is queued or deferred.

    Attributes:
        is_held: Whether queued events stay where they are; what is due by time does not.
    """

    def __init__(self) -> None:
        self.is_held = False
        self._queued: OrderedDict[Event, None] = OrderedDict()
        self._deferred: dict[str, Event] = {}
        self._timed = Deadlines[Event]()

    def __len__(self) -> int:
        """Counts the events that are queued; deferred ones do not count."""
        return len(self._queued)

    # ---- in ---------------------------------------------------------------------------------------------------------

    def append(self, run: Run, deadline_ms: int | None = None, on_timeout: Run | None = None) -> Event:
        """Queues an event behind everything that is queued.

        Args:
            run: The event.
            deadline_ms: The time from which on it is not run any more.
            on_timeout: The event that is run instead then.
        """
        event = Event(run, on_timeout)
        self._queued[event] = None
        if deadline_ms is not None:
            self._timed.add(event, deadline_ms)
        return event

    def prepend(self, run: Run) -> Event:
        """Queues an event in front of all that is queued: the activation, which all requests have to wait for."""
        event = self.append(run)
        self._queued.move_to_end(event, last=False)
        return event

    def defer(self, tag: str, deadline_ms: int, run: Run) -> Event:
        """Lets an event run once `deadline_ms` has come; one that was deferred under this tag before is forgotten."""
        self.cancel_deferred(tag)
        event = self._deferred[tag] = Event(run, tag=tag)
        self._timed.add(event, deadline_ms)
        return event

    # ---- back -------------------------------------------------------------------------------------------------------

    def cancel(self, event: Event) -> bool:
        """Takes a queued event back; returns whether it was still there."""
        if event not in self._queued:
            return False
        self._take(event)
        return True

    def cancel_deferred(self, tag: str) -> bool:
        """Takes back what is deferred under a tag; returns whether there was something."""
        event = self._deferred.get(tag)
        if event is None:
            return False
        self._take(event)
        return True

    def clear(self) -> list[Event]:
        """Forgets everything.

        Returns:
            The events that were queued, in order, for their owner to tell whoever waits for them.
        """
        queued = list(self._queued)
        self._queued.clear()
        self._deferred.clear()
        self._timed.clear()
        return queued

    # ---- out --------------------------------------------------------------------------------------------------------

    def take_due(self, now_ms: int) -> Run | None:
        """Takes the next thing to run out of the queue; None when nothing is due."""
        for event in self._timed.pop_expired(now_ms, 1):
            self._take(event)
            return event.run if event.tag is not None else event.on_timeout or _nothing
        if self.is_held or not self._queued:
            return None
        event = next(iter(self._queued))
        self._take(event)
        return event.run

    def next_deadline_ms(self) -> int | None:
        """Returns when something is due by time, which may lie in the past; None where nothing is."""
        return self._timed.next_deadline_ms()

    def _take(self, event: Event) -> None:
        """Takes an event out that is queued or deferred."""
        if event.tag is None:
            del self._queued[event]
        else:
            del self._deferred[event.tag]
        self._timed.discard(event)


def _nothing(_now_ms: int) -> None:
    """Lets an event without `on_timeout` just go."""
