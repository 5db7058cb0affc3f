"""Requests that name thousands of things: what is refused, what comes in pages, and who reads them."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any
from uuid import UUID

import pytest
from kafka_node_kit import frame
from test_kafka_repeated_answers import Node, image

from replog.access.principal import ANONYMOUS
from replog.errors import BrokerNotAvailableError, ErrorCode, MalformedFrameError
from replog.metadata.image import MetadataImage, TopicImage
from replog.protocol import server as server_module
from replog.protocol.handlers import produce as produce_handler
from replog.protocol.handlers import topic_partitions
from replog.protocol.served import BATCH_ELEMENTS_MAX
from replog.protocol.server import KafkaServer
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.tcp.connection import Caller
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.headers import ResponseHeader
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Reader, Writer


async def ask(request: Any, version: int, response: type[Any], node: Node | None = None, cluster_id: str = "") -> Any:
    answer = await KafkaServer(node or Node()).serve(frame(request, version, cluster_id), Caller(ANONYMOUS))  # type: ignore[arg-type]
    assert answer is not None
    reader = Reader(memoryview(b"".join(answer.buffers))[4:])
    ResponseHeader.read(reader, 1 if version >= response.FLEXIBLE_FROM else 0)
    return response.read(reader, version)


def produce(count: int) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(number, b"") for number in range(count)]
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=data)])


def list_offsets(count: int) -> ListOffsetsRequest:
    asked = [ListOffsetsRequest.ListOffsetsPartition(number) for number in range(count)]
    return ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic("t", asked)])


def describe(*names: str, limit: int = 2_000, cursor: Any = None) -> DescribeTopicPartitionsRequest:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name) for name in names]
    begin = cursor and DescribeTopicPartitionsRequest.Cursor(cursor.topic_name, cursor.partition_index)
    return DescribeTopicPartitionsRequest(topics, limit, begin)


# ---- what is refused -------------------------------------------------------------------------------------------------


async def test_a_produce_of_too_many_batches_is_told_so_for_each() -> None:
    answer = await ask(produce(MAX_PARTITIONS + 1), 9, ProduceResponse)
    told = answer.responses[0].partition_responses
    assert len(told) == MAX_PARTITIONS + 1
    assert {one.error_message for one in told} == {
        "a request names 10,001 partitions, 10,000 may be; ask in several requests"
    }


async def test_a_large_produce_that_is_refused_is_answered_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    opened = produce_handler._opening

    def noted(*asked: Any) -> Any:
        threads.append(threading.get_ident())
        return opened(*asked)

    monkeypatch.setattr(produce_handler, "_opening", noted)
    await ask(produce(MAX_PARTITIONS + 1), 9, ProduceResponse)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_produce_of_many_more_is_not_even_read() -> None:
    """Trap: to refuse ninety thousand batches one by one held the loop for two seconds."""
    with pytest.raises(MalformedFrameError, match=rf"may have {BATCH_ELEMENTS_MAX}: ask for fewer"):
        await ask(produce(BATCH_ELEMENTS_MAX), 9, ProduceResponse)


async def test_other_requests_that_are_too_long_have_an_answer() -> None:
    answer = await ask(list_offsets(BATCH_ELEMENTS_MAX), 7, ListOffsetsResponse)
    (told,) = answer.topics
    assert len(told.partitions) == BATCH_ELEMENTS_MAX
    assert all(one.error_code for one in told.partitions)


# ---- pages of topics -------------------------------------------------------------------------------------------------


async def pages(node: Node, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """The topics of each page, and how many partitions of them."""
    found: list[list[tuple[str, int]]] = []
    cursor = None
    while cursor is not None or not found:
        asked = describe(*names, limit=limit, cursor=cursor)
        answer = await ask(asked, 0, DescribeTopicPartitionsResponse, node)
        found.append([(topic.name, len(topic.partitions)) for topic in answer.topics])
        cursor = answer.next_cursor
    return found


async def test_topics_that_are_not_there_fill_a_page_too() -> None:
    names = [f"t{number:04}" for number in range(2_500)]
    first, second = await pages(Node(), *reversed(names), limit=10_000)
    assert (len(first), len(second)) == (topic_partitions.PARTITIONS_MAX, 500)
    assert [name for name, _ in first + second] == names


@pytest.mark.parametrize("at_once", [1, 2, 1_000])
async def test_pages_follow_one_another_whatever_is_looked_through_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_partitions, "NAMES_AT_ONCE", at_once)
    node = Node()
    (known,) = image(1, 2, 3).topics_by_name.values()
    topics = {name: TopicImage(name, UUID(int=7), known.partitions) for name in ("d", "a", "c", "b")}
    node.image = MetadataImage(brokers=node.image.brokers, topics_by_name=topics)
    assert await pages(node, limit=4) == [[("a", 3), ("b", 1)], [("b", 2), ("c", 2)], [("c", 1), ("d", 3)]]
    assert await pages(node, "d", "x", "a", limit=3) == [[("a", 3)], [("d", 3)], [("x", 0)]]


# ---- who reads them --------------------------------------------------------------------------------------------------


async def test_large_requests_are_read_and_written_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def noting(name: str) -> None:
        real = getattr(server_module, name)

        def noted(*args: Any) -> Any:
            threads.add(threading.get_ident())
            return real(*args)

        monkeypatch.setattr(server_module, name, noted)

    noting("_read")
    names = [f"flights-{number}" for number in range(server_module.READ_AT_ONCE_BYTES // 16)]
    asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    told = await ask(asked, 12, MetadataResponse)
    assert {topic.error_code for topic in told.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    noting("written_buffers")
    await ask(list_offsets(5_000), 7, ListOffsetsResponse)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("cluster_id", ["another", ""])
async def test_large_requests_that_are_refused_before_the_node_is_asked_are_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, cluster_id: str
) -> None:
    """Of a client of another cluster; to a node that does not know the metadata yet.  Neither opens an answer with records."""
    threads: set[int] = set()
    real = server_module._read

    def noted(*args: Any) -> Any:
        threads.add(threading.get_ident())
        return real(*args)

    class Unknowing(Node):
        @property
        def image(self) -> MetadataImage:
            raise BrokerNotAvailableError("node 1 has not read the metadata")

        @image.setter
        def image(self, _image: MetadataImage) -> None: ...

        def open_answer(self) -> None:
            raise AssertionError("nothing is read for a request that is refused")

    monkeypatch.setattr(server_module, "_read", noted)
    names = [f"flights-{number}" for number in range(server_module.READ_AT_ONCE_BYTES // 16)]
    asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    told = await ask(asked, 12, MetadataResponse, Unknowing(), cluster_id)
    expected = ErrorCode.INCONSISTENT_CLUSTER_ID if cluster_id else ErrorCode.BROKER_NOT_AVAILABLE
    assert {topic.error_code for topic in told.topics} == {expected}
    assert threads
    assert threading.get_ident() not in threads
    if cluster_id:
        fetch = FetchRequest(topics=[FetchRequest.FetchTopic("t")])
        assert (await ask(fetch, 12, FetchResponse, Unknowing(), cluster_id)).error_code == expected


@pytest.mark.parametrize(("names", "may"), [(100, True), (5_000, False)])
def test_a_large_commit_waits_for_its_turn(names: int, may: bool) -> None:
    """One that may overlap is read at once: thousands of names would hold up everybody else."""
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(f"topic-{number}") for number in range(names)]
    asked = frame(OffsetCommitRequest("g", topics=topics), 9)
    assert KafkaServer(Node()).may_overlap(asked) is may  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ProduceRequest.VERSIONS)
async def test_a_produce_that_is_read_in_turns_is_the_same(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: 9,900 topics were read in one turn of the loop, for up to 70 ms."""
    monkeypatch.setattr(produce_handler, "TOPICS_AT_ONCE", 2)
    batch = ProduceRequest.PartitionProduceData(3, b"x" * 9)
    topics = [ProduceRequest.TopicProduceData(f"t{n}", UUID(int=n), [batch] * (n % 3)) for n in range(7)]
    writer = Writer()
    ProduceRequest("x", -1, 5, topics).write(writer, version)
    data = memoryview(writer.joined())
    reading = produce_handler.read_in_turns(Reader(data), version)
    for _ in range(3):
        reading.send(None)
    with pytest.raises(StopIteration) as read:
        reading.send(None)
    assert read.value.value == ProduceRequest.read(Reader(data), version)
    with pytest.raises(MalformedFrameError):
        await produce_handler.read_in_turns(Reader(data[:-1]), version)


