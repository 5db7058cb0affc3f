"""How far each replica is, as its leader knows it from fetches."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.status import QuorumReplicaStatus
from replog_quorum.voter_history import VoterHistory
from replog_quorum.voters import VoterSet

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that has not fetched for this long is forgotten, so that their number stays bounded."""

ReplicaKey: TypeAlias = tuple[int, UUID]


class FetchProgress(Struct, frozen=True):
    """What fetches have shown of one replica.

    Attributes:
        end_offset: The end of its log (exclusive; flushed, for a voter).
        last_fetch_ms: The time when it last fetched.
        caught_up_ms: The time until which it surely had all of the leader's log; None: never so far.
        leader_end_offset: The end of the leader's log at its last fetch that was answered with data or nothing new.
        leader_end_ms: The time of that fetch.
    """

    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = -1
    caught_up_ms: int | None = None
    leader_end_offset: int = UNKNOWN_OFFSET
    leader_end_ms: int = -1


class ProgressTable:
    """Progress of every replica that fetches, voter or not, by (id, directory).

    Who votes is asked of the set in force each time, so a change of the set moves nobody between tables.
    """

    def __init__(self, leader: ReplicaKey, leader_end_offset: int) -> None:
        self._leader = leader
        self._replicas: dict[ReplicaKey, FetchProgress] = {leader: FetchProgress(leader_end_offset)}
        self._latest: dict[int, UUID] = {leader[0]: leader[1]}

    def touch(self, replica: ReplicaKey, now_ms: int) -> None:
        """Notes that a replica has fetched, whatever the answer."""
        self._latest[replica[0]] = replica[1]
        self._replicas[replica] = replace(self._get(replica), last_fetch_ms=now_ms)

    def fetched(self, replica: ReplicaKey, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Notes that a replica's log is known to equal the leader's up to `fetch_offset`.

        It is caught up when that is the leader's end, or was when it last asked (docs/KAFKA.md 4.2): under load the
        end has always moved on.
        """
        before = self._get(replica)
        caught_up_ms = before.caught_up_ms
        if fetch_offset >= leader_end_offset:
            caught_up_ms = now_ms
        elif fetch_offset >= before.leader_end_offset >= 0:
            caught_up_ms = before.leader_end_ms
        self._latest[replica[0]] = replica[1]
        self._replicas[replica] = FetchProgress(fetch_offset, now_ms, caught_up_ms, leader_end_offset, now_ms)

    def set_leader_end_offset(self, end_offset: int) -> None:
        """Notes how far the leader's own fsync has come."""
        self._replicas[self._leader] = FetchProgress(end_offset)

    def get(self, replica: ReplicaKey) -> FetchProgress | None:
        """Returns the progress of one replica; None if it never fetched."""
        return self._replicas.get(replica)

    def directory_of(self, replica_id: int) -> UUID | None:
        """Returns the directory under which a node last fetched from this leader; None before its first fetch."""
        return self._latest.get(replica_id)

    def last_fetch_ms(self, voter_id: int, directory_id: UUID | None) -> int | None:
        """Returns when a voter last fetched; None if not since the election."""
        progress = self._progress_of(voter_id, directory_id)
        return None if progress is None or progress.last_fetch_ms < 0 else progress.last_fetch_ms

    def voter_end_offsets(self, history: VoterHistory) -> dict[int, int]:
        """Returns voter id -> end offset that counts; `UNKNOWN_OFFSET` where nothing counts yet.

        A replica that became a voter by the record at offset J counts once it has fetched past J: before that it did
        not know that it must fsync first.
        """
        ends: dict[int, int] = {}
        for voter in history.in_force:
            end_offset = self._end_offset_of(voter.voter_id, voter.directory_id)
            directory_id = voter.directory_id or self._latest.get(voter.voter_id)
            is_counted = end_offset > history.joined_offsets[voter.voter_id]
            is_leader = (voter.voter_id, directory_id) == self._leader
            ends[voter.voter_id] = end_offset if is_counted or is_leader else UNKNOWN_OFFSET
        return ends

    def observer_end_offsets(self, voters: VoterSet) -> dict[int, int]:
        """Returns observer id -> end offset of its last fetch."""
        observers = [key for key in self._replicas if not voters.contains(*key) and key != self._leader]
        return {key[0]: self._replicas[key].end_offset for key in observers if self._latest[key[0]] == key[1]}

    def preferred_candidates(self, voters: VoterSet) -> tuple[int, ...]:
        """Returns the other voters, the most caught up first."""
        ends = {v.voter_id: self._end_offset_of(v.voter_id, v.directory_id) for v in voters}
        return tuple(sorted((i for i in ends if i != self._leader[0]), key=lambda i: (-ends[i], i)))

    def forget_silent_observers(self, voters: VoterSet, now_ms: int) -> None:
        """Forgets observers whose session is over."""
        oldest_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
        for key in self._silent(voters, oldest_ms):
            del self._replicas[key]
            if self._latest.get(key[0]) == key[1]:
                del self._latest[key[0]]

    def statuses(self, voters: VoterSet) -> tuple[QuorumReplicaStatus, ...]:
        """Returns what is known of all replicas, for people."""
        return tuple(
            QuorumReplicaStatus(
                replica_id=key[0],
                directory_id=key[1],
                is_voter=voters.contains(*key),
                end_offset=progress.end_offset,
                last_fetch_ms=progress.last_fetch_ms if progress.last_fetch_ms >= 0 else None,
                last_caught_up_ms=progress.caught_up_ms,
            )
            for key, progress in self._replicas.items()
        )

    def _silent(self, voters: VoterSet, oldest_ms: int) -> list[ReplicaKey]:
        silent = [key for key, progress in self._replicas.items() if progress.last_fetch_ms <= oldest_ms]
        return [key for key in silent if key != self._leader and not voters.contains(*key)]

    def _get(self, replica: ReplicaKey) -> FetchProgress:
        return self._replicas.get(replica) or FetchProgress()

    def _progress_of(self, voter_id: int, directory_id: UUID | None) -> FetchProgress | None:
        directory_id = directory_id or self._latest.get(voter_id)
        return None if directory_id is None else self._replicas.get((voter_id, directory_id))

    def _end_offset_of(self, voter_id: int, directory_id: UUID | None) -> int:
        progress = self._progress_of(voter_id, directory_id)
        return UNKNOWN_OFFSET if progress is None else progress.end_offset
