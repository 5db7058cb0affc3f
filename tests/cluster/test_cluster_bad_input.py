"""What no good client sends: each is refused with an error that says what is wrong, and the broker goes on.

One broker takes all of it, and has to be unharmed after each test.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from typing import Any
from uuid import UUID

import pytest
from cluster_bad_input import GARBAGE, TOPIC, check_unharmed, fresh_records, mutate
from cluster_kit import Cluster, say
from cluster_raw import T0_MS, RawClient, hello_to

from replog.client import Admin, Consumer, Producer
from replog.client.protocol.connection import KafkaTransport
from replog.client.protocol.link import open_link
from replog.controller.requests import DeleteTopics
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
from replog.protocol.private import PRIVATE_APIS, PrivateRequest
from replog.records import encode_batch
from replog.rpc.frames import encode_fetch_request
from replog.rpc.messages import (
    ACKS_ALL,
    FetchPartition,
    FetchRequest,
    FindCutsPartition,
    FindCutsRequest,
    ProducePartition,
    ProduceRequest,
)
from replog.rpc.metadata_messages import MetadataRequest, WaitForMetadata
from replog.rpc.node_messages import DescribeQuorumRequest
from replog.rpc.tcp.wire import StreamKind, opening
from replog.testing.history import History
from replog.wire.messages.delete_topics import DeleteTopicsRequest as KafkaDelete
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.metadata import MetadataRequest as KafkaMetadata
from replog.wire.messages.produce import ProduceRequest as KafkaProduce
from replog.wire.primitives import Writer

pytestmark = pytest.mark.cluster

END_S = 20.0
SOON_S = 0.1
FRAME_BYTES = 64 << 20


def framed(request: Any, version: int) -> bytes:
    """A request as a client sends it."""
    writer = Writer()
    is_flexible = version >= request.FLEXIBLE_FROM
    RequestHeader(request.API_KEY, version, 1, "raw").write(writer, 2 if is_flexible else 1)
    request.write(writer, version)
    data = writer.joined()
    return struct.pack(">i", len(data)) + data


def good_requests(topic_id: UUID) -> list[bytes]:
    """One of each kind: records, offsets, changes, and what only our own clients ask."""
    batch = encode_batch([(T0_MS, None, b"mutated", ())])
    produce = [
        KafkaProduce.TopicProduceData(
            topic_id=UUID(int=7), partition_data=[KafkaProduce.PartitionProduceData(0, batch)]
        )
    ]
    at = KafkaFetch.FetchPartition(0, partition_max_bytes=1_000)
    asked = (
        WaitForMetadata(7, None, None, 10),
        FindCutsRequest((FindCutsPartition(topic_id, 0, 0, 1, 0),), 1),
        DescribeQuorumRequest(),
    )
    return [
        framed(KafkaProduce(None, -1, 100, produce), 13),
        framed(
            KafkaFetch(max_wait_ms=10, min_bytes=1, topics=[KafkaFetch.FetchTopic(topic_id=topic_id, partitions=[at])]),
            17,
        ),
        framed(
            KafkaFetch(
                max_wait_ms=10,
                session_epoch=0,
                offsets_only=True,
                topics=[KafkaFetch.FetchTopic(topic_id=topic_id, partitions=[at])],
            ),
            17,
        ),
        framed(KafkaMetadata(None), 12),
        framed(KafkaDelete([KafkaDelete.DeleteTopicState("missing")], timeout_ms=100), 6),
        *(framed(PrivateRequest(PRIVATE_APIS[type(one)], one, 100), 0) for one in asked),
    ]


async def end_of(cluster: Cluster, data: bytes, *, within_s: float = END_S) -> bytes:
    """What the broker says to bytes on a new connection, until its end, or `within_s` after they were sent."""
    reader, writer = await asyncio.open_connection(*cluster.address(1).split(":"))
    heard = b""
    try:
        async with asyncio.timeout(within_s):
            writer.write(data)
            while some := await reader.read(1 << 16):
                heard += some
    except TimeoutError:
        assert within_s < END_S, f"the broker left {data[:60]!r} without an end"
    except ConnectionError:
        pass
    finally:
        writer.close()
    return heard


# ---- frames --------------------------------------------------------------------------------------------------------------


async def test_bytes_that_are_no_request_end_the_connection(cluster: Cluster) -> None:
    """Half a request, one that is too large, another protocol; then the client's end."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    half = [request[:-1] for request in good_requests(topic_id)]
    for data in [*GARBAGE, *half, struct.pack(">i", -1), struct.pack(">i", 1 << 30)]:
        reader, writer = await asyncio.open_connection(*cluster.address(1).split(":"))
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(END_S):
                assert await reader.read() == b"", data
        except ConnectionError:
            pass
        finally:
            writer.close()
    await check_unharmed(cluster, history)


