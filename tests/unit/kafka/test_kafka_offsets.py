"""ListOffsets and OffsetForLeaderEpoch, as consumers send them to a node's port."""

from __future__ import annotations

import pytest
from kafka_node_kit import Served, batch, serving

from replog.errors import ErrorCode
from replog.protocol.handlers.node import Failure
from replog.protocol.handlers.offsets import (
    list_offsets,
    refuse_list_offsets,
    refuse_offset_for_leader_epoch,
)
from replog.rpc.messages import ListOffsetsResponse as NodeResponse
from replog.rpc.messages import ListOffsetsResult
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from tests.unit.kafka.rights_kit import a_call

LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NEWEST = 10
Asked = ListOffsetsRequest.ListOffsetsPartition
Listed = ListOffsetsResponse.ListOffsetsPartitionResponse


def asking(*partitions: Asked, topic: str = "t", replica_id: int = -1, isolation_level: int = 0) -> ListOffsetsRequest:
    topics = [ListOffsetsRequest.ListOffsetsTopic(topic, list(partitions))]
    return ListOffsetsRequest(replica_id, isolation_level, topics, timeout_ms=5000)


async def listed(it: Served, timestamp: int, version: int = NEWEST, *, epoch: int = -1, topic: str = "t") -> Listed:
    request = asking(Asked(0, epoch, timestamp), topic=topic)
    response = await it.ask(request, version, ListOffsetsResponse)
    ((told,),) = (topic.partitions for topic in response.topics)
    assert isinstance(told, Listed)
    return told


async def times(it: Served) -> None:
    """Three records of the times 100, 300 and 200."""
    await it.create()
    for timestamp_ms in (100, 300, 200):
        await it.produce(batch(timestamp_ms=timestamp_ms))


async def test_offsets_in_every_version() -> None:
    async with serving() as it:
        await times(it)
        for version in ListOffsetsRequest.VERSIONS:
            epoch = 0 if version >= 4 else -1
            assert await listed(it, LATEST, version) == Listed(0, 0, -1, 3, epoch)
            assert await listed(it, EARLIEST, version) == Listed(0, 0, -1, 0, epoch)
            assert await listed(it, 150, version) == Listed(0, 0, 300, 1, epoch)
            assert await listed(it, 301, version) == Listed(0, 0, -1, -1, -1)


async def test_a_node_that_stops_ends_the_connection_instead_of_refusing() -> None:
    """A code that says nothing of it would be final to clients: they ask the next leader when a connection is lost."""
    async with serving() as it:
        await times(it)
        it.node.parts.replicas.stepper.driver.halt()
        with pytest.raises(EOFError, match="closed"):
            await listed(it, LATEST)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (LARGEST, 7, Listed(0, 0, 300, 1, 0)),
        (EARLIEST_LOCAL, 8, Listed(0, 0, -1, 0, 0)),
        (LATEST_TIERED, 9, Listed(0, 0, -1, -1, -1)),
        (-6, 11, None),
    ],
    ids=["largest timestamp", "earliest local", "latest tiered", "unknown"],
)
async def test_what_later_versions_ask_is_refused_in_earlier_ones(
    timestamp: int, since: int, expected: Listed | None
) -> None:
    async with serving() as it:
        await times(it)
        for version in ListOffsetsRequest.VERSIONS:
            told = await listed(it, timestamp, version)
            assert told == (expected if version >= since else Listed(0, ErrorCode.UNSUPPORTED_VERSION))


async def test_offsets_are_refused_with_kafkas_codes() -> None:
    async with serving() as it:
        await times(it)
        assert await listed(it, LATEST, topic="u") == Listed(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await listed(it, LATEST, epoch=7) == Listed(0, ErrorCode.UNKNOWN_LEADER_EPOCH)
        assert await listed(it, LATEST, 3, epoch=7) == Listed(0, 0, -1, 3)  # not told before version 4
        request = asking(Asked(0, timestamp=LATEST), Asked(0, timestamp=EARLIEST), Asked(5, timestamp=EARLIEST))
        response = await it.ask(request, NEWEST, ListOffsetsResponse)
        assert [each.error_code for each in response.topics[0].partitions] == [
            ErrorCode.INVALID_REQUEST,  # once, as Kafka
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        request = asking(Asked(0, timestamp=LATEST), replica_id=2)
        response = await it.ask(request, NEWEST, ListOffsetsResponse)
        (refused,) = response.topics[0].partitions
        assert (refused.error_code, "this port is for clients" in refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            True,
        )


@pytest.mark.parametrize(
    ("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_a_leader_that_does_not_know_the_latest_offset_yet_says_so_in_the_words_of_the_version(
    monkeypatch: pytest.MonkeyPatch, version: int, expected: ErrorCode
) -> None:
    async with serving() as it:
        topic_id = await it.create()

        async def call(*_: object) -> NodeResponse:
            return NodeResponse((ListOffsetsResult(topic_id, 0, ErrorCode.OFFSET_NOT_AVAILABLE),))

        monkeypatch.setattr(it.kafka, "call", call)
        response = await list_offsets(it.kafka, asking(Asked(0, timestamp=LATEST)), a_call(version))
        assert response.topics[0].partitions == [Listed(0, expected)]


def test_a_failure_names_every_partition() -> None:
    failure = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")
    told = refuse_list_offsets(asking(Asked(3)), failure)
    assert told.topics[0].partitions == [Listed(3, ErrorCode.UNKNOWN_SERVER_ERROR, error_message="a bug")]
    ended = refuse_offset_for_leader_epoch(ending(Ending(3)), failure)
    assert ended.topics[0].partitions == [Ended(ErrorCode.UNKNOWN_SERVER_ERROR, 3, error_message="a bug")]


# ---- where epochs ended ----------------------------------------------------------------------------------------------

Ending = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
Ended = OffsetForLeaderEpochResponse.EpochEndOffset


def ending(*partitions: Ending, topic: str = "t", replica_id: int = -1) -> OffsetForLeaderEpochRequest:
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, list(partitions))]
    return OffsetForLeaderEpochRequest(replica_id, topics)


@pytest.mark.parametrize("version", OffsetForLeaderEpochRequest.VERSIONS)
async def test_where_an_epoch_ended(version: int) -> None:
    async with serving() as it:
        await times(it)
        request = ending(Ending(0, leader_epoch=0), Ending(0, leader_epoch=3), Ending(0, 7, 0), Ending(9))
        response = await it.ask(request, version, OffsetForLeaderEpochResponse)
        assert response.topics[0].partitions == [
            Ended(ErrorCode.NONE, 0, 0, 3),
            Ended(ErrorCode.NONE, 0, -1, -1),
            Ended(ErrorCode.UNKNOWN_LEADER_EPOCH, 0),
            Ended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9),
        ]
        response = await it.ask(ending(Ending(0), topic="u"), version, OffsetForLeaderEpochResponse)
        assert response.topics[0].partitions == [Ended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]


async def test_a_follower_does_not_ask_at_this_port_where_an_epoch_ended() -> None:
    async with serving() as it:
        await times(it)
        response = await it.ask(ending(Ending(0), replica_id=2), 4, OffsetForLeaderEpochResponse)
        (refused,) = response.topics[0].partitions
        assert (refused.error_code, "this port is for clients" in refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            True,
        )
