"""Deterministic simulation of whole clusters with data: the faults of `metadata_cluster_simulation` under a producer.

Three nodes with both roles, one partition with three replicas, `min.insync.replicas=2` and `flush.policy=always`, so that
nothing that was acknowledged may be lost even when every machine loses power.  An idempotent producer sends unique
values all the time, a consumer tails them; the replicas are looked at after every step (`replication_checks`); after healing
every send must be answered, the ISR be whole again, and the history hold no anomaly (`replog.testing.history`).

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.data_cluster_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.data_cluster_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import cast
from unittest import mock

import replog.broker.node
from replog.client import Consumer, Producer
from replog.controller.messages import CommittedRecords, ConfigEntry, CreateTopics, NewTopic
from replog.errors import InvalidRequestError, OffsetOutOfRangeError, ReplogError
from replog.log.index_cache import INDEX_CACHE
from replog.metadata.image import MetadataImage
from replog.testing.history import AnomaliesFoundError, History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_node import ObservedNode
from tests.sim.metadata_cluster_checks import Checker, Outcome, Violation
from tests.sim.metadata_cluster_clients import outcome_of
from tests.sim.metadata_cluster_simulation import CALM_S, FAULTS_S, HEALED_WITHIN_S, Simulation, Swarm, main
from tests.sim.replica_watch import watched_manager
from tests.sim.replication_checks import ReplicationChecks

TOPIC = "flights"
PARTITION = (TOPIC, 0)
NODES = (1, 2, 3)
MIN_ISR = 2
SEND_INTERVAL_S = 0.02
CLIENTS_WITHIN_S = 200.0
"""A send is given up after its delivery time-out of two minutes."""

DATA_SETTINGS = {
    "min.insync.replicas": MIN_ISR,
    "flush.policy": "always",
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 200,
    "request.timeout.ms": 2_000,
    "log.flush.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
}


class Load:
    """One idempotent producer that sends unique values all the time, and a consumer that tails them.

    Attributes:
        is_stopping: nothing new is sent or read.
    """

    def __init__(
        self, cluster: SimulatedCluster, history: History, on_acknowledged: Callable[[int], None] = lambda _: None
    ) -> None:
        self._cluster = cluster
        self._on_acknowledged = on_acknowledged
        self._history = history
        self.is_stopping = False
        self._bootstrap = [node.address for node in cluster.nodes.values()]

    async def produce(self) -> None:
        transport = self._cluster.internet.host("producer")
        async with Producer(self._bootstrap, transport=transport) as producer:
            producer._view.rng.seed(1)  # the same run every time
            waiting: list[asyncio.Task[None]] = []
            while not self.is_stopping:
                waiting.append(asyncio.create_task(self._send(producer, len(waiting))))
                await asyncio.sleep(SEND_INTERVAL_S)
            await asyncio.gather(*waiting)

    async def _send(self, producer: Producer, number: int) -> None:
        value = b"v%d" % number
        send = self._history.send("p", value)
        try:
            acknowledged = await (await producer.send(TOPIC, value, partition=0, timestamp_ms=number))
        except InvalidRequestError:
            send.failed()
        except ReplogError:
            return
        else:
            self._on_acknowledged(acknowledged.offset)
            send.acknowledged(PARTITION, acknowledged.offset)

    async def consume(self) -> None:
        transport = self._cluster.internet.host("consumer")
        async with Consumer(self._bootstrap, transport=transport) as consumer:
            consumer._view.rng.seed(2)
            await self._assign(consumer)
            while not self.is_stopping:
                records = await consumer.poll(timeout_ms=200)
                self._history.poll("c", PARTITION, [(r.offset, r.value or b"") for r in records])

    async def _assign(self, consumer: Consumer) -> None:
        """A broker that is cut off may not have heard of the topic."""
        while not self.is_stopping:
            try:
                await consumer.assign([PARTITION])
            except ReplogError:
                await asyncio.sleep(SEND_INTERVAL_S)
            else:
                return

    async def read_all(self) -> None:
        transport = self._cluster.internet.host("reader")
        async with Consumer(self._bootstrap, transport=transport) as consumer:
            consumer._view.rng.seed(3)
            await consumer.assign([PARTITION])
            end = (await consumer.end_offsets([PARTITION]))[PARTITION]
            found: list[tuple[int, bytes]] = []
            while consumer.position(PARTITION) < end:
                found += [(r.offset, r.value or b"") for r in await consumer.poll(timeout_ms=1_000)]
            self._history.final_read(PARTITION, 0, end, found)

    def stop(self) -> None:
        self.is_stopping = True


def newest_image(cluster: SimulatedCluster) -> MetadataImage:
    """Of all running nodes."""
    return max((node.image for node in cluster.running), key=lambda image: image.end_offset)


class DataChecker(Checker):
    """Looks at the replicas of the topic too."""

    def __init__(self, *, min_isr: int, is_flushed: bool, keeps_membership: bool) -> None:
        super().__init__()
        self.replication = ReplicationChecks(
            TOPIC, self.report, min_isr=min_isr, is_flushed=is_flushed, keeps_membership=keeps_membership
        )

    def report(self, violation: str) -> None:
        self._violations.append(violation)

    def committed(self, node: ObservedNode, batch: CommittedRecords) -> None:
        super().committed(node, batch)
        self.replication.metadata_committed(batch)


class DataSimulation(Simulation):
    """One run."""

    checker: DataChecker
    settings = {**Simulation.settings, **DATA_SETTINGS}  # noqa: RUF012 -- as the base class says
    small = {"log_segment_bytes": 4_096}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.data_cluster_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        # told by the topic, the controller knows that what was acknowledged is on disk; a broker's own setting it does not see
        self.topic_tells_policy = seed % 2 == 0
        drawn = swarm or Swarm.draw(random.Random(seed))
        super().__init__(seed, replace(drawn, controllers=NODES, brokers=NODES, changes_voters=False))
        self.history = History()
        self.checker.replication.begin(self.cluster)

    @property
    def is_flushed(self) -> bool:
        """An acknowledgement means that it is on disk."""
        return self.settings["flush.policy"] == "always"

    def make_checker(self) -> DataChecker:
        keeps_membership = self.is_flushed and self.topic_tells_policy
        min_isr = cast("int", self.settings["min.insync.replicas"])
        return DataChecker(min_isr=min_isr, is_flushed=self.is_flushed, keeps_membership=keeps_membership)

    def acknowledged(self, offset: int) -> None:
        self.checker.replication.acknowledged(offset)

    def run(self) -> None:
        try:
            with mock.patch.object(replog.broker.node, "ReplicaManager", watched_manager(self.checker.replication)):
                super().run()
        finally:  # killed processes leave their segments there, and with those all of the run
            INDEX_CACHE._copies.clear()
            INDEX_CACHE._maps.clear()

    async def _run(self) -> None:
        cluster = self.cluster
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await self._settle()
        await self._create_topic()
        load = Load(cluster, self.history, self.acknowledged)
        tasks = [asyncio.create_task(work) for work in self._work(load)]
        faults = asyncio.create_task(self._faults())
        await self._watch(FAULTS_S)
        self._is_healed = True
        await faults
        self._heal()
        await self._watch(CALM_S)
        await self._settle()
        before = self.history.acknowledged_count
        await self._until(lambda: self.history.acknowledged_count > before + 10, "sends are not acknowledged")
        load.stop()
        await self._end(tasks)
        await self._until(self._is_in_sync, "the ISR is not whole")
        await load.read_all()
        self.checker.replication.check_end()
        self.checker.check()
        self.seen["acknowledged"] += self.history.acknowledged_count
        try:
            self.history.check_or_raise()
        except AnomaliesFoundError as error:
            raise Violation(str(error)) from error

    def _work(self, load: Load) -> list[Coroutine[None, None, None]]:
        """What clients do until the load stops."""
        return [load.produce(), load.consume()]

    async def _create_topic(self) -> None:
        policy = str(self.settings["flush.policy"])
        configs = (ConfigEntry("flush.policy", policy),) if self.topic_tells_policy else ()
        client = self.cluster.client("admin")
        request = CreateTopics((NewTopic(TOPIC, 1, len(NODES), configs=configs),))
        while await outcome_of(client, self.rng.choice(NODES), request) is not Outcome.DONE:
            await self._watch(0.2)
        await self._settle()  # a client that asks a node which has not heard of it would be told that it does not exist

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        done, pending = await asyncio.wait(tasks, timeout=CLIENTS_WITHIN_S)
        if pending:
            raise Violation("stuck: a client does not end")
        for task in done:
            try:
                task.result()
            except OffsetOutOfRangeError as error:
                raise Violation(f"stale_read: {error}") from error

    async def _until(self, condition: Callable[[], bool], problem: str) -> None:
        until = self.loop.time() + HEALED_WITHIN_S
        while not condition():
            if self.loop.time() > until:
                raise Violation(f"stuck: {problem}: {newest_image(self.cluster).topics_by_name.get(TOPIC)}")
            await self._watch(0.2)

    def _is_in_sync(self) -> bool:
        isr = newest_image(self.cluster).topics_by_name[TOPIC].partitions[0].isr
        return len(isr) == len(NODES) and len(set(self.checker.replication.log_end_offsets.values())) == 1


if __name__ == "__main__":
    sys.exit(main(DataSimulation))
