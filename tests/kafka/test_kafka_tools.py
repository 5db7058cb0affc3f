"""Kafka's own tools, unchanged, work with our brokers; in campaigns (`mark.campaign`) the same tests run with Apache Kafka itself.

What a tool prints is compared word by word where it says the same of every broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import Broker
from confluent_kafka import Producer
from kafka_install import KafkaInstall
from kafka_tools import Tools
from served_cluster import ServedCluster, served_cluster
from waiting import until

from replog.protocol.private import FIRST_KEY
from replog.protocol.served import SERVED

pytestmark = pytest.mark.cluster


def served(tool: str, what: str, *, told: str | None = None) -> pytest.MarkDecorator:
    """A line of the page: a tool, and what of it works, or what its user is told."""
    return pytest.mark.served(f"{tool}: {what}", client="tools", told=told)


@pytest.fixture(scope="session")
def tools(kafka: KafkaInstall, broker: Broker) -> Tools:
    """The tools, for one broker of either kind."""
    return Tools(kafka, broker.servers)


@pytest.fixture(scope="module")
def ours(kafka: KafkaInstall, replog_broker: ServedCluster) -> Tools:
    """The tools, for one broker of ours."""
    return Tools(kafka, replog_broker.bootstrap_servers)


@pytest.fixture(scope="module")
def of_three(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """The tools, for three brokers of ours."""
    with served_cluster(tmp_path_factory.mktemp("tools") / "cluster", 3) as cluster:
        yield Tools(kafka, cluster.bootstrap_servers)


def offsets(tools: Tools, topic: str, *arguments: str) -> dict[int, int]:
    """What kafka-get-offsets says of each partition."""
    lines = tools.run("kafka-get-offsets", "--topic", topic, *arguments).splitlines()
    found = [line.split(":") for line in lines]
    assert {name for name, _, _ in found} <= {topic}
    return {int(partition): int(offset) for _, partition, offset in found}


def fill(tools: Tools, topic: str, count: int) -> None:
    """Writes records to all partitions of a topic: the values are numbers, the keys too."""
    lines = "".join(f"{number}\t{number}\n" for number in range(count))
    tools.run("kafka-console-producer", "--topic", topic, "--property", "parse.key=true", stdin=lines)


def partitions(tools: Tools, topic: str) -> list[dict[str, str]]:
    """What kafka-topics says of each partition, by the names that it prints."""
    lines = tools.run("kafka-topics", "--describe", "--topic", topic).splitlines()
    return [dict(re.findall(r"(\w+): (\S*)", line)) for line in lines[1:]]


@served("kafka-topics", "create, list, describe, add partitions, delete")
def test_topics(tools: Tools) -> None:
    create = ("kafka-topics", "--create", "--topic", "by-tools", "--partitions", "2", "--config", "retention.ms=123456")
    assert tools.run(*create) == "Created topic by-tools.\n"
    assert "exists" in tools.errors(*create)
    tools.run("kafka-topics", "--alter", "--topic", "by-tools", "--partitions", "3")
    described = tools.run("kafka-topics", "--describe", "--topic", "by-tools")
    head, *lines = described.splitlines()
    assert re.fullmatch(
        r"Topic: by-tools\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*retention.ms=123456.*",
        head,
    )
    assert [line.rstrip() for line in lines] == [
        f"\tTopic: by-tools\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:"
        for number in range(3)
    ]
    assert "by-tools" in tools.run("kafka-topics", "--list").split()
    tools.run("kafka-topics", "--delete", "--topic", "by-tools")
    until(lambda: "by-tools" not in tools.run("kafka-topics", "--list").split())


@served("kafka-configs", "of topics: set, describe, delete")
def test_configs(tools: Tools, broker: Broker) -> None:
    topic = ("--entity-type", "topics", "--entity-name", broker.topic(retention_ms=123456))
    tools.run(
        "kafka-configs", "--alter", *topic, "--add-config", "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    )
    tools.run("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms")
    shown = tools.run("kafka-configs", "--describe", *topic).splitlines()[1:]
    assert sorted(line.partition(" sensitive")[0].strip() for line in shown) == [
        "cleanup.policy=compact,delete",
        "max.message.bytes=5000",
    ]
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:message.max.bytes=1048588" in "\n".join(shown)
    refused = tools.errors("kafka-configs", "--alter", *topic, "--add-config", "max.message.bytes=-7")
    assert "InvalidConfigurationException" in refused


@served("kafka-configs", "of all brokers: set, describe, delete")
def test_configs_of_brokers(ours: Tools) -> None:
    brokers = ("--entity-type", "brokers", "--entity-default")
    ours.run("kafka-configs", "--alter", *brokers, "--add-config", "log.retention.ms=654321")
    assert "log.retention.ms=654321" in ours.run("kafka-configs", "--describe", *brokers)
    ours.run("kafka-configs", "--alter", *brokers, "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in ours.run("kafka-configs", "--describe", *brokers)


@served("kafka-configs", "of users, client ids and addresses: quotas")
def test_quotas(ours: Tools) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
    limits = (
        "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=12.5,controller_mutation_rate=0.5"
    )
    ours.run("kafka-configs", "--alter", *alice, "--add-config", limits)
    shown = ours.run("kafka-configs", "--describe", *alice)
    assert shown.startswith("Quota configs for user-principal 'alice', the default client-id are ")
    assert sorted(re.findall(r"(\w+)=([\d.]+)", shown)) == [
        ("consumer_byte_rate", "2097152.0"),
        ("controller_mutation_rate", "0.5"),
        ("producer_byte_rate", "1048576.0"),
        ("request_percentage", "12.5"),
    ]
    ours.run("kafka-configs", "--alter", *alice, "--delete-config", ",".join(re.findall(r"(\w+)=", limits)))
    assert "_rate" not in ours.run("kafka-configs", "--describe", *alice)
    for address in (("--entity-name", "10.9.8.7"), ("--entity-default",)):
        ips = ("--entity-type", "ips", *address)
        ours.run("kafka-configs", "--alter", *ips, "--add-config", "connection_creation_rate=500")
        assert "connection_creation_rate=500.0" in ours.run("kafka-configs", "--describe", *ips)
        ours.run("kafka-configs", "--alter", *ips, "--delete-config", "connection_creation_rate")


@served("kafka-producer-perf-test", "with acks=all, compressed")
@served("kafka-get-offsets", "ends, beginnings, by time")
def test_producer_performance(tools: Tools, broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    load = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    settings = (f"bootstrap.servers={broker.servers}", "acks=all", "compression.type=zstd")
    told = tools.run("kafka-producer-perf-test", "--topic", topic, *load, "--producer-props", *settings)
    assert told.startswith("2000 records sent, ")
    ends = offsets(tools, topic)
    assert ends.keys() == {0, 1}
    assert sum(ends.values()) == 2000
    assert offsets(tools, topic, "--time", "earliest") == {0: 0, 1: 0}
    written = max(ends, key=ends.__getitem__)  # one batch may have been all, and the other partition has nothing then
    assert offsets(tools, topic, "--time", "1000", "--partitions", str(written)) == {written: 0}


@served("kafka-console-producer", "keys, headers, compressed")
@served("kafka-console-consumer", "`--partition`, from an offset")
def test_console(tools: Tools, broker: Broker) -> None:
    """In JVMs of their own, as it comes: what is read from standard input, and done when a JVM ends."""
    tools, topic = tools.alone(), broker.topic()
    read = ("--topic", topic, "--partition", "0", "--timeout-ms", "60000")
    lines = "h:1\tk\tone\nh:2\tk\ttw\u00f6\n"
    parsing = ("--property", "parse.key=true", "--property", "parse.headers=true")
    tools.run("kafka-console-producer", "--topic", topic, "--compression-codec", "lz4", *parsing, stdin=lines)
    printing = [f"print.{what}=true" for what in ("key", "offset", "headers", "partition")]
    asked = [word for each in printing for word in ("--property", each)]
    shown = tools.run("kafka-console-consumer", *read, "--offset", "earliest", "--max-messages", "2", *asked)
    assert shown.splitlines() == ["Partition:0\tOffset:0\th:1\tk\tone", "Partition:0\tOffset:1\th:2\tk\ttw\u00f6"]
    assert tools.run("kafka-console-consumer", *read, "--offset", "1", "--max-messages", "1") == "tw\u00f6\n"


@served("kafka-verifiable-producer", "with acks=all")
def test_verifiable_producer(tools: Tools, broker: Broker) -> None:
    topic = broker.topic()
    told = tools.run("kafka-verifiable-producer", "--topic", topic, "--max-messages", "50").splitlines()
    events = [json.loads(line) for line in told]
    sent = [(event["value"], event["offset"]) for event in events if event["name"] == "producer_send_success"]
    assert sent == [(str(number), number) for number in range(50)]
    assert (events[-1]["sent"], events[-1]["acked"]) == (50, 50)


@served("kafka-delete-records", "up to an offset, up to the end")
def test_delete_records(tools: Tools, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(partitions=2)
    fill(tools, topic, 20)
    ends = offsets(tools, topic)
    assert min(ends.values()) > 3
    below = [
        {"topic": topic, "partition": 0, "offset": 3},
        {"topic": topic, "partition": 1, "offset": -1},
    ]
    plan = tmp_path / "below.json"
    plan.write_text(json.dumps({"partitions": below, "version": 1}))
    told = tools.run("kafka-delete-records", "--offset-json-file", str(plan))
    starts = {0: 3, 1: ends[1]}
    for number, start in starts.items():
        assert f"partition: {topic}-{number}\tlow_watermark: {start}" in told
    assert offsets(tools, topic, "--time", "earliest") == starts


@served("kafka-log-dirs", "sizes and lags of replicas")
def test_log_dirs(tools: Tools, broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    fill(tools, topic, 10)
    told = tools.run("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()
    (of_broker,) = json.loads(told[-1])["brokers"]
    (folder,) = of_broker["logDirs"]
    assert folder["error"] is None
    found = {each.pop("partition"): each for each in folder["partitions"]}
    assert found.keys() == {f"{topic}-0", f"{topic}-1"}
    assert sum(each["size"] for each in found.values()) > 0
    assert all((each["offsetLag"], each["isFuture"]) == (0, False) for each in found.values())


@served("kafka-metadata-quorum", "status, replication")
def test_metadata_quorum(tools: Tools) -> None:
    status = dict(
        line.split(":", 1) for line in tools.run("kafka-metadata-quorum", "describe", "--status").splitlines()
    )
    assert (status["LeaderId"].strip(), status["MaxFollowerLag"].strip()) == ("1", "0")
    assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1]
    head, line = tools.run("kafka-metadata-quorum", "describe", "--replication").splitlines()
    row = dict(zip(head.split(), line.split(), strict=True))
    assert (row["NodeId"], row["Lag"], row["Status"]) == ("1", "0", "Leader")


@served("kafka-features", "describe, upgrade")
def test_features(ours: Tools) -> None:
    lines = ours.run("kafka-features", "describe").splitlines()
    assert [re.split(r"[:\s]+", line)[1] for line in lines] == ["metadata.version", "transaction.version"]
    found = re.search(r"Feature: metadata.version.*SupportedMaxVersion: UNKNOWN (\d+).*Level: UNKNOWN (\d+)", lines[0])
    assert found is not None
    assert found[1] == found[2]
    upgrade = ours.run("kafka-features", "upgrade", "--feature", f"metadata.version={found[1]}")
    assert upgrade == f"metadata.version was upgraded to {found[1]}.\n"


@served("kafka-cluster", "cluster-id, list-endpoints, unregister")
def test_cluster(tools: Tools, broker: Broker) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", tools.run("kafka-cluster", "cluster-id"))
    _, endpoint = tools.run("kafka-cluster", "list-endpoints").splitlines()
    host, port = broker.servers.split(":")
    assert endpoint.split() == ["1", host, port, "null", "unfenced", "broker"]
    unknown = tools.errors("kafka-cluster", "unregister", "--id", "77")
    assert "BrokerIdNotRegisteredException" in unknown


@served("kafka-broker-api-versions", "all that is served is usable")
def test_api_versions(ours: Tools) -> None:
    told = ours.run("kafka-broker-api-versions")
    usable = {
        int(key): range(int(first), int(last or first) + 1)
        for key, first, last in re.findall(r"\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", told)
    }
    advertised = {row.key: row.advertised for row in SERVED if row.key < FIRST_KEY}
    assert {key: usable.get(key) for key in advertised} == advertised
    assert usable.keys() - advertised.keys() == {18}, "ApiVersions itself"


# ---- several brokers -------------------------------------------------------------------------------------------------


def plan_of(topic: str, replicas: list[int]) -> str:
    """A plan of kafka-reassign-partitions."""
    place = {"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
    return json.dumps({"version": 1, "partitions": [place]})


@served("kafka-reassign-partitions", "generate, execute, verify, list")
@served("kafka-leader-election", "preferred")
def test_reassignment_and_election(of_three: Tools, tmp_path: Path) -> None:
    topic, plan = "moving-by-tools", tmp_path / "plan.json"
    of_three.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2")
    moving = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    plan.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    generate = ("--generate", "--topics-to-move-json-file", str(plan), "--broker-list", "2,3")
    proposed = of_three.run("kafka-reassign-partitions", *generate).splitlines()[-1]
    assert sorted(json.loads(proposed)["partitions"][0]["replicas"]) == [2, 3]

    plan.write_text(plan_of(topic, [3, 1]))
    assert f"Successfully started partition reassignment for {topic}-0" in of_three.run(*moving, "--execute")
    until(lambda: f"Reassignment of partition {topic}-0 is completed." in of_three.run(*moving, "--verify"))
    assert of_three.run("kafka-reassign-partitions", "--list") == "No partition reassignments found.\n"
    (partition,) = partitions(of_three, topic)
    assert (partition["Leader"], partition["Replicas"], sorted(partition["Isr"])) == ("1", "3,1", [",", "1", "3"])

    elect = ("kafka-leader-election", "--election-type", "PREFERRED", "--topic", topic, "--partition", "0")
    assert of_three.run(*elect).startswith("Successfully completed leader election (PREFERRED)")
    until(lambda: partitions(of_three, topic)[0]["Leader"] == "3")


# ---- what is not served ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "text"),
    [
        pytest.param(tool, arguments, status, text, marks=served(tool, what, told=text), id=tool)
        for tool, what, arguments, status, text in [
            ("kafka-acls", "list without an authorizer", ["--list"], 1, "no authorizer is configured"),
        ]
    ],
)
def test_what_is_not_served_is_told(ours: Tools, tool: str, arguments: list[str], status: int, text: str) -> None:
    assert text in ours.alone().errors(tool, *arguments, status=status)


# ---- groups ----------------------------------------------------------------------------------------------------------


def described(tools: Tools, group: str) -> dict[int, tuple[str, str, str]]:
    """What kafka-consumer-groups says of a group's partitions: offset, end, lag."""
    lines = tools.run("kafka-consumer-groups", "--describe", "--group", group).splitlines()
    rows = [line.split() for line in lines if line.startswith(group)]
    return {int(row[2]): (row[3], row[4], row[5]) for row in rows}


