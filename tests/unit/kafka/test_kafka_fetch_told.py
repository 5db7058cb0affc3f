"""Fetch: what becomes of a node's answer that a single node does not give."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_node_kit import Served, serving

from replog.errors import ErrorCode
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint
from replog.protocol.handlers.fetch import fetch, refuse_fetch
from replog.protocol.handlers.node import Failure
from replog.rpc.messages import FetchRequest as NodeRequest
from replog.rpc.messages import FetchResponse as NodeResponse
from replog.rpc.messages import FetchResult
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka.rights_kit import a_call

NEWEST = 18


class Answers:
    """A node's fetch path that answers every partition alike, and notes what it was asked."""

    def __init__(self, records: bytes = b"", **result: Any) -> None:
        self.records = records
        self.result: dict[str, Any] = {"error": ErrorCode.NONE, "high_watermark": 5, **result}
        self.asked: list[NodeRequest] = []

    async def __call__(self, request: NodeRequest, unread: object, session: object = None) -> NodeResponse:
        self.asked.append(request)
        results = tuple(
            FetchResult(p.topic_id, p.partition_id, fetch_offset=p.fetch_offset, **self.result)
            for p in request.partitions
        )
        return NodeResponse(0, results, (self.records,) * len(results))


async def told(
    it: Served, monkeypatch: pytest.MonkeyPatch, answers: Answers, version: int = NEWEST, **others: Any
) -> FetchResponse:
    """What a client reads in its version, of partition 0 of topic `t`."""
    monkeypatch.setattr(it.kafka, "fetch", answers)
    topic_id = it.kafka.image.topics_by_name["t"].topic_id
    topics = [FetchRequest.FetchTopic("t", topic_id, [FetchRequest.FetchPartition(0)])]
    asked = FetchRequest(**{"topics": topics, **others})
    response = await fetch(it.kafka, asked, a_call(version))
    writer = Writer()
    response.write(writer, version)
    return FetchResponse.read(Reader(memoryview(writer.joined())), version)


@pytest.mark.parametrize(
    ("version", "has_leader", "has_endpoint"), [(11, False, False), (12, True, False), (16, True, True)]
)
@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
async def test_who_asks_the_wrong_broker_is_told_the_leader_and_its_address(
    monkeypatch: pytest.MonkeyPatch, version: int, has_leader: bool, has_endpoint: bool, error: ErrorCode
) -> None:
    """Goal: KIP-951: a client goes there at once, without a look at the metadata."""
    async with serving() as it:
        await it.create()
        answers = Answers(error=error, leader_id=1, leader_epoch=4)
        response = await told(it, monkeypatch, answers, version)
        (partition,) = response.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, partition.records) == (error, -1, b"")
        leader = FetchResponse.LeaderIdAndEpoch(1, 4)
        assert partition.current_leader == (leader if has_leader else None)
        at = it.kafka.endpoint(1, CLIENT_LISTENER)
        assert at is not None
        assert response.node_endpoints == (
            [FetchResponse.NodeEndpoint(1, at.host, at.port, None)] if has_endpoint else []
        )


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, NEWEST, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, NEWEST, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, 6, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["no lease", "no descriptor", "no disk", "no disk, to an old client"],
)
async def test_a_consumer_hears_codes_after_which_it_asks_again(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    """Goal: Java's consumer ends with an exception at a code of Fetch that it does not expect."""
    async with serving() as it:
        await it.create()
        response = await told(it, monkeypatch, Answers(error=error), version)
        assert response.responses[0].partitions[0].error_code == expected


@pytest.mark.parametrize(
    ("version", "expected"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_who_names_topics_hears_of_no_ids(
    monkeypatch: pytest.MonkeyPatch, version: int, expected: ErrorCode
) -> None:
    async with serving() as it:
        await it.create()
        response = await told(it, monkeypatch, Answers(error=ErrorCode.UNKNOWN_TOPIC_ID), version)
        assert response.responses[0].partitions[0].error_code == expected


async def test_only_brokers_in_the_consumers_rack_that_it_can_reach_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(broker_rack="a") as it:
        await it.create()
        answers = Answers()
        for rack in ("a", "b", ""):
            await told(it, monkeypatch, answers, rack_id=rack)
        assert [request.near for request in answers.asked] == [(1,), (), ()]

        def nowhere(_broker_id: int, _listener: str) -> BrokerEndpoint | None:
            return None

        monkeypatch.setattr(it.kafka, "endpoint", nowhere)
        await told(it, monkeypatch, answers, rack_id="a")
        assert answers.asked[-1].near == ()


async def test_records_are_the_buffers_that_the_log_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as it:
        await it.create()
        data = bytes(100_000)
        monkeypatch.setattr(it.kafka, "fetch", Answers(records=data))
        topics = [FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0)])]
        response = await fetch(it.kafka, FetchRequest(topics=topics), a_call(12))
        writer = Writer()
        response.write(writer, 12)
        assert any(buffer is data for buffer in writer.buffers())


def test_a_failure_names_every_partition_for_versions_without_a_code_of_their_own() -> None:
    topics = [FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(3)])]
    response = refuse_fetch(FetchRequest(topics=topics), Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug"))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (partition,) = response.responses[0].partitions
    assert (partition.partition_index, partition.error_code) == (3, ErrorCode.UNKNOWN_SERVER_ERROR)
