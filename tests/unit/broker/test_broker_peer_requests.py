"""Who may ask for what: a port for clients has no requests of nodes, and at the other one a node says which one it is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from msgspec.structs import replace
from node_kit import Running, config, node

from replog.access.principal import Envelope
from replog.broker.node.environment import peer_network
from replog.config.access_keys import AuthorizerClass
from replog.config.server_keys import InterBrokerTransport
from replog.controller import requests as controller
from replog.errors import (
    BrokerIdNotRegisteredError,
    ClusterAuthorizationError,
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRequestError,
    ReplogError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from replog.rpc.messages import FetchPartition, FetchRequest, Hello
from replog.rpc.node_messages import AddVoterRequest, DescribeNodeRequest, RemoveVoterRequest
from replog.rpc.transport import PeerConnection
from replog.testing import SimulatedFileSystem
from tests.envelopes import ADMIN, CLIENT, in_envelope
from tests.unit.rpc.node_certificates import NodeCertificates

STRANGER = 77
OTHER = UUID(int=77)
TIMEOUT_MS = 60_000


def of_brokers(broker_id: int, broker_epoch: int, incarnation_id: UUID) -> list[controller.NodeWish]:
    """Everything that only nodes ask for."""
    topic_id = UUID(int=7)
    change = controller.PartitionIsrChange(topic_id, 0, 0, 0, (controller.IsrMember(1, broker_epoch),))
    return [
        controller.RegisterBroker(broker_id, "c", incarnation_id, "127.0.0.1", 9, (UUID(int=4),)),
        controller.RegisterController(broker_id, "c", incarnation_id, "127.0.0.1", 9),
        controller.Heartbeat(broker_id, broker_epoch, 5, want_fence=True),
        controller.AlterPartition(broker_id, broker_epoch, (change,)),
        controller.ReportReplicas(broker_id, broker_epoch, ()),
        controller.AllocateProducerIds(broker_id, broker_epoch),
    ]


class Over(NamedTuple):
    """How nodes meet: over what, and with which certificates; None: in plain text."""

    kind: InterBrokerTransport
    files: NodeCertificates | None


class Meeting:
    """A node, and ways to the port where it meets others."""

    def __init__(self, it: Running, over: Over) -> None:
        self.it = it
        self.own = it.node.incarnation_id
        self.epoch = it.node.parts.replicas.lifecycle.broker_epoch
        self._over = over
        self._connections: list[PeerConnection] = []

    def way(self, hello: Hello | None = None) -> PeerConnection:
        files = self._over.files
        tls = None if files is None else files.tls(hello.node_id if hello is not None and hello.node_id > 0 else 2)
        transport = peer_network(self._over.kind, tls).transport
        connection = transport.connect(self.it.node.peer_address, purpose="test", hello=hello)
        self._connections.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def fetch(self, hello: Hello, replica_id: int, broker_epoch: int) -> None:
        """Fetches as a follower; raises what ends the stream."""
        topic_id = self.it.node.parts.replicas.publisher.image.topics_by_name["t"].topic_id
        stream = await self.way(hello).open_fetch(hello)
        partition = FetchPartition(topic_id, 0, 0)
        await stream.send(FetchRequest(1, TIMEOUT_MS, replica_id, broker_epoch, 0, 1, 1, (partition,)))
        try:
            await stream.receive()
        finally:
            await stream.close()


@pytest.fixture(params=[(kind, secure) for kind in InterBrokerTransport for secure in (False, True)])
def over(request: pytest.FixtureRequest, tmp_path: Path) -> Over:
    """How nodes meet: each over gRPC and TCP, in plain text and with certificates, which say the same as their hellos."""
    kind, is_secure = request.param
    return Over(kind, NodeCertificates(tmp_path / "certs") if is_secure else None)


@contextlib.asynccontextmanager
async def meeting(over: Over, **others: object) -> AsyncIterator[Meeting]:
    keys: dict[str, object] = {"inter.broker.transport": over.kind.value, **others}
    if over.files is not None:
        keys["security.inter.broker.protocol"] = "SSL"
        keys["listener.name.inter.broker.ssl.keystore.location"] = str(over.files.node(1))
        keys["listener.name.inter.broker.ssl.truststore.location"] = str(over.files.authority)
    async with node(SimulatedFileSystem(), config(**keys)) as it:
        await it.create("t")
        met = Meeting(it, over)
        try:
            yield met
        finally:
            await met.close()


async def test_the_port_for_clients_has_no_requests_of_nodes() -> None:
    """Who registered there as a broker took the real one out of its ISRs."""
    async with node(SimulatedFileSystem()) as it:
        epoch, image = it.node.parts.replicas.lifecycle.broker_epoch, it.node.parts.replicas.publisher.image
        for broker_id, incarnation_id in ((1, it.node.incarnation_id), (STRANGER, OTHER)):
            for request in of_brokers(broker_id, epoch, incarnation_id):
                with pytest.raises(InvalidRequestError, match=f"{type(request).__name__} is a request of nodes"):
                    await it.connection.call(request, timeout_ms=TIMEOUT_MS, cluster_id="c")
        assert it.node.parts.replicas.publisher.image.brokers == image.brokers


async def test_a_node_says_which_one_of_which_cluster_it_is(over: Over) -> None:
    async with meeting(over) as met:
        for hello, refusal in (
            (Hello("", 2, OTHER), InconsistentClusterIdError),
            (Hello("d", 2, OTHER), InconsistentClusterIdError),
            (Hello("c", -1, OTHER), InvalidRequestError),
            (Hello("c", 2, UUID(int=0)), InvalidRequestError),
        ):
            way = met.way(hello)
            for opened in (way.open_fetch, way.open_quorum, way.open_presence):
                with pytest.raises(refusal):
                    await opened(hello)
            with pytest.raises(refusal):
                await way.controller_call(
                    in_envelope(controller.DeleteTopics(("t",))), timeout_ms=TIMEOUT_MS, cluster_id="c"
                )


async def test_a_call_says_of_which_cluster_it_is(over: Over) -> None:
    async with meeting(over) as met:
        way = met.way()
        with pytest.raises(InconsistentClusterIdError, match="none that it names"):
            await way.call(DescribeNodeRequest(), timeout_ms=TIMEOUT_MS)
        await way.call(DescribeNodeRequest(), timeout_ms=TIMEOUT_MS, cluster_id="c")
        named = met.way(Hello("c", 1, met.own))
        with pytest.raises(InconsistentClusterIdError, match="none that it names"):
            await named.controller_call(in_envelope(controller.DeleteTopics(("t",))), timeout_ms=TIMEOUT_MS)


async def test_a_broker_speaks_for_itself_alone(over: Over) -> None:
    async with meeting(over) as met:
        stranger, second = met.way(Hello("c", STRANGER, OTHER)), met.way(Hello("c", 1, OTHER))
        for request in of_brokers(1, met.epoch, met.own):
            with pytest.raises(InvalidRequestError, match="node 77 speaks for node 1"):
                await stranger.controller_call(request, timeout_ms=TIMEOUT_MS, cluster_id="c")
            with pytest.raises(StaleBrokerEpochError, match=str(OTHER)):
                await second.controller_call(request, timeout_ms=TIMEOUT_MS, cluster_id="c")
        own = met.way(Hello("c", 1, met.own))
        block = controller.AllocateProducerIds(1, met.epoch)
        answer = await own.controller_call(block, timeout_ms=TIMEOUT_MS, cluster_id="c")
        assert isinstance(answer, controller.AllocateProducerIdsResponse)


async def test_a_change_that_a_node_passes_on_is_judged_by_its_client(over: Over) -> None:
    """Whatever that node has let through."""
    keys = {"authorizer.class.name": AuthorizerClass.STANDARD.value, "super.users": "User:admin;User:ANONYMOUS"}
    async with meeting(over, **keys) as met:
        way = met.way(Hello("c", 2, OTHER))
        asked: Any = Envelope(controller.DeleteTopics(("t",)), CLIENT)
        answer: Any = await way.controller_call(asked, timeout_ms=TIMEOUT_MS, cluster_id="c")
        assert [one.error for one in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        for change in (AddVoterRequest(9, UUID(int=9), "127.0.0.1:9"), RemoveVoterRequest(9)):
            vote: Any = Envelope(change, CLIENT)
            with pytest.raises(ClusterAuthorizationError, match="User:client"):
                await way.call(vote, timeout_ms=TIMEOUT_MS, cluster_id="c", forwarded=True)
            with pytest.raises(
                (InvalidRequestError, RequestTimedOutError)
            ):  # there is no such node, which is told later
                await way.call(replace(vote, client=ADMIN), timeout_ms=TIMEOUT_MS, cluster_id="c", forwarded=True)
        answer = await way.controller_call(replace(asked, client=ADMIN), timeout_ms=TIMEOUT_MS, cluster_id="c")
        assert [one.error for one in answer.topics] == [ErrorCode.NONE]


async def test_a_follower_fetches_as_the_process_that_is_registered(over: Over) -> None:
    """Positions of anybody else would count for what is committed."""
    async with meeting(over) as met:
        own, second, stranger = Hello("c", 1, met.own), Hello("c", 1, OTHER), Hello("c", STRANGER, OTHER)
        forged: list[tuple[Hello, int, int, type[ReplogError]]] = [
            (stranger, 1, met.epoch, InvalidRequestError),
            (stranger, -1, -1, InvalidRequestError),
            (stranger, STRANGER, met.epoch, BrokerIdNotRegisteredError),
            (second, 1, met.epoch, StaleBrokerEpochError),
            (second, 1, met.epoch + 1, BrokerIdNotRegisteredError),
            (second, 1, -1, BrokerIdNotRegisteredError),
        ]
        for hello, replica_id, broker_epoch, refusal in forged:
            with pytest.raises(refusal):
                await met.fetch(hello, replica_id, broker_epoch)
        await met.fetch(own, 1, met.epoch)
