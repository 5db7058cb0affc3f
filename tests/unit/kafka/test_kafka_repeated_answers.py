"""Answers that are written once for all who ask the same."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.errors import ErrorCode
from replog.kafka import repeated_answers, server
from replog.kafka.messages.headers import RequestHeader, ResponseHeader
from replog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from replog.kafka.repeated_answers import Asked, RepeatedAnswers
from replog.kafka.server import KafkaServer
from replog.kafka.wire import Reader, Writer
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import KAFKA_LISTENER, BrokerEndpoint
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration

VERSION = 12


def image(*leaders: int) -> MetadataImage:
    """A topic whose partitions are led by these brokers."""
    partitions = {
        number: PartitionRegistration(
            replicas=(leader,), isr=(leader,), leader=leader, leader_epoch=0, partition_epoch=0
        )
        for number, leader in enumerate(leaders)
    }
    topic = TopicImage("flights", UUID(int=7), partitions)
    brokers = {
        number: BrokerRegistration(number, UUID(int=number), number, "localhost", 9, (UUID(int=9),), fenced=False)
        for number in (1, 2, 3)
    }
    return MetadataImage(brokers=brokers, topics_by_name={"flights": topic}, topics_by_id={topic.topic_id: topic})


class Node:
    """The part of a node that Metadata asks."""

    node_id = 1
    cluster_id = "cluster"
    request_timeout_ms = 1_000
    creates_missing_topics = False

    def __init__(self) -> None:
        self.image = image(1)
        self.controller = 1

    def controller_id(self) -> int:
        return self.controller

    def endpoint(self, broker_id: int) -> BrokerEndpoint:
        return BrokerEndpoint(KAFKA_LISTENER, "localhost", 9000 + broker_id)


class Asker:
    """Asks a server, and counts how often an answer was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = Node()
        self.written = 0
        self._server = KafkaServer(self.node)  # type: ignore[arg-type]
        write = server._written

        def counting(response: object, version: int) -> repeated_answers.Buffers:
            self.written += 1
            return write(response, version)  # type: ignore[arg-type]

        monkeypatch.setattr(server, "_written", counting)

    async def ask(self, request: MetadataRequest, correlation_id: int = 1) -> MetadataResponse:
        writer = Writer()
        RequestHeader(request.API_KEY, VERSION, correlation_id, f"client-{correlation_id}").write(writer, 2)
        request.write(writer, VERSION)
        answer = await self._server.serve(memoryview(writer.joined()))
        assert answer is not None
        reader = Reader(memoryview(b"".join(answer.buffers))[4:])
        assert ResponseHeader.read(reader, 1).correlation_id == correlation_id
        response = MetadataResponse.read(reader, VERSION)
        reader.finish()
        return response


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> Asker:
    return Asker(monkeypatch)


def named(name: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])


async def test_an_answer_is_written_once_for_all_clients(asker: Asker) -> None:
    first = await asker.ask(MetadataRequest(None))
    assert [await asker.ask(MetadataRequest(None), number) for number in range(2, 9)] == [first] * 7
    assert asker.written == 1
    assert await asker.ask(named("flights")) == first
    assert asker.written == 2, "another request"


async def test_what_changes_is_told(asker: Asker) -> None:
    await asker.ask(MetadataRequest(None))
    asker.node.image = image(2, 3)
    found = await asker.ask(MetadataRequest(None))
    assert [partition.replica_nodes for partition in found.topics[0].partitions] == [[2], [3]]
    asker.node.controller = 3
    assert (await asker.ask(MetadataRequest(None))).controller_id == 3
    assert asker.written == 3


async def test_what_is_not_there_is_looked_for_each_time(asker: Asker) -> None:
    """The request may have made it, and it will be there soon."""
    for _ in range(3):
        assert (await asker.ask(named("trains"))).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asker.written == 3


async def test_bytes_behind_a_request_are_not_looked_at(asker: Asker) -> None:
    """Example: librdkafka's Metadata for all topics in a flexible version, as it was recorded."""
    recorded = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    answer = await asker._server.serve(memoryview(recorded))
    assert answer is not None
    reader = Reader(memoryview(b"".join(answer.buffers))[4:])
    assert ResponseHeader.read(reader, 1).correlation_id == 3
    assert [topic.name for topic in MetadataResponse.read(reader, 13).topics] == ["flights"]


def test_answers_are_bounded() -> None:
    answers, now = RepeatedAnswers(), image(1)
    each = bytes(repeated_answers.KEPT_BYTES_MAX // 2)
    for number in range(3):
        answers.find(now, 1, Asked(3, number, b""))
        answers.keep(now, 1, Asked(3, number, b""), [each])
    assert [answers.find(now, 1, Asked(3, number, b"")) for number in range(3)] == [[each], [each], None]
    long = bytes(repeated_answers.ASKED_BYTES_MAX + 1)
    other = image(2)
    assert answers.find(other, 1, Asked(3, 0, b"")) is None
    answers.keep(other, 1, Asked(3, 0, long), [b"x"])
    assert answers.find(other, 1, Asked(3, 0, long)) is None


def test_an_answer_of_the_past_is_not_kept() -> None:
    """Example: the metadata changed while the handler waited."""
    answers, before, now = RepeatedAnswers(), image(1), image(2)
    answers.find(before, 1, Asked(3, 0, b""))
    answers.find(now, 1, Asked(3, 0, b""))
    answers.keep(before, 1, Asked(3, 0, b""), [b"old"])
    assert answers.find(now, 1, Asked(3, 0, b"")) is None
