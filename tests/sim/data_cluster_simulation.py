"""Deterministic simulation of whole clusters with data: every fault there is, under producers and consumers.

Three to five brokers, controllers among them or apart, three replicas of everything, and one partition, `flights`, that is
looked at after every step (`replication_checks`); with `flush.policy=always`, nothing that was acknowledged there may be
lost even when every machine loses power, with `auto` when one does.  An idempotent producer sends unique values all the time, a consumer tails
them; after healing every send must be answered, the ISR be whole again, and the history hold no anomaly
(`replog.testing.history`).  In some runs the partition is moved to other brokers meanwhile, a topic may lose records to an
unclean election, and only to that, or one is deleted and created again all the time (`data_topics`).

To the faults of `metadata_cluster_simulation` come disks that fail or are full, wiped disks, one log directory of several
that fails, replicas that rot (`bit_rot`), clients that are cut off, brokers that hear of no metadata, and what an
administrator does to the partition (`administrator`).

Repeat or extend a campaign (from the root of the repository), see `campaign`::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.data_cluster_simulation --seeds 1000 --processes 2
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.data_cluster_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from replog.broker.node import assembly as node_assembly
from replog.controller.messages import CommittedRecords
from replog.errors import CorruptRecordError, OffsetOutOfRangeError
from replog.log.segments.index_cache import INDEX_CACHE
from replog.testing.history import AnomaliesFoundError, History
from replog.testing.simulated_node import ObservedNode
from tests.sim.administrator import Administrator
from tests.sim.bit_rot import BitRot
from tests.sim.campaign import main
from tests.sim.cluster_swarm import PATIENT_MS, Swarm
from tests.sim.data_topics import (
    Load,
    MovedPartition,
    OtherWork,
    RecreatedTopic,
    UncleanTopic,
    create_topic,
    newest_image,
    partition_of,
)
from tests.sim.event_log import EventLog
from tests.sim.fault_schedule import Fault, FaultDrawer
from tests.sim.metadata_cluster_checks import Checker, Violation
from tests.sim.metadata_cluster_simulation import CALM_S, HEALED_WITHIN_S, Simulation
from tests.sim.replica_watch import watched_manager, watched_stepper
from tests.sim.replication_checks import ReplicationChecks

TOPIC = "flights"
LOG_DIRECTORIES = ("/data", "/disk2", "/disk3")
REPLICAS = 3
MEETING_S = 0.5
CLIENTS_WITHIN_S = 200.0
"""A send is given up after its delivery time-out of two minutes."""

DATA_SETTINGS = {
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 200,
    "request.timeout.ms": 2_000,
    "log.flush.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
}

ONE_TOPIC = {
    "flush_policy": "always",
    "has_unclean_topic": False,
    "has_recreated_topic": False,
    "is_reassigned": False,
    **dict.fromkeys(
        ("elect", "drain", "alter_min_isr", "delete_records", "cut_pair", "cut_metadata", "usurp", "bit_rot"), 0.0
    ),
    "directories": 1,
    **dict.fromkeys(("move_replica", "directory_error", "late"), 0.0),
    "delivery_timeout_ms": PATIENT_MS,
}
"""For simulations that look at one thing."""


class DataChecker(Checker):
    """Looks at the replicas of the topic too."""

    def __init__(self, events: EventLog, *, min_isr: int, is_flushed: bool, keeps_membership: bool) -> None:
        super().__init__(events)
        self.listeners: list[Callable[[CommittedRecords], None]] = []
        self.replication = ReplicationChecks(
            TOPIC, self.report, min_isr=min_isr, is_flushed=is_flushed, keeps_membership=keeps_membership
        )

    def report(self, violation: str) -> None:
        self._violations.append(violation)

    def committed(self, node: ObservedNode, batch: CommittedRecords) -> None:
        super().committed(node, batch)
        self.replication.metadata_committed(batch)
        for listener in self.listeners:
            listener(batch)


class DataSimulation(Simulation):
    """One run."""

    checker: DataChecker
    settings: Mapping[str, object] = {**Simulation.settings, **DATA_SETTINGS}
    fixed: Mapping[str, Any] = {}
    small = {"log_segment_bytes": 4_096}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.data_cluster_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        # else the cluster's default says it, which a new cluster has from the settings of its nodes
        self.topic_tells_policy = seed % 2 == 0
        swarm = replace(swarm or self.draw_swarm(random.Random(seed)), **self.fixed)
        self.settings = {
            **self.settings,
            "flush.policy": swarm.flush_policy,
            "min.insync.replicas": swarm.min_isr,
            "log.dirs": list(LOG_DIRECTORIES[: swarm.directories]),
        }
        super().__init__(seed, swarm)
        self.history = History()
        self.checker.replication.begin(self.cluster)
        self.administrator = Administrator(
            self.cluster, TOPIC, self.checker.replication, self.events, seed=seed, min_isr=swarm.min_isr
        )
        self.performer.administrator = self.administrator
        self.rot = BitRot(
            self.cluster, TOPIC, self.checker.replication, self.history, self.events, self.seen, self.may_rot
        )
        self.performer.damage = self.rot.damage
        self._wiped: int | None = None
        self._others = self._other_topics()

    @property
    def is_flushed(self) -> bool:
        """An acknowledgement means that it is on disk."""
        return self.settings["flush.policy"] == "always"

    def draw_schedule(self, drawer: FaultDrawer) -> tuple[Fault, ...]:
        return drawer.draw(frail=self.swarm.frail)

    def draw_swarm(self, rng: random.Random) -> Swarm:
        return Swarm.draw_with_data(rng)

    def make_checker(self) -> DataChecker:
        keeps_membership = self.is_flushed  # the controller knows it, from the topic or from the cluster's default
        min_isr = cast("int", self.settings["min.insync.replicas"])
        return DataChecker(self.events, min_isr=min_isr, is_flushed=self.is_flushed, keeps_membership=keeps_membership)

    def may_lose_disk(self, node_id: int) -> bool:
        """One disk in one run, and only if another member always holds everything: at least two must have it."""
        if self._wiped is not None or self.rot.is_on_a_disk or not self._is_held_beside(node_id):
            return False
        self._wiped = node_id
        self.checker.replication.disk_is_lost(node_id)
        return True

    @property
    def has_lost_disk(self) -> bool:
        """Whether one was wiped or replaced."""
        return self._wiped is not None

    def may_rot(self, node_id: int) -> bool:
        """The same, for a replica: the disk that was lost is known to be another one, and has everything again."""
        metadata = self.checker.replication.metadata
        has_all_disks = self._wiped is None or (self._wiped in metadata.members and not metadata.lost_disks)
        return has_all_disks and self.is_flushed and self._is_held_beside(node_id)

    def _is_held_beside(self, node_id: int) -> bool:
        """Whether another member of ISR and ELR has everything, and there always is one."""
        others = set(self.checker.replication.metadata.members) - {node_id}
        return not self._is_healed and self.swarm.min_isr > 1 and bool(others)

    def acknowledged(self, offset: int) -> None:
        self.checker.replication.acknowledged(offset)

    def run(self) -> None:
        try:
            with (
                mock.patch.object(node_assembly, "ReplicaStepper", watched_stepper(self.checker.replication)),
                mock.patch.object(node_assembly, "ReplicaManager", watched_manager(self.checker.replication)),
            ):
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
        for other in self._others:
            await other.begin()
        load = self._load()
        tasks = [asyncio.create_task(work) for work in self._work(load)]
        tasks += [asyncio.create_task(work) for other in self._others for work in other.work()]
        await self._suffer()
        await self._watch(CALM_S)
        await self._settle()
        await self._restore()
        before = self.history.acknowledged_count
        await self._until(lambda: self.history.acknowledged_count > before + 10, "sends are not acknowledged")
        for stoppable in (load, *self._others):
            stoppable.stop()
        await self._end(tasks)
        await self._until(self._is_in_sync, "the ISR is not whole")
        await self._meet_damage()
        await self._read_all(load)
        for other in self._others:
            await other.check(self.checker.report)
        self.checker.replication.check_end()
        self.checker.check()
        self.seen["delivered late"] += self.cluster.network.delivered_late
        self.seen["acknowledged"] += self.history.acknowledged_count
        self.seen["replica moved"] += self.checker.replication.moved
        try:
            self.history.check_or_raise()
        except AnomaliesFoundError as error:
            raise Violation(str(error)) from error

    async def _read_all(self, load: Load) -> None:
        try:
            await load.read_all()
        except CorruptRecordError as error:
            raise Violation(f"S3 damage is there where nothing has rotted: {error}") from error

    def _load(self) -> Load:
        return Load(
            self.cluster,
            self.history,
            self.acknowledged,
            topic=TOPIC,
            interval_s=self.swarm.send_interval_s,
            burst_max=self.swarm.burst_max,
            deletable_end=lambda: self.checker.replication.deletable_end,
            may_meet_damage=lambda: bool(self.rot.damaged),
            delivery_timeout_ms=self.swarm.delivery_timeout_ms,
            events=self.events,
        )

    def _work(self, load: Load) -> list[Coroutine[None, None, None]]:
        """What clients do until the load stops."""
        return [load.produce(), load.consume()]

    def _other_topics(self) -> list[OtherWork]:
        """What else goes on in this run."""
        others: list[OtherWork] = []
        if self.swarm.has_unclean_topic:
            unclean = UncleanTopic(self)
            self.checker.listeners.append(unclean.elections.take)
            others.append(unclean)
        if self.swarm.has_recreated_topic:
            others.append(RecreatedTopic(self))
        if self.swarm.is_reassigned:
            others.append(MovedPartition(self, TOPIC))
        return others

    async def _create_topic(self) -> None:
        policy = str(self.settings["flush.policy"])
        await create_topic(self, TOPIC, {"flush.policy": policy} if self.topic_tells_policy else {})
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
            except CorruptRecordError as error:
                raise Violation(f"S3 damage is there where nothing has rotted: {error}") from error

    async def _meet_damage(self) -> None:
        """Who has damage that nobody has met starts again, without what it still has in memory, leads, and is read."""
        await self.rot.end()
        until = self.loop.time() + HEALED_WITHIN_S
        for node_id in sorted({batch.node_id for batch in self.rot.remaining}):
            self.events.note("fault", f"node {node_id} has damage that nobody has met")
            self.seen["damage met after healing"] += 1
            self.cluster.crash(node_id, power_cut=False)
            self.cluster.start(node_id)
            await self._settle()
            while self.rot.remaining and self.loop.time() < until:
                await self.administrator.elect(node_id)
                await self.rot.read_everything()
                await self._watch(MEETING_S)
        for batch in self.rot.remaining:
            self.checker.report(f"S3 {batch}, and nobody has found it")
        self.checker.check()
        await self._until(self._is_in_sync, "after damage the ISR is not whole")
        self.seen["damaged replica begun anew"] += sum(
            f"/{TOPIC}-0." in path and path.endswith("-stray/")
            for node in self.cluster.nodes.values()
            for path in node.fs.image()
        )

    async def _restore(self) -> None:
        """The administrator takes back what would last."""
        try:
            async with asyncio.timeout(HEALED_WITHIN_S):
                await self.administrator.restore(self._is_restored)
        except TimeoutError:
            raise Violation("stuck: what the administrator has begun does not end") from None

    def _is_restored(self) -> bool:
        image = newest_image(self.cluster)
        return not image.drained_brokers and self.checker.replication.metadata.min_isr == self.swarm.min_isr

    async def _until(self, condition: Callable[[], bool], problem: str) -> None:
        until = self.loop.time() + HEALED_WITHIN_S
        while not condition():
            if self.loop.time() > until:
                raise Violation(f"stuck: {problem}: {newest_image(self.cluster).topics_by_name.get(TOPIC)}")
            await self._watch(0.2)

    def _is_in_sync(self) -> bool:
        partition = partition_of(self.cluster, TOPIC)
        if partition is None or partition.is_reassigning or len(partition.isr) != REPLICAS:
            return False
        ends = self.checker.replication.log_end_offsets
        return len({ends[node_id] for node_id in partition.replicas}) == 1


if __name__ == "__main__":
    sys.exit(main(DataSimulation))
