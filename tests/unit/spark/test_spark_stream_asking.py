"""Questions of a stream to the leaders of its partitions, some of which are deleted or dead meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection

import pytest
from msgspec.structs import replace

from replog.client.ranges.patience import UNSERVED_TIMEOUT_MS
from replog.client.types import TopicPartition
from replog.errors import RequestTimedOutError, UnknownTopicOrPartitionError
from replog.spark.stream.asking import ask_epoch_ends, await_metadata, of_those_that_exist
from replog.testing.virtual_loop import VirtualLoop
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def two_topics() -> FakeCluster:
    cluster = FakeCluster(2)
    for topic in ("t", "u"):
        cluster.create_topic(topic)
        fill(cluster, topic, 10)
    return cluster


async def test_a_topic_deleted_meanwhile_is_left_out_of_the_ends_of_epochs() -> None:
    cluster = two_topics()
    async with open_view(cluster) as view:
        cluster.delete_topic("u")
        while view.image.partition(*U0) is not None:
            await asyncio.sleep(0.005)
        assert await ask_epoch_ends(view, {T0: 0, U0: 0}, 5_000) == {T0: 10}


async def test_metadata_that_the_checkpoint_has_seen_are_waited_for() -> None:
    """Goal: who has just been started tells that there is no topic, until it has read its metadata."""
    cluster = FakeCluster(1)
    cluster.nodes[1].cut_off()
    cluster.create_topic("t")
    async with open_view(cluster) as view:
        waiting = asyncio.create_task(await_metadata(view, cluster.metadata_offset, None))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not view.image.topics
        cluster.nodes[1].hear_again()
        await waiting
        assert list(view.image.topics) == ["t"]
        with pytest.raises(RequestTimedOutError, match=r"written by metadata up to offset 99, .* than up to 2\. Start"):
            await await_metadata(view, 99, 1)


async def test_answers_of_kafka_that_another_client_has_counted_are_not_waited_for() -> None:
    """Goal: a stream that has heard of the metadata 3,600 times goes on with a new process, which hears of them once."""
    cluster = FakeCluster(1)
    told = cluster.update()
    kafkas = tuple(replace(broker, broker_epoch=-1) for broker in told.brokers)
    cluster.nodes[1].cut_off(since=replace(told, brokers=kafkas))
    async with open_view(cluster) as view:
        await await_metadata(view, 3_600, 1)
        assert (view.image.shared_offset, view.metadata.metadata_offset) == (-1, -1), "nor written down"


async def test_the_others_are_asked_about_again() -> None:
    """Example: the image still shows a partition at the first question, and no longer at the answer."""
    cluster = two_topics()
    async with open_view(cluster) as view:
        questions: list[set[TopicPartition]] = []

        async def ask(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            questions.append(set(partitions))
            if U0 in partitions:
                cluster.delete_topic("u")
                while view.image.partition(*U0) is not None:
                    await asyncio.sleep(0.005)
                raise UnknownTopicOrPartitionError("u-0 does not exist")
            return dict.fromkeys(partitions, 1)

        assert await of_those_that_exist(view, [T0, U0], ask) == {T0: 1}
    assert questions == [{T0, U0}, {T0}]


async def test_who_denies_what_the_metadata_show_is_not_asked_for_ever() -> None:
    async with open_view(two_topics()) as view:

        async def ask(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            raise UnknownTopicOrPartitionError("t-0 does not exist")

        with pytest.raises(UnknownTopicOrPartitionError):
            await of_those_that_exist(view, [T0], ask)


def test_ends_of_epochs_that_nobody_can_tell_are_given_up_early() -> None:
    """Goal: a stream tells of a dead leader after some 10 s, not after the minute that a slow one is given."""

    async def asked_of_a_dead_leader() -> float:
        cluster = two_topics()
        async with open_view(cluster) as view:
            cluster.nodes[1].is_down = True
            cluster.nodes[1].cut()
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimedOutError, match="refuses connections"):
                await ask_epoch_ends(view, {T0: 0}, None)
            return asyncio.get_running_loop().time() - began_s

    waited_s = VirtualLoop(random.Random(1)).run(asked_of_a_dead_leader())
    assert UNSERVED_TIMEOUT_MS / 1000 <= waited_s < UNSERVED_TIMEOUT_MS / 1000 + 5
