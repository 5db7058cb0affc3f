"""Answers that are written once for all who ask the same."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from replog.access.authorizer import OPEN
from replog.access.principal import ANONYMOUS
from replog.errors import ErrorCode, MalformedFrameError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration
from replog.protocol import repeated_answers, server, written_steps
from replog.protocol.repeated_answers import AnswerSource, Asked, RepeatedAnswers, WrittenAnswer
from replog.protocol.server import KafkaServer
from replog.tcp.connection import Caller
from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.primitives import Reader, Writer

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
    authorizer = OPEN

    def __init__(self) -> None:
        self.image = image(1)
        self.controller = 1

    def controller_id(self) -> int:
        return self.controller

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint:
        return BrokerEndpoint(listener, "localhost", 9000 + broker_id)


class Asker:
    """Asks a server, and counts how often an answer was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = Node()
        self.written = 0
        self._server = KafkaServer(self.node)  # type: ignore[arg-type]
        write = server.written_buffers

        def counting(response: object, version: int) -> repeated_answers.Buffers:
            self.written += 1
            return write(response, version)  # type: ignore[arg-type]

        monkeypatch.setattr(server, "written_buffers", counting)

    async def ask(self, request: MetadataRequest, correlation_id: int = 1) -> MetadataResponse:
        writer = Writer()
        RequestHeader(request.API_KEY, VERSION, correlation_id, f"client-{correlation_id}").write(writer, 2)
        request.write(writer, VERSION)
        answer = await self._server.serve(memoryview(writer.joined()), Caller(ANONYMOUS))
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
    answer = await asker._server.serve(memoryview(recorded), Caller(ANONYMOUS))
    assert answer is not None
    reader = Reader(memoryview(b"".join(answer.buffers))[4:])
    assert ResponseHeader.read(reader, 1).correlation_id == 3
    assert [topic.name for topic in MetadataResponse.read(reader, 13).topics] == ["flights"]


# ---- while an answer is written --------------------------------------------------------------------------------------


async def test_an_answer_of_many_partitions_is_written_in_steps(asker: Asker) -> None:
    """Goal: a hundred thousand partitions hold nobody up who asks for something else."""
    asker.node.image = image(*[1] * 5 * written_steps.AT_ONCE)
    asking = asyncio.create_task(asker.ask(MetadataRequest(None)))
    assert await turns_of_others(asking) > 5
    assert len((await asking).topics[0].partitions) == 5 * written_steps.AT_ONCE


async def test_an_answer_of_many_topics_is_written_in_steps(asker: Asker) -> None:
    names = [f"t{number}" for number in range(5 * written_steps.AT_ONCE)]
    asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in [*names, names[0]]])
    asking = asyncio.create_task(asker.ask(asked))
    assert await turns_of_others(asking) > 5
    assert [topic.name for topic in (await asking).topics] == names


async def turns_of_others(task: asyncio.Task[Any]) -> int:
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_those_who_ask_while_an_answer_is_written_wait_for_it(asker: Asker) -> None:
    asker.node.image = image(*[1] * 1_000)
    answers = await asyncio.gather(*(asker.ask(MetadataRequest(None), number) for number in range(5)))
    assert asker.written == 1
    assert [len(answer.topics[0].partitions) for answer in answers] == [1_000] * 5


class Writing:
    """A server whose answers are written when a test says so."""

    def __init__(self) -> None:
        self.source = AnswerSource(image(1), 1, OPEN, 0)
        self.answers = RepeatedAnswers(lambda: self.source)
        self.begun: list[asyncio.Future[WrittenAnswer]] = []

    async def _write(self) -> WrittenAnswer:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    async def ask(self, body: bytes = b"") -> asyncio.Task[repeated_answers.Buffers]:
        asking = asyncio.create_task(self.answers.answer(Asked(CLIENT_LISTENER, None, 3, 0, body), self._write))
        await settled()
        return asking

    async def finish(self, data: bytes) -> None:
        """Ends the writing that was begun last."""
        self.begun.pop().set_result(WrittenAnswer([data], is_repeated=True))
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_asks_after_a_change_is_not_told_what_was_before() -> None:
    """Note: the answers of the past are not written beside one another, however often the metadata change."""
    it = Writing()
    first = await it.ask()
    late = []
    for _ in range(3):
        it.source = AnswerSource(image(2), 1, OPEN, 0)
        late += [await it.ask(), await it.ask()]
    assert len(it.begun) == 1
    await it.finish(b"old")
    assert await first == [b"old"]
    assert len(it.begun) == 1
    await it.finish(b"new")
    assert await asyncio.gather(*late) == [[b"new"]] * 6
    assert await (await it.ask()) == [b"new"]
    assert not it.begun


async def test_who_leaves_takes_an_answer_from_nobody() -> None:
    it = Writing()
    first, second = await it.ask(), await it.ask()
    first.cancel()
    await settled()
    await it.finish(b"told")
    assert await second == [b"told"]


async def test_an_answer_for_which_nobody_waits_is_not_written_to_its_end() -> None:
    it = Writing()
    asking = [await it.ask(), await it.ask()]
    for one in asking:
        one.cancel()
    again = asyncio.create_task(
        it.answers.answer(Asked(CLIENT_LISTENER, None, 3, 0, b""), it._write)
    )  # in the same turn of the loop
    await settled()
    assert it.begun.pop(0).cancelled()
    await it.finish(b"told")
    assert await again == [b"told"]


async def test_an_error_is_told_to_all_who_wait_and_to_nobody_after_them() -> None:
    it = Writing()
    asking = [await it.ask(), await it.ask()]
    it.begun.pop(0).set_exception(MalformedFrameError("cut off"))
    for one in asking:
        with pytest.raises(MalformedFrameError, match="cut off"):
            await one
    asking = [await it.ask()]
    await it.finish(b"told")
    assert await asking[0] == [b"told"]


async def told(it: Writing, body: bytes, data: bytes) -> bool:
    """Asks, answers if that is needed; returns whether it was."""
    asking = await it.ask(body)
    is_new = not asking.done()
    if is_new:
        await it.finish(data)
    assert await asking == [data]
    return is_new


async def test_answers_are_bounded() -> None:
    it = Writing()
    each = bytes(repeated_answers.KEPT_BYTES_MAX // 2)
    assert [await told(it, b"%d" % number, each) for number in range(3)] == [True] * 3
    assert [await told(it, b"%d" % number, each) for number in range(3)] == [False, False, True]
    it.source = AnswerSource(image(2), 1, OPEN, 0)
    assert await told(it, b"0", b"")
    long = bytes(repeated_answers.ASKED_BYTES_MAX + 1)
    assert await told(it, long, b"x")
    assert await told(it, long, b"x")


async def test_an_answer_of_the_past_is_not_kept() -> None:
    """Example: the metadata changed while the handler waited."""
    it = Writing()
    asking = await it.ask()
    it.source = AnswerSource(image(2), 1, OPEN, 0)
    assert await told(it, b"other", b"")
    await it.finish(b"old")
    assert await asking == [b"old"]
    assert await told(it, b"", b"new")
