"""What no good client sends: each is refused with an error that says what is wrong, and the broker goes on."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import grpc
import pytest
from cluster_kit import Cluster, StartCluster, read_to_the_end, say
from cluster_raw import T0_MS, RawClient

from replog.client import Admin, Consumer, Producer
from replog.controller.messages import AlterConfigs, AlterConfigsResource, CreateTopics, DeleteTopics, NewTopic
from replog.errors import (
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRequestError,
    MalformedFrameError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.records import ResourceType
from replog.records import encode_batch
from replog.rpc import calls, frames, quorum_codec, watch_codec
from replog.rpc.controller_stream import ControllerItem, encode_items
from replog.rpc.grpc_transport import SERVICE, GrpcTransport, client_hello
from replog.rpc.messages import (
    ACKS_ALL,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ProducePartition,
    ProduceRequest,
)
from replog.rpc.metadata_messages import MetadataRequest, WatchRequest
from replog.testing.history import History
from replog_quorum.messages import QuorumError, QuorumFetchResponse

pytestmark = pytest.mark.cluster

TOPIC = "flights"
STREAMS = ("Produce", "Fetch", "Quorum", "Controller")
GARBAGE = [
    b"",
    b"\x00",
    b"\xff" * 40,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x0a\xff\xff\xff\xff\x7f",  # a field of 34 GB
    b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # a length that does not end
    b"\x0a\x02\x08\x01\x7a\x05abc",  # a payload that is cut
]


async def node_with_records(start_cluster: StartCluster, history: History) -> tuple[Cluster, UUID]:
    cluster = await start_cluster(1)
    info = await cluster.admin.create_topic(TOPIC, 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            send = history.send("p", b"%d" % number)
            place = await (await producer.send(TOPIC, send.value))
            send.acknowledged((place.topic, place.partition), place.offset)
    return cluster, info.topic_id


async def check_unharmed(cluster: Cluster, history: History) -> None:
    """The same process serves, everything is still there, and nothing in its log looks like a bug."""
    assert cluster.local.nodes[1].is_alive
    async with Producer(cluster.bootstrap_servers) as producer:
        send = history.send("p", b"after all")
        place = await (await producer.send(TOPIC, send.value))
        send.acknowledged((place.topic, place.partition), place.offset)
    await read_to_the_end(cluster, TOPIC, history)
    history.check_or_raise()
    log = cluster.log_text(1)
    for sign in ("Traceback", "CRITICAL", "ERROR", "bug of ours"):
        assert sign not in log


@asynccontextmanager
async def channel_to(cluster: Cluster) -> AsyncIterator[Any]:
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(cluster.address(1), options=options) as channel:
        yield channel


async def ask(channel: Any, method: str, data: bytes) -> bytes:
    answer: bytes = await channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=20)
    return answer


async def end_of_stream(channel: Any, method: str, *messages: bytes) -> tuple[grpc.StatusCode, str, ErrorCode | None]:
    """Sends raw messages; returns how the broker ended the stream: status, text, our error code."""
    call = channel.stream_stream(f"/{SERVICE}/{method}")()
    try:
        async with asyncio.timeout(20):
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


async def test_malformed_unary_calls(start_cluster: StartCluster) -> None:
    history = History()
    cluster, _ = await node_with_records(start_cluster, history)
    async with channel_to(cluster) as channel:
        for data in GARBAGE:
            with pytest.raises(InvalidRequestError):
                calls.decode_client_response(await ask(channel, "Call", data))
        for data in GARBAGE[2:]:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await anext(aiter(channel.unary_stream(f"/{SERVICE}/WatchMetadata")(data, timeout=20)))
            assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(channel, "NoSuchMethod", b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await check_unharmed(cluster, history)


@pytest.mark.parametrize("method", STREAMS)
async def test_malformed_stream_messages(start_cluster: StartCluster, method: str) -> None:
    """In place of the hello, and after a good one."""
    history = History()
    cluster, _ = await node_with_records(start_cluster, history)
    hello = client_hello(cluster.local.cluster_id, "raw")
    good = {
        "Produce": frames.encode_produce_request(hello),
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


async def test_first_message_is_not_hello(start_cluster: StartCluster) -> None:
    history = History()
    cluster, topic_id = await node_with_records(start_cluster, history)
    batch = encode_batch([(T0_MS, None, b"v", ())])
    request = ProduceRequest(1, 1_000, ACKS_ALL, (ProducePartition(topic_id, 0),), (batch,))
    async with channel_to(cluster) as channel:
        _, details, code = await end_of_stream(channel, "Produce", frames.encode_produce_request(request))
        assert code is ErrorCode.INVALID_REQUEST
        assert "must be hello" in details
    await check_unharmed(cluster, history)


async def test_a_response_where_a_request_belongs(start_cluster: StartCluster) -> None:
    history = History()
    cluster, _ = await node_with_records(start_cluster, history)
    hello = quorum_codec.encode_quorum_message(client_hello(cluster.local.cluster_id, "raw"))
    response = QuorumFetchResponse(1, 1, QuorumError.NONE, 1, 1, 5, 0)
    async with channel_to(cluster) as channel:
        _, _, code = await end_of_stream(channel, "Quorum", hello, quorum_codec.encode_quorum_message(response))
    assert code is ErrorCode.INVALID_REQUEST
    await check_unharmed(cluster, history)


async def test_mutated_messages(start_cluster: StartCluster) -> None:
    """Good messages with bytes changed, cut and doubled: refused or answered, never a bug."""
    history = History()
    cluster, topic_id = await node_with_records(start_cluster, history)
    rng = random.Random(11)
    hello = client_hello(cluster.local.cluster_id, "raw")
    batch = encode_batch([(T0_MS, None, b"mutated", ())])
    produce = ProduceRequest(1, 100, ACKS_ALL, (ProducePartition(UUID(int=7), 0),), (batch,))
    fetch = FetchRequest(1, 100, -1, -1, 10, 1, 1000, (FetchPartition(topic_id, 0, 0),))
    offsets = ListOffsetsRequest((ListOffsetsPartition(topic_id, 0, LATEST_TIMESTAMP),))
    create = CreateTopics((NewTopic("t", 1, 1),), validate_only=True)
    configs = AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "missing", ()),))
    unary = {
        "Call": [calls.encode_client_request(request, cluster_id="", timeout_ms=100) for request in (MetadataRequest(), offsets)],
    }  # fmt: skip
    wishes = (create, configs, DeleteTopics(("missing",)))
    bodies = [calls.encode_controller_request(request, cluster_id="", timeout_ms=100) for request in wishes]
    streams = {
        "Produce": (frames.encode_produce_request(hello), frames.encode_produce_request(produce)),
        "Fetch": (frames.encode_fetch_request(hello), frames.encode_fetch_request(fetch)),
        "Controller": (
            encode_items(hello),
            encode_items(tuple(ControllerItem(n, body) for n, body in enumerate(bodies))),
        ),
    }
    async with channel_to(cluster) as channel:
        for _ in range(60):
            for method, messages in unary.items():
                await ask(channel, method, mutate(rng, rng.choice(messages)))
            for method, (greeting, message) in streams.items():
                await send_and_hang_up(channel, method, greeting, mutate(rng, message))
            item = ControllerItem(1, mutate(rng, rng.choice(bodies)))
            await send_and_hang_up(channel, "Controller", encode_items(hello), encode_items((item,)))
            await watch_once(channel, mutate(rng, watch_codec.encode_watch_request(WatchRequest(7))))
    await check_unharmed(cluster, history)


def mutate(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    match rng.randrange(4):
        case 0 if changed:
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        case 1:
            del changed[rng.randrange(len(changed) + 1) :]
        case 2:
            at = rng.randrange(len(changed) + 1)
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        case _:
            changed += data
    return bytes(changed)


async def watch_once(channel: Any, data: bytes) -> None:
    call = channel.unary_stream(f"/{SERVICE}/WatchMetadata")(data, timeout=20)
    try:
        await call.read()
    except grpc.aio.AioRpcError:
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
    finally:
        call.cancel()


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


async def test_wrong_cluster_id(start_cluster: StartCluster) -> None:
    history = History()
    cluster, _ = await node_with_records(start_cluster, history)
    connection = GrpcTransport().connect(cluster.address(1), purpose="raw")
    hello = client_hello("another-cluster", "raw")
    try:
        for opened in (connection.open_produce, connection.open_fetch, connection.open_quorum):
            with pytest.raises(InconsistentClusterIdError) as raised:
                await opened(hello)
            for word in (cluster.local.cluster_id, "another-cluster", "Check the address"):
                assert word in str(raised.value)
        with pytest.raises(InconsistentClusterIdError):
            await connection.call(MetadataRequest(), timeout_ms=20_000, cluster_id="another-cluster")
        with pytest.raises(InconsistentClusterIdError):
            await connection.controller_call(DeleteTopics((TOPIC,)), timeout_ms=20_000, cluster_id="another-cluster")
    finally:
        await connection.close()
    await check_unharmed(cluster, history)


# ---- requests that are well formed -----------------------------------------------------------------------------------


async def test_oversized_record(start_cluster: StartCluster) -> None:
    """Refused by the client's own limit, by the topic's, and by the transport's; records around it are not touched."""
    history = History()
    cluster, topic_id = await node_with_records(start_cluster, history)
    huge = bytes(2 << 20)
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
            await producer.send(TOPIC, huge)
    async with Producer(cluster.bootstrap_servers, max_request_bytes=8 << 20) as producer:
        before, failed, after = history.send("p", b"before"), history.send("p", huge), history.send("p", b"after")
        deliveries = [await producer.send(TOPIC, send.value) for send in (before, failed, after)]
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            await deliveries[1]
        failed.failed()
        for send, delivery in ((before, deliveries[0]), (after, deliveries[2])):
            place = await delivery
            send.acknowledged((place.topic, place.partition), place.offset)
    async with RawClient(cluster, 1, topic_id) as raw:
        with pytest.raises(MalformedFrameError, match="limit"):
            await raw.produce(bytes(65 << 20))
    async with channel_to(cluster) as channel:
        hello = frames.encode_produce_request(client_hello(cluster.local.cluster_id, "raw"))
        status, details, _ = await end_of_stream(channel, "Produce", hello, bytes(65 << 20))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED, details
    await check_unharmed(cluster, history)


