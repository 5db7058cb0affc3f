"""What a node tells about itself (DescribeQuorum, metrics, tests)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """A snapshot of one node's view; plain values, safe to keep.

    Attributes:
        role: Unattached, Prospective, Candidate, Follower, Leader or Resigned.
        epoch: current leader epoch.
        leader_id: leader of `epoch`, None while unknown or resigned.
        high_watermark: records below are committed; -1 while unknown.
        voters: the voter set, ascending.
        voter_end_offsets: on the leader, voter id -> flushed end offset (-1 before its first fetch); else empty.
        observer_end_offsets: on the leader, observer id -> end offset of its last fetch; else empty.
        epoch_start_offset: on the leader, offset of the first record of its epoch; else None.
    """

    role: str
    epoch: int
    leader_id: int | None
    high_watermark: int
    voters: tuple[int, ...]
    voter_end_offsets: Mapping[int, int]
    observer_end_offsets: Mapping[int, int]
    epoch_start_offset: int | None
