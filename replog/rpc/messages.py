"""Messages of the data plane and of client calls, as dataclasses.

Field names equal those of ``proto/replog/pb/v1/data.proto``.  A message with records carries them as `batches`, one
buffer per partition in the order of `partitions` (or `results`); on the wire they follow the header as raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from replog.controller.requests import TopicPartition
from replog.errors import ErrorCode
from replog.metadata.records import ResourceType

Buffer: TypeAlias = bytes | bytearray | memoryview

MIN_API_VERSION = 1
MAX_API_VERSION = 1

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
CONSUMER_REPLICA_ID = -1
ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of every stream, both ways.  `node_id` -1 is a client."""

    cluster_id: str
    node_id: int
    incarnation_id: UUID
    client_id: str = ""
    min_api_version: int = MIN_API_VERSION
    max_api_version: int = MAX_API_VERSION


# ---- produce ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducePartition:
    """Where one batch goes.  `leader_epoch` -1: not checked."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """`batches[i]` is exactly one record batch for `partitions[i]`.  acks: 0, 1 or -1 (all)."""

    correlation_id: int
    timeout_ms: int
    acks: int
    partitions: tuple[ProducePartition, ...]
    batches: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class ProduceResult:
    topic_id: UUID
    partition_id: int
    error: ErrorCode
    message: str = ""
    base_offset: int = -1
    log_start_offset: int = -1
    append_time_ms: int = -1
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    correlation_id: int
    results: tuple[ProduceResult, ...]


# ---- fetch -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """What a follower (all fields) or a consumer (the first three and `leader_epoch`) asks of one partition."""

    topic_id: UUID
    partition_id: int
    fetch_offset: int
    flushed_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class ForgottenPartition:
    """One that an incremental fetch asks for no longer."""

    topic_id: UUID
    partition_id: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is asked of some partitions.

    Incremental: of each partition what the stream said last stands, until it is answered with records, a divergence or
    an error; `partitions` is what has changed, and an answer names only partitions with news.
    """

    correlation_id: int
    timeout_ms: int
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]
    incremental: bool = False
    forgotten: tuple[ForgottenPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochEnd:
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """One partition's answer.  `log_end_offset` is filled for followers only."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    fetch_offset: int
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: EpochEnd | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """`batches[i]` are whole record batches of `results[i]`, possibly empty."""

    correlation_id: int
    results: tuple[FetchResult, ...]
    batches: tuple[Buffer, ...]


# ---- client calls ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: int
    host: str
    port: int
    broker_epoch: int
    fenced: bool
    rack: str | None = None
    drained: bool = False
    in_controlled_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    configs: tuple[ConfigEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A broker's view of the cluster.  `controller_id` -1: unknown."""

    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Brokers, controller, and the topics that are named: as many as fit into one answer are for the caller to choose."""

    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Everything, in steps of a bounded size, or what changed since.

    Attributes:
        known_offset: `metadata_offset` of the picture the client has; 0 or less: none.
        follow: go on with every change; else the watch ends with the first picture.
    """

    known_offset: int = 0
    follow: bool = True


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """One step of the metadata watch; the steps up to one with `is_last` lead from one picture to the next.

    The first steps start from the picture of the request's `known_offset`, or from nothing.

    Attributes:
        metadata_offset: of the picture that the steps lead to; below `known_offset` the sender is behind, and the
            receiver keeps its picture.
        controller_id: -1: unknown.
        topics: changed ones with all their configs.  Of a topic that was known under the same id the changed partitions,
            of another all of them, which may be spread over several steps.
        deleted_topics: names; they go before `topics` come, which may have the same names.
        is_full: the picture starts from nothing.
    """

    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]
    deleted_topics: tuple[str, ...] = ()
    is_full: bool = False
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """`timestamp`: ms since 1970, or LATEST_TIMESTAMP (the high watermark), EARLIEST_TIMESTAMP."""

    topic_id: UUID
    partition_id: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    partitions: tuple[ListOffsetsPartition, ...]


