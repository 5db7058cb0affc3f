"""Consumers of replog's where no coordinator assigns: Kafka 3.9, Kafka 4.1 without KIP-848, and groups that may not be converted."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import client_functions as functions
import pytest
from brokers import Broker, of_kafka, of_replog
from group_processes import PARTITIONS, until
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from mixed_readers import Readers, started
from served_cluster import served_cluster
from test_kafka_our_group_members import joined_shared_and_taken_over

pytestmark = pytest.mark.cluster

SHORT = {"group.min.session.timeout.ms": 1_000}
SESSION_MS = 6_000
"""Of Kafka's own client, which is killed: by default the others wait for it for 45 s."""


@contextmanager
def running_kafka(install: KafkaInstall, folder: Path, **settings: str) -> Iterator[Broker]:
    """A node of Kafka, until the block ends; keys are given with underscores for dots."""
    node = KafkaNode(install, folder, SHORT | {name.replace("_", "."): value for name, value in settings.items()})
    try:
        node.start()
        yield of_kafka(node)
    finally:
        node.give_up()


@pytest.fixture(scope="module", params=["3.9.1", "4.1.1"])
def older(
    request: pytest.FixtureRequest,
    kafka: KafkaInstall,
    oldest_kafka: KafkaInstall,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    """Brokers that have no groups whose coordinator assigns: the older one by default, the newer one because it is told so."""
    folder = tmp_path_factory.mktemp("older") / "node"
    if request.param == "3.9.1":
        with running_kafka(oldest_kafka, folder) as found:
            yield found
    else:
        with running_kafka(kafka, folder, group_coordinator_rebalance_protocols="classic") as found:
            yield found


def test_two_members_share_and_one_takes_over_where_members_assign(older: Broker) -> None:
    asyncio.run(joined_shared_and_taken_over(older, older.topic(PARTITIONS)))


@pytest.mark.parametrize("older", ["3.9.1"], indirect=True)
def test_clients_of_all_kinds_and_ours_share_a_group(older: Broker, tmp_path: Path) -> None:
    """Goal: whoever comes and whoever is killed, each record is read by one, and all are read; whoever leads."""
    topic = older.topic(PARTITIONS)
    readers = Readers(older.servers, topic)
    with ExitStack() as stack:
        for client in ("replog", "aiokafka", "kafka-python", "confluent-eager"):
            readers.running.append(stack.enter_context(started(older.servers, tmp_path, client, topic, topic)))
            readers.share_all()
            readers.read(f"with-{client}")
        for place in (1, 0, 0):
            readers.end(readers.running[place])  # the last one but confluent's is killed when it leads
            readers.share_all()
            readers.read(f"without-{len(readers.ended)}")
        readers.running.append(stack.enter_context(started(older.servers, tmp_path, "replog", topic, topic)))
        readers.share_all()
        readers.read("and-ours-again")


CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.parametrize("older", ["4.1.1"], indirect=True)
def test_kafkas_own_client_and_ours_share_a_group(older: Broker, kafka: KafkaInstall, tmp_path: Path) -> None:
    topic = older.topic(PARTITIONS)
    readers = Readers(older.servers, topic)
    given = ("--bootstrap-server", older.servers, "--topic", topic, "--group", topic)
    properties = ("auto.offset.reset=earliest", f"session.timeout.ms={SESSION_MS}")
    options = [word for each in properties for word in ("--consumer-property", each)]
    with started(older.servers, tmp_path, "replog", topic, topic) as ours:
        until(lambda: ours.assigned == list(range(PARTITIONS)))
        output = tmp_path / "java"
        with output.open("wb") as told, (tmp_path / "java.errors").open("wb") as errors:
            process = subprocess.Popen(kafka.command(CONSOLE, *given, *options), stdout=told, stderr=errors)
            try:
                until(lambda: len(ours.assigned) == PARTITIONS // 2)
                values = readers.write("value")
                until(lambda: ours.read | set(output.read_text().split()) == values)
                assert len(ours.read) == len(values) // 2
            finally:
                process.kill()
                process.wait()
        until(lambda: ours.assigned == list(range(PARTITIONS)))


@pytest.fixture(scope="module", params=["replog", pytest.param("kafka", marks=pytest.mark.kafka)])
def unconverted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Brokers with both protocols, where a group keeps the one that it has."""
    folder = tmp_path_factory.mktemp("unconverted") / "node"
    policy = {"group_consumer_migration_policy": "disabled"}
    if request.param == "kafka":
        with running_kafka(request.getfixturevalue("kafka"), folder, **policy) as found:
            yield found
    else:
        with served_cluster(folder, group_min_session_timeout_ms=1_000, **policy) as cluster:
            yield of_replog(cluster)


@pytest.mark.served(functions.GROUPS, client="replog")
def test_a_group_that_may_not_be_converted_is_joined_by_its_own_protocol(unconverted: Broker, tmp_path: Path) -> None:
    topic = unconverted.topic(PARTITIONS)
    readers = Readers(unconverted.servers, topic)
    with ExitStack() as stack:
        for client in ("confluent-eager", "replog"):
            readers.running.append(stack.enter_context(started(unconverted.servers, tmp_path, client, topic, topic)))
            readers.share_all()
            readers.read(f"with-{client}")
