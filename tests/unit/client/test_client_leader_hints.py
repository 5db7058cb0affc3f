"""Refusals that name the new leader (KIP-951): clients go there, whatever the metadata say yet."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from fake_cluster import FakeCluster
from msgspec.structs import replace

from replog.client import Consumer, Producer
from replog.client.cluster.image import ClusterImage
from replog.client.cluster.leader_hints import HINT_S, LeaderHints, NamedLeader
from replog.rpc.messages import LeaderEndpoint

TOPIC = UUID(int=7)


def stale_cluster(*, knows_broker: bool) -> FakeCluster:
    """Broker 1 leads as far as metadata will ever tell; who refuses knows better."""
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    told = cluster.update()
    for node in cluster.nodes.values():
        node.names_leaders = True
        node.cut_off(since=told if knows_broker else replace(told, brokers=told.brokers[:1]))
    return cluster


@pytest.mark.parametrize("knows_broker", [True, False])
async def test_records_go_to_the_leader_that_a_refusal_names_and_are_read_from_it(knows_broker: bool) -> None:
    cluster = stale_cluster(knows_broker=knows_broker)
    place = [("t", 0)]
    async with (
        asyncio.timeout(20),
        Producer(cluster.bootstrap[:1], transport=cluster.transport()) as producer,
        Consumer(cluster.bootstrap[:1], transport=cluster.transport(), fetch_max_wait_ms=20) as consumer,
    ):
        await consumer.assign(place)
        assert (await (await producer.send("t", b"0"))).offset == 0
        assert (await anext(consumer)).offset == 0
        cluster.move_leader("t", 0, 2)
        assert [(await (await producer.send("t", b"%d" % number))).offset for number in (1, 2)] == [1, 2]
        assert [(await anext(consumer)).value for _ in range(2)] == [b"1", b"2"]


def image_of(cluster: FakeCluster) -> ClusterImage:
    return ClusterImage().after([cluster.update()])


def named(cluster: FakeCluster, leader: int, epoch: int, endpoint: LeaderEndpoint | None = None) -> NamedLeader:
    return NamedLeader("t", cluster.logs["t", 0].topic_id, 0, leader, epoch, endpoint)


def test_a_hint_counts_while_it_is_newer_than_the_metadata_and_for_seconds_at_most() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t")
    cluster.move_leader("t", 0, 2)
    told, hints = image_of(cluster), LeaderHints()
    epoch = cluster.logs["t", 0].leader_epoch

    def leader(now_s: float, image: ClusterImage = told) -> int:
        found = hints.over(image, now_s).partition("t", 0)
        assert found is not None
        return found.leader

    hints.add(
        [named(cluster, 1, epoch), named(cluster, 9, epoch + 1), replace(named(cluster, 1, 9), topic_id=TOPIC)], 0
    )
    assert leader(0) == 2, "as new, a broker that nobody knows, another topic"
    hints.add([named(cluster, 3, epoch + 2), named(cluster, 1, epoch + 1)], 0)
    assert (leader(1), leader(HINT_S)) == (3, 2)
    hints.add([named(cluster, 3, epoch + 2)], 0)
    elsewhere = LeaderEndpoint(3, "127.0.0.1", 7)
    hints.add([named(cluster, 3, epoch + 3, elsewhere)], 0)
    moved = hints.over(told, 1)
    found = moved.leader("t", 0)
    assert found is not None
    assert (found.address, moved.is_counted, told.is_counted) == ("127.0.0.1:7", False, False)
    assert [broker.broker_epoch for broker in moved.broker_infos] == [1, 1, 1], "it is still one of ours"
    for broker in (3, 1, 2):
        cluster.move_leader("t", 0, broker)
    assert leader(1, image_of(cluster)) == 2, "the metadata are as new"
