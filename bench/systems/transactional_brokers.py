"""Brokers whose transactions are measured, with one client for all of them: librdkafka's, in a process of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.model import System
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.client_process import CLIENTS, ClientProcess
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.shared_brokers import SharedBrokers


class TransactionalSystem(System):
    """Brokers and a transactional producer.

    Args:
        name: The name in results.
        brokers: The brokers.
    """

    def __init__(self, name: str, brokers: SharedBrokers) -> None:
        self.name = name
        self.brokers = brokers
        self._client: ClientProcess | None = None
        self._numbers = itertools.count(1)

    def missing(self) -> str | None:
        return self.brokers.missing() or CLIENTS["librdkafka"].missing()

    def start(self, directory: Path) -> None:
        self.brokers.start(directory)
        command = [sys.executable, "-m", "bench.systems.kafka.transaction_peer", self.brokers.kafka_servers]
        self._client = ClientProcess(command, directory)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self.brokers.stop()

    def durability(self) -> str:
        return self.brokers.durability()

    def process_ids(self) -> Sequence[int]:
        return self.brokers.process_ids()

    def client_ids(self) -> Sequence[int]:
        return [self.client.pid]

    @property
    def client(self) -> ClientProcess:
        """The client."""
        if self._client is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._client

    def new_id(self) -> str:
        """Returns a transactional id that nobody had."""
        return f"bench-{next(self._numbers)}"


def transactional_systems() -> list[TransactionalSystem]:
    """Ours, and Apache Kafka's."""
    return [
        TransactionalSystem("replog", ReplogBrokers()),
        TransactionalSystem("kafka", KafkaBrokers()),
    ]
