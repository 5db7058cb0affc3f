"""Commits, fetches and deletions of offsets over a node's port, in every version; and the topic that holds them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_node_kit import PRODUCE_VERSION, Served, batch, serving

from replog.client import Consumer
from replog.controller.requests import CreatePartitions, DeleteTopics, NewPartitions
from replog.coordinator.offsets.manager import OffsetManager
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    FetchOffsets,
    FetchOffsetsResponse,
    OffsetToCommit,
    TopicToCommit,
)
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, CompleteTransaction, GetCommitPermit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import ErrorCode
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.protocol.handlers.groups import group_offsets
from replog.records import scan
from replog.testing import SimulatedFileSystem
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.envelopes import CLIENT, sender

VERSIONS = range(2, 10)
WRITER = TransactionWriter(7, 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Kept = list[tuple[str, int, int, str | None, int]]
"""Topic, partition, offset, text, error."""


async def ready(it: Served) -> None:
    """A topic, and a coordinator that serves."""
    await it.create("t", partitions=2)
    await it.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6, FindCoordinatorResponse)
    shards = it.node.parts.requests.coordinators.shards
    await it.until(lambda: shards.hosts and all(host.load_ms is not None for host in shards.hosts.values()))


async def commit(it: Served, version: int, *asked: tuple[str, int, int], group: str = "g", **member: Any) -> list[int]:
    """Commits offsets of (topic, partition), each as a topic of its own; returns the codes."""
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(number, offset, committed_metadata=f"at {offset}")
            ],
        )
        for name, number, offset in asked
    ]
    answer = await it.ask(OffsetCommitRequest(group, topics=topics, **member), version, OffsetCommitResponse)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def write(it: Served, *topics: TopicToCommit) -> None:
    """Commits offsets in the transaction of a producer."""
    coordinators = it.node.parts.requests.coordinators
    permit = await coordinators.submit("g", GetCommitPermit("g", WRITER), 5_000)
    await coordinators.submit("g", CommitTransactionalOffsets("g", topics, WRITER, permit.number), 5_000)


async def end(it: Served, *, is_commit: bool) -> None:
    """Ends the transaction of that producer."""
    request = CompleteTransaction(WRITER.producer_id, WRITER.producer_epoch, 1, is_commit)
    await it.node.parts.requests.coordinators.submit("g", request, 5_000)


async def fetch(it: Served, version: int, wanted: dict[str, list[int]] | None, group: str = "g", **more: bool) -> Kept:
    """The offsets of a group."""
    if version < 8:
        topics = (
            None if wanted is None else [OffsetFetchRequest.OffsetFetchRequestTopic(*each) for each in wanted.items()]
        )
        answer = await it.ask(OffsetFetchRequest(group, topics, **more), version, OffsetFetchResponse)
        found = answer.topics
    else:
        several = OffsetFetchRequest.OffsetFetchRequestTopics
        asked = (
            None if wanted is None else [several(name, partition_indexes=numbers) for name, numbers in wanted.items()]
        )
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=asked)]
        answer = await it.ask(OffsetFetchRequest(groups=groups, **more), version, OffsetFetchResponse)
        assert [each.group_id for each in answer.groups] == [group]
        assert answer.groups[0].error_code == ErrorCode.NONE
        found = answer.groups[0].topics
    return [
        (topic.name, each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in found
        for each in topic.partitions
    ]


@pytest.fixture
async def it() -> Any:
    async with serving(offsets_topic_num_partitions=2) as served:
        await ready(served)
        yield served


async def test_what_is_committed_is_fetched_in_every_version(it: Served) -> None:
    for version in VERSIONS:
        assert await commit(it, version, ("t", 0, version), ("t", 1, 100), ("t", 9, 1), ("gone", 0, 1)) == [
            *(ErrorCode.NONE, ErrorCode.NONE),
            *(UNKNOWN, UNKNOWN),
        ]
        wanted = {"t": [0, 1], "gone": [0]}
        nothing = ("gone", 0, -1, "", 0)
        kept = [("t", 0, version, f"at {version}", 0), ("t", 1, 100, "at 100", 0)]
        for fetch_version in (1, *VERSIONS):
            assert await fetch(it, fetch_version, wanted) == [*kept, nothing]
            if fetch_version > 1:
                assert await fetch(it, fetch_version, None) == kept
            assert await fetch(it, fetch_version, {"t": [0]}, "other") == [("t", 0, -1, "", 0)]


async def test_an_offset_is_not_told_as_stable_while_a_transaction_has_a_newer_one(it: Served) -> None:
    """KIP-447.  Without being asked for what is stable, the committed one is told."""
    await commit(it, 9, ("t", 0, 5), ("t", 1, 6))
    await write(it, TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 8),)))
    kept = [("t", 0, 5, "at 5", 0), ("t", 1, 6, "at 6", 0)]
    unstable = [("t", 0, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT), kept[1]]
    for version in (7, 8, 9):
        for wanted in ({"t": [0, 1]}, None):
            assert await fetch(it, version, wanted) == kept
            assert await fetch(it, version, wanted, require_stable=True) == unstable
    await end(it, is_commit=True)
    assert await fetch(it, 9, None, require_stable=True) == [("t", 0, 8, "", 0), kept[1]]


async def test_a_consumer_waits_for_the_transaction_that_moves_its_group_on(
    it: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would handle again what that transaction has handled."""
    await it.produce(batch(b"handled"), batch(b"next"))
    await write(it, TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 1),)))
    unstable = asyncio.Event()
    fetch_offsets = OffsetManager.fetch

    def watched(self: OffsetManager, request: FetchOffsets) -> FetchOffsetsResponse:
        response = fetch_offsets(self, request)
        if any(each.is_unstable for topic in response.topics for each in topic.partitions):
            unstable.set()
        return response

    monkeypatch.setattr(OffsetManager, "fetch", watched)
    async with Consumer(str(it.node.address), group_id="g", auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["t"])
        reading = asyncio.create_task(anext(consumer))
        await asyncio.wait_for(unstable.wait(), 20)
        assert not reading.done()
        await end(it, is_commit=True)
        assert (await asyncio.wait_for(reading, 20)).value == b"next"


