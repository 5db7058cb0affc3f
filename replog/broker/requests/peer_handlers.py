"""The answers of a node to other nodes, at `inter.broker.listener`.

`listeners` serves clients, and no request of a node: a client could register as a broker there, or fetch as a follower, in place
of the real one.  Here every stream begins with the hello of a node of this cluster, and each request that speaks for a
broker has to come from the process that the hello names:

| request | has to agree with the hello |
|---|---|
| of the quorum | node id (`replog_quorum.handlers`); a directory that is no voter's counts for nothing |
| registration of a broker or a controller | node id, incarnation |
| heartbeat, change of an ISR, report of replicas, block of producer ids | node id, and the incarnation that has the broker epoch |
| fetch of a follower | node id, and the incarnation that has the broker epoch |
| request of a client that another node passes on, a topic of coordinators | cluster id |
| markers of transactions, a question whether a partition is part of one | cluster id |

This does not prove the identity of the other end, which only certificates can.  It keeps out a node at the wrong address.
"""

from __future__ import annotations

from functools import partial
from typing import Final, assert_never

from replog.access.principal import Envelope
from replog.broker.requests.handlers import HandlerParts, RequestHandlers, to_answer_in_time
from replog.broker.requests.sessions import FetchSession
from replog.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    ControllerRequest,
    ControllerResponse,
    CreateInternalTopic,
    Heartbeat,
    RegisterBroker,
    RegisterController,
    ReportReplicas,
)
from replog.errors import (
    BrokerIdNotRegisteredError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StaleBrokerEpochError,
)
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import FetchRequest, FetchResponse, Hello
from replog.rpc.node_requests import NodeRequest, NodeResponse
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transaction_messages import JoinTransactionRequest, WriteMarkersRequest
from replog.rpc.transport import RequestContext, Stream

_EPOCH_MAX: Final = 32_767
"""The highest epoch of a producer: a batch has two bytes for it."""


class PeerRequestHandlers:
    """Serves other nodes; see `replog.rpc.transport.PeerHandlers`.

    Args:
        parts: The parts of the node that the handlers pass requests to.
        clients: The handlers of clients, whose requests other nodes pass on.
    """

    def __init__(self, parts: HandlerParts, clients: RequestHandlers) -> None:
        self._parts = parts
        self._clients = clients

    def check_caller(self, hello: Hello) -> Hello:
        return self._clients.check_hello(hello)

    def check_hello(self, hello: Hello) -> Hello:
        answer = self._clients.check_hello(hello)
        self._require_cluster(hello.cluster_id)
        if hello.node_id < 0 or not hello.incarnation_id.int:
            raise InvalidRequestError(
                f"node {self._parts.config.node_id} meets nodes here, and the caller does not say which one it is. Clients come "
                "to the address in listeners"
            )
        return answer

    async def handle_node_call(self, call: IncomingCall[NodeRequest], context: RequestContext) -> NodeResponse:
        self._require_cluster(call.cluster_id)
        timeout_ms = to_answer_in_time(call.timeout_ms or self._parts.config.request_timeout_ms)
        match call.request:
            case WriteMarkersRequest():
                _check_markers(call.request)
                return await self._parts.markers.write(call.request, timeout_ms)
            case JoinTransactionRequest():
                return await self._parts.joins.answer(call.request, timeout_ms)
            case _:
                return await self._clients.handle_node_call(call, context)

    async def handle_controller_call(
        self, call: IncomingCall[ControllerRequest], context: RequestContext
    ) -> ControllerResponse:
        self._require_cluster(call.cluster_id)
        if context.node is None:
            raise InvalidRequestError("calls to the controller come on a stream that begins with a node's hello")
        match call.request:
            case (
                RegisterBroker(broker_id=node_id, incarnation_id=incarnation_id)
                | RegisterController(controller_id=node_id, incarnation_id=incarnation_id)
            ):
                _check_node(context.node, node_id)
                if incarnation_id != context.node.incarnation_id:
                    raise StaleBrokerEpochError(
                        f"node {node_id} registers incarnation {incarnation_id} by a stream of {context.node.incarnation_id}"
                    )
            case (
                Heartbeat(broker_id=node_id, broker_epoch=broker_epoch)
                | AlterPartition(broker_id=node_id, broker_epoch=broker_epoch)
                | ReportReplicas(broker_id=node_id, broker_epoch=broker_epoch)
                | AllocateProducerIds(broker_id=node_id, broker_epoch=broker_epoch)
            ):
                _check_node(context.node, node_id)
                self._check_incarnation(context.node, broker_epoch)
            case Envelope() | CreateInternalTopic():
                pass
            case _ as unreachable:
                assert_never(unreachable)
        return await self._clients.ask_own_controller(call.request, to_answer_in_time(call.timeout_ms))

    async def handle_fetch_stream(
        self,
        hello: Hello,
        stream: Stream[FetchResponse, FetchRequest],
        context: RequestContext,  # noqa: ARG002 -- for quotas
    ) -> None:
        check = partial(self._check_follower, hello)
        await FetchSession(stream, self._parts.fetches, check).run()

    async def handle_quorum_stream(
        self,
        hello: Hello,
        stream: Stream[QuorumFrame, QuorumFrame],
        context: RequestContext,  # noqa: ARG002 -- for quotas
    ) -> None:
        await self._parts.quorum.handle_stream(hello, stream)

    def _require_cluster(self, cluster_id: str) -> None:
        own = self._parts.hello.cluster_id
        if cluster_id != own:
            raise InconsistentClusterIdError(
                f"node {self._parts.config.node_id} at {self._parts.address} belongs to cluster {own}, the caller to "
                f"{f'cluster {cluster_id}' if cluster_id else 'none that it names'}. Check the address."
            )

    def _check_follower(self, hello: Hello, request: FetchRequest) -> None:
        """Raises unless a fetch comes from the incarnation of a broker that this node knows, or from an earlier one.

        An earlier one is told so for each partition (`Leader.check_follower`).
        """
        _check_node(hello, request.replica_id)
        known = self._parts.publisher.image.brokers.get(hello.node_id)
        if known is None or not 0 <= request.broker_epoch <= known.broker_epoch:
            raise BrokerIdNotRegisteredError(
                f"broker {hello.node_id} fetches with broker epoch {request.broker_epoch}, of which node "
                f"{self._parts.config.node_id} does not know (yet); try again"
            )
        self._check_incarnation(hello, request.broker_epoch)

    def _check_incarnation(self, hello: Hello, broker_epoch: int) -> None:
        known = self._parts.publisher.image.brokers.get(hello.node_id)
        if known is None or known.broker_epoch != broker_epoch or known.incarnation_id == hello.incarnation_id:
            return
        raise StaleBrokerEpochError(
            f"broker epoch {broker_epoch} is that of incarnation {known.incarnation_id} of broker {hello.node_id}, and "
            f"incarnation {hello.incarnation_id} uses it"
        )


def _check_markers(request: WriteMarkersRequest) -> None:
    """Raises unless the numbers of all markers fit into a batch."""
    for each in request.markers:
        if not 0 <= each.producer_epoch <= _EPOCH_MAX or each.producer_id < 0:
            raise InvalidRequestError(f"no producer has the id {each.producer_id} and the epoch {each.producer_epoch}")


def _check_node(hello: Hello, node_id: int) -> None:
    if node_id != hello.node_id:
        raise InvalidRequestError(f"node {hello.node_id} speaks for node {node_id}")
