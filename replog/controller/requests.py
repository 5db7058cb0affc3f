"""What brokers and operators ask the active controller for, and the response each of them gets: plain data.

Kafka's requests of the same names, as far as they have one.  Offsets are offsets of the metadata log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclEntry, AclFilter
from replog.access.principal import Envelope
from replog.errors import ErrorCode
from replog.metadata.records import (
    BrokerEndpoint,
    ElectionType,
    LeaderRecoveryState,
    MetadataRecord,
    QuotaEntityPart,
    ResourceType,
    SupportedFeature,
)
from replog.waiting.asks import Asks

REPLICAS_PER_REQUEST_MAX = 10_000
"""Replicas of which a broker may tell in one request; one that has more to tell asks several times."""


class RegisterBroker(Asks["RegisterBrokerResponse"], frozen=True):
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


class RegisterBrokerResponse(Struct, frozen=True):
    broker_epoch: int


class UnregisterBroker(Asks["UnregisterBrokerResponse"], frozen=True):
    """Forget a broker that is gone for good: it must be fenced and hold no replica (drain it first)."""

    broker_id: int


class UnregisterBrokerResponse(Struct, frozen=True):
    pass


class DrainBroker(Asks["DrainBrokerResponse"], frozen=True):
    """Move everything off a broker, or, with `drained` false, let it be used again.  Kept until told otherwise."""

    broker_id: int
    drained: bool


class DrainBrokerResponse(Struct, frozen=True):
    """`replicas_count`: replicas that the broker still has; they move one after another."""

    replicas_count: int


class RegisterController(Asks["RegisterControllerResponse"], frozen=True):
    """A controller process has started and knows who is active."""

    controller_id: int
    cluster_id: str
    incarnation_id: UUID
    host: str
    port: int
    supported_features: tuple[SupportedFeature, ...] = ()


class RegisterControllerResponse(Struct, frozen=True):
    pass


class OfflineReplica(Struct, frozen=True):
    """A replica that its broker cannot use.

    `is_intact`: its disk failed, and what was flushed to it is there when it works again; else its bytes are wrong.
    `gave_up`: a repair has given some of its records up, so that nobody must wait for what it had.
    """

    topic_id: UUID
    partition_id: int
    is_intact: bool = False
    gave_up: bool = False


class Heartbeat(Asks["HeartbeatResponse"], frozen=True):
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


class HeartbeatResponse(Struct, frozen=True):
    """`metadata_offset`: end (exclusive) of the metadata that the answer was made of.

    The broker may act on the answer once it has applied that much: what it missed may have taken its leaderships.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    metadata_offset: int


class IsrMember(Struct, frozen=True):
    """A proposed ISR member and the broker epoch its fetches carried (-1: not known, e.g. the leader itself)."""

    broker_id: int
    broker_epoch: int


class PartitionIsrChange(Struct, frozen=True):
    topic_id: UUID
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


class AlterPartition(Asks["AlterPartitionResponse"], frozen=True):
    """Proposed ISR changes of partitions that the sender leads (docs/KAFKA.md 4.4)."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionIsrChange, ...]


class PartitionIsrResult(Struct, frozen=True):
    topic_id: UUID
    partition_id: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class AlterPartitionResponse(Struct, frozen=True):
    partitions: tuple[PartitionIsrResult, ...]


class ConfigEntry(Struct, frozen=True):
    name: str
    value: str | None  # None: remove


class NewTopic(Struct, frozen=True):
    """`assignments`: replicas of partition 0, 1, ...; exclusive with the two counts (which are -1 then)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, ...], ...] = ()
    configs: tuple[ConfigEntry, ...] = ()


class MutatingClient(Struct, frozen=True):
    """The client against whose quota a request counts that creates or deletes partitions (KIP-599).

    Attributes:
        user: The name of its principal.
        client_id: The name that it gives itself.
        is_strict: Whether what exceeds the quota is refused; else it is done, and the next request waits.
    """

    user: str
    client_id: str
    is_strict: bool


