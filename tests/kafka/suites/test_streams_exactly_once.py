"""Kafka Streams with `exactly_once_v2`, killed again and again: every count of a word once, every pair of a windowed join once."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from brokers import Broker
from kafka_install import KafkaInstall, KafkaUnavailableError, install_streams

from tests.kafka.line_driver import dying_with_us

confluent_kafka = pytest.importorskip("confluent_kafka", reason="records are written and read with confluent-kafka")

WORDS = ("a", "b", "c", "d", "e")
ROUNDS, EACH = 4, 200
"""How often the program runs, killed in between, and how many records of each stream each round brings."""

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def streams() -> KafkaInstall:
    """Kafka Streams and our program."""
    try:
        return install_streams()
    except KafkaUnavailableError as error:
        pytest.skip(f"Kafka Streams cannot be had: {error}")


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the program; at the end of the block it is killed."""
    with (folder / "streams.log").open("ab") as errors:
        process = subprocess.Popen(dying_with_us(command), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Outputs:
    """Committed records of some topics, in order, read as they come."""

    def __init__(self, broker: Broker, *topics: str) -> None:
        settings = {"group.id": "outputs", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, **settings})
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in topics])
        self.records: dict[str, list[tuple[str, str]]] = {topic: [] for topic in topics}

    def wait_for(self, topic: str, count: int, process: subprocess.Popen[bytes], log: Path) -> None:
        """Reads until a topic has so many records."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.records[topic]) < count:
            told = f"{len(self.records[topic])} of {count} records of {topic} came\n{log.read_text()[-3000:]}"
            assert process.poll() is None, told
            assert time.monotonic() < deadline_s, told
            self.take(0.2)

    def take(self, wait_s: float) -> int:
        """Reads what there is; returns how many records that is."""
        messages = [each for each in self._consumer.consume(500, wait_s) if each.error() is None]
        for each in messages:
            self.records[each.topic()].append((each.key().decode(), each.value().decode()))
        return len(messages)

    def close(self) -> None:
        """Ends the consumer."""
        self._consumer.close()


def test_counts_and_joins_are_exact_whatever_is_killed(broker: Broker, streams: KafkaInstall, tmp_path: Path) -> None:
    words, counts, left, right, pairs = (broker.topic() for _ in range(5))
    feeder: Any = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True})
    outputs, numbers = Outputs(broker, counts, pairs), itertools.count()
    arguments = [broker.servers, f"exact-{time.time_ns():x}", str(tmp_path / "state")]
    command = streams.command("ExactlyOnce", *arguments, words, counts, left, right, pairs)
    try:
        for round_ in range(ROUNDS):
            with running(command, tmp_path) as process:
                for number in itertools.islice(numbers, EACH):
                    feeder.produce(words, b"", key=WORDS[number % len(WORDS)], partition=0)
                    feeder.produce(left, f"l{number}", key=str(number), partition=0)
                    feeder.produce(right, f"r{number}", key=str(number), partition=0)
                feeder.flush(PATIENCE_S)
                is_last = round_ == ROUNDS - 1
                wanted = (round_ + 1) * EACH if is_last else round_ * EACH + EACH // 4  # killed in the middle
                for topic in (counts, pairs):
                    outputs.wait_for(topic, wanted, process, tmp_path / "streams.log")
        while outputs.take(2.0):  # whatever there is beyond
            pass
    finally:
        outputs.close()
    total = ROUNDS * EACH
    for word in WORDS:
        told = [int(value) for key, value in outputs.records[counts] if key == word]
        assert told == list(range(1, total // len(WORDS) + 1)), word
    assert sorted(outputs.records[pairs], key=lambda pair: int(pair[0])) == [
        (str(number), f"l{number}+r{number}") for number in range(total)
    ]
