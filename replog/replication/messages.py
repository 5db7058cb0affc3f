"""Messages and effects of a partition's leader and follower: plain data, both ways.

The driver appends to the log first and tells the core afterwards (`Appended`, `Flushed`): a core never holds a log
(docs/ARCHITECTURE.md, Overview).  Offsets are half-open: `log_end_offset` and `high_watermark` are exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from replog.errors import ErrorCode
from replog.metadata.config_keys import FlushPolicy


class EpochEnd(Struct, frozen=True):
    """The largest leader epoch not above the one asked for, and where it ends (exclusive)."""

    epoch: int
    end_offset: int


class ReplicaLogView(Protocol):
    """The part of a log that the decisions of a follower read."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int | None:
        """Latest epoch of the leader-epoch cache; None when it is empty."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """Returns where `epoch` ends in this log (docs/KAFKA.md 3.5); None where Kafka answers (-1, -1)."""
        ...


class PartitionState(Struct, frozen=True):
    """The state of a partition in the metadata log.

    `eligible`: broker id -> broker epoch of every replica that is unfenced and not shutting down.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_insync_replicas: int
    eligible: Mapping[int, int]
    recovering: bool = False


# ---- leader: messages ---------------------------------------------------------------------------------------------


class Tick(Struct, frozen=True):
    """Time has passed; look at the deadlines."""


class AwaitProduce(Struct, frozen=True):
    """Answer with `ProduceCompleted(request_id)` when `end_offset` is below or at the high watermark."""

    request_id: int
    end_offset: int
    deadline_ms: int


class Appended(Struct, frozen=True):
    """The local log now ends here (page cache), and these produces wait, for these records or for earlier ones."""

    log_end_offset: int
    waiting: tuple[AwaitProduce, ...] = ()


class FetchedMisfits(Struct, frozen=True):
    """In place of `Appended`: the leader's first batch is whole, and cannot stand behind our last one."""

    reason: str


class Flushed(Struct, frozen=True):
    """Everything below is on stable storage."""

    flushed_offset: int


class FollowerFetched(Struct, frozen=True):
    """A follower's fetch passed the checks and was not diverging.

    `leader_end_offset` is the leader's log end sampled before the read (docs/KAFKA.md 4.2).
    """

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    flushed_offset: int
    log_start_offset: int
    leader_end_offset: int


class StateChanged(Struct, frozen=True):
    """The metadata log has news of the partition, or of the brokers that hold it."""

    state: PartitionState


class AlterPartitionAnswered(Struct, frozen=True):
    """The controller's answer to `ProposeIsr`; on success the committed facts.

    Every proposal gets exactly one: a request that was lost is answered with REQUEST_TIMED_OUT.
    `proposal_id` is that of the proposal: answers to an earlier one are dropped.
    """

    proposal_id: int
    error: ErrorCode
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class FlushPolicyChanged(Struct, frozen=True):
    """The topic's `flush.policy` is another one from now on."""

    flush_policy: FlushPolicy


class Resigned(Struct, frozen=True):
    """This node no longer leads: everything that waits is answered with NOT_LEADER_OR_FOLLOWER."""


LeaderMessage: TypeAlias = (
    Tick | Appended | Flushed | FlushPolicyChanged | FollowerFetched | StateChanged | AlterPartitionAnswered | Resigned
)

# ---- leader: effects ------------------------------------------------------------------------------------------------


class HighWatermarkAdvanced(Struct, frozen=True):
    high_watermark: int


class ProposeIsr(Struct, frozen=True):
    """Ask the controller for this ISR, with recovery done, and for an empty ELR if the ISR is large enough.

    Members carry the broker epoch of their fetches (-1: the leader itself, or a member that has not fetched yet).
    """

    proposal_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    reason: str


class IsrChanged(Struct, frozen=True):
    """The committed ISR has other members now; for people and counters.

    `reason`: why this leader proposed it, or that the controller decided it.
    """

    before: tuple[int, ...]
    isr: tuple[int, ...]
    reason: str


class ProduceCompleted(Struct, frozen=True):
    request_id: int
    error: ErrorCode


class RequestFlush(Struct, frozen=True):
    """An acknowledgement waits for the disk: fsync (group commit) and answer with `Flushed`."""


LeaderEffect: TypeAlias = HighWatermarkAdvanced | ProposeIsr | IsrChanged | ProduceCompleted | RequestFlush

# ---- follower: messages -----------------------------------------------------------------------------------------------


class FetchAnswered(Struct, frozen=True):
    """One partition's part of a fetch response.

    `fetch_offset` and `leader_epoch` are those of the request it answers.
    """

    fetch_offset: int
    leader_epoch: int
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    leader_end_offset: int
    size_bytes: int
    diverging: EpochEnd | None = None


class FetchFailed(Struct, frozen=True):
    """The request was not answered: connection lost or timed out."""


FollowerMessage: TypeAlias = (
    Tick | Appended | FetchedMisfits | Flushed | FlushPolicyChanged | FetchAnswered | FetchFailed
)

# ---- follower: effects --------------------------------------------------------------------------------------------------


class AppendFetched(Struct, frozen=True):
    """Append the answer's batches, skipping those above `leader_epoch`; then `Appended`, or `FetchedMisfits`."""

    leader_epoch: int


class TruncateTo(Struct, frozen=True):
    """Cut the log here; the lowered recovery point is durable before the next append."""

    offset: int
    reason: str


class TruncateFullyAndStartAt(Struct, frozen=True):
    offset: int
    reason: str


class LogContradicted(Struct, frozen=True):
    """This log and the leader's cannot be of one partition: the replica is damaged, and follows no more."""

    reason: str


class SetHighWatermark(Struct, frozen=True):
    high_watermark: int


class SetLogStartOffset(Struct, frozen=True):
    log_start_offset: int


FollowerEffect: TypeAlias = (
    AppendFetched
    | TruncateTo
    | TruncateFullyAndStartAt
    | LogContradicted
    | SetHighWatermark
    | SetLogStartOffset
    | RequestFlush
)


class FetchPosition(Struct, frozen=True):
    """The position that the follower fetches from next; made by `Follower.fetch_position()`."""

    fetch_offset: int
    flushed_offset: int
    last_fetched_epoch: int  # -1: the epoch cache is empty
    leader_epoch: int
    log_start_offset: int