async def test_a_member_of_no_group_is_told_what_its_version_knows(it: Served) -> None:
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert await commit(it, 8, ("t", 0, 1), **member) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(it, 9, ("t", 0, 1), **member) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert await commit(it, 9, ("t", 0, 1), group="") == [ErrorCode.INVALID_GROUP_ID]
    asked = OffsetFetchRequest("", [OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])])
    assert (await it.ask(asked, 5, OffsetFetchResponse)).error_code == ErrorCode.INVALID_GROUP_ID
    first = (await it.ask(asked, 1, OffsetFetchResponse)).topics[0].partitions[0]
    assert (first.committed_offset, first.error_code) == (-1, ErrorCode.INVALID_GROUP_ID)


async def test_offsets_are_deleted_one_by_one_and_with_their_group(it: Served) -> None:
    await commit(it, 9, ("t", 0, 5), ("t", 1, 6))
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name, [OffsetDeleteRequest.OffsetDeleteRequestPartition(number) for number in (0, 7)]
        )
        for name in ("t", "gone")
    ]
    answer = await it.ask(OffsetDeleteRequest("g", topics), 0, OffsetDeleteResponse)
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    assert (answer.error_code, codes) == (ErrorCode.NONE, [ErrorCode.NONE, UNKNOWN, UNKNOWN, UNKNOWN])
    assert await fetch(it, 9, None) == [("t", 1, 6, "at 6", 0)]
    for version in DeleteGroupsRequest.VERSIONS:
        await commit(it, 9, ("t", 0, 5))
        deleted = await it.ask(DeleteGroupsRequest(["g", "none"]), version, DeleteGroupsResponse)
        assert [(each.group_id, each.error_code) for each in deleted.results] == [
            ("g", ErrorCode.NONE),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert await fetch(it, 9, None) == []
    missing = await it.ask(OffsetDeleteRequest("g", topics), 0, OffsetDeleteResponse)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_go_with_their_topic(it: Served) -> None:
    await commit(it, 9, ("t", 0, 5))
    await it.create("u")
    await commit(it, 9, ("u", 0, 7))
    await it.kafka.change(DeleteTopics(("t",)), 5_000, sender(CLIENT))
    while await fetch(it, 9, None) != [("u", 0, 7, "at 7", 0)]:
        await it.kafka.catch_up(5_000)


async def test_offsets_survive_the_node() -> None:
    fs = SimulatedFileSystem()
    async with serving(fs=fs, offsets_topic_num_partitions=1) as it:
        await ready(it)
        await commit(it, 9, ("t", 0, 5))
    async with serving(fs=fs, offsets_topic_num_partitions=1) as it:
        shards = it.node.parts.requests.coordinators.shards
        await it.until(lambda: shards.hosts and all(host.load_ms is not None for host in shards.hosts.values()))
        assert await fetch(it, 9, None) == [("t", 0, 5, "at 5", 0)]


async def test_commits_of_one_connection_overlap_in_their_order(it: Served) -> None:
    key = it.node.parts.requests.coordinators._own_key("g")
    log = it.node.parts.replicas.stepper.replicas[key].log
    client, before = await it.client(), log.log_end_offset
    part = OffsetCommitRequest.OffsetCommitRequestPartition
    topic = OffsetCommitRequest.OffsetCommitRequestTopic

    def pipelined() -> list[int]:
        for offset in range(40):
            client.send(OffsetCommitRequest("g", topics=[topic("t", partitions=[part(0, offset)])]), 9)
        answers = [client.receive(OffsetCommitResponse, 9) for _ in range(40)]
        return [each.error_code for one in answers for named in one.topics for each in named.partitions]

    assert await asyncio.to_thread(pipelined) == [0] * 40
    assert log.log_end_offset == before + 40
    data = log.read(before, max_bytes=1 << 20, end_offset=before + 40, min_one_batch=True)
    assert len(list(scan(data))) < 30
    assert [offset for _, _, offset, _, _ in await fetch(it, 9, {"t": [0]})] == [39]


async def test_the_offsets_topic_is_the_clusters_own(it: Served) -> None:
    data = ProduceRequest.PartitionProduceData(0, batch(b"v"))
    asked = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(OFFSETS_TOPIC, partition_data=[data])]
    )
    (told,) = (await it.ask(asked, PRODUCE_VERSION, ProduceResponse)).responses[0].partition_responses
    assert (told.error_code, "coordinators" in told.error_message) == (ErrorCode.INVALID_TOPIC_EXCEPTION, True)
    deleted = await it.kafka.change(DeleteTopics((OFFSETS_TOPIC,)), 5_000, sender(CLIENT))
    assert deleted.topics[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    grown = CreatePartitions((NewPartitions(OFFSETS_TOPIC, 9),))
    assert (await it.kafka.change(grown, 5_000, sender(CLIENT))).topics[0].error is ErrorCode.INVALID_PARTITIONS
    metadata = await it.ask(MetadataRequest(None), 12, MetadataResponse)
    assert {topic.name: topic.is_internal for topic in metadata.topics} == {"t": False, OFFSETS_TOPIC: True}


async def test_asking_for_it_does_not_make_it() -> None:
    async with serving(auto_create_topics_enable=True) as it:
        named = [MetadataRequest.MetadataRequestTopic(name=OFFSETS_TOPIC)]
        answer = await it.ask(MetadataRequest(named, allow_auto_topic_creation=True), 12, MetadataResponse)
        assert answer.topics[0].error_code == UNKNOWN
        assert not it.kafka.image.topics_by_name


@pytest.mark.parametrize("version", [7, 9])
async def test_a_coordinator_is_asked_for_many_offsets_some_at_a_time(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "ASKED_AT_ONCE", 2)
    async with serving() as it:
        await ready(it)
        await commit(it, 9, ("t", 0, 5), ("t", 1, 6))
        steps: list[int] = []
        real = OffsetManager.fetch

        def noted(me: OffsetManager, asked: FetchOffsets) -> FetchOffsetsResponse:
            steps.append(sum(1 + len(each.partitions) for each in asked.topics or ()))
            return real(me, asked)

        monkeypatch.setattr(OffsetManager, "fetch", noted)
        told = await fetch(it, version, {"u": [], "t": [0, 1, 2, 0, 7], "v": [1]})
        assert max(steps) <= 4, steps
        assert len(steps) >= 3
        found = {(5, 0): "at 5", (6, 0): "at 6"}
        assert [each[:3] for each in told] == [
            ("t", 0, 5), ("t", 1, 6), ("t", 2, -1), ("t", 0, 5), ("t", 7, -1), ("v", 1, -1),
        ]  # fmt: skip
        assert [each[3] for each in told if (each[2], each[4]) in found] == ["at 5", "at 6", "at 5"]


async def test_many_offsets_are_committed_and_forgotten_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a commit of ten thousand offsets does not hold the loop for a twentieth of a second."""
    monkeypatch.setattr(group_offsets, "ASKED_AT_ONCE", 2)
    monkeypatch.setattr(group_offsets, "OVERLAPPING_ELEMENTS_MAX", 2)
    steps: dict[str, list[int]] = {"commit": [], "delete": []}

    def noted(name: str) -> Any:
        real = getattr(OffsetManager, name)

        def step(me: OffsetManager, asked: Any, *others: Any) -> Any:
            steps[name].append(sum(len(each.partitions) for each in asked.topics))
            return real(me, asked, *others)

        return step

    for name in steps:
        monkeypatch.setattr(OffsetManager, name, noted(name))
    async with serving() as it:
        await ready(it)
        assert await commit(it, 9, *(("t", number % 3, 5 + number) for number in range(6))) == [0, 0, UNKNOWN] * 2
        assert [each[:3] for each in await fetch(it, 9, None)] == [("t", 0, 8), ("t", 1, 9)]
        partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(number) for number in (0, 1, 2, 1)]
        topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic("t", partitions)]
        told = await it.ask(OffsetDeleteRequest("g", topics), 0, OffsetDeleteResponse)
        assert [each.error_code for each in told.topics[0].partitions] == [0, 0, UNKNOWN, 0]
        assert await fetch(it, 9, None) == []
    assert max(*steps["commit"], *steps["delete"]) <= 2
    assert (sum(steps["commit"]), sum(steps["delete"])) == (4, 3)  # behind the first two there is no group any more
