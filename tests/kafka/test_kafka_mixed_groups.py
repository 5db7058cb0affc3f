"""Groups of Kafka's clients that change their protocol while they read, and members of both protocols in one group."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from group_processes import PARTITIONS, Member, member, produce, until
from kafka_install import KafkaInstall
from mixed_readers import Readers, started
from served_cluster import ServedCluster, run, served_cluster

from replog.client import Admin

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with served_cluster(
        tmp_path_factory.mktemp("mixed-groups") / "cluster",
        group_consumer_session_timeout_ms=1_500,
        group_min_session_timeout_ms=1_000,
    ) as found:
        yield found


def group_type(cluster: ServedCluster, group: str) -> str:
    """The protocol of a group, as people are told."""

    async def found() -> str:
        async with Admin(cluster.bootstrap_servers) as admin:
            return next(each.group_type.value for each in await admin.list_groups() if each.group_id == group)

    return run(found())


def test_a_group_changes_its_protocol_and_changes_back_one_member_at_a_time(
    cluster: ServedCluster, tmp_path: Path
) -> None:
    topic = group = "rolling"
    cluster.create_topic(topic, PARTITIONS)
    readers = Readers(cluster.bootstrap_servers, topic)
    with ExitStack() as stack:

        def start(name: str, protocol: str) -> Member:
            found = stack.enter_context(member(cluster.bootstrap_servers, tmp_path, name, group, protocol, topic))
            readers.running.append(found)
            return found

        old = [start("classic-1", "classic"), start("classic-2", "classic")]
        readers.share_all()
        readers.read("classic")
        assert group_type(cluster, group) == "classic"
        new = [start("new-1", "consumer")]
        readers.share_all()
        assert group_type(cluster, group) == "consumer"
        readers.read("three")
        readers.end(old[0])
        new.append(start("new-2", "consumer"))
        readers.share_all()
        readers.read("upgrading")
        readers.end(old[1])
        readers.share_all()
        readers.read("upgraded")
        assert group_type(cluster, group) == "consumer"
        readers.end(new[0])
        start("classic-3", "classic")
        readers.share_all()
        readers.read("downgrading")
        readers.end(new[1])
        start("classic-4", "classic")
        until(lambda: group_type(cluster, group) == "classic")
        readers.share_all()
        readers.read("downgraded")


CLIENTS = ("confluent", "aiokafka", "kafka-python", "replog")


def test_clients_of_both_protocols_read_together(cluster: ServedCluster, tmp_path: Path) -> None:
    """Goal: whichever client joins whenever, each record is read by one, and all are read."""
    topic = group = "together"
    cluster.create_topic(topic, PARTITIONS)
    readers = Readers(cluster.bootstrap_servers, topic)
    with ExitStack() as stack:
        for client in CLIENTS:
            readers.running.append(
                stack.enter_context(started(cluster.bootstrap_servers, tmp_path, client, group, topic))
            )
            readers.share_all()
            readers.read(f"with-{client}")
        assert group_type(cluster, group) == "consumer"
        for one in tuple(readers.running[:-1]):
            readers.end(one)
            readers.share_all()
            readers.read(f"without-{len(readers.ended)}")
        assert group_type(cluster, group) == "consumer"


CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_client_joins_those_of_the_other_protocol(
    cluster: ServedCluster, kafka: KafkaInstall, tmp_path: Path, protocol: str
) -> None:
    """Goal: Kafka's own client shares a group with one of the other protocol, and each reads its part."""
    topic = group = f"java-{protocol}"
    cluster.create_topic(topic, PARTITIONS)
    other = "consumer" if protocol == "classic" else "classic"
    with member(cluster.bootstrap_servers, tmp_path, "other", group, other, topic) as reader:
        until(lambda: reader.assigned == list(range(PARTITIONS)))
        given = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", group)
        ways = (f"group.protocol={protocol}", "auto.offset.reset=earliest")
        options = [word for way in ways for word in ("--consumer-property", way)]
        output = tmp_path / "java"
        with output.open("wb") as told, (tmp_path / "java.errors").open("wb") as errors:
            process = subprocess.Popen(kafka.command(CONSOLE, *given, *options), stdout=told, stderr=errors)
            try:
                until(lambda: len(reader.assigned) == PARTITIONS // 2)
                assert group_type(cluster, group) == "consumer"
                values = {f"value-{number}" for number in range(4 * PARTITIONS)}
                produce(cluster.bootstrap_servers, topic, *sorted(values))
                until(lambda: reader.read | set(output.read_text().split()) == values)
                assert len(reader.read) == len(values) // 2
                assert not reader.read & set(output.read_text().split())
            finally:
                process.kill()
                process.wait()