async def test_no_produce_is_overtaken_while_another_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: the batches of a producer follow one another over several requests; the large one has many turns to be read."""
    monkeypatch.setattr(produce_handler, "TOPICS_AT_ONCE", 1)
    monkeypatch.setattr(server_module, "READ_AT_ONCE_BYTES", 100)
    begun: list[int] = []
    produced = produce_handler._produced

    async def noted(node: Any, request: ProduceRequest, *others: Any) -> Any:
        begun.append(len(request.topic_data))
        return await produced(node, request, *others)

    monkeypatch.setattr(produce_handler, "_produced", noted)
    server, caller = KafkaServer(Node()), Caller(ANONYMOUS)  # type: ignore[arg-type]
    data = [ProduceRequest.PartitionProduceData(0, b"")]
    sizes = (50, 1, 40, 2)
    await asyncio.gather(
        *(
            server.serve(
                frame(
                    ProduceRequest(
                        acks=1,
                        topic_data=[ProduceRequest.TopicProduceData(f"t{n}", partition_data=data) for n in range(size)],
                    ),
                    9,
                ),
                caller,
            )
            for size in sizes
        )
    )
    assert begun == list(sizes)


# ---- what they leave to the garbage collector ------------------------------------------------------------------------


def test_a_topic_of_a_produce_is_two_objects_for_the_garbage_collector() -> None:
    """Trap: 9,900 topics with their answers were 40,000 objects, and a pass over some such requests a tenth of a second."""
    one = ProduceRequest.PartitionProduceData(0, b"x")
    writer = Writer()
    ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[one])] * 1_000).write(writer, 9)
    reader = Reader(memoryview(writer.joined()))
    gc.collect()
    before = len(gc.get_objects())
    request = ProduceRequest.read(reader, 9)
    assert len(request.topic_data) == 1_000
    assert len(gc.get_objects()) - before < 2_100, "a list and a view of its batch for each topic"
