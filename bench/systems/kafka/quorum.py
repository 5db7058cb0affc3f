"""Metadata operations on Apache Kafka: three nodes that are controllers and brokers, asked by the Java admin client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.client_process import java_missing
from bench.systems.metadata_quorums import DAY_MS, MetadataSystem

DISCARDED_TOGETHER = 500


class KafkaQuorum(MetadataSystem):
    """Brokers host what is created, for they cannot be on paper only; requests go through a broker, as clients' do.

    Args:
        share: see `MetadataSystem`; tens of thousands of replicas would use up the memory mappings of a JVM.
    """

    name = "kafka"

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self._brokers = KafkaBrokers()
        self._numbers = itertools.count(1)

    def missing(self) -> str | None:
        return java_missing()

    def start(self, directory: Path) -> None:
        self._brokers.start(directory)

    def stop(self) -> None:
        self._brokers.stop()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    def client_ids(self) -> Sequence[int]:
        return [self._brokers.admin.pid]

    def create(self, names: Sequence[str], *, per_request: int, in_flight: int) -> list[float]:
        admin = self._brokers.admin
        admin.ask("create-many", admin.write_lines(names), per_request, in_flight, admin.answer_file)
        return admin.read_seconds()

    def create_at_rate(self, names: Sequence[str], rate_per_s: float) -> list[float]:
        admin = self._brokers.admin
        admin.ask("create-at-rate", admin.write_lines(names), rate_per_s, admin.answer_file)
        return admin.read_seconds()

    def discard(self, names: Sequence[str]) -> None:
        admin = self._brokers.admin
        for start in range(0, len(names), DISCARDED_TOGETHER):
            admin.ask("delete-many", admin.write_lines(names[start : start + DISCARDED_TOGETHER]))

    def fail_over(self) -> float:
        victim = self._brokers.controller_id()
        self._brokers.kill(victim)
        killed_s = time.monotonic()
        self._brokers.admin.ask("change", DAY_MS + next(self._numbers))
        took_s = time.monotonic() - killed_s
        self._brokers.cluster.start_node(victim)
        self._brokers.wait_until_serving()
        return took_s