class CreateTopics(Asks["CreateTopicsResponse"], frozen=True):
    """`client`: the client whose quota it counts against; None: none has one."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    client: MutatingClient | None = None


class ForkTopic(Asks["ForkTopicResponse"], frozen=True):
    """Create a topic that begins with the committed records of another one.

    `topic_id`: the id of the source, so that one that was created anew is not meant.  `end_offsets`: a high watermark of each of its
    partitions, by their leaders.  `client` as of `CreateTopics`.
    """

    source: str
    topic_id: UUID
    copy: str
    end_offsets: tuple[int, ...]
    client: MutatingClient | None = None


class ForkTopicResponse(Struct, frozen=True):
    """`topic_id`: the id of the copy.  `throttle_time_ms` as of `CreateTopicsResponse`."""

    topic_id: UUID
    throttle_time_ms: int = 0


class TopicResult(Struct, frozen=True):
    name: str
    error: ErrorCode
    message: str = ""
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1


class CreateTopicsResponse(Struct, frozen=True):
    """`throttle_time_ms`: how long the client has to wait for its quota, or 0."""

    topics: tuple[TopicResult, ...]
    throttle_time_ms: int = 0


class DeleteTopics(Asks["DeleteTopicsResponse"], frozen=True):
    """A topic is named, or meant by its id: one that was created anew since then is another one.  `client` as of `CreateTopics`."""

    names: tuple[str, ...]
    topic_ids: tuple[UUID, ...] = ()
    client: MutatingClient | None = None


class DeleteTopicsResponse(Struct, frozen=True):
    """Results of the names, then of the ids; `name` is "" where there is no topic of an id.  The time as of `CreateTopicsResponse`."""

    topics: tuple[TopicResult, ...]
    throttle_time_ms: int = 0


class CreateInternalTopic(Asks["CreateTopicsResponse"], frozen=True):
    """A broker needs one of the topics of coordinators (`replog.metadata.topic_names`), whoever has asked it for one of them."""

    topic: NewTopic


class NamedPartition(Struct, frozen=True):
    topic: str
    partition_id: int


class PartitionResult(Struct, frozen=True):
    topic: str
    partition_id: int
    error: ErrorCode
    message: str = ""


class NewPartitions(Struct, frozen=True):
    """`count`: how many partitions the topic has afterwards.  `assignments`: replicas of the new ones, or empty."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...] = ()


class CreatePartitions(Asks["CreatePartitionsResponse"], frozen=True):
    """`client` as of `CreateTopics`."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False
    client: MutatingClient | None = None


class CreatePartitionsResponse(Struct, frozen=True):
    """`num_partitions` of each result is the new count.  The time as of `CreateTopicsResponse`."""

    topics: tuple[TopicResult, ...]
    throttle_time_ms: int = 0


class ElectLeaders(Asks["ElectLeadersResponse"], frozen=True):
    """`election_type`: PREFERRED or UNCLEAN.  `partitions` None: all that need it; those that do not are left out."""

    election_type: ElectionType
    partitions: tuple[NamedPartition, ...] | None = None


class ElectLeadersResponse(Struct, frozen=True):
    partitions: tuple[PartitionResult, ...]


class Reassignment(Struct, frozen=True):
    """`replicas`: where the partition shall live, the preferred leader first; None cancels what is under way."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...] | None


class AlterPartitionReassignments(Asks["AlterPartitionReassignmentsResponse"], frozen=True):
    items: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


class AlterPartitionReassignmentsResponse(Struct, frozen=True):
    partitions: tuple[PartitionResult, ...]


class ConfigOperation(IntEnum):
    """What to do with one configuration; Kafka's numbers.  The last two are for lists: words are added, or taken out."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterableConfig(Struct, frozen=True):
    """`value` is None exactly if it is deleted."""

    name: str
    operation: ConfigOperation = ConfigOperation.SET
    value: str | None = None


class AlterConfigsResource(Struct, frozen=True):
    """A topic, a broker (its id as text), or, with type BROKER and the empty name, the cluster-wide default.

    `replaces`: what is not named is removed; else it stays as it is.
    """

    resource_type: ResourceType
    resource_name: str
    configs: tuple[AlterableConfig, ...]
    replaces: bool = False


class AlterConfigs(Asks["AlterConfigsResponse"], frozen=True):
    """A resource that fails changes nothing, and the others do not mind."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


