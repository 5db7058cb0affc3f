"""Every broker scenario of `bench`, small: it runs, checks what was written, and leaves no process and no file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster_kit import QUICK

from bench import harness
from bench.guard.lines import LINES
from bench.meter import Meter
from bench.model import Scenario, WrongResultError
from bench.scenarios.ack_latency import AckLatencyScenario, percentile
from bench.scenarios.catch_up import CatchUpScenario
from bench.scenarios.client_tls import ClientTlsScenario
from bench.scenarios.consume import ConsumeScenario
from bench.scenarios.consume_typed import ConsumeTypedScenario
from bench.scenarios.failover import FailoverScenario, binned, check, longest_gap_s
from bench.scenarios.group_load import GroupLoadScenario
from bench.scenarios.group_pauses import CONFIG as GROUP_CONFIG
from bench.scenarios.group_pauses import GroupPausesScenario
from bench.scenarios.groups import GroupsScenario
from bench.scenarios.handshakes import HandshakesScenario
from bench.scenarios.idle_connections import IdleConnectionsScenario, OneNode
from bench.scenarios.large_requests import LargeRequestsScenario
from bench.scenarios.metadata_beside_load import MetadataBesideLoadScenario
from bench.scenarios.metadata_hosting import MetadataHostingScenario
from bench.scenarios.neighbour import NeighbourScenario
from bench.scenarios.partitions import PartitionsScenario
from bench.scenarios.peer_tls import TRANSPORTS, PeerTlsScenario
from bench.scenarios.produce import ProduceScenario, check_topic
from bench.scenarios.produce_one_node import ProduceOneNodeScenario
from bench.scenarios.startup import StartupScenario
from bench.systems import group_brokers
from bench.systems.brokers import Digest, FailoverReport
from bench.systems.group_brokers import Group, GroupBrokers
from bench.systems.group_readers import GroupReaders
from bench.systems.kafka.clients import KafkaClientSystem
from bench.systems.neighbours import NeighbourSystem
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.replog_failover import ReplogFailover
from bench.systems.replog_startup import ReplogStartup

pytestmark = pytest.mark.cluster

SMALL_BYTES = 200_000

MAY_BE_ZERO = {
    "elections",
    "idle_cpu_percent",
    "idle_rss_mib",
    "kib_per_replica",
    "brokers_cpu_s_per_gb",
    "brokers_cpu_percent",
    "broker_cpu_max_ms",
    "tenant_mb_per_s",
}

AGAIN: dict[str, tuple[Callable[[], Scenario[Any]], str, set[str]]] = {
    "produce": (
        lambda: ProduceScenario(SMALL_BYTES, [100], warm_up_share=0.001),
        "replog-send",
        {"records_per_s", "mb_per_s", "cpu_s_per_gb", "brokers_cpu_s_per_gb"},
    ),
    "metadata-hosting": (lambda: MetadataHostingScenario(20), "replog-rf3", {"topics_per_s", "cpu_us_per_topic"}),
    "metadata-beside-load": (
        lambda: MetadataBesideLoadScenario(0.1),
        "replog-separate",
        {"p50_ms", "p99_ms", "max_ms", "elections", "mb_per_s"},
    ),
}
"""Measured a second time on the cluster of the first time: scenario, the system that has all that the others have, metrics."""

BESIDE: dict[str, tuple[Callable[[ReplogCluster], Scenario[Any]], set[str]]] = {
    "consume": (
        lambda system: ConsumeScenario(SMALL_BYTES, [1024], [system], warm_up_share=0.001),
        {"records_per_s", "mb_per_s", "cpu_s_per_gb"},
    ),
    "consume-typed": (
        lambda system: ConsumeTypedScenario(SMALL_BYTES, system),
        {"records_per_s", "mb_per_s", "cpu_s_per_gb"},
    ),
    "ack-latency": (
        lambda system: AckLatencyScenario(0.2, [100], [system], warm_up_share=0.001),
        {"ack_p50_ms", "ack_p99_ms", "ack_max_ms", "cpu_us_per_record"},
    ),
}
"""On a cluster that others use, too."""

FRESH: dict[str, tuple[Callable[[], Scenario[Any]], set[str]]] = {
    "produce-one-node": (
        lambda: ProduceOneNodeScenario(
            SMALL_BYTES,
            [1024],
            [KafkaClientSystem("replog-librdkafka", ReplogBrokers(nodes_count=1), "librdkafka", acks="1")],
        ),
        {"records_per_s", "mb_per_s", "cpu_s_per_gb", "brokers_cpu_s_per_gb"},
    ),
    "client-tls": (
        lambda: ClientTlsScenario(
            SMALL_BYTES, [1024], [ReplogCluster(ReplogBrokers(nodes_count=1, over_tls=True), over_tls=True)]
        ),
        {"records_per_s", "mb_per_s", "cpu_s_per_gb", "brokers_cpu_s_per_gb"},
    ),
    "handshakes": (
        lambda: HandshakesScenario(20, systems=[OneNode(ReplogBrokers(nodes_count=1, over_tls=True))]),
        {"handshakes_per_s", "broker_cpu_ms_per_handshake"},
    ),
    "startup": (
        lambda: StartupScenario(settle_s=0, systems=[ReplogStartup()]),
        {"first_ack_ms", "cluster_ready_ms", "rss_mib"},
    ),
    "idle-connections": (
        lambda: IdleConnectionsScenario(settle_s=0, idle_s=0, connections=20),
        {"idle_rss_mib", "idle_cpu_percent"},
    ),
    "large-requests": (
        lambda: LargeRequestsScenario(["DescribeTopicPartitions"], topics=1),
        {
            "innocent_produce_p99_ms",
            "innocent_fetch_p99_ms",
            "innocent_wait_max_ms",
            "loop_hold_max_ms",
            "broker_cpu_max_ms",
            "answered_max_ms",
            "request_max_kib",
            "answer_max_kib",
        },
    ),
    "groups": (
        lambda: GroupsScenario(
            0.02, [GroupBrokers(ReplogBrokers(config={"group.consumer.heartbeat.interval.ms": 100}))]
        ),
        {
            "stable_ms",
            "moved_partitions",
            "commits_per_s",
            "offsets_per_s",
            "brokers_cpu_us_per_commit",
            "p50_ms",
            "p99_ms",
            "brokers_cpu_percent",
        },
    ),
    "neighbour": (
        lambda: NeighbourScenario(
            0.5, 1.5, systems=[NeighbourSystem("replog", ReplogBrokers(), "librdkafka")], warm_up_share=0.001
        ),
        {"ack_p50_ms", "ack_p99_ms", "ack_max_ms", "tenant_mb_per_s"},
    ),
    "group-load": (lambda: GroupLoadScenario(3), {"answering_ms", "ready_ms", "broker_cpu_ms", "rss_mib"}),
    "partitions": (
        lambda: PartitionsScenario([5], idle_s=0.2),
        {"answering_s", "in_sync_s", "idle_cpu_percent", "kib_per_replica"},
    ),
    "catch-up": (
        lambda: CatchUpScenario(SMALL_BYTES, 50),
        {"mb_per_s", "ack_p50_ms", "ack_p99_ms", "ack_max_ms"},
    ),
    "failover": (
        lambda: FailoverScenario(0.2, 0.2, ["leader"], [ReplogFailover(ReplogBrokers(config=QUICK))]),
        {"longest_ack_gap_ms"},
    ),
    "group-pauses": (
        lambda: GroupPausesScenario(
            0.2, 0.2, [GroupReaders("replog", ReplogBrokers(config={**QUICK, **GROUP_CONFIG}), "replog")]
        ),
        {"handover_ms", "others_pause_ms", "steady_pause_ms"},
    ),
}
"""Each measurement starts a cluster of its own, so that a second one would show nothing new."""


@pytest.fixture
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    before = processes()
    yield
    assert list(tmp_path.iterdir()) == []
    assert processes() <= before


def processes() -> set[int]:
    """The processes under this one that run, without those that fork nodes, which stay until it ends; their nodes count."""
    children = psutil.Process().children(recursive=True)
    running = [process for process in children if process.status() != psutil.STATUS_ZOMBIE]
    return {process.pid for process in running if "replog.broker.fork_server" not in process.cmdline()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplogCluster]:
    """A cluster for those that need none of their own."""
    system = ReplogCluster()
    with harness.started([system], tmp_path_factory.mktemp("running")):
        yield system


def is_plausible(metric: str, value: float) -> bool:
    return value > 0 or metric in MAY_BE_ZERO


@pytest.mark.campaign
@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("name", AGAIN)
def test_small_run(name: str, tmp_path: Path) -> None:
    make, system, metrics = AGAIN[name]
    scenario = make()
    result = harness.run(scenario, repeat=1, directory=tmp_path, chosen=[system])
    assert scenario.name == name
    assert {row.metric for row in result.rows} == metrics
    assert all(is_plausible(row.metric, row.median) for row in result.rows)


@pytest.mark.parametrize("name", BESIDE)
def test_small_run_on_a_running_cluster(name: str, running: ReplogCluster) -> None:
    make, metrics = BESIDE[name]
    scenario = make(running)
    for params in scenario.cases():
        rows = harness.run_case(scenario, [running], params, repeat=1, on_step=lambda _: None)
        assert {row.metric for row in rows} == metrics
        assert all(is_plausible(row.metric, row.median) for row in rows)
    assert scenario.name == name


@pytest.mark.campaign
@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("name", FRESH)
def test_small_measurement(name: str, tmp_path: Path) -> None:
    make, metrics = FRESH[name]
    scenario = make()
    (system,) = scenario.systems()
    if reason := system.missing():
        pytest.skip(reason)
    with harness.started([system], tmp_path):
        found = [
            scenario.measure(system, params, Meter(system.process_ids(), system.client_ids()))
            for params in scenario.cases()
        ]
    assert scenario.name == name
    assert {metric.name for measured in found for metric in measured} == metrics
    assert all(is_plausible(metric.name, value) for measured in found for metric, value in measured.items())


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tls_between_nodes_is_measured_whatever_they_meet_over(transport: str, tmp_path: Path) -> None:
    scenario = PeerTlsScenario(SMALL_BYTES, [1024], [transport], warm_up_share=0.001)
    plain, secure = scenario.systems()
    assert (plain.name, secure.name) == (transport, f"{transport}-tls")
    with harness.started([secure], tmp_path):
        (params,) = scenario.cases()
        found = scenario.measure(secure, params, Meter(secure.process_ids(), secure.client_ids()))
    assert all(is_plausible(metric.name, value) for metric, value in found.items())


@pytest.mark.usefixtures("nothing_is_left")
def test_the_guard_measures_all_its_lines(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Eight nodes are started, and the modules of two more imported: some twelve seconds of CPU in all."""
    output = tmp_path_factory.mktemp("told") / "found.jsonl"
    options = ["--output", str(output), "--directory", str(tmp_path), "--scale", "0.001"]
    subprocess.run([sys.executable, "-m", "bench.guard.worker", *LINES, *options], check=True)
    told = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {each["line"]: each["error"] for each in told if "error" in each} == {}
    assert [each["line"] for each in told] == list(LINES)
    assert all(each["values"]["figure"][0] > 0 for each in told)


