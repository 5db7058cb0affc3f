"""The answers of a node to clients: to calls for the node and for the controller, and to their streams.

Handlers only check, hand over to a driver and wait; cores are stepped by their drivers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, assert_never

from msgspec import Struct

from replog._version import __version__
from replog.access.authorizer import Authorizer
from replog.access.principal import Envelope
from replog.access.token_key import TokenKey
from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.controller.channel import ControllerChannel
from replog.broker.controller.driver import ControllerDriver
from replog.broker.coordinator.coordinators import Coordinators
from replog.broker.process import descriptor_limit, open_descriptors, resident_bytes
from replog.broker.quorum.driver import QuorumDriver
from replog.broker.quorum.metadata_publisher import MetadataPublisher
from replog.broker.quorum.requests import QuorumRequests
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.requests.config_description import describe_configs, describe_node_configs
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.look_ups import LookUps
from replog.broker.requests.metadata_views import MetadataNews, watch_steps
from replog.broker.requests.producer_ids import ProducerIdAllocator
from replog.broker.requests.record_deletions import RecordDeletions
from replog.broker.requests.sessions import Fetches, Produces
from replog.broker.transactions.markers import MarkerWriter
from replog.broker.transactions.verifier import JoinVerifier
from replog.config.server import ServerConfig
from replog.controller.requests import (
    AlterClientQuotas,
    AlterClientQuotasResponse,
    AlterConfigs,
    AlterConfigsResponse,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    ClientChange,
    ControllerRequest,
    ControllerResponse,
    CreateAcls,
    CreateAclsResponse,
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    DrainBroker,
    DrainBrokerResponse,
    ElectLeaders,
    ElectLeadersResponse,
    ExpireDelegationToken,
    ExpireDelegationTokenResponse,
    ForkTopic,
    ForkTopicResponse,
    RenewDelegationToken,
    RenewDelegationTokenResponse,
    UnregisterBroker,
    UnregisterBrokerResponse,
    UpdateFeatures,
    UpdateFeaturesResponse,
)
from replog.errors import (
    BrokerNotAvailableError,
    InconsistentClusterIdError,
    InvalidRequestError,
    NotControllerError,
    UnsupportedVersionError,
)
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import (
    MAX_API_VERSION,
    MIN_API_VERSION,
    DeleteRecordsRequest,
    EpochEndsRequest,
    FindCutsRequest,
    Hello,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
)
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.node_messages import (
    AddVoterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeNodeConfigsRequest,
    DescribeNodeConfigsResponse,
    DescribeNodeRequest,
    DescribeNodeResponse,
    DescribeQuorumRequest,
    LocateSegmentsRequest,
    MoveReplicaRequest,
    MoveReplicaResponse,
    QuorumReplica,
    RemoveVoterRequest,
)
from replog.rpc.node_requests import NodeRequest, NodeResponse, VoterChange
from replog.rpc.transaction_messages import JoinTransactionRequest, WriteMarkersRequest
from replog.rpc.transport import RequestContext
from replog.waiting.byte_semaphore import ByteSemaphore

_log = logging.getLogger(__name__)

CONTROLLER_STATE = "running"
"""The state of a node that is a controller only: it answers, so it runs, and it has no broker with a state."""

ANSWER_TIME_MS = 250
"""For an answer's way back."""

_FORWARDED: Mapping[type[ClientChange], type[ControllerResponse]] = {
    AlterClientQuotas: AlterClientQuotasResponse,
    AlterConfigs: AlterConfigsResponse,
    AlterPartitionReassignments: AlterPartitionReassignmentsResponse,
    CreateAcls: CreateAclsResponse,
    AlterUserScramCredentials: AlterUserScramCredentialsResponse,
    CreateDelegationToken: CreateDelegationTokenResponse,
    CreatePartitions: CreatePartitionsResponse,
    CreateTopics: CreateTopicsResponse,
    DeleteAcls: DeleteAclsResponse,
    DeleteTopics: DeleteTopicsResponse,
    DrainBroker: DrainBrokerResponse,
    ElectLeaders: ElectLeadersResponse,
    ExpireDelegationToken: ExpireDelegationTokenResponse,
    ForkTopic: ForkTopicResponse,
    RenewDelegationToken: RenewDelegationTokenResponse,
    UnregisterBroker: UnregisterBrokerResponse,
    UpdateFeatures: UpdateFeaturesResponse,
}
"""The requests that any node passes on to the active controller for a client, and the answer that it expects to each."""


