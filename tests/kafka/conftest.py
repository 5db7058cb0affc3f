"""Apache Kafka for the tests of this folder: resolved once, started once, ended with the session.

Without Java, Maven or (the first time) the network the tests skip and say why; with REPLOG_REQUIRE_KAFKA=1 they fail.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from brokers import Broker, broker_of, of_kafka, of_replog
from class_archive import make_archive
from go_programs import GoUnavailableError, build
from kafka_cluster import KafkaCluster, kafka_cluster
from kafka_install import OLDEST, KafkaInstall, KafkaUnavailableError, install, install_brokers
from kafka_node import KafkaNode
from kafka_run import KafkaRun, run_kafka
from member_scripts import Members
from secure_doors import SecureDoors, kafka_doors, replog_doors
from served_cluster import ServedCluster, served_cluster
from sides import Side, Sides, sides

REQUIRE = "REPLOG_REQUIRE_KAFKA"


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaInstall]:
    """Kafka's classes and a Java to run them; many programs in one JVM."""
    for found in _installed(install):
        make_archive(found)
        yield found


@pytest.fixture(scope="session")
def oldest_kafka() -> Iterator[KafkaInstall]:
    """The same, of the oldest brokers that our clients are for; an archive of its classes would cost more than its two nodes do."""
    yield from _installed(lambda: install_brokers(OLDEST))


def _installed(make: Callable[[], KafkaInstall]) -> Iterator[KafkaInstall]:
    pytest.importorskip("cramjam", reason="Kafka's codecs need the extra replog[compression]")
    try:
        found = make()
    except KafkaUnavailableError as error:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but Apache Kafka cannot be had: {error}")
        pytest.skip(f"Apache Kafka cannot be had: {error}")
    with contextlib.closing(found):
        yield found


@pytest.fixture(scope="session")
def go_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs in Go are, by their names."""
    folder = tmp_path_factory.mktemp("go")
    try:
        build(folder)
    except GoUnavailableError as error:
        pytest.skip(f"the clients in Go cannot be built: {error}")
    return folder


@pytest.fixture(scope="session")
def kafka_run(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> KafkaRun:
    """What a real node wrote, and what it made of our folders (see `kafka_run.py`)."""
    return run_kafka(kafka, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def kafka_broker(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A real Kafka node that runs."""
    yield from _running(KafkaNode(kafka, tmp_path_factory.mktemp("kafka-broker") / "node"))


@pytest.fixture(scope="session")
def oldest_broker(oldest_kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """The same, of the oldest version that our clients are for."""
    yield from _running(KafkaNode(oldest_kafka, tmp_path_factory.mktemp("oldest-broker") / "node"))


def _running(node: KafkaNode) -> Iterator[KafkaNode]:
    try:
        node.start()
        yield node
    finally:
        node.give_up()


@pytest.fixture(scope="session")
def their_doors(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureDoors]:
    """A broker of Apache Kafka with a listener of each kind."""
    with kafka_doors(kafka, tmp_path_factory.mktemp("doors")) as made:
        yield made


@pytest.fixture(scope="session")
def our_doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureDoors]:
    """A broker of ours with a listener of each kind."""
    with replog_doors(tmp_path_factory.mktemp("our-doors")) as made:
        yield made


@pytest.fixture(
    params=[pytest.param("their_doors", marks=pytest.mark.kafka, id="kafka"), pytest.param("our_doors", id="replog")]
)
def doors(request: pytest.FixtureRequest) -> SecureDoors:
    """Both: whatever clients do, they do at either."""
    made: SecureDoors = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="module")
def two_kafkas(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Two brokers of a real Kafka."""
    with kafka_cluster(kafka, tmp_path_factory.mktemp("kafkas")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def replog_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """One replog node that serves Kafka's clients."""
    with served_cluster(tmp_path_factory.mktemp("replog-broker") / "cluster") as cluster:
        yield cluster


@pytest.fixture(
    scope="session", params=["replog", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.campaign])]
)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Ours, and Kafka itself, so that a wrong test is seen: in campaigns, and when a file of tests has changed."""
    return broker_of(request)


@pytest.fixture(scope="session", params=["replog", pytest.param("kafka", marks=pytest.mark.kafka)])
def serving(request: pytest.FixtureRequest) -> Broker:
    """Ours, and Kafka itself, for clients of ours: always both, since Kafka is no proof of the test but what is tested."""
    return broker_of(request)


@pytest.fixture(scope="session")
def _both_brokers(kafka_broker: KafkaNode, replog_broker: ServedCluster) -> Iterator[Sides]:
    with sides(Side(of_kafka(kafka_broker)), Side(of_replog(replog_broker))) as pair:
        yield pair


@pytest.fixture(scope="module")
def both(_both_brokers: Sides) -> Iterator[Sides]:
    """A real Kafka and a broker of ours, to be asked the same; over new connections in each file.

    Both close those that were silent for ten minutes, and other files may take that long.
    """
    yield _both_brokers
    _both_brokers.hang_up()


@pytest.fixture
def members(both: Sides) -> Iterator[Members]:
    """Members of a group of its own on both."""
    found = Members(both)
    yield found
    found.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs Kafka itself; tests whose parameters decide that mark these."""
    for item in items:
        if {"kafka", "oldest_kafka"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