class AlterConfigsResult(Struct, frozen=True):
    resource_type: ResourceType
    resource_name: str
    error: ErrorCode
    message: str = ""


class AlterConfigsResponse(Struct, frozen=True):
    resources: tuple[AlterConfigsResult, ...]


class CreateAcls(Asks["CreateAclsResponse"], frozen=True):
    """An entry that fails is left out, and the others do not mind."""

    entries: tuple[AclEntry, ...]


class AclResult(Struct, frozen=True):
    """What became of an entry to add, or of a filter; `entries`: what it removed."""

    error: ErrorCode
    message: str = ""
    entries: tuple[AclEntry, ...] = ()


class CreateAclsResponse(Struct, frozen=True):
    """One result for each entry, in order."""

    results: tuple[AclResult, ...]


class DeleteAcls(Asks["DeleteAclsResponse"], frozen=True):
    """Removes all entries that one of the filters fits."""

    filters: tuple[AclFilter, ...]


class DeleteAclsResponse(Struct, frozen=True):
    """One result for each filter, in order."""

    results: tuple[AclResult, ...]


class AlteredQuota(Struct, frozen=True):
    """`value` None removes the quota."""

    key: str
    value: float | None


class AlteredQuotaEntity(Struct, frozen=True):
    """An entity, and what is changed of its quotas; what is not named stays."""

    entity: tuple[QuotaEntityPart, ...]
    quotas: tuple[AlteredQuota, ...]


class AlterClientQuotas(Asks["AlterClientQuotasResponse"], frozen=True):
    """An entity that fails changes nothing, and the others do not mind."""

    entities: tuple[AlteredQuotaEntity, ...]
    validate_only: bool = False


class QuotaEntityResult(Struct, frozen=True):
    entity: tuple[QuotaEntityPart, ...]
    error: ErrorCode
    message: str = ""


class AlterClientQuotasResponse(Struct, frozen=True):
    entities: tuple[QuotaEntityResult, ...]


class FeatureUpdate(Struct, frozen=True):
    """`level`: the level to finalize, 0 to remove the feature.  Lowering one needs `allow_downgrade`."""

    name: str
    level: int
    allow_downgrade: bool = False


class UpdateFeatures(Asks["UpdateFeaturesResponse"], frozen=True):
    """All of it or none of it."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class UpdateFeaturesResponse(Struct, frozen=True):
    pass


class AllocateProducerIds(Asks["AllocateProducerIdsResponse"], frozen=True):
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(Struct, frozen=True):
    first_producer_id: int
    count: int


class AlterableScramCredential(Struct, frozen=True):
    """`credential`: what is kept of the user's password from now on; None removes what is."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential | None = None


class AlterUserScramCredentials(Asks["AlterUserScramCredentialsResponse"], frozen=True):
    """Gives users credentials, and takes them away (KIP-554): all of one user's or none."""

    credentials: tuple[AlterableScramCredential, ...]


class UserResult(Struct, frozen=True):
    name: str
    error: ErrorCode
    message: str = ""


class AlterUserScramCredentialsResponse(Struct, frozen=True):
    """One result for each user, in the order in which they were named first."""

    users: tuple[UserResult, ...]


class CreateDelegationToken(Asks["CreateDelegationTokenResponse"], frozen=True):
    """`max_lifetime_ms`: beyond it the token cannot be renewed; 0 or less: as long as the cluster lets one be.

    The client is who has asked for the token.
    """

    owner: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1


class CreateDelegationTokenResponse(Struct, frozen=True):
    token: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:
        """Shows no HMAC: whoever has it can log in."""
        return f"CreateDelegationTokenResponse(token={self.token!r})"


