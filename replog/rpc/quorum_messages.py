"""The metadata quorum as operators see and change it: its members, and who votes.

Field names equal those of ``proto/replog/pb/v1/data.proto``.  What voters tell each other is not here but in
``replog_quorum.peer_messages``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.waiting.asks import Asks


class DescribeQuorumRequest(Asks["DescribeQuorumResponse"], frozen=True):
    """The metadata quorum as its leader knows it; any node passes the question on."""


class QuorumMember(Struct, frozen=True):
    """One voter or observer.

    Attributes:
        directory_id: The id of its directory; None for a voter of a static configuration that has not been heard.
        endpoint: The address where a voter listens, "" where that is not known.
        log_end_offset: The end of its log; -1 before its first fetch; flushed, for a voter.
        last_fetch_age_ms: The time since its last fetch; -1: never.
        last_caught_up_age_ms: The time since it had everything the leader had; -1: never.
    """

    node_id: int
    directory_id: UUID | None
    endpoint: str
    is_voter: bool
    log_end_offset: int
    last_fetch_age_ms: int
    last_caught_up_age_ms: int


class DescribeQuorumResponse(Struct, frozen=True):
    """`is_dynamic`: the voters stand in the log and can be changed.  Times are -1 where nothing was measured."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    is_dynamic: bool
    members: tuple[QuorumMember, ...]
    election_ms: int = -1
    commit_ms_p50: int = -1
    commit_ms_p99: int = -1


class AddVoterRequest(Asks["AddVoterResponse"], frozen=True):
    """Lets an observer vote (KIP-853); it must have caught up."""

    voter_id: int
    directory_id: UUID
    endpoint: str


class RemoveVoterRequest(Asks["RemoveVoterResponse"], frozen=True):
    """Takes a vote away; `directory_id` None: whichever directory the voter has."""

    voter_id: int
    directory_id: UUID | None = None


class AddVoterResponse(Struct, frozen=True):
    """The change is committed."""


class RemoveVoterResponse(Struct, frozen=True):
    """The change is committed."""
