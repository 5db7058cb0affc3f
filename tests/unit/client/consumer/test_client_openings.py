"""Where a member begins: what the coordinator tells, and what has to be asked of leaders or is an error."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from replog.client import ClusterView, TopicPartition
from replog.client.consumer.group_openings import Opened, Openings
from replog.client.consumer.group_settings import GroupSettings
from replog.client.groups.coordinator import Coordinator
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommittedOffset,
    FetchOffsets,
    FetchOffsetsResponse,
    TopicOffsets,
)
from replog.errors import NoOffsetError, RecreatedTopicError

OLD, NEW = UUID(int=1), UUID(int=2)
A, B, C = (TopicPartition("t", number) for number in range(3))


class Kept:
    """A coordinator that keeps offsets, each of a topic's id."""

    def __init__(self, **offsets: tuple[UUID, int]) -> None:
        self.offsets = {int(name[1:]): offset for name, offset in offsets.items()}
        self.asked: list[FetchOffsets] = []

    async def call(self, request: FetchOffsets, timeout_ms: int = 0) -> FetchOffsetsResponse:
        self.asked.append(request)
        topics = []
        for topic in request.topics or ():
            found = [self.offsets.get(each, (topic.topic_id, -1)) for each in topic.partitions]
            told = [offset if topic.topic_id in {NO_TOPIC_ID, of} else -1 for of, offset in found]
            partitions = tuple(
                CommittedOffset(each, offset, 5) for each, offset in zip(topic.partitions, told, strict=True)
            )
            topics.append(TopicOffsets(topic.topic, topic.topic_id, partitions))
        return FetchOffsetsResponse(tuple(topics))


def openings(kept: Kept) -> Openings:
    """Without a view: whoever asks a leader fails."""
    return Openings(cast("ClusterView", None), cast("Coordinator", kept), GroupSettings("g"))


async def test_who_has_an_offset_waits_for_no_leader() -> None:
    kept = Kept(p0=(NEW, 7))
    opened, fresh = await openings(kept).open({A: NEW, B: NEW}, "m", 3)
    assert (opened, fresh) == ([Opened(A, NEW, 7, epoch=5)], {B: NEW})
    assert {(each.member_id, each.member_epoch) for each in kept.asked} == {("m", 3)}


async def test_where_all_have_one_nothing_more_is_asked() -> None:
    kept = Kept(p0=(NEW, 7), p1=(NEW, 0))
    opened, fresh = await openings(kept).open({A: NEW, B: NEW}, "m", 3)
    assert (len(opened), fresh, len(kept.asked)) == (2, {}, 1)


async def test_an_offset_of_an_earlier_topic_is_an_error() -> None:
    ((_, _, position, error, _),), fresh = await openings(Kept(p0=(OLD, 7))).open({A: NEW}, "m", 3)
    assert (position, fresh) == (0, {})
    assert isinstance(error, RecreatedTopicError)
    assert "committed offset 7 is of the earlier one" in str(error)


async def test_a_topic_that_changes_its_id_while_it_is_read_is_an_error() -> None:
    """Its offsets were forgotten with it."""
    found = openings(Kept())
    assert (await found.open({A: OLD}, "m", 3))[1] == {A: OLD}
    ((_, _, _, error, _),), fresh = await found.open({A: NEW}, "m", 4)
    assert isinstance(error, RecreatedTopicError)
    assert fresh == {}


async def test_without_a_policy_there_is_no_place() -> None:
    ((_, _, _, error, _),) = await openings(Kept()).reset({C: NEW})
    assert isinstance(error, NoOffsetError)