async def test_an_api_and_a_version_that_there_are_not(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    stream_of_nodes = opening(StreamKind.FETCH, (encode_fetch_request(hello_to(cluster)),))
    frames = [
        struct.pack(">hhi", key, version, 1) + b"\xff\xff\0"
        for key, version in ((3, 99), (999, 0), (20_999, 0), (20_000, 5), (-1, 0))
    ]
    for data in (stream_of_nodes, *(struct.pack(">i", len(frame)) + frame for frame in frames)):
        assert await end_of(cluster, data) == b""
    await check_unharmed(cluster, history)


async def test_who_stops_within_a_frame_keeps_nobody_from_the_node(cluster: Cluster) -> None:
    """Many half frames of the largest size at a time: the node serves others meanwhile."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    half = struct.pack(">i", FRAME_BYTES) + good_requests(topic_id)[0][4:] + bytes(100_000)
    ends = [await asyncio.open_connection(*cluster.address(1).split(":")) for _ in range(20)]
    try:
        for _, writer in ends:
            writer.write(half)
            await writer.drain()
        await check_unharmed(cluster, history)
    finally:
        for _, writer in ends:
            writer.close()


async def test_mutated_messages(cluster: Cluster) -> None:
    """Good requests with bytes changed, cut and doubled, and their sizes right again: refused or answered, never a bug."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    rng = random.Random(11)
    good = good_requests(topic_id)
    for _ in range(60):
        sent = []
        for request in good:
            changed = mutate(rng, request[4:])
            sent += [mutate(rng, request), struct.pack(">i", len(changed)) + changed]
        # side by side: some are waited for, and each is listened to for the whole time
        await asyncio.gather(*(end_of(cluster, each, within_s=SOON_S) for each in sent))
    await check_unharmed(cluster, history)


async def test_wrong_cluster_id(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    connection = KafkaTransport().connect(cluster.address(1), purpose="raw")
    hello = hello_to(cluster, "another-cluster")
    try:
        for opened in (connection.open_produce, connection.open_fetch):
            with pytest.raises(InconsistentClusterIdError) as raised:
                await opened(hello)
            for word in (cluster.local.cluster_id, "another-cluster", "Check the address"):
                assert word in str(raised.value)
        with pytest.raises(InconsistentClusterIdError):
            await connection.call(MetadataRequest(), timeout_ms=20_000, cluster_id="another-cluster")
        with pytest.raises(InconsistentClusterIdError):
            await connection.call(DeleteTopics((TOPIC,)), timeout_ms=20_000, cluster_id="another-cluster")
    finally:
        await connection.close()
    await check_unharmed(cluster, history)


# ---- requests that are well formed -----------------------------------------------------------------------------------


async def test_oversized_record(cluster: Cluster) -> None:
    """Refused by the client's own limit, by the topic's, and by the transport's; records around it are not touched."""
    history = History()
    topic_id = await fresh_records(cluster, history)
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
    await check_unharmed(cluster, history)


async def test_bad_batches(cluster: Cluster) -> None:
    """Damaged on the way, or not one batch: nothing of it is written, and the stream goes on."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    good = encode_batch([(T0_MS, None, b"good", ())])
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    bad = {"flipped": flipped, "cut": good[:-1], "two": good * 2, "empty": b"", "short": good[:20], "zeros": bytes(100)}
    connection = KafkaTransport().connect(cluster.address(1), purpose="raw")
    stream = await connection.open_produce(hello_to(cluster))
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


async def test_absurd_requests(cluster: Cluster) -> None:
    """Numbers that make no sense get an error each, on a stream that goes on."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    batch = encode_batch([(T0_MS, None, b"v", ())])
    connection = KafkaTransport().connect(cluster.address(1), purpose="raw")
    hello = hello_to(cluster)
    produce, fetch = await connection.open_produce(hello), await connection.open_fetch(hello)
    try:
        for acks, partition, expected in (
            (7, ProducePartition(topic_id, 0), ErrorCode.INVALID_REQUIRED_ACKS),
            (-1, ProducePartition(topic_id, 99), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, ProducePartition(topic_id, -5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, ProducePartition(UUID(int=5), 0), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            await produce.send(ProduceRequest(1, 5_000, acks, (partition,), (batch,)))
            (response,) = await produce.receive()
            assert response.results[0].error is expected
        for asked, expected in (
            (FetchPartition(topic_id, 0, -9), ErrorCode.OFFSET_OUT_OF_RANGE),
            (FetchPartition(topic_id, 0, 1 << 60), ErrorCode.OFFSET_OUT_OF_RANGE),
            (FetchPartition(topic_id, -1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (FetchPartition(UUID(int=5), 0, 0), ErrorCode.UNKNOWN_TOPIC_ID),
            (FetchPartition(topic_id, 0, 0, max_bytes=-1), ErrorCode.NONE),
        ):
            await fetch.send(FetchRequest(1, -1, -1, -1, -1, -1, 1 << 30, (asked,)))
            response_ = await fetch.receive()
            assert response_.results[0].error is expected, asked
        follower = KafkaFetch(
            max_wait_ms=10,
            replica_state=KafkaFetch.ReplicaState(99, -1),
            topics=[KafkaFetch.FetchTopic(topic_id=topic_id, partitions=[KafkaFetch.FetchPartition(0)])],
        )
        link = await open_link(connection._endpoint)
        answer = await link.ask(follower, KafkaFetched, timeout_ms=20_000)
        link.lose(ReplogError("enough"))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    finally:
        await connection.close()
    await check_unharmed(cluster, history)


# ---- addresses and names -------------------------------------------------------------------------------------------------


async def test_missing_topic(cluster: Cluster) -> None:
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
