"""Deterministic simulation of consumer groups: whole brokers, `__consumer_offsets` replicated, members of both protocols, every fault.

Three to five brokers with three replicas of everything; a topic whose partitions are filled all the time, and grow in number; a
group of our own consumers (KIP-848), some of them static, and groups of the classic protocol, one eager and one cooperative.
Coordinators are killed, lose power, are cut off, paused and moved by elections, clocks jump; members are killed, paused beyond
their sessions, slow beyond `max.poll.interval.ms`, leave and come back.  What must hold stands at the top of `group_checks`.

Repeat or extend a campaign (from the root of the repository), see `campaign`::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.group_simulation --seeds 1000 --processes 2
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.group_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import msgspec

from replog.broker.coordinator.internal_topic import InternalTopic
from replog.broker.coordinator.shards import Shards
from replog.broker.replicas.replica import Replica
from replog.client import Producer
from replog.client.consumer.group_member import GroupMember
from replog.controller.requests import CreatePartitions, ElectLeaders, NamedPartition, NewPartitions, NewTopic
from replog.coordinator.consumers import decisions
from replog.errors import ReplogError
from replog.log.segments.index_cache import INDEX_CACHE
from replog.metadata.records import NO_LEADER, ElectionType
from replog.metadata.registrations import PartitionRegistration
from replog.metadata.topic_names import OFFSETS_TOPIC
from tests.sim.administrator import RETRY_S
from tests.sim.campaign import main
from tests.sim.classic_members import ClassicMember
from tests.sim.cluster_swarm import FAULTS_S, Swarm
from tests.sim.data_topics import create_topic, newest_image
from tests.sim.fault_schedule import FOLLOWER, LEADER, Fault, FaultDrawer, FaultKind
from tests.sim.group_checks import GroupChecks, Seat
from tests.sim.group_members import TOPIC, ConsumerMember, Member, heard
from tests.sim.metadata_cluster_checks import Checker, Violation
from tests.sim.metadata_cluster_simulation import CALM_S, Simulation

SESSION_MS = 1_500
OFFSETS_PARTITIONS = 2
STABLE_WITHIN_S = 60.0
PARTITIONS_MAX = 6
ASK_MS = 1_000

GROUP_SETTINGS = {
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 200,
    "request.timeout.ms": 2_000,
    "log.flush.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 200,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.1,
    "log.cleaner.delete.retention.ms": 0,
}

FORGETFUL = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 300}

ONE_SHARED_DISK_EACH: dict[str, Any] = {
    "has_unclean_topic": False,
    "has_recreated_topic": False,
    "is_reassigned": False,
    "directories": 1,
    "min_isr": 2,
    **dict.fromkeys(
        ("drain", "alter_min_isr", "delete_records", "bit_rot", "move_replica", "directory_error", "wipe"), 0.0
    ),
}
"""What replicas go through besides is looked at by `data_cluster_simulation`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the groups of one run are like.

    Attributes:
        groups: the kind of each group, and how many members it has.
        is_static: whether our consumers have instance ids.
        partitions: of the topic, in the beginning.
        late_s: members begin to live within so long.
        member_fault: how likely one of `member_faults` befalls a member every second or so.
        grows: how often the topic gets another partition, on average, in a run.
        elects: how often the coordinators are moved by an election.
        forgets: whether offsets of a group without members are removed after a minute, which clocks jump over.
        pause_ms: how long a group waits between two decisions on targets, as only large ones do by themselves.
    """

    groups: tuple[tuple[str, int], ...]
    is_static: bool
    partitions: int
    late_s: float
    member_fault: float
    member_faults: tuple[str, ...]
    grows: float
    elects: float
    forgets: bool
    pause_ms: int

    @classmethod
    def draw(cls, rng: random.Random) -> Shape:
        kinds = rng.choice(
            (("consumer",), ("consumer", "eager"), ("consumer", "cooperative"), ("eager", "cooperative"))
        )
        return cls(
            groups=tuple((kind, rng.choice((1, 2, 3))) for kind in kinds),
            is_static=rng.random() < 0.25,
            partitions=rng.choice((1, 2, 4)),
            late_s=rng.choice((0.1, 2.0)),
            member_fault=rng.choice((0.0, 0.3, 0.7)),
            member_faults=rng.choice(
                (("kill",), ("kill", "leave"), ("pause", "slow"), ("kill", "pause", "leave", "slow"))
            ),
            grows=rng.choice((0.0, 1.0, 2.0)),
            elects=rng.choice((0.0, 0.3)),
            forgets=rng.random() < 0.25,
            pause_ms=rng.choice((0, 300)),
        )


class Place:
    """Who leads, for faults that name the leader: that of a partition that is drawn anew each time.

    Args:
        simulation: the run.
        topics: how many partitions each topic has whose leaders are meant.
    """

    def __init__(self, simulation: Simulation, topics: Mapping[str, int]) -> None:
        self._simulation = simulation
        self._partitions = [(topic, number) for topic, count in topics.items() for number in range(count)]
        self._rng = random.Random(f"coordinators of {simulation.seed}")
        self._client = simulation.cluster.client("administrator")
        self._tasks: set[asyncio.Task[None]] = set()

    def node_of(self, role: int) -> int | None:
        partition = self._partition()
        if partition is None or partition.leader == NO_LEADER:
            return None
        if role == LEADER:
            return partition.leader
        followers = [each for each in partition.isr if each != partition.leader]
        return followers[-1] if role == FOLLOWER and followers else None

    def directory_on(self, node_id: int) -> str | None:
        return None

    def administer(self, fault: Fault) -> bool:
        if fault.kind is not FaultKind.ELECT or fault.node <= 0:
            return False
        task = asyncio.create_task(self._elect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _elect(self) -> None:
        """Leaders go back to whom the topics prefer, from wherever crashes have brought them."""
        partitions = tuple(NamedPartition(*each) for each in self._partitions)
        with contextlib.suppress(ReplogError):
            node_id = self._rng.choice(list(self._simulation.cluster.nodes))
            await self._client.ask(node_id, ElectLeaders(ElectionType.PREFERRED, partitions), timeout_ms=ASK_MS)

    def _partition(self) -> PartitionRegistration | None:
        if not self._simulation.cluster.running:
            return None
        name, number = self._rng.choice(self._partitions)
        topic = newest_image(self._simulation.cluster).topics_by_name.get(name)
        return None if topic is None else topic.partitions[number]


class GroupSimulation(Simulation):
    """One run.

    Attributes:
        shape: what its groups are like.
        groups: what must hold of them.
        seat_of: where each of our consumers sits.
        is_older: whether our consumers see no KIP-848 at the brokers.
    """

    settings: Mapping[str, object] = {**Simulation.settings, **GROUP_SETTINGS}
    is_older = False
    fixed: Mapping[str, Any] = {}
    shaped: Mapping[str, Any] = {}
    small = {"log_segment_bytes": 4_096}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.group_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        swarm = replace(swarm or self.draw_swarm(random.Random(seed)), **ONE_SHARED_DISK_EACH)
        self.shape = replace(Shape.draw(random.Random(f"groups of {seed}")), **self.shaped)
        swarm = replace(swarm, **{"elect": self.shape.elects, "faults_s": FAULTS_S, **self.fixed})
        self.settings = {**self.settings, "flush.policy": swarm.flush_policy, "min.insync.replicas": swarm.min_isr}
        if self.shape.forgets:
            self.settings = {**self.settings, **FORGETFUL}
        super().__init__(seed, swarm)
        self.performer.administrator = Place(self, {OFFSETS_TOPIC: OFFSETS_PARTITIONS})
        self._clients = []
        session_s = 0.0 if swarm.stall else SESSION_MS / 1000
        self.groups = GroupChecks(self.checker.report, self.loop.time, session_s, self.events, self.seen)
        self.seat_of: dict[GroupMember, Seat] = {}
        self.members: list[Member] = []
        self._topic_rng = random.Random(f"topic of {seed}")
        self._partitions = self.shape.partitions
        self._ends: dict[int, int] = {}
        self._is_stopping = False

    def draw_swarm(self, rng: random.Random) -> Swarm:
        return Swarm.draw_with_data(rng)

    def draw_schedule(self, drawer: FaultDrawer) -> tuple[Fault, ...]:
        return drawer.draw(frail=self.swarm.frail)

    def make_checker(self) -> GroupClusterChecker:
        return GroupClusterChecker(self.events)

    # ---- the run ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        committed = Shards.committed
        begun = Shards.begun

        def watched_committed(shards: Shards, replica: Replica) -> None:
            self._look(replica)
            committed(shards, replica)

        def watched_begun(shards: Shards, replica: Replica) -> None:
            self._look(replica)
            begun(shards, replica)

        patches = [
            (InternalTopic, "_wanted", with_small_segments),
            (Shards, "committed", watched_committed),
            (Shards, "begun", watched_begun),
            (decisions, "pause_ms", lambda _: self.shape.pause_ms),
            *heard(self),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, substitute in patches:
                stack.enter_context(mock.patch.object(owner, name, substitute))
            try:
                super().run()
            finally:  # as in `data_cluster_simulation`
                INDEX_CACHE._copies.clear()
                INDEX_CACHE._maps.clear()

    def _look(self, replica: Replica) -> None:
        if replica.topic == OFFSETS_TOPIC:
            self.groups.log.take(replica)

    async def _run(self) -> None:
        for node_id in self.cluster.nodes:
            self.cluster.start(node_id)
        await self._settle()
        await self._create()
        self.members = self._make_members()
        work = [asyncio.create_task(self._produce()), asyncio.create_task(self._grow())]
        lives = [asyncio.create_task(member.live()) for member in self.members]
        await self._suffer()
        await self._watch(CALM_S)
        await self._settle()
        await self._ended(lives)
        self._is_stopping = True
        await self._ended(work)
        await self._converge()
        self._check_timers()
        await self._leave()
        self.checker.check()
        self.seen["records of groups"] += self.groups.log.records

    async def _ended(self, tasks: list[asyncio.Task[None]]) -> None:
        _, pending = await asyncio.wait(tasks, timeout=STABLE_WITHIN_S)
        if pending:
            raise Violation(f"G10 somebody does not end: {pending}")
        for task in tasks:
            task.result()

    async def _create(self) -> None:
        await create_topic(self, TOPIC, {"flush.policy": self.swarm.flush_policy}, self._partitions)
        await self._settle()

    def _make_members(self) -> list[Member]:
        members: list[Member] = []
        for kind, count in self.shape.groups:
            for number in range(count):
                if kind == "consumer":
                    members.append(ConsumerMember(self, kind, number))
                else:
                    members.append(ClassicMember(self, kind, number))
        return members

    async def _converge(self) -> None:
        """All is read, handled, committed, by one member each."""
        until = self.loop.time() + STABLE_WITHIN_S
        ends = {number: self._ends.get(number, 0) for number in range(self._partitions)}
        for kind, _ in self.shape.groups:
            while problem := self.groups.missing(kind, ends):
                if self.loop.time() > until:
                    raise Violation(f"G10 {kind}: after {STABLE_WITHIN_S:g} s {problem}")
                await self._watch(0.2)

    def _check_timers(self) -> None:
        """None has ended in an exception, which is tried again and told to nobody."""
        for node in self.cluster.running:
            for host in node.parts.requests.coordinators.shards.hosts.values():
                if host.shard.status().timer_failures:
                    raise Violation(f"G10 timers of a coordinator on node {node.config.node_id} have failed")

    async def _leave(self) -> None:
        for member in self.members:
            member.is_stopping = True
        for member in self.members:
            await member.end()
        await self._watch(0.2)

    # ---- the topic -------------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        transport = self.cluster.transport("producer")
        async with Producer(
            self.cluster.bootstrap_servers, transport=transport, connect_timeout_ms=120_000
        ) as producer:
            waiting: list[asyncio.Task[None]] = []
            number = 0
            while not self._is_stopping:
                partition = number % self._partitions
                waiting.append(asyncio.create_task(self._send(producer, partition, b"%d" % number)))
                number += 1
                await asyncio.sleep(self.swarm.send_interval_s)
            await asyncio.gather(*waiting)

    async def _send(self, producer: Producer, partition: int, value: bytes) -> None:
        try:
            delivered = await (await producer.send(TOPIC, value, partition=partition))
        except ReplogError as error:
            self.events.note("client", f"does not know about {value!r}: {error}")
        else:
            self._ends[partition] = max(self._ends.get(partition, 0), delivered.offset + 1)

    async def _grow(self) -> None:
        client, rng = self.cluster.client("administrator"), self._topic_rng
        times = [rng.uniform(0, self.swarm.faults_s) for _ in range(int(self.shape.grows))]
        for at in sorted(times):
            await asyncio.sleep(max(0.0, at - self.loop.time()))
            if self._partitions < PARTITIONS_MAX:
                await self._create_partition(client, rng)

    async def _create_partition(self, client: Any, rng: random.Random) -> None:
        wanted = self._partitions + 1
        request = CreatePartitions((NewPartitions(TOPIC, wanted),))
        while not self._has_partitions(wanted):
            with contextlib.suppress(ReplogError):
                await client.ask(rng.choice(list(self.cluster.nodes)), request, timeout_ms=ASK_MS)
            await asyncio.sleep(RETRY_S)
        self._partitions = wanted
        self.seen["topic grown"] += 1
        self.events.note("client", f"the topic has {wanted} partitions")

    def _has_partitions(self, count: int) -> bool:
        if not self.cluster.running:
            return False
        topic = newest_image(self.cluster).topics_by_name.get(TOPIC)
        return topic is not None and len(topic.partitions) >= count


_WANTED = InternalTopic._wanted


def with_small_segments(self: InternalTopic) -> NewTopic:
    """The topic has the segments of all others, which are small here: they are compacted again and again."""
    wanted = _WANTED(self)
    return msgspec.structs.replace(
        wanted, configs=tuple(each for each in wanted.configs if each.name != "segment.bytes")
    )


class GroupClusterChecker(Checker):
    """Takes what the checks of groups report."""

    def report(self, violation: str) -> None:
        self._violations.append(violation)


if __name__ == "__main__":
    sys.exit(main(GroupSimulation))
