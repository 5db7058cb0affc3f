"""Requests on their way: one per peer, with a timeout, and a pause after a failure.

Why: a reply that this node is not waiting for (late, duplicated, meant for an earlier role) must change nothing, and a
peer that is down must not be asked in a busy loop.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class _Peer(Struct, frozen=True):
    """Waiting for `correlation_id` until `until_ms`; pausing until then when it is None."""

    correlation_id: int | None
    until_ms: int


class RequestTracker:
    """The requests of one role.  A new role starts with an empty tracker, so old answers fall on the floor.

    Invariants:
        - at most one request in flight per peer;
        - a correlation id is accepted once.
    """

    def __init__(self, next_correlation_id: Callable[[], int], *, timeout_ms: int, backoff_ms: int) -> None:
        self._next_correlation_id = next_correlation_id
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._peers: dict[int, _Peer] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether any request is in flight."""
        return any(peer.correlation_id is not None for peer in self._peers.values())

    def is_ready(self, destination: int) -> bool:
        """Whether `destination` may be asked now: nothing in flight, no pause (after `expire`)."""
        return destination not in self._peers

    def begin(self, destination: int, now_ms: int) -> int:
        """Notes a request to `destination`; returns its correlation id."""
        correlation_id = self._next_correlation_id()
        self._peers[destination] = _Peer(correlation_id, now_ms + self._timeout_ms)
        return correlation_id

    def complete(self, destination: int, correlation_id: int) -> bool:
        """Takes an answer (or failure); returns False when nobody waits for it."""
        peer = self._peers.get(destination)
        if peer is None or peer.correlation_id != correlation_id:
            return False
        del self._peers[destination]
        return True

    def back_off(self, destination: int, now_ms: int) -> None:
        """Leaves `destination` alone for the retry backoff."""
        self._peers[destination] = _Peer(None, now_ms + self._backoff_ms)

    def expire(self, now_ms: int) -> tuple[int, ...]:
        """Forgets pauses and requests whose time is over; returns the peers whose request timed out."""
        if not self._peers:
            return ()
        due = [(node_id, peer) for node_id, peer in self._peers.items() if peer.until_ms <= now_ms]
        for node_id, _ in due:
            del self._peers[node_id]
        return tuple(node_id for node_id, peer in due if peer.correlation_id is not None)

    def next_deadline_ms(self) -> int | None:
        """Returns when `expire` has something to do next."""
        return min([peer.until_ms for peer in self._peers.values()]) if self._peers else None