class HandlerParts(Struct, frozen=True):
    """The parts of a node that the handlers pass requests to.

    Attributes:
        hello: The hello of this node.
        address: The host:port that clients use.
        leader: The function that returns the quorum's leader and epoch, as this node knows them.
        controller: The controller of this node; None where it has none.
        produces: The path that takes produce requests.
        fetches: The path that takes fetch requests.
        look_ups: What answers questions about partitions.
        deletions: The deletions of records.
        credits: The byte credits of all produce streams together.
        coordinators: The coordinators of groups.
        transactions: The coordinators of transactions.
        markers: What writes the ends of transactions into partitions that this broker leads.
        joins: What asks coordinators whether partitions are part of transactions.
        authorizer: What decides who may do what.
        token_key: The key of delegation tokens; None: there are none.
    """

    config: ServerConfig
    hello: Hello
    address: str
    leader: Callable[[], tuple[int | None, int]]
    controller: ControllerDriver | None
    channel: ControllerChannel
    quorum: QuorumDriver
    quorum_requests: QuorumRequests
    manager: ReplicaManager
    lifecycle: BrokerLifecycle
    publisher: MetadataPublisher
    produces: Produces
    fetches: Fetches
    fetch_path: FetchPath
    look_ups: LookUps
    deletions: RecordDeletions
    producer_ids: ProducerIdAllocator
    credits: ByteSemaphore
    coordinators: Coordinators
    transactions: Coordinators
    markers: MarkerWriter
    joins: JoinVerifier
    authorizer: Authorizer
    token_key: TokenKey | None


