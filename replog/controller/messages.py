"""Messages and effects of the controller: plain data, both ways.

A request becomes records plus a response; the records are replayed at once (speculatively), appended to the quorum
without waiting, and the response leaves when they have committed (architecture rule 5, kafka-reference 6.1).
Offsets are offsets of the metadata log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from replog.errors import ErrorCode, ReplogError
from replog.metadata.records import LeaderRecoveryState, MetadataRecord, ResourceType

# ---- requests, and the response each of them gets -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker process has started.  `previous_broker_epoch` is what its clean-shutdown marker held, -1 for none."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    host: str
    port: int
    log_dirs: tuple[UUID, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class OfflineReplica:
    """A replica that its broker cannot use: its disk failed, or its bytes are wrong."""

    topic_id: UUID
    partition_id: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`metadata_offset`: end (exclusive) of what the broker has applied of the metadata log.

    `offline_replicas`: all of them, in every heartbeat; Kafka names log directories instead (KIP-858), which our partition
    records do not know.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_replicas: tuple[OfflineReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """`metadata_offset`: end (exclusive) of the metadata that the answer was made of.

    The broker may act on the answer once it has applied that much: what it missed may have taken its leaderships.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A proposed ISR member and the broker epoch its fetches carried (-1: not known, e.g. the leader itself)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionIsrChange:
    topic_id: UUID
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Proposed ISR changes of partitions that the sender leads (kafka-reference 4.4)."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionIsrChange, ...]


@dataclass(frozen=True, slots=True)
class PartitionIsrResult:
    topic_id: UUID
    partition_id: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    partitions: tuple[PartitionIsrResult, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None  # None: remove


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`assignments`: replicas of partition 0, 1, ...; exclusive with the two counts (which are -1 then)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, ...], ...] = ()
    configs: tuple[ConfigEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    name: str
    error: ErrorCode
    message: str = ""
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    resource_type: ResourceType
    resource_name: str
    entries: tuple[ConfigEntry, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    pass


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    first_producer_id: int
    count: int


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """How far a replica's log reaches: the epoch of its last batch (-1 for an empty log) and its end offset."""

    topic_id: UUID
    partition_id: int
    last_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class ReportReplicas:
    """A restarted broker tells how far its replicas reach where a `recovered` election waits for it."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaEnd, ...]


@dataclass(frozen=True, slots=True)
class ReportReplicasResponse:
    pass


ControllerRequest: TypeAlias = (
    RegisterBroker
    | Heartbeat
    | AlterPartition
    | CreateTopics
    | DeleteTopics
    | AlterConfigs
    | AllocateProducerIds
    | ReportReplicas
)
ControllerResponse: TypeAlias = (
    RegisterBrokerResponse
    | HeartbeatResponse
    | AlterPartitionResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | AlterConfigsResponse
    | AllocateProducerIdsResponse
    | ReportReplicasResponse
)

# ---- messages from the driver -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; look at sessions and deadlines."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A request; answered by exactly one `Reply` or `ReplyError` with this `request_id`."""

    request_id: int
    request: ControllerRequest
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The quorum made this node its leader; records it appends from now on start at `next_offset`."""

    epoch: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Renounce:
    """The quorum's leadership is lost: revert to the last committed offset, fail everything that waits."""


@dataclass(frozen=True, slots=True)
class CommittedRecords:
    """One committed batch of the metadata log: `records` at `base_offset`, `base_offset + 1`, ...

    A standby replays it.  The active controller has replayed it already and only moves its committed offset.
    An empty `records` (a control batch) moves the offset to `end_offset`.
    """

    base_offset: int
    end_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...] = field(default=())


Message: TypeAlias = Tick | Submit | Claim | Renounce | CommittedRecords

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append as one batch of leader epoch `epoch`; it must land exactly at `base_offset`."""

    epoch: int
    base_offset: int
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    request_id: int
    response: ControllerResponse


@dataclass(frozen=True, slots=True)
class ReplyError:
    request_id: int
    error: ReplogError


@dataclass(frozen=True, slots=True)
class ResignLeadership:
    """Something unexpected happened while handling `epoch`'s requests: another controller should take over."""

    epoch: int
    reason: str


Effect: TypeAlias = AppendRecords | Reply | ReplyError | ResignLeadership
