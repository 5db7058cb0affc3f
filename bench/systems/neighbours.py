"""Brokers that two tenants share: one of whom sends steadily, and one who floods them, with quotas or without."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.systems.child_processes import dying_with_us
from bench.systems.flooding_tenant import CLIENT_ID
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.clients import KafkaClientSystem
from bench.systems.replog_brokers import ReplogBrokers
from replog import Admin

END_S = 120.0


class Flood:
    """A tenant that floods.

    Attributes:
        acknowledged_bytes: The bytes of its values that were acknowledged, known at its end.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged_bytes = 0
        command = [sys.executable, "-m", "bench.systems.flooding_tenant", servers, topic]
        self._process = subprocess.Popen(
            dying_with_us(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        """Ends it, and reads what it got."""
        try:
            told, _ = self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()
            self._process.wait()
        self.acknowledged_bytes = int(told)


class NeighbourSystem(KafkaClientSystem):
    """Some brokers; both tenants have librdkafka, each in a process of its own."""

    def set_quotas(self, limits: Mapping[str, float | None]) -> None:
        """Sets quotas of the tenant that floods; None removes one."""

        async def set_them() -> None:
            async with Admin(self._brokers.kafka_servers) as admin:
                await admin.alter_quotas({"client-id": CLIENT_ID}, limits)

        asyncio.run(set_them())

    @contextmanager
    def flooded(self, topic: str) -> Iterator[Flood]:
        """Has the tenant flood a topic meanwhile."""
        flood = Flood(self._brokers.kafka_servers, topic)
        try:
            yield flood
        finally:
            flood.end()


def neighbours() -> list[NeighbourSystem]:
    """The same tenants at our brokers and at Kafka's."""
    return [
        NeighbourSystem("replog", ReplogBrokers(), "librdkafka"),
        NeighbourSystem("kafka", KafkaBrokers(), "librdkafka"),
    ]