class RequestHandlers:
    """Serves clients; see `replog.rpc.transport.ClientHandlers`, and `peer_handlers` for other nodes."""

    def __init__(self, parts: HandlerParts) -> None:
        self._parts = parts

    def check_hello(self, hello: Hello) -> Hello:
        self._check_cluster(hello.cluster_id)
        if hello.min_api_version > MAX_API_VERSION or hello.max_api_version < MIN_API_VERSION:
            raise UnsupportedVersionError(
                f"this node speaks API versions {MIN_API_VERSION} to {MAX_API_VERSION}, the other side "
                f"{hello.min_api_version} to {hello.max_api_version}. Upgrade the older of the two."
            )
        return self._parts.hello

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id and cluster_id != self._parts.hello.cluster_id:
            raise InconsistentClusterIdError(
                f"node {self._parts.config.node_id} at {self._parts.address} belongs to cluster {self._parts.hello.cluster_id}, "
                f"the caller to cluster {cluster_id}. Check the address."
            )

    async def handle_node_call(
        self,
        call: IncomingCall[NodeRequest],
        context: RequestContext,  # noqa: ARG002 -- for authorization
    ) -> NodeResponse:
        self._check_cluster(call.cluster_id)
        match call.request:
            case ListOffsetsRequest() | EpochEndsRequest() | FindCutsRequest() | LocateSegmentsRequest():
                return await self._parts.look_ups.answer(call.request)
            case DeleteRecordsRequest():
                timeout_ms = to_answer_in_time(call.timeout_ms or self._parts.config.request_timeout_ms)
                return await self._parts.deletions.delete(call.request, timeout_ms=timeout_ms)
            case InitProducerIdRequest():
                return await self._init_producer_id(call.timeout_ms)
            case DescribeNodeRequest():
                return await self._describe(call.request)
            case DescribeQuorumRequest() | Envelope():
                return await self._parts.quorum_requests.handle(
                    call.request, timeout_ms=to_answer_in_time(call.timeout_ms), forwarded=call.forwarded
                )
            case DescribeConfigsRequest():
                image, config = self._parts.publisher.image_or_raise(), self._parts.config
                asked = call.request
                return DescribeConfigsResponse(
                    describe_configs(image, config, asked.resource_type, asked.resource_name)
                )
            case DescribeNodeConfigsRequest():
                return await self._describe_node_configs(call.request, call)
            case MoveReplicaRequest() | DescribeLogDirsRequest():
                return await self._log_dirs(call.request)
            case WriteMarkersRequest() | JoinTransactionRequest():
                raise InvalidRequestError(
                    f"{type(call.request).__name__} is a request of nodes, which meet at inter.broker.listener: this port is for "
                    "clients"
                )
            case _ as unreachable:
                assert_never(unreachable)

    async def change(self, envelope: Envelope[ClientChange | VoterChange], timeout_ms: int) -> Any:
        """Returns the answer to a change that a client asks for, of whoever makes it for the cluster and decides whether it may be.

        Raises:
            ReplogError: It is refused, or was not answered in time.
        """
        timeout_ms = to_answer_in_time(timeout_ms)
        change = envelope.change
        if isinstance(change, AddVoterRequest | RemoveVoterRequest):
            asked = Envelope[VoterChange](change, envelope.client, envelope.api)
            return await self._parts.quorum_requests.handle(asked, timeout_ms=timeout_ms, forwarded=False)
        wish = Envelope[ClientChange](change, envelope.client, envelope.api)
        if self._controller_here() is not None:
            return await self.ask_own_controller(wish, timeout_ms)
        return await self._parts.channel.send(wish, _FORWARDED[type(change)], timeout_ms=timeout_ms)

    async def ask_own_controller(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """Returns the answer of the controller of this node.

        Raises:
            NotControllerError: It is not the active one.
        """
        controller = self._controller_here()
        if controller is None:
            raise NotControllerError(f"node {self._parts.config.node_id} is not the active controller")
        answer = await controller.submit(request, timeout_ms=timeout_ms)
        if isinstance(request, Envelope) and isinstance(request.change, CreateAcls | DeleteAcls):
            name = type(request.change).__name__
            _log.info("%s has changed access control lists: %s", request.client.principal, name)
        return answer

    def _controller_here(self) -> ControllerDriver | None:
        """Returns the controller of this node while it is the active one."""
        return self._parts.controller if self._parts.leader()[0] == self._parts.config.node_id else None

    async def wait_for_metadata(self, request: WaitForMetadata, wait_ms: int, listener: str) -> MetadataNews | None:
        """Returns the steps to the newest image as soon as the client does not know it; None after `wait_ms`.

        They tell the addresses of one listener.

        Raises:
            BrokerNotAvailableError: This node has not read the metadata since its start.
        """
        publisher = self._parts.publisher
        told = (request.controller_id, request.controller_epoch)
        try:
            async with asyncio.timeout(wait_ms / 1000), aclosing(publisher.changes()) as changes:
                async for _ in changes:
                    if publisher.image_or_raise().end_offset > request.known_offset or self.controller() != told:
                        break
        except TimeoutError:
            return None
        image, (controller_id, epoch) = publisher.image_or_raise(), self.controller()
        before = publisher.image_at(request.known_offset)
        if image.end_offset < request.known_offset:
            before = image  # the caller, told the offset, keeps what it knows
        steps = watch_steps(
            before,
            image,
            cluster_id=self._parts.hello.cluster_id,
            controller_id=controller_id,
            controller_epoch=epoch,
            listener=listener,
        )
        known_offset = -1 if before is None else before.end_offset
        return MetadataNews(known_offset, image.end_offset, controller_id, epoch, listener, steps)

    def controller(self) -> tuple[int, int]:
        """Returns the active controller's id, -1 for unknown, and its epoch.

        A broker without its lease does not know the controller: its metadata may be old.
        """
        leader_id, epoch = self._parts.leader()
        is_cut_off = self._parts.config.is_broker and self._parts.lifecycle.refuses_because() is not None
        return -1 if leader_id is None or is_cut_off else leader_id, epoch

    async def _init_producer_id(self, timeout_ms: int) -> InitProducerIdResponse:
        refused = self._parts.lifecycle.refuses_because()
        if refused is not None:
            raise BrokerNotAvailableError(refused)
        return await self._parts.producer_ids.allocate(timeout_ms or self._parts.config.request_timeout_ms)

    async def _describe_node_configs(
        self, request: DescribeNodeConfigsRequest, call: IncomingCall[NodeRequest]
    ) -> NodeResponse:
        config = self._parts.config
        if request.node_id is None or request.node_id == config.node_id:
            image = self._parts.publisher.image_or_raise()
            return DescribeNodeConfigsResponse(config.node_id, describe_node_configs(image, config))
        timeout_ms = to_answer_in_time(call.timeout_ms or config.request_timeout_ms)
        return await self._parts.quorum_requests.pass_on(
            request, request.node_id, timeout_ms=timeout_ms, forwarded=call.forwarded
        )

    async def _log_dirs(
        self, request: MoveReplicaRequest | DescribeLogDirsRequest
    ) -> MoveReplicaResponse | DescribeLogDirsResponse:
        self._parts.publisher.image_or_raise()  # it says which replicas are here
        manager = self._parts.manager
        if isinstance(request, DescribeLogDirsRequest):
            return DescribeLogDirsResponse(await manager.describe_log_dirs())
        await manager.moves.request(request.topic, request.partition_id, request.path)
        return MoveReplicaResponse()

    async def _describe(self, request: DescribeNodeRequest) -> DescribeNodeResponse:
        quorum = self._parts.quorum.status()
        manager = self._parts.manager
        names = None if request.partitions is None else {(one.topic, one.partition_id) for one in request.partitions}
        return DescribeNodeResponse(
            node_id=self._parts.config.node_id,
            incarnation_id=self._parts.hello.incarnation_id,
            state=self._parts.lifecycle.state.value if self._parts.config.is_broker else CONTROLLER_STATE,
            broker_epoch=self._parts.lifecycle.broker_epoch,
            quorum_role=quorum.role,
            quorum_epoch=quorum.epoch,
            quorum_leader_id=-1 if quorum.leader_id is None else quorum.leader_id,
            quorum_high_watermark=quorum.high_watermark,
            quorum_end_offset=self._parts.quorum.log.log_end_offset,
            quorum_replicas=tuple(
                QuorumReplica(node_id, end) for node_id, end in sorted(quorum.voter_end_offsets.items())
            ),
            replicas=await manager.statuses_in_steps(names),
            rss_bytes=resident_bytes(),
            version=__version__,
            wall_ms=manager.stepper.clock.wall_ms(),
            open_files=open_descriptors(),
            open_files_max=descriptor_limit(),
            late_transactions=await manager.late_transactions(),
        )


def to_answer_in_time(timeout_ms: int) -> int:
    """Returns how long to work on a call, so that its caller hears why it failed before giving up by itself."""
    return max(1, timeout_ms - min(timeout_ms // 10, ANSWER_TIME_MS))
