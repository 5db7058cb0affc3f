"""Keeps requests of producers until the last transaction of their transactional id is complete.

A producer that goes on right behind the end of a transaction meets the markers of that, which takes a few moments.  Where a leader
asks for it, it need not ask again and again, and need not have its client do so: its answer comes with the end.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.transactions.requests import AddPartitions

HELD_MAX: Final = 1_000
"""The requests that are kept at a time; others are told to ask again."""


class HeldTimer(Struct, frozen=True):
    """A request is to be handled: the transaction before it is complete, or it has waited long enough.

    Attributes:
        request_id: The request.
    """

    request_id: int


class HeldRequests:
    """Requests that have no answer yet.

    Args:
        timers: The timers of the shard.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._requests: dict[int, AddPartitions] = {}
        self._by_id: dict[str, list[int]] = {}

    def hold(self, request_id: int, request: AddPartitions, moment: Moment) -> bool:
        """Keeps a request, unless it may not wait or too many do; False: it has to be answered now."""
        if request.wait_ms <= 0 or len(self._requests) >= HELD_MAX:
            return False
        self._requests[request_id] = request
        self._by_id.setdefault(request.transactional_id, []).append(request_id)
        self._timers.set(HeldTimer(request_id), moment.now_ms + request.wait_ms)
        return True

    def wake(self, transactional_id: str, moment: Moment) -> None:
        """Lets the requests of a transactional id be handled, behind what is being handled now."""
        for request_id in self._by_id.get(transactional_id, ()):
            self._timers.set(HeldTimer(request_id), moment.now_ms)

    def take(self, timer: HeldTimer) -> AddPartitions | None:
        """Takes out and returns a request, which may not wait any more; None where it has been answered."""
        request = self._requests.pop(timer.request_id, None)
        if request is None:
            return None
        others = self._by_id[request.transactional_id]
        others.remove(timer.request_id)
        if not others:
            del self._by_id[request.transactional_id]
        return replace(request, wait_ms=0)

    def give_up(self) -> list[int]:
        """Forgets all requests; returns their ids."""
        given_up = list(self._requests)
        for request_id in given_up:
            self._timers.cancel(HeldTimer(request_id))
        self._requests.clear()
        self._by_id.clear()
        return given_up
