"""Messages and effects of the quorum's state machine: plain data, both ways.

The driver turns what arrives from peers, clocks and disks into a message, calls ``Quorum.step(message, now_ms)`` and
performs the returned effects in order.  Requests carry a `correlation_id` chosen by their sender; a response that the
core is not waiting for is dropped.  Offsets are half-open; a node id is a non-negative int.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias


class QuorumError(IntEnum):
    """Error codes of quorum responses; the numbers are Kafka's."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    BROKER_NOT_AVAILABLE = 8
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 94


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The largest epoch not above the one asked for, and the offset at which it ends (exclusive)."""

    epoch: int
    end_offset: int


class LogView(Protocol):
    """The read-only side of the metadata log that the core decides by."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage; never above `log_end_offset`."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch; 0 for an empty log."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch` ends in this log (kafka-reference 5.4); the log end for its last epoch."""
        ...


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What must survive a crash: kafka-reference 1.11, quorum-state."""

    epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None


# ---- requests and responses: travel between nodes --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VoteRequest:
    correlation_id: int
    voter_id: int  # the receiver
    replica_id: int  # the sender
    replica_epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    correlation_id: int
    replica_id: int  # who answers
    error: QuorumError
    leader_id: int | None
    leader_epoch: int
    vote_granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[int, ...]  # voters by descending fetch offset


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    correlation_id: int
    replica_id: int
    error: QuorumError
    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
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
    leader_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """`batches` is filled by the driver of the leader (see `SendFetchedData`) and opaque to the core.

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
    batches: bytes | memoryview = b""
    leader_time_ms: int = -1


Request: TypeAlias = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
Response: TypeAlias = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse


# ---- messages from the driver -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; look at the timers."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request or response of another node."""

    source: int
    message: Request | Response


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A request could not be delivered or timed out; its answer will not come."""

    destination: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The log now ends here (page cache), after an append of the leader or of a follower."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below is on stable storage."""

    flushed_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was cut, as `TruncateTo` asked."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give up leadership now (controller failure); no effect on a node that does not lead."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The node stops: a leader resigns and tells the others."""


Message: TypeAlias = Tick | Received | SendFailed | Appended | Flushed | Truncated | Resign | Shutdown


# ---- effects: what the driver does, in order ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver to a node; a response goes back on the way its request came."""

    destination: int
    message: Request | Response


@dataclass(frozen=True, slots=True)
class SendFetchedData:
    """Read `[fetch_offset, log end)` (bounded by the driver's byte limit), put it into `response`, send that."""

    destination: int
    response: FetchResponse
    fetch_offset: int


@dataclass(frozen=True, slots=True)
class PersistElectionState:
    """Write and fsync quorum-state, then perform `then`.  A barrier: no later effect runs before it is done."""

    state: ElectionState
    then: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append the LeaderChange control batch of a new epoch and answer with `Appended`, then `Flushed`."""

    leader_epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append what a leader sent, fsync, answer with `Appended`, then `Flushed`.  Not a barrier.

    The driver skips batches whose epoch is above `leader_epoch`, with everything after them.
    """

    batches: bytes | memoryview
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log at `end_offset`, make that durable, answer with `Truncated`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Records below are committed and may be applied."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Who leads, as far as this node knows.  Comes once per change of (leader_id, epoch)."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This node leads `epoch`; its own first record (the LeaderChange) is at `epoch_start_offset`."""

    epoch: int
    epoch_start_offset: int


@dataclass(frozen=True, slots=True)
class LostLeadership:
    """This node no longer leads `epoch`; nothing more may be appended in it."""

    epoch: int


Effect: TypeAlias = (
    Send
    | SendFetchedData
    | PersistElectionState
    | AppendLeaderChange
    | AppendBatches
    | TruncateTo
    | HighWatermarkAdvanced
    | LeaderChanged
    | BecameLeader
    | LostLeadership
)
Effects: TypeAlias = Sequence[Effect]
