"""The other replicas of a partition as its leader tracks them, and the questions the leader asks about all of them.

Whether a replica may join the ISR is decided here with what both sides know: the leader's view (it fetched, it caught
up) and the metadata's (its broker is unfenced, not shutting down, and is the same incarnation that fetched).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from replog.replication.messages import FollowerFetched, PartitionState

UNKNOWN_OFFSET: Final = -1


class RemoteReplicas:
    """`ReplicaState` of every assigned replica but the leader itself."""

    def __init__(self, leader_id: int, state: PartitionState, lag_time_max_ms: int, now_ms: int) -> None:
        self._leader_id = leader_id
        self._lag_time_max_ms = lag_time_max_ms
        self._metadata = state
        self._states: dict[int, ReplicaState] = {}
        self._assign()
        for replica in self:
            replica.last_caught_up_time_ms = now_ms if replica.replica_id in state.isr else None

    def __iter__(self) -> Iterator[ReplicaState]:
        return iter(self._states.values())

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self._states

    def __getitem__(self, replica_id: int) -> ReplicaState:
        return self._states[replica_id]

    def update(self, state: PartitionState, *, leader_end_offset: int, now_ms: int) -> None:
        """Follows the metadata: added and removed replicas, and a fresh start of the times in a new leader epoch.

        A broker outside the ISR that was away or was started anew no longer counts as caught up: the high watermark does not
        wait for it until it has everything again.  (Kafka goes on waiting, for up to the lag time.)
        """
        new_epoch = state.leader_epoch > self._metadata.leader_epoch
        before = self._metadata.eligible
        self._metadata = state
        self._assign()
        for replica_id, replica in self._states.items():
            in_isr = replica_id in state.isr
            is_another = not in_isr and state.eligible.get(replica_id) != before.get(replica_id)
            if new_epoch or is_another:
                replica.start_over(in_isr=in_isr, leader_end_offset=leader_end_offset, now_ms=now_ms)

    def record_fetch(self, fetch: FollowerFetched, now_ms: int) -> None:
        """Takes in a fetch of a known replica."""
        self._states[fetch.replica_id].record_fetch(
            fetch_offset=fetch.fetch_offset,
            flushed_offset=fetch.flushed_offset,
            log_start_offset=fetch.log_start_offset,
            broker_epoch=fetch.broker_epoch,
            leader_end_offset=fetch.leader_end_offset,
            now_ms=now_ms,
        )

    def leader_appends(self, leader_end_offset: int, now_ms: int) -> None:
        """Notes, before an append, that each replica with everything below `leader_end_offset` was caught up until now.

        A follower that has everything sends one fetch, and waits for its answer until something happens.  One that was away
        and has not fetched since does not wait, so it is left out.
        """
        for replica in self:
            if replica.log_end_offset == leader_end_offset and replica.last_fetch_time_ms is not None:
                replica.caught_up_at(now_ms)

    def is_stale(self, replica_id: int, broker_epoch: int) -> bool:
        """Whether a newer incarnation of this broker is known; -1 (not told) is never stale."""
        return broker_epoch >= 0 and self._metadata.eligible.get(replica_id, -1) > broker_epoch

    def is_eligible(self, replica: ReplicaState) -> bool:
        """Whether the controller would take it into the ISR: alive, and the incarnation that fetched.

        An epoch of -1 in its fetches means that it does not tell; then the metadata's word is enough.
        """
        known_epoch = self._metadata.eligible.get(replica.replica_id)
        return known_epoch is not None and replica.broker_epoch in {-1, known_epoch}

    def counting(self, waited_for: tuple[int, ...], leader_end_offset: int, now_ms: int) -> Iterator[ReplicaState]:
        """Yields the replicas that count for the high watermark: `waited_for`, and those that are about to join the ISR."""
        for replica in self:
            if replica.replica_id in waited_for or (
                replica.is_caught_up(leader_end_offset, now_ms, self._lag_time_max_ms) and self.is_eligible(replica)
            ):
                yield replica

    def fallen_behind(self, isr: tuple[int, ...], leader_end_offset: int, now_ms: int) -> tuple[int, ...]:
        """Returns the members of `isr`, in its order, that have not been caught up for longer than the lag time."""
        return tuple(
            replica_id
            for replica_id in isr
            if replica_id in self._states
            and not self._states[replica_id].is_caught_up(leader_end_offset, now_ms, self._lag_time_max_ms)
        )

    def live_log_starts(self) -> Iterator[int]:
        """Returns log starts of the replicas whose brokers are up, -1 for one that has not fetched yet."""
        return (replica.log_start_offset for replica in self if replica.replica_id in self._metadata.eligible)

    def broker_epochs(self, replica_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the broker epochs of an ISR proposal: those of fetches; -1 for the leader and replicas that never fetched."""
        epochs = (self._states[replica_id].broker_epoch if replica_id in self else None for replica_id in replica_ids)
        return tuple(-1 if epoch is None else epoch for epoch in epochs)

    def _assign(self) -> None:
        """Keeps the states of replicas that stay; in assignment order."""
        self._states = {
            replica_id: self._states.get(replica_id) or ReplicaState(replica_id)
            for replica_id in self._metadata.replicas
            if replica_id != self._leader_id
        }


class ReplicaState(Struct):
    """The leader's view of one remote replica, learned from its fetches alone (docs/KAFKA.md 4.2).

    A replica that fetches all the time but never reaches the end of the log would look alive by its last fetch, and one
    that reaches it only between two appends would look late by its end offset.  So the leader remembers where its log
    ended at the replica's *previous* fetch: a fetch that has come that far proves the replica was caught up when that
    previous fetch arrived.

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
