"""Questions and wishes about the metadata quorum, from people: answered by its leader, passed on by everybody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from replog.access.entries import ResourceKind
from replog.access.principal import ClientIdentity, Envelope
from replog.access.rights import Rights
from replog.broker.clock import Clock
from replog.broker.quorum.driver import QuorumDriver
from replog.controller.rights import ALTERS_CLUSTER
from replog.errors import InvalidRequestError, NotControllerError
from replog.rpc.node_messages import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeNodeConfigsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumMember,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from replog.rpc.node_requests import NodeRequest, NodeResponse, VoterChange
from replog.rpc.transport import ConnectionLostError, PeerConnection, PeerTransport
from replog_quorum import AddVoter, QuorumReplicaStatus, QuorumStatus, RemoveVoter, Voter

QuorumRequest: TypeAlias = DescribeQuorumRequest | Envelope[VoterChange]


PASSED_ON_MAX: Final = 32
"""How many requests may be on their way to one node; while a leader is dead, each client asks again and again."""


class _Shared(Struct):
    """A connection, and how many requests are on it."""

    connection: PeerConnection
    users: int = 0


class QuorumRequests:
    """Answers on one node.

    Invariants:
        - the requests that are passed on to one address share one connection, which is closed with the last one.

    Args:
        node_id: The id of this node.
        cluster_id: The id of the cluster.
        quorum: The part of this node in the quorum.
        transport: The way to the leader.
        clock: The clock of the node.
        rights: The function that returns what a client may do by an API, as the active controller of this node knows it; it raises
            NotControllerError where there is none.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        quorum: QuorumDriver,
        transport: PeerTransport,
        clock: Clock,
        rights: Callable[[ClientIdentity, str], Rights],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._transport = transport
        self._clock = clock
        self._rights = rights
        self._shared: dict[tuple[str, int], _Shared] = {}

    async def handle(self, request: QuorumRequest, *, timeout_ms: int, forwarded: bool) -> NodeResponse:
        """Returns the leader's answer; where another node leads, the request is passed on to it.

        With `forwarded` another node has passed the request on, and it is not passed on again.

        Raises:
            NotControllerError: No leader is known, it has just changed, it cannot be reached, or `PASSED_ON_MAX` requests are on
                their way to it; the same may be asked again, also by Kafka's clients.
            ReplogError: The change was refused; the message says what is next.
        """
        leader_id = self._quorum.status().leader_id
        if leader_id == self._node_id:
            return await self._answer(request)
        address = None if leader_id is None else self._quorum.address_of(leader_id)
        if leader_id is None or address is None or forwarded:
            because = f": {self._quorum.lost_vote}" if self._quorum.lost_vote else "; try again"
            raise NotControllerError(f"node {self._node_id} knows no leader of the metadata quorum{because}")
        try:
            return await self._ask(address, leader_id, request, timeout_ms)
        except ConnectionLostError as error:  # another one may lead soon
            raise NotControllerError(
                f"node {self._node_id} does not reach node {leader_id}, the last leader of the metadata quorum that it knows;"
                f" try again: {error}"
            ) from error

    async def pass_on(
        self, request: DescribeNodeConfigsRequest, node_id: int, *, timeout_ms: int, forwarded: bool
    ) -> NodeResponse:
        """Returns the answer of a voter, to which clients need not know the way.

        Raises:
            InvalidRequestError: No such voter is known.
            NotControllerError: `PASSED_ON_MAX` requests are on their way to it; the same may be asked again.
            ConnectionLostError: It cannot be reached.
        """
        address = None if forwarded else self._quorum.address_of(node_id)
        if address is None:
            raise InvalidRequestError(f"node {self._node_id} knows no voter {node_id} of the metadata quorum")
        return await self._ask(address, node_id, request, timeout_ms)

    async def _ask(self, address: str, node_id: int, request: NodeRequest, timeout_ms: int) -> NodeResponse:
        async with self._connected(address, node_id) as connection:
            return await connection.call(request, timeout_ms=timeout_ms, cluster_id=self._cluster_id, forwarded=True)

    @asynccontextmanager
    async def _connected(self, address: str, node_id: int) -> AsyncIterator[PeerConnection]:
        """Lends the one connection to a node at an address, to `PASSED_ON_MAX` requests at once.

        Raises:
            NotControllerError: There are so many.
        """
        key = address, node_id
        shared = self._shared.get(key)
        if shared is None:
            connection = self._transport.connect(address, purpose="quorum-admin", node_id=node_id)
            shared = self._shared[key] = _Shared(connection)
        elif shared.users >= PASSED_ON_MAX:
            raise NotControllerError(
                f"node {self._node_id} passes on {PASSED_ON_MAX} requests to {address} already; try again"
            )
        shared.users += 1
        try:
            yield shared.connection
        finally:
            shared.users -= 1
            if not shared.users:
                del self._shared[key]
                await shared.connection.close()

    async def _answer(self, request: QuorumRequest) -> NodeResponse:
        if isinstance(request, DescribeQuorumRequest):
            return self._describe()
        change = request.change
        match change:
            case AddVoterRequest():
                self._rights(request.client, "AddRaftVoter").require(ALTERS_CLUSTER.operation, ResourceKind.CLUSTER)
                voter = Voter(change.voter_id, change.directory_id, change.endpoint)
                await self._quorum.change_voters(AddVoter(voter))
                return AddVoterResponse()
            case RemoveVoterRequest():
                self._rights(request.client, "RemoveRaftVoter").require(ALTERS_CLUSTER.operation, ResourceKind.CLUSTER)
                await self._quorum.change_voters(RemoveVoter(change.voter_id, change.directory_id))
                return RemoveVoterResponse()
            case _ as unreachable:
                assert_never(unreachable)

    def _describe(self) -> DescribeQuorumResponse:
        status, times, log = self._quorum.status(), self._quorum.times, self._quorum.log
        return DescribeQuorumResponse(
            leader_id=self._node_id,
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            is_dynamic=not status.voter_set.is_static,
            members=_members(status, self._node_id, self._clock.now_ms()),
            election_ms=_or_unknown(times.election_ms),
            commit_ms_p50=_or_unknown(times.commit_ms(0.5)),
            commit_ms_p99=_or_unknown(times.commit_ms(0.99)),
        )