@dataclass(frozen=True, slots=True)
class ListOffsetsResult:
    topic_id: UUID
    partition_id: int
    error: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    results: tuple[ListOffsetsResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartition:
    """Everything below `offset` may go; -1: below the high watermark."""

    topic_id: UUID
    partition_id: int
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    partitions: tuple[DeleteRecordsPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsResult:
    """`low_watermark`: the lowest log start among the live replicas: what is below is gone everywhere."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    low_watermark: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteRecordsResponse:
    results: tuple[DeleteRecordsResult, ...]


@dataclass(frozen=True, slots=True)
class EpochEndPartition:
    """Asks where leader epoch `epoch` ends in the leader's log (OffsetsForLeaderEpoch; kafka-reference 4.5)."""

    topic_id: UUID
    partition_id: int
    epoch: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEndsRequest:
    partitions: tuple[EpochEndPartition, ...]


@dataclass(frozen=True, slots=True)
class EpochEndResult:
    """The largest epoch not above the one asked for, and its end (exclusive); -1 for both when there is none."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    epoch: int = -1
    end_offset: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class EpochEndsResponse:
    results: tuple[EpochEndResult, ...]


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    pass


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class DescribeNodeRequest:
    """`partitions`: only these replicas, with what their leader knows of the others; None: all replicas, without that."""

    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """A replica as the leader of its partition sees it; the leader itself is one of them, with no lag.

    Attributes:
        log_end_offset: exclusive, as it fetched last; -1: it has not fetched from this leader.
        flushed_offset: the same for what it has on stable storage.
        lag_records: offsets it is behind the leader's log end.
        lag_ms: since it is known to have had everything; -1: it is not known to have had it under this leader.
        broker_epoch: of its last fetch; -1: none, or it did not say.
        lag_bytes: what it does not have of the leader's log, about; None: an older broker does not say.
    """

    replica_id: int
    log_end_offset: int
    flushed_offset: int
    lag_records: int
    lag_ms: int
    broker_epoch: int
    lag_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What only the leader of a partition can tell.

    Attributes:
        epoch_start_offset: where its leader epoch began.
        maximal_isr: what the high watermark waits for: the ISR, and whom the controller may just have added to it.
        elr: eligible leaders outside the ISR.
        min_insync_replicas: in force, at most the number of replicas.
        waiting_produces: acks=all batches that are not acknowledged yet.
        replicas: in the order of their assignment.
    """

    partition_epoch: int
    epoch_start_offset: int
    maximal_isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_insync_replicas: int
    recovering: bool
    waiting_produces: int
    replicas: tuple[ReplicaProgress, ...]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
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


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    node_id: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DescribeNodeResponse:
    """What one process says about itself; served by every node, also before it is unfenced."""

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
    replicas: tuple[ReplicaStatus, ...] = field(default=())
    rss_bytes: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """The metadata quorum as its leader knows it; any node passes the question on."""


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One voter or observer.

    Attributes:
        directory_id: None for a voter of a static configuration that has not been heard.
        endpoint: where a voter listens, "" where that is not known.
        log_end_offset: -1 before its first fetch; flushed, for a voter.
        last_fetch_age_ms: -1: never.
        last_caught_up_age_ms: since it had everything the leader had, -1: never.
    """

    node_id: int
    directory_id: UUID | None
    endpoint: str
    is_voter: bool
    log_end_offset: int
    last_fetch_age_ms: int
    last_caught_up_age_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
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


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Lets an observer vote (KIP-853); it must have caught up."""

    voter_id: int
    directory_id: UUID
    endpoint: str


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Takes a vote away; `directory_id` None: whichever directory the voter has."""

    voter_id: int
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class AddVoterResponse:
    """The change is committed."""


@dataclass(frozen=True, slots=True)
class RemoveVoterResponse:
    """The change is committed."""


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """`resource_name` of a broker is its id, "" for the cluster's defaults."""

    resource_type: ResourceType
    resource_name: str


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """`source`: topic, broker, cluster, node (its configuration file), or default."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    configs: tuple[ConfigDescription, ...]


@dataclass(frozen=True, slots=True)
class MoveReplicaRequest:
    """Has a replica of the broker asked move to another of its log directories."""

    topic: str
    partition_id: int
    path: str


@dataclass(frozen=True, slots=True)
class MoveReplicaResponse:
    """It is taken down; `DescribeLogDirsRequest` says how far it is."""


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    """The log directories of the broker asked."""


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """`size_bytes`: of its segments; -1: it is offline."""

    topic: str
    partition_id: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReplicaMoveStatus:
    """A replica on its way to the log directory `path`; `missing_bytes` -1: it has not begun."""

    topic: str
    partition_id: int
    path: str
    copied_bytes: int
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory; `error`: why it is offline, "": it works.  `moves`: of replicas that come here."""

    path: str
    error: str
    free_bytes: int
    replicas: tuple[LogDirReplica, ...]
    moves: tuple[ReplicaMoveStatus, ...]


@dataclass(frozen=True, slots=True)
class DescribeLogDirsResponse:
    """In the order of the configuration; those that could not be opened last."""

    directories: tuple[LogDir, ...]


ClientRequest: TypeAlias = (
    MetadataRequest
    | ListOffsetsRequest
    | InitProducerIdRequest
    | DescribeNodeRequest
    | DescribeQuorumRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | DescribeConfigsRequest
    | DeleteRecordsRequest
    | EpochEndsRequest
    | MoveReplicaRequest
    | DescribeLogDirsRequest
)
ClientResponse: TypeAlias = (
    ClusterMetadata
    | ListOffsetsResponse
    | InitProducerIdResponse
    | DescribeNodeResponse
    | DescribeQuorumResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | DescribeConfigsResponse
    | DeleteRecordsResponse
    | EpochEndsResponse
    | MoveReplicaResponse
    | DescribeLogDirsResponse
)
