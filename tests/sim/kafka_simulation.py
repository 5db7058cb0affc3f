"""`data_cluster_simulation` with clients that speak Kafka's protocol beside our own, to the same partition.

Two idempotent producers as librdkafka's and two consumers with fetch sessions, each in versions drawn from the seed, use the
real connections, server and handlers of the port over simulated TCP: bytes come in pieces and late, connections break within
a frame, and what a dead one had sent arrives after it was sent again over the next.  Nothing that either client was
acknowledged may be lost, doubled or out of order, and at the end a consumer reads through the port what ours has read.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.kafka_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.kafka_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from tests.sim.campaign import main
from tests.sim.data_cluster_simulation import TOPIC, DataSimulation
from tests.sim.kafka_fetcher import KafkaFetcher
from tests.sim.kafka_producer import KafkaProducer
from tests.sim.kafka_view import KafkaView

if TYPE_CHECKING:
    from tests.sim.data_topics import OtherWork

CLIENTS = 2
READ_WITHIN_S = 60.0


class KafkaClients:
    """The clients of one run; see `data_topics` for what else goes on."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        self._simulation = simulation
        numbers = range(CLIENTS)
        self.producers = [self._producer(number) for number in numbers]
        self.fetchers = [self._fetcher(f"f{number}") for number in numbers]

    async def begin(self) -> None:
        """The topic is there already."""

    def work(self) -> list[Coroutine[None, None, None]]:
        return [client.run() for client in (*self.producers, *self.fetchers)]

    def stop(self) -> None:
        for client in (*self.producers, *self.fetchers):
            client.stop()

    async def check(self, report: Callable[[str], None]) -> None:
        """Everything is read once more through the port, and what was stored somewhere is there."""
        last = self._fetcher("last")
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                await last.read_to(self._simulation.checker.replication.committed_end)
        except TimeoutError:
            report(f"stuck: a consumer reads nothing behind offset {last.position} through the port")
        values = self._simulation.history.values_of("last", (TOPIC, 0))
        if self._simulation.checker.replication.deletable_end:
            return
        for value in (value for producer in self.producers for value in producer.stored):
            if value not in values:
                report(f"lost_write: {value!r} was said to be there already, and is not")

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{name} of Kafka's clients in {self._simulation.seed}")

    def _producer(self, number: int) -> KafkaProducer:
        simulation, rng = self._simulation, self._rng(f"producer {number}")
        return KafkaProducer(
            KafkaView(simulation.cluster, "producer", TOPIC, rng),
            f"k{number}-",
            simulation.history,
            rng,
            on_acknowledged=simulation.acknowledged,
            report=simulation.checker.report,
            events=simulation.events,
            seen=simulation.seen,
            interval_s=simulation.swarm.send_interval_s * rng.choice((1, 2)),
            burst_max=simulation.swarm.burst_max,
        )

    def _fetcher(self, name: str) -> KafkaFetcher:
        simulation, rng = self._simulation, self._rng(f"consumer {name}")
        replication = simulation.checker.replication
        return KafkaFetcher(
            KafkaView(simulation.cluster, "consumer", TOPIC, rng),
            name,
            simulation.history,
            rng,
            committed_end=lambda: replication.committed_end,
            deletable_end=lambda: replication.deletable_end,
            may_meet_damage=lambda: bool(simulation.rot.damaged),
            report=simulation.checker.report,
            events=simulation.events,
            seen=simulation.seen,
        )


class KafkaSimulation(DataSimulation):
    """One run."""

    command = "tests.sim.kafka_simulation"

    def _other_topics(self) -> list[OtherWork]:
        return [*super()._other_topics(), KafkaClients(self)]


if __name__ == "__main__":
    sys.exit(main(KafkaSimulation))
