"""Requests and responses: what nodes of the quorum tell each other.

Requests carry a `correlation_id` chosen by their sender; a response that the core is not waiting for is dropped.  Every
response names the leader as far as its sender knows one, and where it listens ("" when it does not know).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog_quorum.voters import Voter


class QuorumError(IntEnum):
    """Error codes of quorum responses; the numbers are Kafka's."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_VOTER_KEY = 94
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INCONSISTENT_CLUSTER_ID = 104
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


class EpochEnd(Struct, frozen=True):
    """An epoch and the offset at which it ends (exclusive); also the id of a snapshot of everything below."""

    epoch: int
    end_offset: int


class VoteRequest(Struct, frozen=True):
    """`voter_directory_id`: whom the sender means; None when it knows the voter by its id only (static set)."""

    correlation_id: int
    voter_id: int  # the receiver
    replica_id: int  # the sender
    replica_epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool
    replica_directory_id: UUID
    voter_directory_id: UUID | None


class VoteResponse(Struct, frozen=True):
    correlation_id: int
    replica_id: int  # who answers
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    vote_granted: bool
    leader_endpoint: str = ""


class BeginQuorumEpochRequest(Struct, frozen=True):
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: UUID | None
    leader_endpoint: str = ""


class BeginQuorumEpochResponse(Struct, frozen=True):
    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    leader_endpoint: str = ""


class EndQuorumEpochRequest(Struct, frozen=True):
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[int, ...]  # voters by descending fetch offset
    voter_directory_id: UUID | None


class EndQuorumEpochResponse(Struct, frozen=True):
    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    leader_endpoint: str = ""


class QuorumFetchRequest(Struct, frozen=True):
    """A follower's or observer's pull.  `fetch_offset` of a voter is flushed: it counts toward the majority.

    `leader_time_ms` is that of the last good answer of this leader in this epoch: it proves when that answer had not
    yet left, where the arrival of the fetch proves nothing (it may have waited for long).
    """

    correlation_id: int
    replica_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    replica_directory_id: UUID
    leader_time_ms: int = -1


class QuorumFetchResponse(Struct, frozen=True):
    """`batches` is filled by the driver of the leader (see `SendFetchedData`) and opaque to the core.

    `snapshot_id`: the log does not go back that far (or the replica has nothing yet): fetch this snapshot instead.
    `leader_time_ms`: the leader's monotonic clock, for the next fetch to bring back; -1 from nodes that do not lead.
    """

    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    high_watermark: int  # -1 while the leader does not know it
    log_start_offset: int
    diverging: EpochEnd | None = None
    snapshot_id: EpochEnd | None = None
    batches: bytes | memoryview = b""
    leader_time_ms: int = -1
    leader_endpoint: str = ""


class FetchSnapshotRequest(Struct, frozen=True):
    """The bytes `[position, position + max_bytes)` of a snapshot, please.  Counts as a fetch for check-quorum."""

    correlation_id: int
    replica_id: int
    replica_directory_id: UUID
    leader_epoch: int
    snapshot_id: EpochEnd
    position: int
    max_bytes: int
    leader_time_ms: int = -1


class FetchSnapshotResponse(Struct, frozen=True):
    """`size` (of the whole snapshot, bytes) and `data` are filled by the driver (see `SendSnapshotChunk`)."""

    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    snapshot_id: EpochEnd
    size: int
    position: int
    data: bytes | memoryview = b""
    leader_time_ms: int = -1
    leader_endpoint: str = ""


class UpdateVoterRequest(Struct, frozen=True):
    """A voter whose endpoint is no longer what the voter set says tells its leader."""

    correlation_id: int
    replica_id: int
    leader_epoch: int
    voter: Voter


class UpdateVoterResponse(Struct, frozen=True):
    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    leader_endpoint: str = ""


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | QuorumFetchRequest
    | FetchSnapshotRequest
    | UpdateVoterRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | QuorumFetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
