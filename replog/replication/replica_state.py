"""The leader's knowledge of one remote replica, learned from its fetches alone (docs/KAFKA.md 4.2).

A replica that fetches all the time but never reaches the end of the log would look alive by its last fetch, and one
that reaches it only between two appends would look late by its end offset.  So the leader remembers where its log
ended at the replica's *previous* fetch: a fetch that has come that far proves the replica was caught up when that
previous fetch arrived.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

UNKNOWN_OFFSET: Final = -1


class ReplicaState(Struct):
    """The leader's view of one remote replica.

    Attributes:
        log_end_offset: The end of the replica's log (exclusive), -1 before its first fetch.
        flushed_offset: The end of its records on stable storage, -1 before its first fetch.
        log_start_offset: The start of its log, -1 before its first fetch.
        broker_epoch: The broker epoch of its last fetch; None before the first.
        last_fetch_leader_end_offset: The largest leader end offset any of its fetches met.
        last_fetch_time_ms: The time when its last fetch arrived (monotonic); None: never.
        last_caught_up_time_ms: The latest time at which it is known to have had everything; None: never.
    """

    replica_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    flushed_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int | None = None
    last_fetch_leader_end_offset: int = 0
    last_fetch_time_ms: int | None = None
    last_caught_up_time_ms: int | None = None

    def record_fetch(
        self,
        *,
        fetch_offset: int,
        flushed_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Takes in one fetch.

        Args:
            fetch_offset: The replica's log end offset.
            flushed_offset: The replica's flushed offset.
            log_start_offset: The replica's log start offset.
            broker_epoch: The broker epoch of the request.
            leader_end_offset: The leader's log end, sampled before the read: data appended meanwhile must not make a
                replica late that had everything when it asked.
            now_ms: The time when the fetch arrived (monotonic).
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_at(now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset and self.last_fetch_time_ms is not None:
            self.caught_up_at(self.last_fetch_time_ms)
        self.last_fetch_leader_end_offset = max(self.last_fetch_leader_end_offset, leader_end_offset)
        self.last_fetch_time_ms = now_ms
        self.log_end_offset = fetch_offset
        self.flushed_offset = flushed_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it has the whole log, or had it not longer than `lag_time_max_ms` ago."""
        if self.log_end_offset == leader_end_offset:
            return True
        return self.last_caught_up_time_ms is not None and now_ms - self.last_caught_up_time_ms <= lag_time_max_ms

    def start_over(self, *, in_isr: bool, leader_end_offset: int, now_ms: int) -> None:
        """Starts the times over and keeps the end offsets: the same leader was elected again, or the replica was away.

        Members of the ISR get the full lag time to come back; others must prove themselves from nothing.
        """
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_time_ms = now_ms if in_isr else None
        self.last_caught_up_time_ms = now_ms if in_isr else None

    def caught_up_at(self, time_ms: int) -> None:
        """Notes that the replica is known to have had everything at `time_ms`."""
        known_ms = self.last_caught_up_time_ms
        self.last_caught_up_time_ms = time_ms if known_ms is None else max(known_ms, time_ms)
