"""Kafka's own clients as systems under test, at Apache Kafka's brokers and at replog's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.model import NotOfferedError
from bench.systems.brokers import (
    BenchConsumer,
    BenchProducer,
    BrokerSystem,
    Digest,
    ReadAs,
    Sending,
)
from bench.systems.kafka.client_process import CLIENTS, ClientKind, ClientProcess
from bench.systems.shared_brokers import SharedBrokers

JIT_RECORDS = 8_000_000
"""After so many records of 100 B Kafka's brokers and its Java client do not become faster any more."""


class ProducerOfClient(BenchProducer):
    def __init__(self, client: ClientProcess) -> None:
        self._client = client

    def send_all(self, values: Sequence[bytes], rounds: int) -> None:
        self._client.ask("produce", self._client.write_values(values), rounds)

    def send_at_rate(self, value: bytes, rate_per_s: float, count: int) -> list[float]:
        self._client.ask("rate", self._client.write_values([value]), rate_per_s, count, self._client.answer_file)
        return self._client.read_seconds()


class ConsumerOfClient(BenchConsumer):
    def __init__(self, client: ClientProcess) -> None:
        self._client = client

    def read(self, count: int, read_as: ReadAs) -> int:
        if read_as != "records":
            raise NotOfferedError("Kafka's clients give records, not batches")
        (found,) = self._client.ask("read", count)
        return int(found)

    def digest(self, count: int) -> Digest:  # noqa: ARG002 -- it reads to the ends, as whoever asks wants to know
        found, checksum = self._client.ask("digest")
        return Digest(int(found), int(checksum))


class KafkaClientSystem(BrokerSystem):
    """Some brokers and one of Kafka's clients, in a process of its own.

    Args:
        name: The name in results.
        brokers: The brokers, which others may use too.
        kind: The client.
        acks: The acknowledgements that a producer waits for; with "all" it is idempotent.
        over_tls: Whether the client comes over TLS.
    """

    def __init__(
        self, name: str, brokers: SharedBrokers, kind: ClientKind, *, acks: str = "all", over_tls: bool = False
    ) -> None:
        self.name = name
        self._brokers = brokers
        self._kind = CLIENTS[kind]
        self._acks = acks
        self._over_tls = over_tls
        self._client: ClientProcess | None = None
        if brokers.name == "kafka" or kind == "java":
            self.warm_up_records = JIT_RECORDS

    def missing(self) -> str | None:
        return self._brokers.missing() or self._kind.missing()

    def durability(self) -> str:
        return f"{self._brokers.durability(self._acks)}{', idempotent' if self._acks == 'all' else ''}"

    def start(self, directory: Path) -> None:
        (directory / "brokers").mkdir()
        self._brokers.start(directory / "brokers")
        servers = self._brokers.tls_door.servers if self._over_tls else self._brokers.kafka_servers
        self._client = ClientProcess(self._kind.command(servers), directory)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._brokers.stop()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    def client_ids(self) -> Sequence[int]:
        return [self.client.pid]

    @property
    def client(self) -> ClientProcess:
        if self._client is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._client

    def create_topic(self, partitions: int) -> str:
        return self._brokers.create_topic(partitions)

    def delete_topic(self, topic: str) -> None:
        self._brokers.delete_topic(topic)

    def _security(self) -> Mapping[str, Any]:
        return self._kind.tls(self._brokers.tls_door.authority) if self._over_tls else {}

    @contextmanager
    def producer(self, topic: str, sending: Sending = "bulk") -> Iterator[BenchProducer]:
        chosen = self._kind.bulk if sending == "bulk" else self._kind.single
        safe = {"acks": self._acks, "enable.idempotence": "true" if self._acks == "all" else "false"}
        self.client.ask("producer", topic, *_words({**chosen, **safe, **self._security()}))
        try:
            yield ProducerOfClient(self.client)
        finally:
            self.client.ask("producer-close")

    @contextmanager
    def consumer(self, topic: str) -> Iterator[BenchConsumer]:
        self.client.ask("consumer", topic, *_words({**self._kind.consumer, **self._security()}))
        try:
            yield ConsumerOfClient(self.client)
        finally:
            self.client.ask("consumer-close")


def _words(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
