"""What one node says about itself: its state, its quorum role and its replicas.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.controller.requests import NamedPartition
from replog.waiting.asks import Asks


class DescribeNodeRequest(Asks["DescribeNodeResponse"], frozen=True):
    """`partitions`: only these replicas, with what their leader knows of the others; None: all replicas, without that."""

    partitions: tuple[NamedPartition, ...] | None = None


class ReplicaProgress(Struct, frozen=True):
    """A replica as the leader of its partition sees it; the leader itself is one of them, with no lag.

    Attributes:
        log_end_offset: The end of its log, exclusive, as of its last fetch; -1: it has not fetched from this leader.
        flushed_offset: The end of what it has on stable storage, likewise.
        lag_records: The number of offsets it is behind the leader's log end.
        lag_ms: The time since it is known to have had everything; -1: not known to have had it under this leader.
        broker_epoch: The broker epoch of its last fetch; -1: none, or it did not say.
        lag_bytes: The bytes of the leader's log it does not have, about; None: an older broker does not say.
    """

    replica_id: int
    log_end_offset: int
    flushed_offset: int
    lag_records: int
    lag_ms: int
    broker_epoch: int
    lag_bytes: int | None = None


class LeaderView(Struct, frozen=True):
    """What only the leader of a partition can tell.

    Attributes:
        epoch_start_offset: The offset where its leader epoch began.
        maximal_isr: The replicas that the high watermark waits for: the ISR, and whom the controller may just have
            added to it.
        elr: The eligible leader replicas.
        min_insync_replicas: The effective min ISR: at most the number of replicas.
        waiting_produces: The number of `acks=all` batches that are not acknowledged yet.
        replicas: The replicas in the order of their assignment.
    """

    partition_epoch: int
    epoch_start_offset: int
    maximal_isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_insync_replicas: int
    recovering: bool
    waiting_produces: int
    replicas: tuple[ReplicaProgress, ...]


class ReplicaStatus(Struct, frozen=True):
    """What a broker says of one of its replicas; `size_bytes`, from the log start on, only where it was asked for by name."""

    topic: str
    partition_id: int
    is_leader: bool
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    isr: tuple[int, ...]
    state: str
    reason: str = ""
    truncated_to: int = -1
    leader: LeaderView | None = None
    size_bytes: int | None = None


class QuorumReplica(Struct, frozen=True):
    node_id: int
    end_offset: int


class DescribeNodeResponse(Struct, frozen=True):
    """What one process says about itself; served by every node of ours, also before it is unfenced."""

    node_id: int
    incarnation_id: UUID
    state: str
    broker_epoch: int
    quorum_role: str
    quorum_epoch: int
    quorum_leader_id: int
    quorum_high_watermark: int
    quorum_end_offset: int
    quorum_replicas: tuple[QuorumReplica, ...] = ()
    replicas: tuple[ReplicaStatus, ...] = ()
    rss_bytes: int = 0
    version: str = ""


NO_DETAILS = DescribeNodeResponse(-1, UUID(int=0), "", -1, "", -1, -1, -1, -1, rss_bytes=-1)
"""In place of the answer of a broker of Apache Kafka, which has no such question: it is there, and tells nothing of itself."""