class RenewDelegationToken(Asks["RenewDelegationTokenResponse"], frozen=True):
    """`renew_period_ms`: how long the token holds from now on; 0 or less: as long as the cluster has it."""

    hmac: bytes
    renew_period_ms: int = -1

    def __repr__(self) -> str:
        """Shows no HMAC: whoever has it can log in."""
        return f"RenewDelegationToken(renew_period_ms={self.renew_period_ms})"


class RenewDelegationTokenResponse(Struct, frozen=True):
    expiry_timestamp_ms: int


class ExpireDelegationToken(Asks["ExpireDelegationTokenResponse"], frozen=True):
    """`expiry_period_ms`: how long the token still holds; below 0: no longer."""

    hmac: bytes
    expiry_period_ms: int = -1

    def __repr__(self) -> str:
        """Shows no HMAC: whoever has it can log in."""
        return f"ExpireDelegationToken(expiry_period_ms={self.expiry_period_ms})"


class ExpireDelegationTokenResponse(Struct, frozen=True):
    expiry_timestamp_ms: int


class ReplicaEnd(Struct, frozen=True):
    """How far a replica's log reaches: the epoch of its last batch (-1 for an empty log) and its end offset."""

    topic_id: UUID
    partition_id: int
    last_epoch: int
    log_end_offset: int


class ReportReplicas(Asks["ReportReplicasResponse"], frozen=True):
    """A restarted broker tells how far its replicas reach where a `recovered` election waits for it."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaEnd, ...]


class ReportReplicasResponse(Struct, frozen=True):
    pass


ClientChange: TypeAlias = (
    AlterClientQuotas
    | AlterConfigs
    | AlterPartitionReassignments
    | AlterUserScramCredentials
    | CreateAcls
    | CreateDelegationToken
    | CreatePartitions
    | CreateTopics
    | DeleteAcls
    | DeleteTopics
    | DrainBroker
    | ElectLeaders
    | ExpireDelegationToken
    | ForkTopic
    | RenewDelegationToken
    | UnregisterBroker
    | UpdateFeatures
)
"""What clients ask for, by way of any node: it reaches the controller in an envelope alone, which says who asks."""

NodeWish: TypeAlias = (
    AllocateProducerIds
    | AlterPartition
    | CreateInternalTopic
    | Heartbeat
    | RegisterBroker
    | RegisterController
    | ReportReplicas
)
"""What nodes ask for as nodes; no list of rights speaks of it."""

ControllerRequest: TypeAlias = NodeWish | Envelope[ClientChange]


def name_of(request: ControllerRequest) -> str:
    """Returns what is asked for, for people."""
    return type(request.change if isinstance(request, Envelope) else request).__name__


ControllerResponse: TypeAlias = (
    RegisterBrokerResponse
    | HeartbeatResponse
    | AlterPartitionResponse
    | CreateTopicsResponse
    | ForkTopicResponse
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
    | AlterClientQuotasResponse
    | RegisterControllerResponse
    | CreateAclsResponse
    | DeleteAclsResponse
    | AlterUserScramCredentialsResponse
    | CreateDelegationTokenResponse
    | RenewDelegationTokenResponse
    | ExpireDelegationTokenResponse
)


class Result(Struct, frozen=True):
    """What one request leads to.

    Attributes:
        records: The records of one change, all of it or nothing, in order; empty when nothing changes.
        response: The answer.
        wakes: The names of periodic tasks that should look soon at what has changed.
    """

    records: tuple[MetadataRecord, ...]
    response: ControllerResponse
    wakes: tuple[str, ...] = ()


class LongResult(Struct, frozen=True):
    """What one request leads to whose records take longer to be made than one step of the controller may.

    Attributes:
        records: The records of one change, all of it or nothing, in order; None for each thing that was looked at, and stays
            as it is.  Each is made of what it changes alone, so that those before it may have been replayed.
        finished: The function that returns the answer, given where the change ends.
        wakes: The names of periodic tasks that should look soon at what has changed.
    """

    records: Iterator[MetadataRecord | None]
    finished: Callable[[int], ControllerResponse]
    wakes: tuple[str, ...] = ()