async def test_bad_batches(start_cluster: StartCluster) -> None:
    """Damaged on the way, or not one batch: nothing of it is written, and the stream goes on."""
    history = History()
    cluster, topic_id = await node_with_records(start_cluster, history)
    good = encode_batch([(T0_MS, None, b"good", ())])
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    bad = {"flipped": flipped, "cut": good[:-1], "two": good * 2, "empty": b"", "short": good[:20], "zeros": bytes(100)}
    connection = GrpcTransport().connect(cluster.address(1), purpose="raw")
    stream = await connection.open_produce(client_hello(cluster.local.cluster_id, "raw"))
    try:
        for number, (name, batch) in enumerate(bad.items()):
            partitions = (ProducePartition(topic_id, 0),)
            await stream.send(ProduceRequest(number, 5_000, ACKS_ALL, partitions, (batch,)))
            (response,) = await stream.receive()
            say(f"{name}: {response.results[0].error.name}: {response.results[0].message}")
            assert response.results[0].error in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}, name
            assert response.results[0].message
    finally:
        await connection.close()
    await check_unharmed(cluster, history)


async def test_absurd_requests(start_cluster: StartCluster) -> None:
    """Numbers that make no sense get an error each, on a stream that goes on."""
    history = History()
    cluster, topic_id = await node_with_records(start_cluster, history)
    batch = encode_batch([(T0_MS, None, b"v", ())])
    connection = GrpcTransport().connect(cluster.address(1), purpose="raw")
    hello = client_hello(cluster.local.cluster_id, "raw")
    produce, fetch = await connection.open_produce(hello), await connection.open_fetch(hello)
    try:
        for acks, partition, expected in (
            (7, ProducePartition(topic_id, 0), ErrorCode.INVALID_REQUIRED_ACKS),
            (-1, ProducePartition(topic_id, 99), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, ProducePartition(topic_id, -5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, ProducePartition(UUID(int=5), 0), ErrorCode.UNKNOWN_TOPIC_ID),
            (-1, ProducePartition(topic_id, 0, leader_epoch=77), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            await produce.send(ProduceRequest(1, 5_000, acks, (partition,), (batch,)))
            (response,) = await produce.receive()
            assert response.results[0].error is expected
        for replica_id, asked, expected in (
            (-1, FetchPartition(topic_id, 0, -9), ErrorCode.OFFSET_OUT_OF_RANGE),
            (-1, FetchPartition(topic_id, 0, 1 << 60), ErrorCode.OFFSET_OUT_OF_RANGE),
            (-1, FetchPartition(topic_id, -1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, FetchPartition(UUID(int=5), 0, 0), ErrorCode.UNKNOWN_TOPIC_ID),
            (99, FetchPartition(topic_id, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (-1, FetchPartition(topic_id, 0, 0, max_bytes=-1), ErrorCode.NONE),
        ):
            await fetch.send(FetchRequest(1, -1, replica_id, -1, -1, -1, 1 << 30, (asked,)))
            response_ = await fetch.receive()
            assert response_.results[0].error is expected, asked
    finally:
        await connection.close()
    await check_unharmed(cluster, history)


# ---- addresses and names -------------------------------------------------------------------------------------------------


async def test_missing_topic(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="replog topics create"):
            await producer.send("missing", b"v")
    async with Consumer(cluster.bootstrap_servers) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match="replog topics list"):
            await consumer.assign_topic("missing")


async def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    async with Admin(address) as admin:
        with pytest.raises(RequestTimedOutError, match="refused"):
            await admin.describe_cluster(timeout_ms=1_000)


async def test_a_port_of_something_else() -> None:
    """A server that speaks another protocol: the error names the address and asks whether it is a broker."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with Admin(address) as admin:
            with pytest.raises((RetriableError, InvalidRequestError)) as raised:
                await admin.describe_cluster(timeout_ms=2_000)
        say(str(raised.value))
        assert address in str(raised.value)
        assert isinstance(raised.value, ReplogError)
    finally:
        server.close()
