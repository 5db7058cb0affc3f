"""What brokers and operators ask the active controller for, and the response each of them gets: plain data.

Kafka's requests of the same names, as far as they have one.  Offsets are offsets of the metadata log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from replog.errors import ErrorCode
from replog.metadata.records import BrokerEndpoint, ElectionType, LeaderRecoveryState, ResourceType, SupportedFeature

REPLICAS_PER_REQUEST_MAX = 10_000
"""Replicas of which a broker may tell in one request; one that has more to tell asks several times."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker process has started.  `previous_broker_epoch` is what its clean-shutdown marker held, -1 for none.

    `supported_features`: a feature that is not named counts as understood at level 1 only.  `unopened_log_dirs`: so many
    directories more are configured, and could not be opened; which ones nobody knows.  `endpoints`: where it serves
    clients of other protocols, each listener once.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    host: str
    port: int
    log_dirs: tuple[UUID, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1
    supported_features: tuple[SupportedFeature, ...] = ()
    unopened_log_dirs: int = 0
    endpoints: tuple[BrokerEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker that is gone for good: it must be fenced and hold no replica (drain it first)."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse:
    pass


@dataclass(frozen=True, slots=True)
class DrainBroker:
    """Move everything off a broker, or, with `drained` false, let it be used again.  Kept until told otherwise."""

    broker_id: int
    drained: bool


@dataclass(frozen=True, slots=True)
class DrainBrokerResponse:
    """`replicas_count`: replicas that the broker still has; they move one after another."""

    replicas_count: int


@dataclass(frozen=True, slots=True)
class RegisterController:
    """A controller process has started and knows who is active."""

    controller_id: int
    cluster_id: str
    incarnation_id: UUID
    host: str
    port: int
    supported_features: tuple[SupportedFeature, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse:
    pass


@dataclass(frozen=True, slots=True)
class OfflineReplica:
    """A replica that its broker cannot use.

    `is_intact`: its disk failed, and what was flushed to it is there when it works again; else its bytes are wrong.
    """

    topic_id: UUID
    partition_id: int
    is_intact: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`metadata_offset`: end (exclusive) of what the broker has applied of the metadata log.

    `offline_replicas`: all of them, in every heartbeat; Kafka names log directories instead (KIP-858), which our partition
    records do not know.  Where they are more than `REPLICAS_PER_REQUEST_MAX`, several heartbeats name them, and all but
    the last say `more_offline`.

    `endpoints`: those of the registration, where the metadata could hold them and does not: the cluster was raised to the
    level that knows them after the broker had registered (KAFKA-15341).  Empty: there is nothing to change.  They come
    with heartbeats and not in a second registration because a heartbeat is refused that is of an earlier incarnation; a
    late registration would fence the process that runs.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_replicas: tuple[OfflineReplica, ...] = ()
    more_offline: bool = False
    endpoints: tuple[BrokerEndpoint, ...] = ()


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
    """Proposed ISR changes of partitions that the sender leads (docs/KAFKA.md 4.4)."""

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
    """A topic is named, or meant by its id: one that was created anew since then is another one."""

    names: tuple[str, ...]
    topic_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """Results of the names, then of the ids; `name` is "" where there is no topic of an id."""

    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class NamedPartition:
    topic: str
    partition_id: int


@dataclass(frozen=True, slots=True)
class PartitionResult:
    topic: str
    partition_id: int
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """`count`: how many partitions the topic has afterwards.  `assignments`: replicas of the new ones, or empty."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    """`num_partitions` of each result is the new count."""

    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """`election_type`: PREFERRED or UNCLEAN.  `partitions` None: all that need it; those that do not are left out."""

    election_type: ElectionType
    partitions: tuple[NamedPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """`replicas`: where the partition shall live, the preferred leader first; None cancels what is under way."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments:
    items: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse:
    partitions: tuple[PartitionResult, ...]


class ConfigOperation(IntEnum):
    """What to do with one configuration; Kafka's numbers.  The last two are for lists: words are added, or taken out."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterableConfig:
    """`value` is None exactly if it is deleted."""

    name: str
    operation: ConfigOperation = ConfigOperation.SET
    value: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfigsResource:
    """A topic, a broker (its id as text), or, with type BROKER and the empty name, the cluster-wide default.

    `replaces`: what is not named is removed; else it stays as it is.
    """

    resource_type: ResourceType
    resource_name: str
    configs: tuple[AlterableConfig, ...]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """A resource that fails changes nothing, and the others do not mind."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsResult:
    resource_type: ResourceType
    resource_name: str
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    resources: tuple[AlterConfigsResult, ...]


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """`level`: the level to finalize, 0 to remove the feature.  Lowering one needs `allow_downgrade`."""

    name: str
    level: int
    allow_downgrade: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """All of it or none of it."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse:
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
    | CreatePartitions
    | ElectLeaders
    | AlterPartitionReassignments
    | UnregisterBroker
    | DrainBroker
    | UpdateFeatures
    | RegisterController
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
    | CreatePartitionsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | UnregisterBrokerResponse
    | DrainBrokerResponse
    | UpdateFeaturesResponse
    | RegisterControllerResponse
)
