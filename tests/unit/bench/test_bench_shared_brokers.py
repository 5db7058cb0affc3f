"""Brokers that several systems use, and the programs with Kafka's clients, without either."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from bench.meter import Meter
from bench.model import WrongResultError
from bench.scenarios.ack_latency import AckLatencyScenario
from bench.scenarios.metadata_ops import MetadataOpsScenario
from bench.scenarios.produce import Warmth
from bench.systems.broker_systems import beside_kafka, failing_over, one_node
from bench.systems.brokers import BenchConsumer, BenchProducer, BrokerSystem, Digest, Killed, Sending
from bench.systems.kafka.client_process import CLIENTS, ClientProcess
from bench.systems.shared_brokers import SharedBrokers

ECHO = """
import sys
for line in sys.stdin:
    name, *words = line.rstrip().split("\\t")
    if name == "end":
        sys.exit("it is over")
    print("\\t".join(["!", "no", "echo"] if name == "fail" else ["ok", *words]), flush=True)
"""


class FakeBrokers(SharedBrokers):
    name = "fake"
    flushing = "kept nowhere"
    kafka_servers = ""

    def __init__(self, nodes_count: int = 3) -> None:
        super().__init__(nodes_count)
        self.events: list[str] = []

    def _start(self, directory: Path) -> None:
        self.events.append(f"start {directory.name}")

    def _stop(self) -> None:
        self.events.append("stop")

    def process_ids(self) -> Sequence[int]:
        return []

    def create_topic(self, partitions: int) -> str:
        return f"{self.new_topic_name()}-{partitions}"

    def create_led_topic(self, killed: Killed) -> tuple[str, int]:
        return killed, 1

    def delete_topic(self, topic: str) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def bring_back(self, node_id: int, topic: str) -> None: ...


def test_the_first_user_starts_brokers_and_the_last_one_stops_them(tmp_path: Path) -> None:
    brokers = FakeBrokers()
    brokers.start(tmp_path / "a")
    brokers.start(tmp_path / "b")
    brokers.stop()
    assert brokers.events == ["start a"]
    brokers.stop()
    brokers.start(tmp_path / "c")
    assert brokers.events == ["start a", "stop", "start c"]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [(1, "acks=1, 1 replicas, min.insync.replicas=1"), (6, "acks=1, 3 replicas, min.insync.replicas=2")],
)
def test_what_an_acknowledgement_means(nodes: int, says: str) -> None:
    assert FakeBrokers(nodes).durability("1") == f"{says}, kept nowhere"


def test_both_sides_promise_the_same_but_for_where_it_is_said() -> None:
    for systems in (beside_kafka(), one_node()):
        promises = {system.durability().replace(f", {flushing_of(system)}", "") for system in systems}
        assert len(promises) == 1, promises


def test_a_producer_with_the_defaults_of_its_client_says_whether_it_may_double() -> None:
    found = {system.name: system.durability().rpartition(", ")[2] for system in failing_over()}
    assert found == {
        "replog": "idempotent",
        "replog-java": "idempotent",
        "replog-librdkafka": "not idempotent",
        "kafka": "idempotent",
        "kafka-librdkafka": "not idempotent",
    }


def flushing_of(system: object) -> str:
    brokers = system._brokers  # type: ignore[attr-defined]
    return str(brokers.flushing)


def test_names_of_systems_say_whose_brokers_they_have() -> None:
    for system in [*beside_kafka(), *one_node(), *failing_over()]:
        assert system.name.partition("-")[0] == system._brokers.name  # type: ignore[attr-defined]


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[ClientProcess]:
    client = ClientProcess([sys.executable, "-c", ECHO], tmp_path)
    try:
        yield client
    finally:
        client.close()


def test_a_program_answers_in_words_or_says_what_went_wrong(echo: ClientProcess) -> None:
    assert echo.ask("say", 1, "two words") == ["1", "two words"]
    with pytest.raises(WrongResultError, match="could not fail: no echo"):
        echo.ask("fail")
    assert echo.ask("say") == []


def test_a_program_that_ended_leaves_its_last_words(echo: ClientProcess) -> None:
    for _ in range(2):  # the second time nobody reads any more
        with pytest.raises(WrongResultError, match="its process ended: it is over"):
            echo.ask("end")


def test_a_client_that_is_not_there_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert "no 'java'" in str(CLIENTS["java"].missing())
    assert CLIENTS["librdkafka"].missing() == "confluent-kafka is not installed (replog[test] has it)"


class Asked(BrokerSystem):
    """Notes what a producer was to be tuned for, and remembers what was sent."""

    name = "asked"

    def __init__(self) -> None:
        self.sendings: list[str] = []
        self.sent: list[bytes] = []

    def create_topic(self, partitions: int) -> str:
        self.sent = []
        return f"topic of {partitions}"

    def delete_topic(self, topic: str) -> None: ...

    @contextmanager
    def producer(self, topic: str, sending: Sending = "bulk") -> Iterator[BenchProducer]:
        self.sendings.append(sending)
        yield cast("BenchProducer", self)

    @contextmanager
    def consumer(self, topic: str) -> Iterator[BenchConsumer]:
        yield cast("BenchConsumer", self)

    def send_all(self, values: Sequence[bytes], rounds: int) -> None:
        self.sent += list(values) * rounds

    def send_at_rate(self, value: bytes, rate_per_s: float, count: int) -> list[float]:
        self.sent += [value] * count
        return [1 / rate_per_s] * count

    def digest(self, count: int) -> Digest:
        return Digest.of(self.sent)


def test_clients_linger_where_single_records_would_make_a_queue() -> None:
    system = Asked()
    scenario = AckLatencyScenario(0.01, systems=[system], warm_up_share=0.001)
    for params in scenario.cases():
        scenario.warm_up(system, params, Meter())
    assert [params["kafka_linger_ms"] for params in scenario.cases()] == [0, 0, 5]
    assert system.sendings == ["bulk", "single", "single", "bulk"], "the first one made it warm"


def test_what_makes_a_system_warm_is_sent_once() -> None:
    system = Asked()
    warmth = Warmth(0.01)
    assert warmth.give(system)
    assert len(system.sent) == pytest.approx(system.warm_up_records * 0.01, rel=0.01)
    assert not warmth.give(system)


def test_who_creates_fewer_topics_says_so() -> None:
    systems = MetadataOpsScenario().systems()
    assert {system.name for system in systems if "10% of the topics" in system.durability()} == {
        "replog-hosting",
        "kafka",
    }
