"""What one node is asked, and what it says: its state and replicas, configurations, log directories, quorum and files.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.controller.requests import NamedPartition
from replog.metadata.records import ResourceType
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


class LateTransaction(Struct, frozen=True):
    """A transaction that is open for longer than any may be, so that nobody may be going to end it: readers wait before it.

    Attributes:
        first_offset: The offset at which it begins.
        silent_ms: The time since its producer wrote.
    """

    topic: str
    partition_id: int
    producer_id: int
    first_offset: int
    silent_ms: int


class DescribeNodeResponse(Struct, frozen=True):
    """What one process says about itself; served by every node of ours, also before it is unfenced.

    Attributes:
        wall_ms: Its clock, milliseconds since 1970; 0 where a node of before does not tell it.
        open_files, open_files_max: The files that its process has open, and may have; 0 where it does not tell.
        late_transactions: The late transactions in partitions that it leads, of a bounded number of partitions.
    """

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
    wall_ms: int = 0
    open_files: int = 0
    open_files_max: int = 0
    late_transactions: tuple[LateTransaction, ...] = ()


NO_DETAILS = DescribeNodeResponse(-1, UUID(int=0), "", -1, "", -1, -1, -1, -1, rss_bytes=-1)
"""In place of the answer of a broker of Apache Kafka, which has no such question: it is there, and tells nothing of itself."""


# ---- the configurations in force, and where each value comes from ---------------------------------------------------


class DescribeConfigsRequest(Asks["DescribeConfigsResponse"], frozen=True):
    """`resource_name` of a broker is its id, "" for the cluster's defaults."""

    resource_type: ResourceType
    resource_name: str


class ConfigDescription(Struct, frozen=True):
    """`source`: topic, broker, cluster, node (its configuration file), or default."""

    name: str
    value: str | None
    source: str


class DescribeConfigsResponse(Struct, frozen=True):
    configs: tuple[ConfigDescription, ...]


class DescribeNodeConfigsRequest(Asks["DescribeNodeConfigsResponse"], frozen=True):
    """Asks for all that a node goes by itself.

    Attributes:
        node_id: The id of a voter of the metadata quorum, to which the request is passed on; None: the node that is asked.
    """

    node_id: int | None = None


class DescribeNodeConfigsResponse(Struct, frozen=True):
    """Every key of the node's file and every dynamic configuration, by name."""

    node_id: int
    configs: tuple[ConfigDescription, ...]


# ---- the log directories of a broker, what they hold, and replicas that move between them ---------------------------


class MoveReplicaRequest(Asks["MoveReplicaResponse"], frozen=True):
    """Has a replica of the broker asked move to another of its log directories."""

    topic: str
    partition_id: int
    path: str


class MoveReplicaResponse(Struct, frozen=True):
    """It is taken down; `DescribeLogDirsRequest` says how far it is."""


class DescribeLogDirsRequest(Asks["DescribeLogDirsResponse"], frozen=True):
    """The log directories of the broker asked."""


class LogDirReplica(Struct, frozen=True):
    """`size_bytes`: of its segments; -1: it is offline."""

    topic: str
    partition_id: int
    size_bytes: int


class ReplicaMoveStatus(Struct, frozen=True):
    """A replica on its way to the log directory `path`; `missing_bytes` -1: it has not begun."""

    topic: str
    partition_id: int
    path: str
    copied_bytes: int
    missing_bytes: int


class LogDir(Struct, frozen=True):
    """One log directory; `error`: why it is offline, "": it works.  `moves`: of replicas that come here.

    `total_bytes`: the size of its disk; 0: not known.
    """

    path: str
    error: str
    free_bytes: int
    replicas: tuple[LogDirReplica, ...]
    moves: tuple[ReplicaMoveStatus, ...]
    total_bytes: int = 0


class DescribeLogDirsResponse(Struct, frozen=True):
    """In the order of the configuration; those that could not be opened last."""

    directories: tuple[LogDir, ...]


# ---- the metadata quorum as operators see and change it -------------------------------------------------------------
# What voters tell each other is in ``replog_quorum.peer_messages``.


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


# ---- where the batches of a range stand in a replica's files, for a process on the same machine ---------------------


STILL_WRITTEN = -1
"""In place of a time of modification: the file is the active segment's, and grows."""


class LocateSegmentsRequest(Asks["LocateSegmentsResponse"], frozen=True):
    """Asks a leader or a replica in sync for the files that hold offsets [start, end) of a partition.

    Attributes:
        leader_epoch: The leader epoch that the caller knows; -1: any.
        boot_id: The caller's `replog.host.host_identity.boot_id`: paths are told to processes of the same machine only.
    """

    topic_id: UUID
    partition_id: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    boot_id: str


class SegmentSpan(Struct, frozen=True):
    """Whole batches in one file.

    Attributes:
        path: The absolute path, of the moment.
        position: The byte at which they begin.
        end_position: The byte behind them, exclusive.
        base_offset: The base offset of the first batch where `position` is not 0, else of the segment.
        end_offset: The end of what was asked for that can be in this file, exclusive.
        device: The device number of the file, by which it is known again together with the two below.
        inode: The inode number of the file.
        modified_ns: The time of its last change; STILL_WRITTEN: it grows.
    """

    path: str
    position: int
    end_position: int
    base_offset: int
    end_offset: int
    device: int
    inode: int
    modified_ns: int


class LocateSegmentsResponse(Struct, frozen=True):
    """The spans, in order.

    Attributes:
        spans: The spans; what follows the last one is asked for again, for their number is bounded.  None: nothing of the
            range is committed as far as this replica knows.
        leader_epoch: The leader epoch of the replica: no batch in the spans has a higher one.
        refusal: Why nothing is told to this caller; "": it is.
        is_complete: Whether no offset from the start of the range on may be missing from the spans.
    """

    spans: tuple[SegmentSpan, ...]
    leader_epoch: int
    refusal: str
    is_complete: bool = False
