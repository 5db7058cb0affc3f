"""The brokers, the features and the metadata quorum.

UnregisterBroker, UpdateFeatures, AddRaftVoter, RemoveRaftVoter, DescribeQuorum: any broker passes them on to the active
controller, one of Apache Kafka as one of replog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.metadata import broker_at
from replog.client.protocol.questions.answered import raise_if_refused
from replog.controller.requests import FeatureUpdate, UnregisterBroker, UpdateFeatures
from replog.controller.requests import UnregisterBrokerResponse as BrokerUnregistered
from replog.controller.requests import UpdateFeaturesResponse as FeaturesUpdated
from replog.errors import (
    ErrorCode,
    FeatureUpdateFailedError,
    InvalidRequestError,
    MalformedFrameError,
    UnsupportedVersionError,
    VoterNotFoundError,
)
from replog.rpc.metadata_messages import BrokerInfo
from replog.rpc.node_messages import (
    AddVoterRequest,
    AddVoterResponse,
    QuorumMember,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from replog.rpc.node_messages import DescribeQuorumRequest as MembersAsked
from replog.rpc.node_messages import DescribeQuorumResponse as MembersTold
from replog.waiting.asks import Asks
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from replog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

FENCED_FROM: Final = 2
"""The first version of DescribeCluster that tells of fenced brokers (KIP-1073)."""

METADATA_TOPIC: Final = "__cluster_metadata"

KRAFT_VERSION: Final = "kraft.version"
"""The feature of Kafka whose level 1 has the voters in the log (KIP-853)."""

UPGRADE, SAFE_DOWNGRADE = 1, 2
"""Types of updates (KIP-778): only upwards; downwards where nothing is lost by it."""

TYPES_FROM: Final = 1
"""The first version of UpdateFeatures that names the type of an update, and that can only judge one."""

NO_DIRECTORY: Final = UUID(int=0)

LISTENER: Final = "CONTROLLER"
"""The name of a voter's listener, where nobody tells another one."""

PORT_MAX: Final = 65_535

Told = DescribeQuorumResponse.PartitionData


class ClusterDetailsRequest(Asks["ClusterDetails"], frozen=True):
    """Asks a broker of Apache Kafka for what its metadata leave out, and ours tell."""


class DescribeFeatures(Asks["FeaturesDescribed"], frozen=True):
    """Asks for the features of the cluster."""


class FeatureRange(Struct, frozen=True):
    """One feature of a cluster.

    Attributes:
        level: The level that is in force; 0: none is.
        min_level: The lowest level that the asked broker knows.
        max_level: The highest one.
    """

    level: int
    min_level: int
    max_level: int


class FeaturesDescribed(Struct, frozen=True):
    """The features by their names; the epoch is that of the levels: a later one has a higher epoch."""

    features: Mapping[str, FeatureRange]
    epoch: int


class Move(Struct, frozen=True):
    """A partition that is being reassigned."""

    topic: str
    partition_id: int
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ClusterDetails(Struct, frozen=True):
    """What Kafka's metadata leave out.

    Attributes:
        fenced: The registered brokers that are fenced; brokers before 4.0 tell of none.
        controller_id: The active controller, which need not be a broker.
        moves: The partitions that are being reassigned.
    """

    fenced: tuple[BrokerInfo, ...]
    controller_id: int
    moves: tuple[Move, ...]


# ---- brokers and features --------------------------------------------------------------------------------------------