@served("kafka-console-consumer", "`--group`")
@served("kafka-consumer-groups", "list, describe, reset offsets, delete")
@served("kafka-groups", "list")
def test_groups(tools: Tools, broker: Broker) -> None:
    topic, group = broker.topic(), f"by-tools-{broker.name}"
    fill(tools, topic, 5)
    reading = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "5")
    assert tools.run("kafka-console-consumer", *reading).split() == ["0", "1", "2", "3", "4"]
    assert described(tools, group) == {0: ("5", "5", "0")}
    assert group in tools.run("kafka-consumer-groups", "--list").split()
    assert re.search(rf"^{group}\s+Classic\s+consumer\s*$", tools.run("kafka-groups", "--list"), re.MULTILINE)
    back = ("--reset-offsets", "--to-offset", "2", "--execute", "--group", group, "--topic", topic)
    tools.run("kafka-consumer-groups", *back)
    assert described(tools, group) == {0: ("2", "5", "3")}
    assert "was successful" in tools.run("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in tools.run("kafka-consumer-groups", "--list").split()


@served("kafka-transactions", "list, describe")
def test_transactions(ours: Tools, replog_broker: ServedCluster) -> None:
    replog_broker.create_topic("transacted-by-tools")
    producer = Producer({"bootstrap.servers": replog_broker.bootstrap_servers, "transactional.id": "left-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transacted-by-tools", b"v")
    producer.flush(60)
    assert re.search(r"^left-open\s+\d+\s+\d+\s+Ongoing\s*$", ours.run("kafka-transactions", "list"), re.MULTILINE)
    told = ours.run("kafka-transactions", "describe", "--transactional-id", "left-open")
    assert "Ongoing" in told
    assert "transacted-by-tools-0" in told
    producer.abort_transaction(60)


@served("kafka-consumer-perf-test", "it subscribes")
def test_performance_of_who_subscribes(ours: Tools, replog_broker: ServedCluster) -> None:
    replog_broker.create_topic("subscribed-by-tools")
    fill(ours, "subscribed-by-tools", 5)
    asked = ("--topic", "subscribed-by-tools", "--messages", "5", "--timeout", "20000")
    performance = ours.run("kafka-consumer-perf-test", *asked)
    assert "exceeded" not in performance


@served("kafka-share-groups", "list", told="none; share groups are not served")
def test_there_are_no_share_groups(ours: Tools) -> None:
    assert not ours.run("kafka-share-groups", "--list").split()
