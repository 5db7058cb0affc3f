"""Groups of Kafka's clients on three brokers: members share a topic, one dies, brokers die, and no offset is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import client_functions as functions
import pytest
from confluent_kafka import Consumer, TopicPartition
from group_processes import PARTITIONS, TIMEOUT_S, member, produce, until
from group_readers import READERS
from served_cluster import ServedCluster, run, served_cluster

from replog.broker.coordinator.internal_topic import partition_of
from replog.client import Admin
from replog.metadata.topic_names import OFFSETS_TOPIC

pytestmark = pytest.mark.cluster

CELLS = {
    "confluent": (functions.GROUPS, "confluent-kafka"),
    "confluent_assigned": (functions.ASSIGNED_GROUPS, "confluent-kafka"),
    "aiokafka": (functions.GROUPS, "aiokafka"),
    "kafka_python": (functions.GROUPS, "kafka-python"),
    "kcat": (functions.GROUPS, "kcat"),
}
PROTOCOLS = ["consumer", "classic"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with served_cluster(
        tmp_path_factory.mktemp("groups") / "cluster",
        nodes=3,
        group_consumer_session_timeout_ms=1_500,
        group_min_session_timeout_ms=1_000,
    ) as found:
        yield found


def coordinator(cluster: ServedCluster, group: str) -> int:
    """The broker that coordinates a group."""

    async def leader() -> int:
        async with Admin(cluster.bootstrap_servers) as admin:
            partitions = (await admin.describe_topics([OFFSETS_TOPIC]))[OFFSETS_TOPIC].partitions
            return partitions[partition_of(group, len(partitions))].leader

    return run(leader())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_takes_over_what_a_killed_one_had(cluster: ServedCluster, tmp_path: Path, protocol: str) -> None:
    topic = group = f"shared-{protocol}"
    cluster.create_topic(topic, PARTITIONS)
    named = (group, protocol, topic)
    with (
        member(cluster.bootstrap_servers, tmp_path, "a", *named) as first,
        member(cluster.bootstrap_servers, tmp_path, "b", *named) as second,
    ):
        until(lambda: sorted(first.assigned + second.assigned) == [0, 1, 2, 3] and len(first.assigned) == 2)
        before = {f"before-{number}" for number in range(20)}
        produce(cluster.bootstrap_servers, topic, *sorted(before))
        until(lambda: first.read | second.read == before)
        assert first.read
        assert second.read
        first.kill()
        until(lambda: second.assigned == [0, 1, 2, 3])
        after = {f"after-{number}" for number in range(20)}
        produce(cluster.bootstrap_servers, topic, *sorted(after))
        until(lambda: second.read >= after)
        assert first.read | second.read == before | after
        assert not first.read & second.read


def reader(name: str) -> Any:
    """A parameter that stands for a cell of the page."""
    function, client = CELLS[name]
    return pytest.param(name, marks=pytest.mark.served(function, client=client, told=None))


@pytest.mark.parametrize("name", [reader(name) for name in READERS])
def test_a_group_goes_on_behind_what_it_has_committed(cluster: ServedCluster, name: str) -> None:
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("there is no 'kcat' on the PATH (Debian: apt-get install kcat)")
    topic = group = f"read-by-{name}"
    cluster.create_topic(topic, PARTITIONS)
    for part in range(2):
        values = [f"{part}-{number}" for number in range(8)]
        produce(cluster.bootstrap_servers, topic, *values)
        assert sorted(READERS[name](cluster.bootstrap_servers, group, topic, 8)) == values


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: ServedCluster, tmp_path: Path, protocol: str) -> None:
    topic = group = f"moved-{protocol}"
    cluster.create_topic(topic, PARTITIONS)
    with member(cluster.bootstrap_servers, tmp_path, "a", group, protocol, topic) as reader:
        until(lambda: reader.assigned == [0, 1, 2, 3])
        before = {f"before-{number}" for number in range(8)}
        produce(cluster.bootstrap_servers, topic, *sorted(before))
        until(lambda: reader.read == before)
        killed = coordinator(cluster, group)
        cluster.kill(killed)
        after = {f"after-{number}" for number in range(8)}
        produce(cluster.bootstrap_servers, topic, *sorted(after))
        until(lambda: reader.read == before | after)
        cluster.restart(killed)


def test_commits_survive_the_end_of_all_brokers(cluster: ServedCluster) -> None:
    topic = group = "kept"
    cluster.create_topic(topic, PARTITIONS)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    places = [TopicPartition(topic, number, 10 + number) for number in range(PARTITIONS)]
    consumer = Consumer(settings)
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    for node_id in (1, 2):
        run(_start(cluster, node_id))
    cluster.restart(3)
    consumer = Consumer(settings)
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=TIMEOUT_S)
    assert [each.offset for each in found] == [10, 11, 12, 13]
    consumer.close()


async def _start(cluster: ServedCluster, node_id: int) -> None:
    cluster.local.start_node(node_id)
