"""How far each replica is, as its leader knows it from fetches; and whether a majority still fetches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replog_quorum.arithmetic import UNKNOWN_OFFSET, majority_size

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that has not fetched for this long is forgotten, so that their number stays bounded."""


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """End of a replica's log (exclusive; flushed, for a voter) and when it last fetched (None = never)."""

    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int | None = None


class ProgressTable:
    """Progress of all voters (the leader included) and of observers that fetch."""

    def __init__(self, leader_id: int, voters: Sequence[int], leader_end_offset: int) -> None:
        self._leader_id = leader_id
        self._voters = {voter_id: ReplicaProgress() for voter_id in voters}
        self._voters[leader_id] = ReplicaProgress(leader_end_offset)
        self._observers: dict[int, ReplicaProgress] = {}

    def touch(self, replica_id: int, now_ms: int) -> None:
        """A replica has fetched, whatever the answer."""
        table = self._table(replica_id)
        table[replica_id] = ReplicaProgress(table.get(replica_id, ReplicaProgress()).end_offset, now_ms)

    def set_end_offset(self, replica_id: int, end_offset: int) -> None:
        """A replica's log is known to equal the leader's up to here."""
        table = self._table(replica_id)
        table[replica_id] = ReplicaProgress(end_offset, table.get(replica_id, ReplicaProgress()).last_fetch_ms)

    def last_fetch_ms(self, voter_id: int) -> int | None:
        """When a voter last fetched; None if not since the election."""
        return self._voters[voter_id].last_fetch_ms

    def voter_end_offsets(self) -> dict[int, int]:
        """Voter id -> end offset, `UNKNOWN_OFFSET` before its first fetch."""
        return {voter_id: progress.end_offset for voter_id, progress in self._voters.items()}

    def observer_end_offsets(self) -> dict[int, int]:
        """Observer id -> end offset."""
        return {observer_id: progress.end_offset for observer_id, progress in self._observers.items()}

    def preferred_candidates(self) -> tuple[int, ...]:
        """The other voters, the most caught up first."""
        others = [voter_id for voter_id in self._voters if voter_id != self._leader_id]
        return tuple(sorted(others, key=lambda voter_id: (-self._voters[voter_id].end_offset, voter_id)))

    def forget_silent_observers(self, now_ms: int) -> None:
        """Drop observers whose session is over."""
        oldest_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
        self._observers = {
            observer_id: progress
            for observer_id, progress in self._observers.items()
            if progress.last_fetch_ms is not None and progress.last_fetch_ms > oldest_ms
        }

    def _table(self, replica_id: int) -> dict[int, ReplicaProgress]:
        return self._voters if replica_id in self._voters else self._observers


class Lease:
    """Until when the leader knows that nobody else has been elected.

    A voter that has had a good answer of its leader helps nobody else to the leadership for the fetch timeout.  What
    counts is the time at which the answer left, which the voter's next fetch brings back: a leader that was suspended,
    or cut off, finds old fetches waiting, and they prove nothing about now.

    Two things it does not see: clocks of different speed, and a vote request that a former candidate sent before the
    answer and that arrives after it.
    """

    def __init__(self, leader_id: int, voters: Sequence[int], fetch_timeout_ms: int) -> None:
        self._answered_ms = {voter_id: -1 for voter_id in voters if voter_id != leader_id}
        self._needed = majority_size(len(voters)) - 1  # the leader counts as one
        self._fetch_timeout_ms = fetch_timeout_ms

    def fetched(self, replica_id: int, leader_time_ms: int, now_ms: int) -> None:
        """A fetch brought back the time of an answer."""
        if self._answered_ms.get(replica_id, now_ms) < leader_time_ms <= now_ms:
            self._answered_ms[replica_id] = leader_time_ms

    def is_held(self, now_ms: int) -> bool:
        """Whether a majority had an answer within the fetch timeout; a sole voter always holds it."""
        if self._needed == 0:
            return True
        answered_ms = sorted(self._answered_ms.values(), reverse=True)[self._needed - 1]
        return answered_ms >= 0 and now_ms < answered_ms + self._fetch_timeout_ms


class CheckQuorum:
    """Deadline by which a majority must have fetched, or the leader resigns (KIP-595 check-quorum).

    Why: a leader cut off from the majority would otherwise keep serving its clients and never commit.
    """

    def __init__(self, leader_id: int, voters: Sequence[int], timeout_ms: int, now_ms: int) -> None:
        self._others = tuple(voter_id for voter_id in voters if voter_id != leader_id)
        self._needed = majority_size(len(voters)) - 1  # the leader counts as one
        self._timeout_ms = timeout_ms
        self._deadline_ms = now_ms + timeout_ms
        self._fetched: list[int] = []

    @property
    def deadline_ms(self) -> int | None:
        """When the leader must resign; None for a sole voter, which never must."""
        return self._deadline_ms if self._needed > 0 else None

    def fetched(self, replica_id: int, now_ms: int) -> None:
        """A replica has fetched; a majority of them starts the wait anew."""
        if replica_id in self._others and replica_id not in self._fetched:
            self._fetched.append(replica_id)
        if len(self._fetched) >= self._needed:
            self._fetched = []
            self._deadline_ms = now_ms + self._timeout_ms
