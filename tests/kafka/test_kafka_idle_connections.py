"""Kafka's clients go on over connections that a broker of ours has ended, because nothing came for `connections.max.idle.ms`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka_install import KafkaInstall
from raw_client import raw_client
from served_cluster import ServedCluster, served_cluster

from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

pytestmark = pytest.mark.cluster

IDLE_MS = 300
TURNS = 3
TIMEOUT_S = 300
QUICKLY_AGAIN = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
"""Without it librdkafka waits up to ten seconds behind a connection that ended, most of the time that this took."""


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """A broker that ends connections soon."""
    with served_cluster(tmp_path_factory.mktemp("hasty"), connections_max_idle_ms=IDLE_MS) as cluster:
        yield cluster


def until_idle_ones_have_ended(cluster: ServedCluster) -> None:
    """Waits until a connection has ended that asked for something now: those that did so before have ended, too."""
    for _ in range(2):  # what was on its way at the first one
        with raw_client(cluster.bootstrap_servers) as client:
            client.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
            assert client.is_closed()


def test_librdkafka_goes_on_over_connections_that_ended_idle(hasty: ServedCluster) -> None:
    hasty.create_topic("rdkafka")
    settings = {"bootstrap.servers": hasty.bootstrap_servers, "log_level": 0, **QUICKLY_AGAIN}
    producer = Producer({**settings, "enable.idempotence": True, "message.timeout.ms": TIMEOUT_S * 1000})
    consumer = Consumer({**settings, "group.id": "rdkafka", "auto.offset.reset": "earliest"})
    errors: list[object] = []
    try:
        consumer.subscribe(["rdkafka"])
        for turn in range(TURNS):
            producer.produce(
                "rdkafka", b"%d" % turn, on_delivery=lambda error, _: error is None or errors.append(error)
            )
            assert producer.flush(TIMEOUT_S) == 0
            (message,) = consumer.consume(1, TIMEOUT_S)
            assert (message.error(), message.value()) == (None, b"%d" % turn)
            consumer.commit(message, asynchronous=False)
            until_idle_ones_have_ended(hasty)
    finally:
        consumer.close()
    assert errors == []


@pytest.mark.kafka
def test_java_goes_on_over_connections_that_ended_idle(hasty: ServedCluster, kafka: KafkaInstall) -> None:
    hasty.create_topic("java")
    options = ["--bootstrap-server", hasty.bootstrap_servers, "--topic", "java"]
    command = kafka.command("org.apache.kafka.tools.ConsoleProducer", *options)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producer:
        try:
            assert producer.stdin is not None
            for turn in range(TURNS):
                producer.stdin.write(f"{turn}\n")
                producer.stdin.flush()
                while len(hasty.read_all("java")) <= turn:
                    assert producer.poll() is None
                until_idle_ones_have_ended(hasty)
            _, errors = producer.communicate(timeout=TIMEOUT_S)
        finally:
            producer.kill()
    assert (producer.returncode, [line for line in errors.splitlines() if "ERROR" in line]) == (0, [])
    assert hasty.read_all("java") == [(turn, b"%d" % turn) for turn in range(TURNS)]
