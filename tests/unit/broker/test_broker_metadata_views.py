"""The image as clients see it, and the steps that lead from one picture to the next."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, registered, topic
from hypothesis import given
from hypothesis import strategies as st

from replog.broker.requests import metadata_views
from replog.broker.requests.metadata_views import EncodedNews, MetadataNews, watch_steps
from replog.client.cluster.image import ClusterImage
from replog.controller.requests import ConfigEntry
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    CLIENT_LISTENER,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    SecurityProtocol,
    TopicRecord,
)
from replog.protocol.private import encoded
from replog.rpc.metadata_messages import BrokerInfo, MetadataUpdate, PartitionInfo, TopicInfo
from tests.unit.metadata.metadata_histories import bounded, records_of, replayed

CONTROLLER: Any = {"cluster_id": "c", "controller_id": 2, "controller_epoch": 8}
KAFKA = BrokerEndpoint(CLIENT_LISTENER, "h", 19)


def steps_between(before: MetadataImage | None, after: MetadataImage) -> list[MetadataUpdate]:
    return list(watch_steps(before, after, **CONTROLLER))


def picture(image: MetadataImage) -> ClusterImage:
    """What a client knows that has been told everything at once."""
    return ClusterImage().after(steps_between(None, image))


def test_what_clients_see() -> None:
    image = replayed(
        [
            registered(2),
            registered(1, fenced=True),
            *topic((1, 2), isr=(2,), leader=2, leader_epoch=3),
            ConfigRecord(ResourceType.TOPIC, TOPIC, "retention.ms", "5"),
            BrokerRegistrationChangeRecord(2, 102, in_controlled_shutdown=True, endpoints=(KAFKA,)),
        ]
    )
    (seen,) = steps_between(None, image)
    assert (seen.cluster_id, seen.metadata_offset, seen.controller_id, seen.controller_epoch) == ("c", 6, 2, 8)
    assert seen.brokers == (
        BrokerInfo(1, "127.0.0.1", 9001, 101, fenced=True),
        BrokerInfo(
            2, "127.0.0.1", 9002, 102, fenced=True, in_controlled_shutdown=True, endpoints=(KAFKA,)
        ),  # leaving: not to be used either
    )
    assert seen.topics == (
        TopicInfo(TOPIC, TOPIC_ID, (PartitionInfo(0, 2, 3, 0, (1, 2), (2,)),), (ConfigEntry("retention.ms", "5"),)),
    )


def test_clients_see_the_addresses_of_their_listener() -> None:
    outside = BrokerEndpoint("OUTSIDE", "b1.example", 19, SecurityProtocol.SSL)
    image = replayed([registered(1), BrokerRegistrationChangeRecord(1, 101, endpoints=(KAFKA, outside))])
    seen = [
        [one.endpoints for one in next(watch_steps(None, image, **CONTROLLER, listener=name)).brokers]
        for name in (CLIENT_LISTENER, "OUTSIDE", "OTHER")
    ]
    assert seen == [[(KAFKA,)], [(outside,)], [()]]


@given(data=st.data())
@bounded
def test_steps_lead_to_the_picture(data: st.DataObject) -> None:
    before = replayed(records_of(data))
    after = replayed(records_of(data, before), before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_views, "STEP_PARTITIONS", data.draw(st.integers(1, 4)))
        full = steps_between(None, after)
        changes = steps_between(before, after)
    for steps in (full, changes):
        assert [step.is_last for step in steps] == [False] * (len(steps) - 1) + [True]
        assert all(sum(max(len(t.partitions), 1) for t in step.topics) <= 4 for step in steps)
    for start in (ClusterImage(), picture(before), picture(replayed(records_of(data)))):
        found = start.after(full)
        if start.metadata_offset <= after.end_offset:
            assert found == picture(after)
            assert found.metadata == picture(after).metadata
    assert picture(before).after(changes) == picture(after)


def test_a_change_is_told_without_the_rest() -> None:
    other = UUID(int=101)
    before = replayed(
        [
            registered(1),
            TopicRecord("u", other),
            *(PartitionRecord(number, other, (1,), (1,), 1, 0, 0) for number in range(600)),
            *topic((1,)),
        ]
    )
    assert [(len(step.topics), step.is_full) for step in steps_between(None, before)] == [
        (1, True),
        (1, False),
        (2, False),
    ], "partitions of one topic are spread over steps"
    after = replayed([PartitionChangeRecord(7, other, leader=-1)], before)
    (step,) = steps_between(before, after)
    assert [(topic.name, [p.partition_id for p in topic.partitions]) for topic in step.topics] == [("u", [7])]
    assert not step.is_full
    configured = replayed([ConfigRecord(ResourceType.TOPIC, "u", "retention.ms", "5")], after)
    (step,) = steps_between(after, configured)
    assert step.topics == (TopicInfo("u", other, (), (ConfigEntry("retention.ms", "5"),)),)
    known = picture(after).after([step])
    assert (len(known.topics["u"].partitions), known.topics["u"].configs) == (600, step.topics[0].configs)
    (step,) = steps_between(configured, configured)
    assert (step.topics, step.deleted_topics, step.is_last) == ((), (), True)
    assert picture(configured).after([step]) == picture(configured)


def test_a_topic_that_came_back_under_its_name() -> None:
    before = replayed([registered(1), *topic((1,))])
    again = UUID(int=200)
    after = replayed(
        [RemoveTopicRecord(TOPIC_ID), TopicRecord(TOPIC, again), PartitionRecord(0, again, (1,), (1,), 1, 0, 0)], before
    )
    assert picture(before).after(steps_between(before, after)).topics[TOPIC].topic_id == again
    gone = replayed([RemoveTopicRecord(again)], after)
    assert picture(after).after(steps_between(after, gone)).topics == {}


def test_a_sender_that_is_behind_changes_nothing() -> None:
    before = replayed([registered(1)])
    after = replayed([*topic((1,))], before)
    ahead = picture(after)
    assert ahead.after(steps_between(before, before)) is ahead


async def test_the_same_news_are_encoded_once_for_all_and_a_client_that_leaves_takes_them_from_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, count, kept = replayed([registered(2), *topic((1, 2), isr=(2,), leader=2)]), 0, EncodedNews()

    def counted(step: MetadataUpdate) -> bytes:
        nonlocal count
        count += 1
        return encoded(step)

    def news(controller_id: int = 2) -> MetadataNews:
        steps = watch_steps(None, image, cluster_id="c", controller_id=controller_id, controller_epoch=8)
        return MetadataNews(-1, image.end_offset, controller_id, 8, CLIENT_LISTENER, steps)

    monkeypatch.setattr(metadata_views, "encoded", counted)
    first, *others = [asyncio.create_task(kept.encoded(news())) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    told = await asyncio.gather(*others)
    assert (count, len({id(parts) for parts in told})) == (1, 1)
    assert await kept.encoded(news(3)) != told[0]
    for controller_id in range(4, 12):
        await kept.encoded(news(controller_id))
    assert len(kept._kept) == metadata_views.KEPT_NEWS_MAX
