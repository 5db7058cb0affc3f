"""No request ends a node: each is answered or refused, and afterwards the same node serves, in the same epoch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hostile_requests import hostile
from node_kit import Running, config

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.controller import requests as controller
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint, ElectionType, ResourceType
from replog.pb.v1 import controller_pb2, data_pb2
from replog.rpc import calls
from replog.rpc.grpc.transport import GrpcConnection
from replog.rpc.metadata_messages import TopicInfo
from replog.rpc.node_messages import (
    AddVoterRequest,
    DescribeNodeConfigsRequest,
    DescribeNodeRequest,
    DescribeQuorumRequest,
    RemoveVoterRequest,
)
from replog.rpc.node_requests import NodeRequest, VoterChange
from replog.rpc.transaction_messages import JoinTransactionRequest, Marker, NamedPartitions, WriteMarkersRequest
from replog.testing import SimulatedFileSystem
from tests.envelopes import in_envelope

pytestmark = pytest.mark.exhaustive

TIMEOUT_MS = 2_000
STRANGER = 77
INCARNATION = UUID(int=3)
ENDPOINT = BrokerEndpoint(CLIENT_LISTENER, "127.0.0.1", 19)
Ask = Callable[[], Awaitable[object]]
HOSTILE_ADDRESSES = (
    ("", 1), ("127.0.0.1", 1), ("127.0.0.1", 0), ("127.0.0.1", 2**32 - 1), ("a b", 1), ("\0", 1), ("[", 1), ("unix:/x", 1),
    ("dns:///x", 1), ("h" * 4_000, 1), ("\N{SNOWMAN}", 1), ("no.such.host.invalid", 1), ("127.0.0.1:5", 1), ("%zz", 1), ("http://x", 1),
)  # fmt: skip


def controller_templates(topic: TopicInfo, broker_epoch: int) -> list[controller.NodeWish | controller.ClientChange]:
    """One good request of each kind; of some, one more that is refused late."""
    replica = controller.OfflineReplica(UUID(int=7), 0)
    register = controller.RegisterBroker(
        STRANGER, "c", INCARNATION, "127.0.0.1", 9, (UUID(int=4),), "rack", -1, SUPPORTED_FEATURES, 1, (ENDPOINT,)
    )
    change = controller.PartitionIsrChange(topic.topic_id, 0, 0, 0, (controller.IsrMember(1, broker_epoch),))
    partition = controller.NamedPartition("t", 0)
    configs = (controller.AlterableConfig("retention.ms", controller.ConfigOperation.SET, "5"),)
    return [
        register,
        controller.Heartbeat(1, broker_epoch, 5, offline_replicas=(replica,), endpoints=(ENDPOINT,)),
        controller.AlterPartition(1, broker_epoch, (change,)),
        controller.CreateTopics(
            (controller.NewTopic("new", 1, 1, configs=(controller.ConfigEntry("retention.ms", "5"),)),),
            validate_only=True,
        ),
        controller.CreateTopics((controller.NewTopic("placed", assignments=((1,),)),), validate_only=True),
        controller.CreatePartitions((controller.NewPartitions("t", 2, ((1,),)),), validate_only=True),
        controller.DeleteTopics(("missing",)),
        controller.AlterConfigs((controller.AlterConfigsResource(ResourceType.TOPIC, "t", configs),)),
        controller.AlterConfigs((controller.AlterConfigsResource(ResourceType.BROKER, "1", configs),)),
        controller.AllocateProducerIds(1, broker_epoch),
        controller.ReportReplicas(1, broker_epoch, (controller.ReplicaEnd(topic.topic_id, 0, 0, 1),)),
        controller.ElectLeaders(ElectionType.PREFERRED, (partition,)),
        controller.AlterPartitionReassignments((controller.Reassignment("t", 0, (1,)),)),
        controller.UnregisterBroker(STRANGER),
        controller.DrainBroker(STRANGER, drained=True),
        controller.UpdateFeatures((controller.FeatureUpdate("metadata.version", 3),), validate_only=True),
        controller.RegisterController(STRANGER, "c", INCARNATION, "127.0.0.1", 9, SUPPORTED_FEATURES),
    ]


def node_templates() -> list[NodeRequest | VoterChange]:
    return [
        DescribeNodeRequest((controller.NamedPartition("t", 0),)),
        DescribeQuorumRequest(),
        AddVoterRequest(STRANGER, UUID(int=9), "127.0.0.1:9"),
        RemoveVoterRequest(STRANGER, UUID(int=9)),
        DescribeNodeConfigsRequest(),
        WriteMarkersRequest((Marker(7, 0, 0, True, False, (NamedPartitions("t", (0,)),)),)),  # noqa: FBT003 -- a record
        JoinTransactionRequest("mine", 7, 0, False, (NamedPartitions("t", (0,)),)),  # noqa: FBT003 -- a record
    ]


def controller_requests(it: Running, topic: TopicInfo) -> Iterator[tuple[str, Ask]]:
    """By streams of the node that each speaks for: as the real one, or as one that is not there."""
    broker_epoch = it.node.parts.replicas.lifecycle.broker_epoch
    own, other = it.peer(1, it.node.incarnation_id), it.peer(STRANGER, INCARNATION)
    for number, template in enumerate(controller_templates(topic, broker_epoch)):
        body = calls.encode_controller_request(in_envelope(template), cluster_id="c", timeout_ms=TIMEOUT_MS)
        is_other = isinstance(template, controller.RegisterBroker | controller.RegisterController)
        connection = other if is_other else own
        for what, changed in hostile(controller_pb2.ControllerRequest.FromString(body), with_call=number == 0):
            yield what, partial(ask_controller, connection, changed)


async def ask_controller(connection: GrpcConnection, body: bytes) -> object:
    return calls.decode_controller_response(await connection._carry_controller_call(body, 60_000))


def node_requests(it: Running) -> Iterator[tuple[str, Ask]]:
    peer = it.peer(1, it.node.incarnation_id)
    for number, template in enumerate(node_templates()):
        body = calls.encode_node_request(in_envelope(template), cluster_id="c", timeout_ms=TIMEOUT_MS)
        for what, changed in hostile(data_pb2.NodeRequest.FromString(body), with_call=number == 0):
            yield what, partial(ask_node, peer, changed)


async def ask_node(connection: GrpcConnection, body: bytes) -> object:
    return calls.decode_node_response(await connection._carry_call(body, 60_000))


@contextlib.asynccontextmanager
async def unhurried_node() -> AsyncIterator[Running]:
    """One node that has topic "t" with a record, over the real transport."""
    started = await Node.start(config(), environment=NodeEnvironment(fs=SimulatedFileSystem()))
    it = Running(started)
    try:
        await started.wait_until_ready()
        await it.produce(await it.create("t"))
        yield it
    finally:
        await it.close()
        await started.stop()


async def leading(it: Running) -> TopicInfo:
    """Topic "t", once the broker leads it: some requests are lies about the broker, until its next heartbeat."""
    async with asyncio.timeout(30):
        lifecycle = it.node.parts.replicas.lifecycle
        while (topic := await it.topic("t")).partitions[0].leader != 1 or lifecycle.refuses_because():
            await asyncio.sleep(0.01)
    return topic


def is_ours(error: ReplogError) -> bool:
    """A refusal that names its kind, in a text that a person can read."""
    return error.code is not ErrorCode.UNKNOWN_SERVER_ERROR and len(str(error)) < 20_000


async def ask_all(it: Running, requests: Iterator[tuple[str, Ask]]) -> int:
    """Every request is answered, or refused by a class of ours, by a node that goes on as before."""
    count = 0
    for what, ask in requests:
        count += 1
        refused: ReplogError | None = None
        try:
            await ask()
        except ReplogError as error:
            refused = error
        assert refused is None or is_ours(refused), (what, str(refused)[:500])
        assert it.node._failure is None, what
        assert it.node.parts.metadata.quorum.status().epoch == 1, what
    return count


async def check_serves(it: Running, topic: TopicInfo) -> None:
    """The broker is unfenced, the controller is the one that it was, topics are made, records written and read."""
    assert (await it.produce(topic)).error is ErrorCode.NONE
    fresh = await it.create("after-all")
    first = await it.produce(fresh)
    assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
    assert await it.fetch(fresh) > 0
    assert it.node.parts.metadata.quorum.status().epoch == 1


async def test_no_controller_request_ends_a_node() -> None:
    async with unhurried_node() as it:
        topic = await it.topic("t")
        assert await ask_all(it, controller_requests(it, topic)) > 550
        await check_serves(it, await leading(it))


async def test_no_request_to_a_node_ends_it() -> None:
    async with unhurried_node() as it:
        topic = await it.topic("t")
        assert await ask_all(it, node_requests(it)) > 30
        await check_serves(it, topic)


async def test_a_broker_that_says_nonsense_about_itself_ends_no_controller() -> None:
    """Each is registered, unfenced, and looked after by the controller, if its registration is accepted at all."""
    accepted = 0
    async with unhurried_node() as it:
        for number, (host, port) in enumerate(HOSTILE_ADDRESSES):
            ids = (UUID(int=100 + number),)
            register = controller.RegisterBroker(
                STRANGER + number, "c", UUID(int=number + 1), host, port, ids, supported_features=SUPPORTED_FEATURES
            )
            broker = it.peer(register.broker_id, register.incarnation_id)
            try:
                answer = await broker.controller_call(register, timeout_ms=TIMEOUT_MS, cluster_id="c")
            except InvalidRequestError:
                continue
            assert isinstance(answer, controller.RegisterBrokerResponse)
            beat = controller.Heartbeat(STRANGER + number, answer.broker_epoch, 2**62)
            await broker.controller_call(beat, timeout_ms=TIMEOUT_MS, cluster_id="c")
            accepted += 1
        assert accepted >= 8
        assert (await it.produce(await leading(it))).error is ErrorCode.NONE
        assert it.node.parts.metadata.quorum.status().epoch == 1
        assert it.node._failure is None


async def test_a_change_that_the_metadata_log_refuses_is_an_answer_to_that_request() -> None:
    """It was replayed already: the state goes back, and the term goes on."""
    async with unhurried_node() as it:
        it.node.parts.metadata.quorum._appends._accumulator._max_batch_bytes = 500  # type: ignore[union-attr]
        for _ in range(2):
            answer: Any = await it.connection.call(
                controller.CreateTopics((controller.NewTopic("large", 100, 1),)), timeout_ms=TIMEOUT_MS
            )
            (refused,) = answer.topics
            assert refused.error is ErrorCode.POLICY_VIOLATION
            assert "too large for the metadata log" in refused.message
        assert it.node._failure is None
        large = await it.create("large")
        assert len(large.partitions) == 1
        await check_serves(it, await leading(it))
