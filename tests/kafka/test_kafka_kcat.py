"""kcat, as distributions have it, works with our brokers; in campaigns (`mark.campaign`) the same with Apache Kafka itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import client_functions as functions
import pytest
from brokers import Broker, of_replog
from kafka_client_kit import CODECS, TIMEOUT_S
from served_cluster import ServedCluster

pytestmark = pytest.mark.cluster

LINES = "k1\tone\nk2\ttw\u00f6\n\tno key\nk3\t\n"


def served(function: str, told: str | None = None) -> pytest.MarkDecorator:
    """A cell of the page, in the column of kcat."""
    return pytest.mark.served(function, client="kcat", told=told)


def kcat(broker: Broker, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Runs kcat; returns what it prints."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("there is no 'kcat' on the PATH (Debian: apt-get install kcat)")
    command = [program, "-b", broker.servers, "-F", "/dev/null", "-m", f"{TIMEOUT_S:.0f}", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, check=False, timeout=2 * TIMEOUT_S, encoding="utf-8"
    )
    assert done.returncode == status, done.stderr
    return done.stdout + (done.stderr if status else "")


def produce(broker: Broker, topic: str, *settings: str) -> None:
    """Writes LINES to partition 0."""
    options = [word for each in settings for word in ("-X", each)]
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", "\t", "-H", "from=kcat", *options, stdin=LINES)


def consume(broker: Broker, topic: str, start: str, *arguments: str) -> list[dict[str, Any]]:
    """What kcat reads of partition 0 from a place on."""
    reading = ("-C", "-t", topic, "-p", "0", "-o", start, "-e", "-q", "-J", "-X", "check.crcs=true")
    return [json.loads(line) for line in kcat(broker, *reading, *arguments).splitlines()]


@served(functions.PRODUCE)
@served(functions.CONSUME)
@pytest.mark.parametrize("codec", CODECS)
def test_producing_and_consuming(broker: Broker, codec: str) -> None:
    topic = broker.topic()
    produce(broker, topic, f"compression.codec={codec}", "acks=all")
    stored = broker.read(topic, 4)
    assert [(got.key, got.value) for got in stored] == [
        (b"k1", b"one"),
        (b"k2", "tw\u00f6".encode()),
        (b"", b"no key"),
        (b"k3", b""),
    ]
    assert {got.headers for got in stored} == {(("from", b"kcat"),)}
    read = consume(broker, topic, "beginning")
    assert [(each["offset"], (each["key"] or "").encode(), (each["payload"] or "").encode()) for each in read] == [
        (got.offset, got.key, got.value) for got in stored
    ]
    assert [each["ts"] for each in read] == [got.timestamp_ms for got in stored]


@served(functions.ACKS)
@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks(broker: Broker, acks: str) -> None:
    topic = broker.topic()
    produce(broker, topic, f"acks={acks}")
    assert len(broker.read(topic, 4)) == 4


@served(functions.IDEMPOTENCE)
def test_idempotence(broker: Broker) -> None:
    topic = broker.topic()
    produce(broker, topic, "enable.idempotence=true", "compression.codec=snappy")
    assert len(broker.read(topic, 4)) == 4


@served(functions.TOO_LARGE)
def test_a_record_that_is_too_large(broker: Broker) -> None:
    topic = broker.topic(max_message_bytes=1000)
    refused = kcat(broker, "-P", "-t", topic, "-p", "0", stdin="x" * 5000, status=1)
    assert "Message size too large" in refused
    produce(broker, topic)
    assert len(broker.read(topic, 4)) == 4


@served(functions.SEEK)
@served(functions.OFFSETS)
def test_offsets(broker: Broker) -> None:
    topic = broker.topic()
    produce(broker, topic)
    stored = broker.read(topic, 4)
    assert [each["offset"] for each in consume(broker, topic, "2")] == [2, 3]
    assert [each["offset"] for each in consume(broker, topic, "-1")] == [3]
    times = (-2, -1, stored[0].timestamp_ms, stored[-1].timestamp_ms + 60_000)
    asked = [kcat(broker, "-Q", "-t", f"{topic}:0:{each}") for each in times]
    assert asked == [f"{topic} [0] offset {offset}\n" for offset in (0, 4, 0, -1)]


@served(functions.METADATA)
def test_metadata(broker: Broker) -> None:
    topic = broker.topic(partitions=3)
    told = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert told["brokers"] == [{"id": 1, "name": broker.servers}]
    (described,) = told["topics"]
    assert described["topic"] == topic
    assert [(each["partition"], each["leader"], each["isrs"]) for each in described["partitions"]] == [
        (number, 1, [{"id": 1}]) for number in range(3)
    ]
    missing = json.loads(kcat(broker, "-L", "-J", "-t", "not-there"))
    assert missing["topics"][0]["error"] == "Broker: Unknown topic or partition"


@served(functions.TRANSACTIONS)
def test_what_is_written_in_a_transaction_is_committed(replog_broker: ServedCluster) -> None:
    broker = of_replog(replog_broker)
    topic = broker.topic()
    kcat(broker, "-P", "-t", topic, "-X", "transactional.id=mine", stdin="one\ntwo\n")
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_committed") == "one\ntwo\n"