def _members(status: QuorumStatus, leader_id: int, now_ms: int) -> tuple[QuorumMember, ...]:
    """Lists voters by id, also one that was never heard, then observers by id."""
    heard = {replica.replica_id: replica for replica in status.replicas if replica.is_voter}
    voters = [_voter(voter, heard.get(voter.voter_id), leader_id, now_ms) for voter in status.voter_set]
    observers = sorted((r for r in status.replicas if not r.is_voter), key=lambda r: (r.replica_id, r.directory_id))
    return (*voters, *(_member(replica, "", leader_id, now_ms) for replica in observers))


def _voter(voter: Voter, replica: QuorumReplicaStatus | None, leader_id: int, now_ms: int) -> QuorumMember:
    if replica is None:
        return QuorumMember(voter.voter_id, voter.directory_id, voter.endpoint, True, -1, -1, -1)  # noqa: FBT003 -- a record
    return _member(replica, voter.endpoint, leader_id, now_ms)


def _member(replica: QuorumReplicaStatus, endpoint: str, leader_id: int, now_ms: int) -> QuorumMember:
    is_leader = replica.replica_id == leader_id

    def age(then_ms: int | None) -> int:
        if is_leader:
            return 0
        return -1 if then_ms is None else max(0, now_ms - then_ms)

    return QuorumMember(
        node_id=replica.replica_id,
        directory_id=replica.directory_id,
        endpoint=endpoint,
        is_voter=replica.is_voter,
        log_end_offset=replica.end_offset,
        last_fetch_age_ms=age(replica.last_fetch_ms),
        last_caught_up_age_ms=age(replica.last_caught_up_ms),
    )


def _or_unknown(value_ms: int | None) -> int:
    return -1 if value_ms is None else value_ms
