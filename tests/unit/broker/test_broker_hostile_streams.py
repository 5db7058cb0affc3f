"""Nothing that a stranger sends to the port of clients ends a node, or holds anything of it back: others go on being served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from broker_kit import batch, wait_until
from hostile_streams import hostile_batches, private_requests
from node_kit import Running
from test_broker_hostile_requests import check_serves, leading, unhurried_node

from replog.client.protocol.link import BrokerEnd, Link, open_link, read_answer
from replog.errors import ErrorCode, ReplogError
from replog.protocol.private import PRIVATE_APIS, PrivateAnswer, PrivateRequest
from replog.rpc.messages import FindCutsPartition, FindCutsRequest
from replog.rpc.metadata_messages import TopicInfo, WaitForMetadata
from replog.tcp.dialing import create_connection
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Writer

pytestmark = pytest.mark.exhaustive

NUMBERS = (0, 1, -1, -2, 5, 99, 2**31 - 1, -(2**31))
LONGS = (*NUMBERS, 2**63 - 1, -(2**63))


class Body(NamedTuple):
    """A request whose body is any bytes; it stands where a generated one does."""

    API_KEY: int
    data: bytes
    FLEXIBLE_FROM: int = 0

    def write(self, w: Writer, _version: int) -> None:
        w.fixed(struct.Struct(f"{len(self.data)}s"), self.data)


async def linked(it: Running) -> Link:
    address = it.node.address
    assert address is not None
    return await open_link(BrokerEnd(address, "hostile", create_connection, 20.0))


@contextlib.asynccontextmanager
async def links(it: Running) -> AsyncIterator[Any]:
    """Returns the connection that is open, or another one where the node has ended that."""
    opened: list[Link] = []

    async def current() -> Link:
        if not opened or not opened[-1].is_usable:
            opened.append(await linked(it))
        return opened[-1]

    try:
        yield current
    finally:
        for link in opened:
            link.lose(ReplogError("enough"))


async def answered(link: Link, request: Any, version: int, answer: type[Any]) -> Any:
    """The answer to a request; the error with which the connection ended where it is none."""
    try:
        async with asyncio.timeout(30):
            return read_answer(await link.send(request, version), answer, version)
    except ReplogError as error:
        return error


@contextlib.asynccontextmanager
async def healthy_client(it: Running, topic: TopicInfo) -> AsyncIterator[list[int]]:
    """Writes and reads all the time; it is never refused."""
    served = [0]

    async def run() -> None:
        while True:
            assert (await it.produce(topic)).error is ErrorCode.NONE
            assert await it.fetch(topic) > 0
            served[0] += 1
            await asyncio.sleep(0.005)  # else it takes all the time that hostile requests wait

    task = asyncio.create_task(run())
    try:
        yield served
        before = served[0]
        await wait_until(lambda: served[0] > before or task.done(), timeout_s=30)
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def check_nothing_is_held(it: Running) -> None:
    """Whatever those requests had of the node is free again."""
    node: Any = it.node
    paths = node.parts.requests
    produces, fetches = paths.produce_path, paths.fetch_path
    await wait_until(lambda: not produces._waiting and not produces._turns and produces._ready_count == 0)
    await wait_until(lambda: fetches.waiting_count == 0 and len(fetches.incremental) == 0, timeout_s=60)
    held = paths.handlers._parts.credits
    await wait_until(lambda: held.held_bytes == 0)
    assert not held._waiters


def no_bug_is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# ---- records ---------------------------------------------------------------------------------------------------------------


def produce(topic_id: UUID, records: Any, **others: Any) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(0, records)
    topic = ProduceRequest.TopicProduceData("t", topic_id, [data])
    return ProduceRequest(None, **{"acks": -1, "timeout_ms": 1_000, "topic_data": [topic], **others})


def hostile_produces(topic_id: UUID) -> list[ProduceRequest]:
    good = batch()
    data = ProduceRequest.PartitionProduceData
    topic = ProduceRequest.TopicProduceData
    return [
        *(produce(topic_id, good, acks=acks) for acks in (0, 1, -1, 2, -2, 2**15 - 1, -(2**15))),
        *(produce(topic_id, good, timeout_ms=timeout_ms) for timeout_ms in NUMBERS),
        *(produce(topic_id, good, topic_data=[topic("t", topic_id, [data(number, good)])]) for number in NUMBERS),
        *(produce(UUID(int=number), good) for number in (0, 1, 2**128 - 1)),
        produce(topic_id, None),
        produce(topic_id, good, topic_data=[]),
        produce(topic_id, good, topic_data=[topic("t", topic_id, [data(0, good)] * 9)]),
        produce(topic_id, good, topic_data=[topic("t", topic_id, [data(0, good)])] * 9),
        produce(topic_id, good, topic_data=[topic("t", topic_id, [data(n, b"") for n in range(100_000)])]),
    ]


async def test_no_produce_ends_a_node(caplog: pytest.LogCaptureFixture) -> None:
    async with unhurried_node() as it, links(it) as current:
        topic = await leading(it)
        count = 0
        async with healthy_client(it, await it.create("healthy")) as served:
            requests = [produce(topic.topic_id, records) for _, records in hostile_batches()]
            for request in [*requests, *hostile_produces(topic.topic_id)]:
                for version in (3, 12, 13):
                    count += 1
                    link: Link = await current()
                    if request.acks == 0:
                        link.send(request, version, is_answered=False)
                        continue
                    answer = await answered(link, request, version, ProduceResponse)
                    if isinstance(answer, ProduceResponse):
                        told = [each.error_code for one in answer.responses for each in one.partition_responses]
                        assert ErrorCode.UNKNOWN_SERVER_ERROR not in told, request
                    assert it.node._failure is None
        assert count > 500
        assert served[0] > 10
        await check_nothing_is_held(it)
        await check_serves(it, topic)
        assert no_bug_is_told(caplog)


def fetch(topic_id: UUID, **others: Any) -> FetchRequest:
    """`others`: fields of the request, and with `at_` those of its partition."""
    named = {name.removeprefix("at_"): value for name, value in others.items() if name.startswith("at_")}
    at = FetchRequest.FetchPartition(**{"partition_max_bytes": 1_000, **named})
    rest = {name: value for name, value in others.items() if not name.startswith("at_")}
    topics = [FetchRequest.FetchTopic("t", topic_id, [at])]
    return FetchRequest(**{"max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1_000, "topics": topics, **rest})


async def test_no_fetch_ends_a_node(caplog: pytest.LogCaptureFixture) -> None:
    async with unhurried_node() as it, links(it) as current:
        topic = await leading(it)
        topic_id = topic.topic_id
        at = FetchRequest.FetchPartition
        many = [FetchRequest.FetchTopic("t", topic_id, [at(number) for number in range(20_000)])]
        twice = [FetchRequest.FetchTopic("t", topic_id, [at(0)] * 9_000)]
        requests = [
            *(
                fetch(topic_id, **{name: value})
                for name in ("max_bytes", "session_id", "session_epoch")
                for value in NUMBERS
            ),
            *(fetch(topic_id, min_bytes=value, max_wait_ms=10) for value in NUMBERS),
            *(fetch(topic_id, max_wait_ms=value) for value in (0, -1, -(2**31))),
            *(fetch(topic_id, isolation_level=value) for value in (0, 1, 2, -1, 127)),
            *(
                fetch(topic_id, **{name: value})
                for name in ("at_fetch_offset", "at_log_start_offset")
                for value in LONGS
            ),
            *(
                fetch(topic_id, **{name: value})
                for name in (
                    "at_partition",
                    "at_current_leader_epoch",
                    "at_last_fetched_epoch",
                    "at_partition_max_bytes",
                )
                for value in NUMBERS
            ),
            *(fetch(UUID(int=number)) for number in (0, 1, 2**128 - 1)),
            *(fetch(topic_id, rack_id=rack) for rack in ("", "\0", "x" * 30_000)),
            fetch(topic_id, replica_state=FetchRequest.ReplicaState(1, 1)),
            fetch(topic_id, topics=[]),
            fetch(topic_id, topics=many),
            fetch(topic_id, topics=twice),
        ]
        async with healthy_client(it, await it.create("healthy")) as served:
            for request in requests:
                for version in (4, 12, 13, 17):
                    answer = await answered(await current(), request, version, FetchResponse)
                    if isinstance(answer, FetchResponse):
                        told = [each.error_code for one in answer.responses for each in one.partitions]
                        assert ErrorCode.UNKNOWN_SERVER_ERROR not in [*told, answer.error_code], request
                    assert it.node._failure is None
        assert served[0] > 5
        await check_nothing_is_held(it)
        await check_serves(it, topic)
        assert no_bug_is_told(caplog)


async def test_connections_that_are_left_in_the_middle_hold_nothing() -> None:
    """Half-closed, or ended with requests at the broker whose answers nobody reads."""
    async with unhurried_node() as it:
        topic = await leading(it)
        large = produce(topic.topic_id, batch(b"v" * 900_000), timeout_ms=60_000)
        parked = fetch(topic.topic_id, max_wait_ms=3_600_000, min_bytes=1 << 30)
        waiting = fetch(topic.topic_id, max_wait_ms=1_000, min_bytes=1 << 30)  # of who may yet read the answer
        async with healthy_client(it, await it.create("healthy")):
            for _ in range(5):
                for asked in ((large, large), (waiting, parked)):
                    half_closed, ended = await linked(it), await linked(it)
                    for _ in range(3):
                        half_closed.send(asked[0], 13)
                    ended.send(asked[1], 13)  # behind a second request nobody would read, and hear of the end
                    half_closed._transport.write_eof()  # type: ignore[union-attr]
                    ended.lose(ReplogError("given up"))
                    half_closed._transport.pause_reading()  # type: ignore[union-attr]
                    half_closed.lose(ReplogError("given up"))
        assert it.node._failure is None
        await check_nothing_is_held(it)
        await check_serves(it, topic)


# ---- APIs of our own -------------------------------------------------------------------------------------------------------


async def test_no_request_of_our_own_apis_ends_a_node(caplog: pytest.LogCaptureFixture) -> None:
    async with unhurried_node() as it, links(it) as current:
        topic = await leading(it)
        count = ended_count = 0
        async with healthy_client(it, await it.create("healthy")) as served:
            for what, key, data in private_requests():
                count += 1
                answer = await answered(await current(), Body(key, data), 0, PrivateAnswer)
                ended_count += not isinstance(answer, PrivateAnswer)
                if isinstance(answer, PrivateAnswer):
                    assert answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, (what, answer.message[:500])
                    assert len(answer.message) < 20_000, what
                assert it.node._failure is None, what
        assert count > 400
        assert 50 < ended_count < count
        assert served[0] > 10
        await check_nothing_is_held(it)
        await check_serves(it, topic)
        assert no_bug_is_told(caplog)


async def test_tags_of_a_header_end_no_node(caplog: pytest.LogCaptureFixture) -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        good = Writer()
        RequestHeader(PRIVATE_APIS[FindCutsRequest].API_KEY, 0, 1, "hostile").write(good, 2)
        head = good.joined()[:-1]
        cluster_id = b"\x01" + b"\x90\x4e"
        tails = [
            b"\xff" * 5,
            b"\xff\xff\xff\xff\x0f" + bytes(100),
            cluster_id,
            cluster_id + b"\x00",
            cluster_id + b"\x03\x04xy",
            cluster_id + b"\x02\x03xy",
            b"\x02" + cluster_id[1:] + b"\x02\x02x" + cluster_id[1:] + b"\x02\x02y",
            b"\x01\x00\xff\xff\x7f",
            b"\x01\x00\xc0\x84\x3d" + bytes(1_000_000),
        ]
        for tail in tails:
            for body in (b"", framed_question(topic)):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(it.node.address.rpartition(":")[2]))
                frame = head + tail + body
                writer.write(struct.pack(">i", len(frame)) + frame)
                writer.write_eof()
                async with asyncio.timeout(30):
                    await reader.read()
                writer.close()
                assert it.node._failure is None, tail
        await check_serves(it, topic)
        assert no_bug_is_told(caplog)


def framed_question(topic: TopicInfo) -> bytes:
    writer = Writer()
    question = FindCutsRequest((FindCutsPartition(topic.topic_id, 0, 0, 1),), 1)
    PrivateRequest(PRIVATE_APIS[FindCutsRequest], question, 50).write(writer, 0)
    return writer.joined()


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_storm_of_waits_on_one_connection_holds_nobody_up(is_read: bool) -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        watched = FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=[FetchRequest.FetchPartition(0)])
        async with healthy_client(it, await it.create("healthy")) as served:
            link = await linked(it)
            if not is_read:
                link._transport.pause_reading()  # type: ignore[union-attr]
            asked = (
                (FetchRequest(max_wait_ms=10, session_epoch=0, topics=[watched], offsets_only=True), 13),
                (PrivateRequest(PRIVATE_APIS[WaitForMetadata], WaitForMetadata(0, None, None, 10), 1_000), 0),
            )
            storm = [link.send(*each) for _ in range(300) for each in asked]
            before = served[0]
            await wait_until(lambda: served[0] > before + 5, timeout_s=30)
            if is_read:
                async with asyncio.timeout(60):
                    bodies = await asyncio.gather(*storm)
                assert {read_answer(body, FetchResponse, 13).error_code for body in bodies[::2]} == {ErrorCode.NONE}
                assert {read_answer(body, PrivateAnswer, 0).error_code for body in bodies[1::2]} == {ErrorCode.NONE}
            link.lose(ReplogError("enough"))
        assert it.node._failure is None
        node: Any = it.node
        await wait_until(lambda: len(node.parts.requests.kafka_node.fetch_sessions) == 0, timeout_s=60)
        await check_nothing_is_held(it)
        await check_serves(it, topic)