async def unregister_broker(broker: Broker, question: UnregisterBroker, timeout_ms: int) -> BrokerUnregistered:
    """Unregisters a broker that is gone for good."""
    request = UnregisterBrokerRequest(question.broker_id, timeout_ms)
    answer = await broker.ask(request, UnregisterBrokerResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    return BrokerUnregistered()


async def update_features(broker: Broker, question: UpdateFeatures, timeout_ms: int) -> FeaturesUpdated:
    """Finalizes feature levels: all or none.

    Raises:
        FeatureUpdateFailedError: The level is not known everywhere, or may not be lowered.
        UnsupportedVersionError: The update is to be judged only, and the broker would make it.
    """
    version = await broker.version(UpdateFeaturesRequest)
    if version < TYPES_FROM and question.validate_only:
        raise UnsupportedVersionError(
            f"{broker.address} serves version {version} of UpdateFeatures, which cannot only judge an update ({TYPES_FROM} can)"
        )
    finalized: Mapping[str, int] = {}
    if any(one.allow_downgrade for one in question.updates):
        finalized = await _finalized(broker, timeout_ms)
    updates = [_update(one, finalized.get(one.name, 0)) for one in question.updates]
    request = UpdateFeaturesRequest(timeout_ms, updates, question.validate_only)
    answer = await broker.ask(request, UpdateFeaturesResponse, timeout_ms=timeout_ms)
    for number, message in (
        (answer.error_code, answer.error_message),
        *((one.error_code, one.error_message) for one in answer.results),
    ):
        if number == ErrorCode.INVALID_UPDATE_VERSION:
            raise FeatureUpdateFailedError(message or "the feature cannot have this level")
        raise_if_refused(number, message)
    return FeaturesUpdated()


def _update(update: FeatureUpdate, now: int) -> UpdateFeaturesRequest.FeatureUpdateKey:
    """Returns an update as Kafka has it, which takes one for a downgrade only where the level gets lower."""
    is_downgrade = update.allow_downgrade and update.level < now
    return UpdateFeaturesRequest.FeatureUpdateKey(
        update.name, update.level, is_downgrade, SAFE_DOWNGRADE if is_downgrade else UPGRADE
    )


async def _finalized(broker: Broker, timeout_ms: int) -> Mapping[str, int]:
    """Returns the levels of the features."""
    answer = await _api_versions(broker, timeout_ms)
    return {one.name: one.max_version_level for one in answer.finalized_features}


async def _api_versions(broker: Broker, timeout_ms: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest("replog", "0")
    answer: ApiVersionsResponse = await broker.ask(request, ApiVersionsResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, None)
    return answer


async def describe_features(broker: Broker, _question: DescribeFeatures, timeout_ms: int) -> FeaturesDescribed:
    """Returns the features that are in force, or that the broker knows."""
    answer = await _api_versions(broker, timeout_ms)
    known = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return FeaturesDescribed(
        {name: FeatureRange(levels.get(name, 0), *known.get(name, (0, 0))) for name in sorted({**known, **levels})},
        answer.finalized_features_epoch,
    )


async def cluster_details(broker: Broker, _question: ClusterDetailsRequest, timeout_ms: int) -> ClusterDetails:
    """Returns what only the active controller, or a question of its own, tells: both are asked by way of any broker."""
    knows_fenced = await broker.version(DescribeClusterRequest) >= FENCED_FROM
    asked = DescribeClusterRequest(include_fenced_brokers=knows_fenced)
    answer = await broker.ask(asked, DescribeClusterResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    request = ListPartitionReassignmentsRequest(timeout_ms)
    moving = await broker.ask(request, ListPartitionReassignmentsResponse, timeout_ms=timeout_ms)
    raise_if_refused(moving.error_code, moving.error_message)
    _, quorum = await _quorum(broker, timeout_ms)
    return ClusterDetails(
        tuple(
            replace(broker_at(one.broker_id, one.host, one.port, one.rack), fenced=True)
            for one in answer.brokers
            if one.is_fenced
        ),
        quorum.leader_id,
        tuple(
            Move(topic.name, one.partition_index, tuple(one.adding_replicas), tuple(one.removing_replicas))
            for topic in moving.topics
            for one in topic.partitions
        ),
    )


# ---- the metadata quorum ---------------------------------------------------------------------------------------------


async def describe_quorum(broker: Broker, _question: MembersAsked, timeout_ms: int) -> MembersTold:
    """Returns leader, voters and observers, as far as Kafka tells: -1 for what it does not."""
    answer, quorum = await _quorum(broker, timeout_ms)
    features = await _finalized(broker, timeout_ms)
    listeners = {node.node_id: _listeners(node) for node in answer.nodes}
    replicas = [(one, True) for one in quorum.current_voters] + [(one, False) for one in quorum.observers]
    # the leader has just fetched from itself, so that the latest time is that of its clock
    now_ms = max((one.last_fetch_timestamp for one, _ in replicas), default=-1)
    return MembersTold(
        quorum.leader_id,
        quorum.leader_epoch,
        quorum.high_watermark,
        log_start_offset=-1,
        log_end_offset=next((one.log_end_offset for one, _ in replicas if one.replica_id == quorum.leader_id), -1),
        is_dynamic=features.get(KRAFT_VERSION, 0) > 0,
        members=tuple(
            QuorumMember(
                one.replica_id,
                None if one.replica_directory_id == NO_DIRECTORY else one.replica_directory_id,
                listeners.get(one.replica_id, ""),
                is_voter,
                one.log_end_offset,
                _age_ms(one.last_fetch_timestamp, now_ms),
                _age_ms(one.last_caught_up_timestamp, now_ms),
            )
            for one, is_voter in replicas
        ),
    )


async def _quorum(broker: Broker, timeout_ms: int) -> tuple[DescribeQuorumResponse, Told]:
    request = DescribeQuorumRequest(
        [DescribeQuorumRequest.TopicData(METADATA_TOPIC, [DescribeQuorumRequest.PartitionData(0)])]
    )
    answer = await broker.ask(request, DescribeQuorumResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    partitions = [one for topic in answer.topics for one in topic.partitions]
    if len(partitions) != 1:
        raise MalformedFrameError(
            f"{broker.address} tells of {len(partitions)} quorums instead of 1; ask another broker"
        )
    raise_if_refused(partitions[0].error_code, partitions[0].error_message)
    return answer, partitions[0]


def _listeners(node: DescribeQuorumResponse.Node) -> str:
    """Returns the first host:port of a voter; "" where there is none."""
    for one in node.listeners:
        return f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
    return ""


def _age_ms(timestamp_ms: int, now_ms: int) -> int:
    return -1 if timestamp_ms < 0 else max(0, now_ms - timestamp_ms)


async def add_voter(broker: Broker, question: AddVoterRequest, timeout_ms: int) -> AddVoterResponse:
    """Lets an observer vote; the name of its listener is that of the other voters, since Kafka looks for it by name."""
    host, port = _host_and_port(question.endpoint)
    answer, quorum = await _quorum(broker, timeout_ms)
    names = {node.node_id: one.name for node in answer.nodes for one in node.listeners[:1]}
    listener = AddRaftVoterRequest.Listener(names.get(quorum.leader_id, LISTENER), host, port)
    request = AddRaftVoterRequest(None, timeout_ms, question.voter_id, question.directory_id, [listener])
    added = await broker.ask(request, AddRaftVoterResponse, timeout_ms=timeout_ms)
    raise_if_refused(added.error_code, added.error_message)
    return AddVoterResponse()


def _host_and_port(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise InvalidRequestError(f'"{endpoint}" is no address of a voter: name host:port')
    return host.removeprefix("[").removesuffix("]"), int(port)


async def remove_voter(broker: Broker, question: RemoveVoterRequest, timeout_ms: int) -> RemoveVoterResponse:
    """Takes a vote away; without a directory, from the one that the voter has."""
    directory_id = question.directory_id
    if directory_id is None:
        _, quorum = await _quorum(broker, timeout_ms)
        voters = {one.replica_id: one.replica_directory_id for one in quorum.current_voters}
        directory_id = voters.get(question.voter_id, NO_DIRECTORY)
    request = RemoveRaftVoterRequest(None, question.voter_id, directory_id, timeout_ms)
    answer = await broker.ask(request, RemoveRaftVoterResponse, timeout_ms=timeout_ms)
    if directory_id == NO_DIRECTORY and answer.error_code == ErrorCode.INVALID_REQUEST:  # Kafka wants a directory
        raise VoterNotFoundError(
            f"the metadata quorum has no voter {question.voter_id} whose directory it knows; "
            "`replog quorum describe` shows the voters"
        )
    raise_if_refused(answer.error_code, answer.error_message)
    return RemoveVoterResponse()


QUESTIONS: Final[Mapping[type[Any], Question]] = {
    ClusterDetailsRequest: cluster_details,
    DescribeFeatures: describe_features,
    UnregisterBroker: unregister_broker,
    UpdateFeatures: update_features,
    MembersAsked: describe_quorum,
    AddVoterRequest: add_voter,
    RemoveVoterRequest: remove_voter,
}
"""By the class of the question."""
