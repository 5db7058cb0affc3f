"""What no good client sends: each is refused with an error that says what is wrong, and the broker goes on.

One broker takes all of it, and has to be unharmed after each test.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from uuid import UUID

import pytest
from cluster_bad_input import GARBAGE, TOPIC, check_unharmed, fresh_records, mutate
from cluster_kit import Cluster, say
from cluster_raw import T0_MS, RawClient, hello_to

from replog.client import Admin, Consumer, Producer
from replog.client.protocol.connection import KafkaTransport
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
from replog.rpc import calls, frames, watch_codec
from replog.rpc.call_stream import CallItem, encode_items
from replog.rpc.messages import (
    ACKS_ALL,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    Hello,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ProducePartition,
    ProduceRequest,
    WatchedPartition,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataRequest, WatchRequest
from replog.rpc.tcp.wire import MAX_MESSAGE_BYTES, StreamKind, Tag, opening
from replog.testing.history import History

pytestmark = pytest.mark.cluster

END_S = 20.0
SOON_S = 0.1
HELLOS = {
    StreamKind.CALLS: encode_items,
    StreamKind.CONTROLLER: encode_items,
    StreamKind.PRODUCE: frames.encode_produce_request,
    StreamKind.FETCH: frames.encode_fetch_request,
}
WATCHES = (StreamKind.WATCH_METADATA, StreamKind.WATCH_OFFSETS)

Heard = tuple[int, bytes]
"""Tag and body of a frame."""


def message(data: bytes) -> bytes:
    """The frame of a message, after the opening."""
    return struct.pack(">iB", len(data) + 1, Tag.MESSAGE) + data


def begun(cluster: Cluster, kind: StreamKind) -> bytes:
    """A good opening."""
    hello: Hello = hello_to(cluster)
    return opening(kind, (HELLOS[kind](hello),))


async def heard(cluster: Cluster, opened: bytes, then: bytes = b"", *, within_s: float = END_S) -> list[Heard]:
    """What the broker answers on a new connection, until an error, its end, or `within_s` after the last thing was sent; all
    but the opening is sent behind the broker's first frame, as a client has to."""
    reader, writer = await asyncio.open_connection(*cluster.address(1).split(":"))
    answers: list[Heard] = []
    try:
        async with asyncio.timeout(END_S if then else within_s) as silence:
            writer.write(opened)
            while not answers or answers[-1][0] != Tag.ERROR:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                answers.append((frame[0], frame[1:]))
                if len(answers) == 1:
                    writer.write(then)
                    silence.reschedule(asyncio.get_running_loop().time() + within_s)
    except TimeoutError:
        assert within_s < END_S, f"the broker left {opened[:60]!r}, {then[:60]!r} without an end"
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
    return answers


async def refusal(cluster: Cluster, opened: bytes, then: bytes = b"") -> tuple[ErrorCode, str]:
    """Code and text of the error that ends a stream."""
    answers = await heard(cluster, opened, then)
    assert answers, f"no answer to {opened[:60]!r}, {then[:60]!r}"
    tag, body = answers[-1]
    assert tag == Tag.ERROR, answers
    return ErrorCode(struct.unpack_from(">h", body)[0]), body[2:].decode()


# ---- frames --------------------------------------------------------------------------------------------------------------


async def test_bytes_that_are_no_request_end_the_connection(cluster: Cluster) -> None:
    """Half a request, one that is too large, another protocol, a message before its stream is open; then the client's end."""
    history = History()
    await fresh_records(cluster, history)
    good = begun(cluster, StreamKind.FETCH)
    for data in [*GARBAGE, good[:-1], good + message(b"too early"), struct.pack(">i", -1), struct.pack(">i", 1 << 30)]:
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


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name.lower()) for kind in HELLOS])
async def test_malformed_stream_messages(cluster: Cluster, kind: StreamKind) -> None:
    """In place of the hello, and after a good one."""
    history = History()
    await fresh_records(cluster, history)
    good = begun(cluster, kind)
    hello = HELLOS[kind](hello_to(cluster))
    for data in GARBAGE:
        for opened, then in ((opening(kind, (data,)), b""), (good, message(data))):
            code, text = await refusal(cluster, opened, then)
            assert code is ErrorCode.INVALID_REQUEST, (opened, then, code, text)
            assert text
    sizes = (0, -1, MAX_MESSAGE_BYTES + 2)
    for then in (message(hello), struct.pack(">iB", 1, 9), *(struct.pack(">i", size) for size in sizes)):
        code, text = await refusal(cluster, good, then)
        assert code is ErrorCode.INVALID_REQUEST, (then, code, text)
        assert text
    await check_unharmed(cluster, history)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name.lower()) for kind in WATCHES])
async def test_malformed_watches(cluster: Cluster, kind: StreamKind) -> None:
    history = History()
    topic_id = await fresh_records(cluster, history)
    for data in GARBAGE[2:]:
        code, text = await refusal(cluster, opening(kind, (data,)))
        assert code is ErrorCode.INVALID_REQUEST, (data, code, text)
        assert text
    wish = (
        watch_codec.encode_watch_request(WatchRequest())
        if kind is StreamKind.WATCH_METADATA
        else watch_codec.encode_offsets_request(
            WatchOffsetsRequest(cluster.local.cluster_id, (WatchedPartition(topic_id, 0, 0),))
        )
    )
    code, text = await refusal(cluster, opening(kind, (wish,)), message(wish))
    assert (code, "asked for once" in text) == (ErrorCode.INVALID_REQUEST, True), text
    await check_unharmed(cluster, history)


