"""Fetches that wait on the leader because there is nothing new for them (docs/KAFKA.md 5.4).

A waiting fetch is what makes replication fast without polling: the answer leaves in the same step as the append or the
new high watermark that it waited for.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from replog_quorum.messages import QuorumFetchRequest


class ParkedFetch(Struct, frozen=True):
    """One waiting fetch: who sent it, what it asked, until when (ms) it may wait."""

    source: int
    request: QuorumFetchRequest
    deadline_ms: int


class FetchPurgatory:
    """At most one waiting fetch per replica, since a replica has one in flight; so its size is bounded."""

    def __init__(self) -> None:
        self._parked: dict[int, ParkedFetch] = {}

    def park(self, fetch: ParkedFetch) -> ParkedFetch | None:
        """Lets `fetch` wait; returns the older one of the same replica, which its sender has given up."""
        replaced = self._parked.pop(fetch.request.replica_id, None)
        self._parked[fetch.request.replica_id] = fetch
        return replaced

    def take_expired(self, now_ms: int) -> tuple[ParkedFetch, ...]:
        """Removes and returns those that have waited long enough."""
        return self._take(lambda fetch: fetch.deadline_ms <= now_ms)

    def take_below(self, log_end_offset: int) -> tuple[ParkedFetch, ...]:
        """Removes and returns those for which the log now has data."""
        return self._take(lambda fetch: fetch.request.fetch_offset < log_end_offset)

    def take_all(self) -> tuple[ParkedFetch, ...]:
        """Removes and returns everything: the high watermark moved, or leadership is over."""
        return self._take(lambda _: True)

    def hurry(self, deadline_ms: int) -> None:
        """Lets nobody wait longer than until `deadline_ms`: there is news for everybody."""
        for replica_id, fetch in self._parked.items():
            if fetch.deadline_ms > deadline_ms:
                self._parked[replica_id] = replace(fetch, deadline_ms=deadline_ms)

    def next_deadline_ms(self) -> int | None:
        """Returns when the next waiting fetch must be answered."""
        return min([fetch.deadline_ms for fetch in self._parked.values()]) if self._parked else None

    def _take(self, is_due: Callable[[ParkedFetch], bool]) -> tuple[ParkedFetch, ...]:
        if not self._parked:
            return ()
        due = tuple(fetch for fetch in self._parked.values() if is_due(fetch))
        for fetch in due:
            del self._parked[fetch.request.replica_id]
        return due
