"""What no good node sends over gRPC: each is refused with an error that says what is wrong, and the broker goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import grpc
import pytest
from cluster_bad_input import GARBAGE, TOPIC, check_unharmed, fresh_records, mutate
from cluster_kit import Cluster

from replog.controller.requests import AlterConfigs, AlterConfigsResource, CreateTopics, DeleteTopics, NewTopic
from replog.errors import BrokerIdNotRegisteredError, ErrorCode, InconsistentClusterIdError, InvalidRequestError
from replog.metadata.records import ResourceType
from replog.rpc import calls, frames, quorum_codec
from replog.rpc.call_stream import CallItem, encode_items
from replog.rpc.grpc.transport import SERVICE, GrpcTransport
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    Hello,
)
from replog.rpc.node_messages import AddVoterRequest, DescribeNodeRequest, DescribeQuorumRequest
from replog.testing.history import History
from replog_quorum.messages import QuorumError, QuorumFetchResponse
from tests.envelopes import in_envelope

pytestmark = pytest.mark.cluster

STRANGER = 77
STREAMS = ("Fetch", "Quorum", "Controller")


@asynccontextmanager
async def channel_to(cluster: Cluster) -> AsyncIterator[Any]:
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(cluster.local.nodes[1].peer_address, options=options) as channel:
        yield channel


def node_hello(cluster: Cluster, cluster_id: str = "") -> Hello:
    """What a node says first that is none of the cluster's; `cluster_id`: another than the cluster's."""
    return Hello(cluster_id or cluster.local.cluster_id, STRANGER, UUID(int=STRANGER))


async def ask(channel: Any, method: str, data: bytes) -> bytes:
    answer: bytes = await channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=60)
    return answer


async def end_of_stream(channel: Any, method: str, *messages: bytes) -> tuple[grpc.StatusCode, str, ErrorCode | None]:
    """Sends raw messages; returns how the broker ended the stream: status, text, our error code."""
    call = channel.stream_stream(f"/{SERVICE}/{method}")()
    try:
        async with asyncio.timeout(60):
            for message in messages:
                await call.write(message)
            while await call.read() is not grpc.aio.EOF:
                pass
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    finally:
        if not call.done():
            call.cancel()
    code = dict(await call.trailing_metadata() or ()).get("replog-error-code")
    return await call.code(), await call.details(), None if code is None else ErrorCode(int(str(code)))


# ---- frames --------------------------------------------------------------------------------------------------------------


async def test_malformed_unary_calls(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    async with channel_to(cluster) as channel:
        for data in GARBAGE:
            with pytest.raises(InvalidRequestError):
                calls.decode_node_response(await ask(channel, "Call", data))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(channel, "NoSuchMethod", b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await check_unharmed(cluster, history)


@pytest.mark.parametrize("method", STREAMS)
async def test_malformed_stream_messages(cluster: Cluster, method: str) -> None:
    """In place of the hello, and after a good one."""
    history = History()
    await fresh_records(cluster, history)
    hello = node_hello(cluster)
    good = {
        "Fetch": frames.encode_fetch_request(hello),
        "Quorum": quorum_codec.encode_quorum_message(hello),
        "Controller": encode_items(hello),
    }[method]
    async with channel_to(cluster) as channel:
        for data in GARBAGE:
            for messages in ((data,), (good, data), (good, good)):
                status, details, code = await end_of_stream(channel, method, *messages)
                assert status is grpc.StatusCode.FAILED_PRECONDITION, (messages, status, details)
                assert code is ErrorCode.INVALID_REQUEST, (messages, code, details)
                assert details
    await check_unharmed(cluster, history)


async def test_first_message_is_not_hello(cluster: Cluster) -> None:
    history = History()
    topic_id = await fresh_records(cluster, history)
    request = FetchRequest(1, 100, -1, -1, 10, 1, 1000, (FetchPartition(topic_id, 0, 0),))
    async with channel_to(cluster) as channel:
        _, details, code = await end_of_stream(channel, "Fetch", frames.encode_fetch_request(request))
        assert code is ErrorCode.INVALID_REQUEST
        assert "must be hello" in details
    await check_unharmed(cluster, history)


async def test_a_follower_that_there_is_not(cluster: Cluster) -> None:
    history = History()
    topic_id = await fresh_records(cluster, history)
    connection = GrpcTransport().connect(cluster.local.nodes[1].peer_address, purpose="raw")
    position = FetchPartition(topic_id, 0, 0)
    for replica_id, refused in ((STRANGER, BrokerIdNotRegisteredError), (1, InvalidRequestError)):
        stream = await connection.open_fetch(node_hello(cluster))
        await stream.send(FetchRequest(1, -1, replica_id, 1 << 40, -1, -1, 1 << 30, (position,)))
        with pytest.raises(refused):
            await stream.receive()
    await connection.close()
    await check_unharmed(cluster, history)


async def test_a_response_where_a_request_belongs(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    hello = quorum_codec.encode_quorum_message(node_hello(cluster))
    response = QuorumFetchResponse(1, 1, QuorumError.NONE, 1, 1, 5, 0)
    async with channel_to(cluster) as channel:
        _, _, code = await end_of_stream(channel, "Quorum", hello, quorum_codec.encode_quorum_message(response))
    assert code is ErrorCode.INVALID_REQUEST
    await check_unharmed(cluster, history)


async def test_a_message_over_the_limit(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    async with channel_to(cluster) as channel:
        status, details, _ = await end_of_stream(
            channel, "Fetch", frames.encode_fetch_request(node_hello(cluster)), bytes(65 << 20)
        )
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED, details
    await check_unharmed(cluster, history)


async def test_mutated_messages(cluster: Cluster) -> None:
    """Good messages with bytes changed, cut and doubled: refused or answered, never a bug."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    rng = random.Random(11)
    node = await cluster.admin.describe_node(1)
    hello = Hello(cluster.local.cluster_id, 1, node.incarnation_id)
    fetch = FetchRequest(1, 100, 1, node.broker_epoch, 10, 1, 1000, (FetchPartition(topic_id, 0, 0),))
    create = CreateTopics((NewTopic("t", 1, 1),), validate_only=True)
    configs = AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "missing", ()),))
    asked = [
        calls.encode_node_request(in_envelope(one), cluster_id=cluster.local.cluster_id, timeout_ms=100)
        for one in (
            DescribeNodeRequest(),
            DescribeQuorumRequest(),
            AddVoterRequest(STRANGER, UUID(int=9), "127.0.0.1:9"),
        )
    ]
    wishes = (create, configs, DeleteTopics(("missing",)))
    bodies = [
        calls.encode_controller_request(in_envelope(wish), cluster_id=cluster.local.cluster_id, timeout_ms=100)
        for wish in wishes
    ]
    items = encode_items(tuple(CallItem(number, body) for number, body in enumerate(bodies)))
    async with channel_to(cluster) as channel:
        for _ in range(60):
            await ask(channel, "Call", mutate(rng, rng.choice(asked)))
            greeting, message = frames.encode_fetch_request(hello), frames.encode_fetch_request(fetch)
            await send_and_hang_up(channel, "Fetch", greeting, mutate(rng, message))
            await send_and_hang_up(channel, "Controller", encode_items(hello), mutate(rng, items))
            item = CallItem(1, mutate(rng, rng.choice(bodies)))
            await send_and_hang_up(channel, "Controller", encode_items(hello), encode_items((item,)))
    await check_unharmed(cluster, history)


async def send_and_hang_up(channel: Any, method: str, *messages: bytes) -> None:
    """Reads one answer to each message, if one comes soon, and ends the stream."""
    call = channel.stream_stream(f"/{SERVICE}/{method}")()
    try:
        for message in messages:
            await call.write(message)
            async with asyncio.timeout(0.1):
                await call.read()
    except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    finally:
        call.cancel()


async def test_wrong_cluster_id(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    connection = GrpcTransport().connect(cluster.local.nodes[1].peer_address, purpose="raw")
    hello = node_hello(cluster, "another-cluster")
    try:
        for opened in (connection.open_fetch, connection.open_quorum):
            with pytest.raises(InconsistentClusterIdError) as raised:
                await opened(hello)
            for word in (cluster.local.cluster_id, "another-cluster", "Check the address"):
                assert word in str(raised.value)
        with pytest.raises(InconsistentClusterIdError):
            await connection.controller_call(
                in_envelope(DeleteTopics((TOPIC,))), timeout_ms=20_000, cluster_id="another-cluster"
            )
    finally:
        await connection.close()
    await check_unharmed(cluster, history)
