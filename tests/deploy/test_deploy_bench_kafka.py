"""The scenarios of `bench` with Apache Kafka as a peer, small: they run, check what was written, and leave nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench import harness
from bench.meter import Meter
from bench.model import Scenario, WrongResultError
from bench.scenarios.ack_latency import AckLatencyScenario
from bench.scenarios.consume import ConsumeScenario
from bench.scenarios.failover import FailoverScenario
from bench.scenarios.group_pauses import KAFKA_CONFIG, GroupPausesScenario
from bench.scenarios.metadata_ops import MetadataOpsScenario
from bench.scenarios.neighbour import LIMITED, NeighbourScenario
from bench.scenarios.produce import ProduceScenario, check_topic
from bench.scenarios.startup import StartupScenario
from bench.scenarios.transactions import TransactionsScenario
from bench.systems.brokers import Digest
from bench.systems.group_readers import GroupReaders
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.failover import KafkaClientFailover
from bench.systems.kafka.quorum import KafkaQuorum
from bench.systems.kafka.startup import KafkaStartup
from bench.systems.neighbours import NeighbourSystem
from bench.systems.transactional_brokers import TransactionalSystem

pytestmark = [pytest.mark.cluster, pytest.mark.kafka]

SMALL_BYTES = 200_000
TINY = 0.0001

RUNNING: dict[str, Callable[[Sequence[KafkaClientFailover]], Scenario[Any]]] = {
    "produce": lambda systems: ProduceScenario(SMALL_BYTES, [100], systems, warm_up_share=TINY),
    "consume": lambda systems: ConsumeScenario(SMALL_BYTES, [1024], systems, warm_up_share=TINY),
    "ack-latency": lambda systems: AckLatencyScenario(0.2, [100], systems, warm_up_share=TINY),
    "failover": lambda systems: FailoverScenario(0.2, 0.2, ["leader"], systems),
}
ALONE: dict[str, tuple[Callable[[], Scenario[Any]], set[str]]] = {
    "startup": (
        lambda: StartupScenario(0, [KafkaStartup()]),
        {"first_ack_ms", "cluster_ready_ms", "rss_mib"},
    ),
    "metadata-ops": (
        lambda: MetadataOpsScenario(0.02, [KafkaQuorum()]),
        {"topics_per_s", "cpu_us_per_topic", "p50_ms", "p99_ms", "failover_ms"},
    ),
    "group-pauses": (
        lambda: GroupPausesScenario(
            0.2, 0.2, [GroupReaders("kafka-librdkafka", KafkaBrokers(config=KAFKA_CONFIG), "librdkafka")]
        ),
        {"handover_ms", "others_pause_ms", "steady_pause_ms"},
    ),
    "neighbour": (
        lambda: NeighbourScenario(
            0.5, 2, [LIMITED], [NeighbourSystem("kafka", KafkaBrokers(), "librdkafka")], warm_up_share=TINY
        ),
        {"ack_p50_ms", "ack_p99_ms", "ack_max_ms", "tenant_mb_per_s"},
    ),
    "transactions": (
        lambda: TransactionsScenario(0.01, [1, 10], [TransactionalSystem("kafka", KafkaBrokers(1))]),
        {"commit_p50_ms", "commit_p99_ms", "transactions_per_s", "records_per_s", "cpu_us_per_record"},
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_small_measurement(name: str, tmp_path: Path) -> None:
    make, metrics = ALONE[name]
    scenario = make()
    (system,) = scenario.systems()
    if reason := system.missing():
        pytest.skip(reason)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with harness.started([system], tmp_path):
        found = [scenario.measure(system, params, Meter()) for params in scenario.cases()]
    assert scenario.name == name
    assert {metric.name for measured in found for metric in measured} == metrics
    assert all(value > 0 for measured in found for value in measured.values())
    assert list(tmp_path.iterdir()) == []
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[KafkaClientFailover]]:
    """Three nodes of Kafka and both clients."""
    brokers = KafkaBrokers()
    systems = [
        KafkaClientFailover("kafka", brokers, "java"),
        KafkaClientFailover("kafka-librdkafka", brokers, "librdkafka"),
    ]
    if reason := systems[0].missing() or systems[1].missing():
        pytest.skip(reason)
    with harness.started(systems, tmp_path_factory.mktemp("kafka")):
        yield systems


@pytest.mark.parametrize("name", RUNNING)
def test_small_run(name: str, running: Sequence[KafkaClientFailover]) -> None:
    scenario = RUNNING[name](running)
    missing: dict[str, str] = {}
    rows = [
        row
        for params in scenario.cases()
        for row in harness.run_case(scenario, running, params, repeat=1, on_step=lambda _: None, missing=missing)
    ]
    assert scenario.name == name
    assert {row.system for row in rows} == {"kafka", "kafka-librdkafka"}
    assert all(row.median > 0 for row in rows if row.unit != "s/GB")
    assert len(missing) == (2 if name == "consume" else 0), "Kafka's clients give no undecoded batches"
    assert {trace.system for trace in scenario.traces()} == (
        {"kafka", "kafka-librdkafka"} if name == "failover" else set()
    )


def test_what_a_client_finds_is_compared(running: Sequence[KafkaClientFailover]) -> None:
    for system in running:
        topic = system.create_topic(3)
        with system.producer(topic) as producer:
            producer.send_all([b"a", b"b"], 2)
        check_topic(system, topic, Digest.of([b"b", b"a", b"b", b"a"]))
        with pytest.raises(WrongResultError, match="acknowledged 5 records and holds 4"):
            check_topic(system, topic, Digest.of([b"a"] * 5))
        with pytest.raises(WrongResultError, match="holds other records"):
            check_topic(system, topic, Digest.of([b"a", b"b", b"a", b"c"]))
