"""Members of KIP-848 over a node's port: they join, share, leave, and commit in their epoch."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kafka_node_kit import Served, serving
from rights_kit import AllowedOnly, govern

from replog.access.entries import AclOperation, ResourceKind
from replog.errors import ErrorCode
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

Heartbeat, Answer = ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


class Member:
    """A member of group g that does what it is told."""

    def __init__(self, it: Served, member_id: str) -> None:
        self.it = it
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}

    async def beat(self, **others: Any) -> Answer:
        """Sends a heartbeat, and takes on what the answer assigns."""
        owned = [Heartbeat.TopicPartitions(topic_id, numbers) for topic_id, numbers in self.owned.items()]
        asked = Heartbeat("g", self.member_id, self.epoch, topic_partitions=owned, rebalance_timeout_ms=60_000)
        asked.subscribed_topic_names = ["t"]
        for name, value in others.items():
            setattr(asked, name, value)
        answer: Answer = await self.it.ask(asked, 1, Answer)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has."""
        return [number for numbers in self.owned.values() for number in numbers]


@pytest.fixture
async def it() -> Any:
    async with serving(offsets_topic_num_partitions=1) as served:
        await served.create("t", partitions=2)
        await served.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6, FindCoordinatorResponse)
        shards = served.node.parts.requests.coordinators.shards
        await served.until(lambda: shards.hosts and all(host.load_ms is not None for host in shards.hosts.values()))
        yield served


async def settled(*members: Member) -> list[list[int]]:
    """What the members have once nothing changes any more."""
    for _ in range(3):
        for member in members:
            assert (await member.beat()).error_code == ErrorCode.NONE
    return sorted(member.partitions for member in members)


async def test_members_share_a_topic_and_take_over_from_who_leaves(it: Served) -> None:
    first, second = Member(it, "a"), Member(it, "b")
    joined = await first.beat()
    assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (ErrorCode.NONE, "a", 5_000)
    assert await settled(first) == [[0, 1]]
    assert await settled(second, first) == [[0], [1]]
    left = await second.beat(member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert await settled(first) == [[0, 1]]


async def test_a_member_that_names_a_topic_twice_has_all_that_it_says(it: Served) -> None:
    """Goal: what it still reads is not taken for given back, and given to another one."""
    first, second = Member(it, "a"), Member(it, "b")
    assert await settled(first) == [[0, 1]]
    await second.beat()
    ((topic_id, numbers),) = first.owned.items()
    for said in (numbers, numbers[::-1]):
        owned = [Heartbeat.TopicPartitions(topic_id, [each]) for each in said]
        told = await it.ask(Heartbeat("g", "a", first.epoch, topic_partitions=owned), 1, Answer)
        assert told.member_epoch == first.epoch
        await second.beat()
        assert second.partitions == []
    assert await settled(first, second) == [[0], [1]]


async def test_people_are_told_where_a_member_connects_from(it: Served) -> None:
    await settled(Member(it, "a"))
    described = await it.ask(ConsumerGroupDescribeRequest(["g"]), 1, ConsumerGroupDescribeResponse)
    assert [each.client_host for each in described.groups[0].members] == ["/127.0.0.1"]


async def test_a_member_commits_in_its_epoch_alone(it: Served) -> None:
    member = Member(it, "a")
    await settled(member)
    for epoch, code in ((member.epoch, ErrorCode.NONE), (member.epoch - 1, ErrorCode.STALE_MEMBER_EPOCH)):
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])]
        asked = OffsetCommitRequest("g", epoch, "a", topics=topics)
        answer = await it.ask(asked, 9, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == code
        group = OffsetFetchRequest.OffsetFetchRequestGroup("g", "a", epoch)
        fetched = await it.ask(OffsetFetchRequest(groups=[group]), 9, OffsetFetchResponse)
        assert fetched.groups[0].error_code == code


async def test_a_heartbeat_that_is_wrong_says_what_is(it: Served) -> None:
    answer = await Member(it, "a").beat(subscribed_topic_names=None)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "has to name topics" in (answer.error_message or "")
    answer = await Member(it, "a").beat(member_epoch=4)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "there is no group 'g'" in (answer.error_message or "")


async def test_a_pattern_shows_nobody_a_topic_that_is_hidden(it: Served) -> None:
    """Trap: it told by the assignment whether a name is there, a letter at a time."""
    pytest.importorskip("re2", reason="the extra replog[patterns] is not installed")
    await it.create("secret")
    group, reads = (AclOperation.READ, ResourceKind.GROUP, "g"), AclOperation.DESCRIBE
    govern(it, AllowedOnly(group, (reads, ResourceKind.TOPIC, "t")))
    member = Member(it, "m")
    for pattern in ("secret|t", "s.*|t", ".*"):
        answer = await member.beat(subscribed_topic_names=[], subscribed_topic_regex=pattern)
        assert (answer.error_code, sorted(member.partitions)) == (ErrorCode.NONE, [0, 1])
