"""Questions about groups over a real connection, to a real Kafka and to a broker of ours: the answers mean the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sides import UNKNOWN_ID, Side, Sides

from replog.client.backoff import Backoff, retry
from replog.client.protocol.connection import KafkaConnection, KafkaTransport
from replog.client.protocol.questions.group_members import FindCoordinator
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse, DeleteGroup
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribeGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitOffsetsResponse,
    CommittedOffset,
    DeleteOffsets,
    DeleteOffsetsResponse,
    FetchOffsets,
    FetchOffsetsResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TopicToForget,
)
from replog.errors import ReplogError

TIMEOUT_MS = 10_000
SETTLED_MS = 60_000
MEMBER = "7e1a6f7c-6b6e-4f6e-8f43-1c3c1f0e0001"


class Asker:
    """Puts questions to one side; an answer is the error's class where it is an error, and names topics by their names."""

    def __init__(self, side: Side, group: str) -> None:
        self.group = group
        self.ids = side.ids
        self._names = {topic_id: name for name, topic_id in side.ids.items()}
        self._connection: KafkaConnection = KafkaTransport(client_id="asker").connect(
            side.broker.servers, purpose="test"
        )

    async def ask(self, question: Any) -> Any:
        try:
            return self._plain(await self._connection.call(question, timeout_ms=TIMEOUT_MS))
        except ReplogError as error:
            return type(error).__name__, bool(str(error))

    async def settled(self, question: Any) -> Any:
        """Asks until there is an answer: the log of groups is made when somebody asks first."""

        def attempt(remaining_ms: int) -> Any:
            return self._connection.call(question, timeout_ms=remaining_ms)

        return await retry(attempt, timeout_ms=SETTLED_MS, what=str(question), backoff=Backoff(random.Random(0)))

    async def close(self) -> None:
        await self._connection.close()

    def _plain(self, answer: Any) -> Any:
        match answer:
            case ConsumerHeartbeatResponse(member_epoch=epoch):
                interval_ms = answer.heartbeat_interval_ms if epoch >= 0 else 0  # who has left sends none
                named = None if answer.assignment is None else self._named(answer.assignment)
                return replace(answer, heartbeat_interval_ms=interval_ms, assignment=named)
            case CommitOffsetsResponse() | DeleteOffsetsResponse():
                return [
                    (topic.topic, [(each.partition, type(each.error).__name__) for each in topic.partitions])
                    for topic in answer.topics
                ]
            case FetchOffsetsResponse():
                return [
                    (topic.topic, [replace(each, commit_timestamp=0) for each in topic.partitions])
                    for topic in answer.topics
                ]
            case DescribedConsumerGroup():
                members = [
                    replace(each, assignment=self._named(each.assignment), target=self._named(each.target))
                    for each in answer.members
                ]
                return replace(answer, members=tuple(members))
            case ListGroupsResponse():
                return [each for each in answer.groups if each.group_id == self.group]
        return answer

    def _named(self, assignment: Mapping[UUID, frozenset[int]]) -> Any:
        return {self._names[topic_id]: partitions for topic_id, partitions in assignment.items()}


Script = Callable[[Asker], Iterator[Any]]
"""The questions, one after the other."""


async def told(side: Side, group: str, script: Script) -> list[Any]:
    asker = Asker(side, group)
    try:
        found = await asker.settled(FindCoordinator(group))
        assert found == 1
        await asker.settled(FetchOffsets(group))
        return [await asker.ask(question) for question in script(asker)]
    finally:
        await asker.close()


def alike(both: Sides, group: str, script: Script) -> None:
    """Puts the questions of a script to both, and compares the answers one by one."""
    theirs, ours = (asyncio.run(told(side, group, script)) for side in both)
    assert ours == theirs


def commit(asker: Asker, topic: str, *offsets: int, named: bool = False, **member: Any) -> CommitOffsets:
    parts = tuple(OffsetToCommit(number, offset, -1, f"at {offset}") for number, offset in enumerate(offsets))
    return CommitOffsets(
        asker.group,
        (TopicToCommit(topic, NO_TOPIC_ID if named else asker.ids.get(topic, UNKNOWN_ID), parts),),
        **member,
    )


def fetch(asker: Asker, topic: str, *, named: bool = False, **member: Any) -> FetchOffsets:
    topic_id = NO_TOPIC_ID if named else asker.ids.get(topic, UNKNOWN_ID)
    return FetchOffsets(asker.group, (TopicToFetch(topic, topic_id, (1, 0)),), **member)


def kept(topic: str, first: int, second: int) -> list[Any]:
    offsets = {number: CommittedOffset(number, each, -1, f"at {each}") for number, each in enumerate((first, second))}
    return [(topic, [offsets[1], offsets[0]])]


def test_a_member_from_joining_to_leaving(both: Sides) -> None:
    topic = both.topic(2)
    member: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 1}

    def script(asker: Asker) -> Iterator[Any]:
        def beat(epoch: int, **said: Any) -> ConsumerHeartbeat:
            return ConsumerHeartbeat(asker.group, MEMBER, epoch, **said)

        yield beat(0, rebalance_timeout_ms=5000, subscribed_topics=(topic,), owned={})
        yield beat(1, owned={asker.ids[topic]: frozenset({0, 1})})
        yield beat(1)
        yield beat(7)
        yield commit(asker, topic, 3, 4, **member)
        yield commit(asker, topic, 5, 6, **(member | {"member_epoch": 7}))
        yield commit(asker, topic, 5, 6, **(member | {"member_id": "nobody"}))
        yield commit(asker, topic, 5, 6)
        yield fetch(asker, topic, **member)
        yield fetch(asker, topic, named=True, **member)
        yield fetch(asker, topic, **(member | {"member_epoch": 7}))
        yield DescribeConsumerGroup(asker.group)
        yield DescribeGroup(asker.group)
        yield ListGroups(("Stable",), ("consumer",))
        yield ListGroups(("Empty",))
        yield DeleteOffsets(asker.group, (TopicToForget(topic, (0,)),))
        yield DeleteGroup(asker.group)
        yield beat(-1)
        yield beat(1)
        yield DescribeConsumerGroup(asker.group)
        yield DeleteOffsets(asker.group, (TopicToForget(topic, (0, 7)), TopicToForget("no-such-topic", (0,))))
        yield FetchOffsets(asker.group)
        yield DeleteGroup(asker.group)
        yield DeleteGroup(asker.group)
        yield DescribeConsumerGroup(asker.group)

    alike(both, "member-group", script)


def test_offsets_without_members(both: Sides) -> None:
    topic = both.topic(2)

    def script(asker: Asker) -> Iterator[Any]:
        yield commit(asker, topic, 3, 4)
        yield fetch(asker, topic)
        yield commit(asker, topic, 5, 6, named=True)
        yield fetch(asker, topic, named=True)
        yield fetch(asker, "no-such-topic", named=True)
        yield FetchOffsets(asker.group)
        yield commit(asker, "no-such-topic", 7, named=True)
        yield ListGroups((), ("classic",))
        yield DescribeGroup(asker.group)
        yield DescribeConsumerGroup(asker.group)
        yield DeleteGroup(asker.group)

    alike(both, "simple-group", script)