async def test_a_kind_and_a_version_that_there_are_not(cluster: Cluster) -> None:
    history = History()
    await fresh_records(cluster, history)
    good = bytearray(begun(cluster, StreamKind.FETCH))
    for at in (7, 11):  # the last byte of the version, and of the kind
        other = bytearray(good)
        other[at] = 77
        code, text = await refusal(cluster, bytes(other))
        assert code is ErrorCode.UNSUPPORTED_VERSION
        assert "Use the same replog version" in text
    await check_unharmed(cluster, history)


async def test_first_message_is_not_hello(cluster: Cluster) -> None:
    history = History()
    topic_id = await fresh_records(cluster, history)
    batch = encode_batch([(T0_MS, None, b"v", ())])
    request = ProduceRequest(1, 1_000, ACKS_ALL, (ProducePartition(topic_id, 0),), (batch,))
    code, text = await refusal(cluster, opening(StreamKind.PRODUCE, (frames.encode_produce_request(request),)))
    assert code is ErrorCode.INVALID_REQUEST
    assert "must be hello" in text
    await check_unharmed(cluster, history)


async def test_who_stops_within_a_frame_keeps_nobody_from_the_node(cluster: Cluster) -> None:
    """Many half frames of the largest size at a time: the node serves others meanwhile."""
    history = History()
    await fresh_records(cluster, history)
    half = struct.pack(">iB", MAX_MESSAGE_BYTES, Tag.MESSAGE) + bytes(100_000)
    ends = [await asyncio.open_connection(*cluster.address(1).split(":")) for _ in range(20)]
    try:
        for reader, writer in ends:
            writer.write(begun(cluster, StreamKind.PRODUCE))
            await reader.readexactly(4)  # the size of its hello
            writer.write(half)
            await writer.drain()
        await check_unharmed(cluster, history)
    finally:
        for _, writer in ends:
            writer.close()


async def test_mutated_messages(cluster: Cluster) -> None:
    """Good messages with bytes changed, cut and doubled: refused or answered, never a bug."""
    history = History()
    topic_id = await fresh_records(cluster, history)
    rng = random.Random(11)
    batch = encode_batch([(T0_MS, None, b"mutated", ())])
    produce = ProduceRequest(1, 100, ACKS_ALL, (ProducePartition(UUID(int=7), 0),), (batch,))
    fetch = FetchRequest(1, 100, -1, -1, 10, 1, 1000, (FetchPartition(topic_id, 0, 0),))
    offsets = ListOffsetsRequest((ListOffsetsPartition(topic_id, 0, LATEST_TIMESTAMP),))
    create = CreateTopics((NewTopic("t", 1, 1),), validate_only=True)
    configs = AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "missing", ()),))
    asked = [calls.encode_node_request(one, cluster_id="", timeout_ms=100) for one in (MetadataRequest(), offsets)]
    wishes = (create, configs, DeleteTopics(("missing",)))
    bodies = [calls.encode_controller_request(wish, cluster_id="", timeout_ms=100) for wish in wishes]
    streams = {
        StreamKind.PRODUCE: frames.encode_produce_request(produce),
        StreamKind.FETCH: frames.encode_fetch_request(fetch),
        StreamKind.CALLS: encode_items(tuple(CallItem(n, body) for n, body in enumerate(asked))),
        StreamKind.CONTROLLER: encode_items(tuple(CallItem(n, body) for n, body in enumerate(bodies))),
    }
    for _ in range(60):
        sent: list[tuple[bytes, bytes]] = []
        for kind, good in streams.items():
            begin = begun(cluster, kind)
            sent += [
                (begin, message(mutate(rng, good))),
                (begin, mutate(rng, message(good))),
                (mutate(rng, begin), b""),
            ]
        for kind, one in ((StreamKind.CALLS, rng.choice(asked)), (StreamKind.CONTROLLER, rng.choice(bodies))):
            sent.append((begun(cluster, kind), message(encode_items((CallItem(1, mutate(rng, one)),)))))
        watch = mutate(rng, watch_codec.encode_watch_request(WatchRequest(7)))
        sent.append((opening(StreamKind.WATCH_METADATA, (watch,)), b""))
        # side by side: to most of them the broker says nothing, and each is listened to for the whole time
        await asyncio.gather(*(heard(cluster, *each, within_s=SOON_S) for each in sent))
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
            await connection.controller_call(DeleteTopics((TOPIC,)), timeout_ms=20_000, cluster_id="another-cluster")
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
            (-1, ProducePartition(topic_id, 0, leader_epoch=77), ErrorCode.UNKNOWN_LEADER_EPOCH),
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
        await fetch.send(FetchRequest(1, -1, 99, -1, -1, -1, 1 << 30, (FetchPartition(topic_id, 0, 0),)))
        with pytest.raises(InvalidRequestError, match="followers fetch at"):
            await fetch.receive()
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
