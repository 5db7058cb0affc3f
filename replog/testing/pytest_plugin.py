"""Fixtures for pytest, which loads them wherever replog is installed: brokers, topics, groups, records.

Nothing is started, and nothing of replog is loaded, before a test asks for it.  A page of examples: `docs/PYTEST.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from replog.client.types import ConsumerRecord
    from replog.cluster.node_spec import ConfigValue
    from replog.testing.fixtures.broker import BrokerFixture
    from replog.testing.fixtures.cluster import ClusterFixture, ClusterProcesses


@pytest.fixture(scope="session")
def replog_config() -> Mapping[str, ConfigValue]:
    """Returns the configuration of the brokers by Kafka's names; define a fixture of this name to have another one."""
    return {}


@pytest.fixture(scope="session")
def replog_broker(replog_config: Mapping[str, ConfigValue]) -> Iterator[BrokerFixture]:
    """Runs one broker in this process, for all tests of the session; clients that name a new topic make it."""
    from replog.cluster.embedded import embedded
    from replog.testing.fixtures.broker import BrokerFixture

    config = {"auto.create.topics.enable": True, **replog_config}
    with embedded(config=config) as brokers, BrokerFixture(brokers.bootstrap_servers) as broker:
        yield broker


@pytest.fixture(scope="session")
def replog_cluster_processes(
    replog_config: Mapping[str, ConfigValue], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    """Runs three brokers as processes for all tests of the session; `replog_cluster` is what tests use."""
    from replog.testing.fixtures.cluster import ClusterProcesses

    directory = tmp_path_factory.mktemp("replog") / "cluster"
    config = {
        "auto.create.topics.enable": True,
        "min.insync.replicas": 2,
        "default.replication.factor": 3,
        "broker.session.timeout.ms": 4_000,  # a broker that is paused is missed sooner than in earnest
        "broker.heartbeat.interval.ms": 500,
    }
    with ClusterProcesses(directory, {**config, **replog_config}) as processes:
        yield processes


@pytest.fixture
def replog_cluster(replog_cluster_processes: ClusterProcesses) -> Iterator[ClusterFixture]:
    """Returns three brokers that fail as the test asks; they are whole again before the next test."""
    from replog.testing.fixtures.cluster import ClusterFixture

    with ClusterFixture(replog_cluster_processes) as cluster:
        yield cluster


def _brokers(request: pytest.FixtureRequest) -> BrokerFixture:
    """Returns the cluster where the test uses one, else the broker of the session."""
    name = "replog_cluster" if "replog_cluster" in request.fixturenames else "replog_broker"
    brokers: BrokerFixture = request.getfixturevalue(name)
    return brokers


@pytest.fixture
def replog_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """Returns the name of a new topic with one partition, named after the test; it is deleted behind the test."""
    from replog.testing.fixtures.broker import fresh_name

    brokers = _brokers(request)
    name = brokers.create_topic(fresh_name(request.node.name))
    yield name
    brokers.heal()  # brokers that the test has broken may delete nothing
    brokers.admin.delete_topics([name])


@pytest.fixture
def replog_group(request: pytest.FixtureRequest) -> str:
    """Returns the name of a group that nobody has used."""
    from replog.testing.fixtures.broker import fresh_name

    return fresh_name(request.node.name)


@pytest.fixture
def replog_records(request: pytest.FixtureRequest) -> Callable[..., list[ConsumerRecord]]:
    """Returns `BrokerFixture.records`: a function from the name of a topic to its committed records."""
    return _brokers(request).records
