"""What a node tells about itself (DescribeQuorum, metrics, tests)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from replog_quorum.voters import VoterSet


class QuorumReplicaStatus(Struct, frozen=True):
    """What a leader knows of one replica.

    Attributes:
        replica_id: The id of its node.
        directory_id: The directory under which it fetches.
        is_voter: Whether (id, directory) is in the set in force.
        end_offset: The end of its log; -1 while unknown.
        last_fetch_ms: The monotonic time of its last fetch; None for the leader, or before the first.
        last_caught_up_ms: The time until which it surely had everything; None if never.
    """

    replica_id: int
    directory_id: UUID
    is_voter: bool
    end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumStatus(Struct, frozen=True):
    """A snapshot of one node's view; plain values, safe to keep.

    Attributes:
        role: Unattached, Prospective, Candidate, Follower, Leader or Resigned.
        epoch: The current leader epoch.
        leader_id: The leader of `epoch`, None while unknown or resigned.
        high_watermark: The offset below which all records are committed; -1 while unknown.
        voters: The ids of the voter set in force, ascending.
        voter_set: The same voters with directories and endpoints.
        voter_set_offset: The offset of its record; -1 when it is the configured one.
        voter_end_offsets: On the leader, voter id -> flushed end offset (-1 while nothing counts); else empty.
        observer_end_offsets: On the leader, observer id -> end offset of its last fetch; else empty.
        replicas: On the leader, all replicas that fetch, itself first; else empty.
        epoch_start_offset: On the leader, the offset of the first record of its epoch; else None.
    """

    role: str
    epoch: int
    leader_id: int | None
    high_watermark: int
    voters: tuple[int, ...]
    voter_set: VoterSet
    voter_set_offset: int
    voter_end_offsets: Mapping[int, int]
    observer_end_offsets: Mapping[int, int]
    replicas: tuple[QuorumReplicaStatus, ...]
    epoch_start_offset: int | None