@pytest.mark.campaign
@pytest.mark.usefixtures("nothing_is_left")
def test_a_group_that_does_not_become_stable_says_who_has_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever sees one run of many fail learns from it why."""
    monkeypatch.setattr(group_brokers, "STABLE_TIMEOUT_S", 3.0)
    system = GroupBrokers(ReplogBrokers(config={"group.consumer.heartbeat.interval.ms": 100}))

    async def wait(topic: str) -> None:
        group = Group(system, topic, partitions=5)  # one more than it has
        try:
            await group.join(2)
            await group.wait_stable()
        finally:
            await group.close()

    with harness.started([system], tmp_path):
        told = (
            r"replog: group-1 is not stable after 3 s: .*2 members in epoch \d+ with 2 partitions; . wait for answers"
        )
        with pytest.raises(WrongResultError, match=told):
            system.run(wait(system.create_topic(4)))


def test_a_topic_that_holds_something_else_is_refused(running: ReplogCluster) -> None:
    topic = running.create_topic(3)
    with running.producer(topic) as producer:
        producer.send_all([b"a", b"b"], 2)
    check_topic(running, topic, Digest.of([b"b", b"a", b"b", b"a"]))
    with pytest.raises(WrongResultError, match="acknowledged 5 records and holds 4"):
        check_topic(running, topic, Digest.of([b"a"] * 5))
    with pytest.raises(WrongResultError, match="holds other records"):
        check_topic(running, topic, Digest.of([b"a", b"b", b"a", b"c"]))


def test_what_a_failover_must_not_do() -> None:
    sent = [b"0", b"1", b"2"]
    check("x", FailoverReport([1.0, 2.0, 5.0], 2.5, sent, sent, 3))
    with pytest.raises(WrongResultError, match="1 of 3 records are not at"):
        check("x", FailoverReport([1.0, 2.0, 5.0], 2.5, sent, [b"0", None, b"2"], 2))
    with pytest.raises(WrongResultError, match="3 records were sent, the log holds 4"):
        check("x", FailoverReport([1.0, 2.0, 5.0], 2.5, sent, sent, 4))
    check("x", FailoverReport([1.0, 2.0, 5.0], 2.5, sent, sent, 4, may_double=True))
    with pytest.raises(WrongResultError, match="3 records were sent, the log holds 2"):
        check("x", FailoverReport([1.0, 2.0, 5.0], 2.5, sent, sent, 2, may_double=True))


def test_the_trace_of_a_failover_counts_the_acknowledgements_of_each_bin() -> None:
    report = FailoverReport([0.0, 0.01, 1.0, 1.26], 1.0, [], [], 0)
    counts = binned(report, before_s=1.0)
    assert [place for place, count in enumerate(counts) if count] == [0, 20, 25]
    assert sum(counts) == 4


def test_acknowledgements_from_before_the_trace_are_not_in_it() -> None:
    assert binned(FailoverReport([0.0, 0.4, 1.0], 1.0, [], [], 0), before_s=0.5) == [0] * 10 + [1]


def test_the_longest_gap_is_one_that_ends_after_the_kill() -> None:
    report = FailoverReport([0.0, 9.0, 10.0, 13.0, 14.0], 10.5, [], [], 0)
    assert longest_gap_s(report) == 3.0


@pytest.mark.parametrize(("percent", "found"), [(50, 5), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_of_what_was_measured(percent: float, found: float) -> None:
    assert percentile(range(1, 11), percent) == found
