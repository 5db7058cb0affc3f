"""Who uses a simulated cluster with data: clients that send and read, topics that go through more than others, and what must
come of them.

================ =========================================================================================================
`Load`           one idempotent producer that sends unique values all the time, and a consumer that tails them
`UncleanTopic`   unclean elections are allowed: records may be lost, but only those that were sent before one, and what is
                 there at the end was sent, and is there once
`RecreatedTopic` deleted and created again all the time: what was acknowledged since it was created last is there, nothing of
                 what was acknowledged before is
`MovedPartition` its replicas are moved to other brokers all the time (R13), and the last move ends
================ =========================================================================================================
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from replog.client import Consumer, ConsumerRecord, Producer
from replog.controller.messages import CommittedRecords
from replog.controller.requests import (
    AlterPartitionReassignments,
    ConfigEntry,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    Reassignment,
)
from replog.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError, ReplogError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import NO_LEADER, ElectionType, TopicRecord
from replog.metadata.registrations import PartitionRegistration
from replog.testing.history import History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.virtual_loop import VirtualLoop
from replog_checkpoints import PARTITION_METADATA_FILE, read_partition_metadata
from tests.sim.cluster_swarm import PATIENT_MS
from tests.sim.committed_partition import CommittedPartition
from tests.sim.event_log import EventLog
from tests.sim.metadata_cluster_checks import Outcome
from tests.sim.metadata_cluster_clients import outcome_of

if TYPE_CHECKING:
    from tests.sim.data_cluster_simulation import DataSimulation
    from tests.sim.metadata_cluster_simulation import Simulation

REPLICAS = 3
SEND_INTERVAL_S = 0.02
OTHER_INTERVAL_S = 0.06
RETRY_S = 0.2
LEASE_S = 1.0
"""So long a leader that was replaced, or whose topic was deleted, may go on acknowledging: the session time-out of the
simulations is 0.9 s."""


class Load:
    """One idempotent producer that sends unique values all the time, and a consumer that tails them.

    Args:
        on_acknowledged: told each offset.
        interval_s: between two bursts of one record.
        burst_max: so many records are sent at once at most; a longer pause follows.
        deletable_end: records below it may be deleted.
        may_meet_damage: whether what is read may be damaged; it must be told then, and be whole later.
        delivery_timeout_ms: The producer's.

    Attributes:
        is_stopping: nothing new is sent or read.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        on_acknowledged: Callable[[int], None] = lambda _: None,
        *,
        topic: str = "flights",
        interval_s: float = SEND_INTERVAL_S,
        burst_max: int = 1,
        deletable_end: Callable[[], int] = lambda: 0,
        may_meet_damage: Callable[[], bool] = lambda: False,
        delivery_timeout_ms: int = PATIENT_MS,
        events: EventLog | None = None,
    ) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._topic = topic
        self._partition = (topic, 0)
        self._interval_s = interval_s
        self._burst_max = burst_max
        self._deletable_end = deletable_end
        self._may_meet_damage = may_meet_damage
        self._events = events or EventLog(cluster.loop)
        self._cluster = cluster
        self._on_acknowledged = on_acknowledged
        self._history = history
        self.is_stopping = False
        self._bootstrap = [node.address for node in cluster.nodes.values()]

    async def produce(self) -> None:
        transport = self._cluster.transport("producer")
        async with Producer(
            self._bootstrap, transport=transport, delivery_timeout_ms=self._delivery_timeout_ms
        ) as producer:
            producer._view.rng.seed(1)  # the same run every time
            waiting: list[asyncio.Task[None]] = []
            while not self.is_stopping:
                count = 1 + len(waiting) % self._burst_max
                waiting += [
                    asyncio.create_task(self._send(producer, number))
                    for number in range(len(waiting), len(waiting) + count)
                ]
                await asyncio.sleep(self._interval_s * count)
            await asyncio.gather(*waiting)

    async def _send(self, producer: Producer, number: int) -> None:
        value = b"v%d" % number
        send = self._history.send("p", value)
        self._events.note("client", f"sends {number} to {self._topic}")
        try:
            acknowledged = await (await producer.send(self._topic, value, partition=0, timestamp_ms=number))
        except InvalidRequestError as error:
            self._events.note("client", f"is told that {number} failed: {error}")
            send.failed()
        except ReplogError as error:
            self._events.note("client", f"does not know about {number}: {error}")
        else:
            self._events.note("client", f"is told that {number} is at {self._topic} offset {acknowledged.offset}")
            self._on_acknowledged(acknowledged.offset)
            send.acknowledged(self._partition, acknowledged.offset)

    async def consume(self) -> None:
        transport = self._cluster.transport("consumer")
        async with Consumer(self._bootstrap, transport=transport) as consumer:
            consumer._view.rng.seed(2)
            await self._assign(consumer)
            while not self.is_stopping:
                records = await self._poll(consumer)
                if records:
                    self._events.note(
                        "client", f"polls [{records[0].offset}, {records[-1].offset + 1}) of {self._topic}"
                    )
                self._history.poll("c", self._partition, [(r.offset, r.value or b"") for r in records])

    async def _poll(self, consumer: Consumer) -> list[ConsumerRecord]:
        """Goes on at the start of the log where its place was deleted, and asks again for what came damaged.

        Raises:
            OffsetOutOfRangeError: nobody has asked for that.
            CorruptRecordError: nothing has rotted.
        """
        try:
            return await consumer.poll(timeout_ms=200)
        except CorruptRecordError as error:
            if not self._may_meet_damage():
                raise
            self._events.note("client", f"is told: {error}")
            await asyncio.sleep(RETRY_S)
            consumer.seek(self._partition, consumer.position(self._partition))
            return []
        except OffsetOutOfRangeError as error:
            start_offset = error.log_start_offset
            if not consumer.position(self._partition) < start_offset <= self._deletable_end():
                raise
            self._events.note("client", f"goes on at {start_offset}")
            consumer.seek(self._partition, start_offset)
            self._history.seek("c", self._partition)
            return []

    async def _assign(self, consumer: Consumer) -> None:
        """A broker that is cut off may not have heard of the topic."""
        while not self.is_stopping:
            try:
                await consumer.assign([self._partition])
            except ReplogError:
                await asyncio.sleep(SEND_INTERVAL_S)
            else:
                return

    async def read_all(self) -> None:
        start, found = await read_all(self._cluster, self._topic)
        end = found[-1][0] + 1 if found else start
        self._history.final_read(self._partition, start, end, found)

    def stop(self) -> None:
        self.is_stopping = True


def newest_image(cluster: SimulatedCluster) -> MetadataImage:
    """Of all running nodes."""
    return max((node.image for node in cluster.running), key=lambda image: image.end_offset)


def partition_of(cluster: SimulatedCluster, topic: str) -> PartitionRegistration | None:
    """The only one of a topic, as the newest metadata says; None: there is no such topic."""
    image = newest_image(cluster).topics_by_name.get(topic)
    return None if image is None else image.partitions[0]


async def read_all(cluster: SimulatedCluster, topic: str) -> tuple[int, list[tuple[int, bytes]]]:
    """Where the partition starts, and (offset, value) of every record that is there now."""
    partition = (topic, 0)
    addresses = [node.address for node in cluster.nodes.values()]
    async with Consumer(addresses, transport=cluster.transport("reader")) as consumer:
        consumer._view.rng.seed(3)
        start = (await consumer.beginning_offsets([partition]))[partition]  # waits for a leader
        end = (await consumer.end_offsets([partition]))[partition]
        await consumer.assign([partition], start={partition: start})
        found: list[tuple[int, bytes]] = []
        while consumer.position(partition) < end:
            found += [(r.offset, r.value or b"") for r in await consumer.poll(timeout_ms=1_000)]
    return start, found


async def create_topic(simulation: Simulation, name: str, settings: Mapping[str, str], partitions: int = 1) -> None:
    """Returns when it is known to exist."""
    configs = tuple(ConfigEntry(*item) for item in settings.items())
    await _ask_until_done(simulation, CreateTopics((NewTopic(name, partitions, REPLICAS, configs=configs),)))


async def delete_topic(simulation: Simulation, name: str) -> None:
    """Returns when it is known to be gone."""
    await _ask_until_done(simulation, DeleteTopics((name,)))


async def _ask_until_done(simulation: Simulation, request: CreateTopics | DeleteTopics) -> None:
    client, rng = simulation.cluster.client("admin"), simulation.rng
    while await outcome_of(client, rng.choice(list(simulation.cluster.nodes)), request) is not Outcome.DONE:
        await asyncio.sleep(RETRY_S)
    simulation.events.note("client", f"is told that it is done: {request}")


@dataclass(eq=False, slots=True)
class Sent:
    """One record of a topic that may lose some, or all.

    Attributes:
        begun_s: when it was handed to the producer, in virtual time.
        acknowledged_s: None: its outcome is not known.
        offset: where it was acknowledged.
    """

    value: bytes
    begun_s: float
    acknowledged_s: float | None = None
    offset: int = -1


class OtherWork(Protocol):
    """What goes on beside the load."""

    async def begin(self) -> None: ...

    def work(self) -> list[Coroutine[None, None, None]]: ...

    def stop(self) -> None: ...

    async def check(self, report: Callable[[str], None]) -> None: ...


class OtherTopic:
    """A topic beside the one that is watched closely, with one producer of its own.

    Attributes:
        name: of the topic.
        sent: every record so far.
    """

    name: str
    settings: Mapping[str, str] = {}

    def __init__(self, simulation: DataSimulation) -> None:
        self.sent: list[Sent] = []
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.loop: VirtualLoop = simulation.loop
        self.is_stopping = False

    async def begin(self) -> None:
        await create_topic(self.simulation, self.name, self.settings)

    def work(self) -> list[Coroutine[None, None, None]]:
        return [self._produce()]

    def stop(self) -> None:
        self.is_stopping = True

    async def _produce(self) -> None:
        addresses = [node.address for node in self.cluster.nodes.values()]
        transport = self.cluster.transport("producer")
        async with Producer(addresses, transport=transport, delivery_timeout_ms=20_000) as producer:
            producer._view.rng.seed(4)
            waiting: list[asyncio.Task[None]] = []
            while not self.is_stopping:
                waiting.append(asyncio.create_task(self._send(producer, len(waiting))))
                await asyncio.sleep(OTHER_INTERVAL_S)
            await asyncio.gather(*waiting)

    async def _send(self, producer: Producer, number: int) -> None:
        sent = Sent(b"%s %d" % (self.name.encode(), number), self.loop.time())
        self.sent.append(sent)
        try:
            acknowledged = await (await producer.send(self.name, sent.value, partition=0, timestamp_ms=number))
        except ReplogError:
            return
        sent.acknowledged_s, sent.offset = self.loop.time(), acknowledged.offset

    def must_be_there(self, found: Mapping[int, bytes], since_s: float, report: Callable[[str], None]) -> None:
        """Everything that was sent after `since_s` and acknowledged."""
        for sent in self.sent:
            if sent.acknowledged_s is not None and sent.begun_s > since_s and found.get(sent.offset) != sent.value:
                report(
                    f"lost_write: {sent.value!r} was sent to {self.name} at {sent.begun_s:.3f} s and acknowledged at offset"
                    f" {sent.offset}, which holds {found.get(sent.offset)!r}; it may be lost if sent before {since_s:.3f} s"
                )

    def must_be_sent_once(self, found: Mapping[int, bytes], report: Callable[[str], None]) -> None:
        """Whatever was lost, nothing is there twice, and nothing that nobody sent."""
        values = list(found.values())
        if len(set(values)) < len(values):
            report(f"duplicate: a value stands twice in {self.name}")
        if not set(values) <= {sent.value for sent in self.sent}:
            report(f"inconsistent_offsets: {self.name} holds what nobody has sent")


class UncleanTopic(OtherTopic):
    """See the module.

    Attributes:
        elections: of its partition, as they commit.
    """

    name = "unclean"
    settings = {"unclean.leader.election.enable": "true"}  # noqa: RUF012 -- as the base class says

    def __init__(self, simulation: DataSimulation) -> None:
        super().__init__(simulation)
        self.elections = CommittedElections(self.name, self.loop)

    async def check(self, report: Callable[[str], None]) -> None:
        found = dict((await read_all(self.cluster, self.name))[1])
        lossy_s = self.elections.last_lossy_s
        lost = sum(sent.acknowledged_s is not None and found.get(sent.offset) != sent.value for sent in self.sent)
        if self.elections.unclean_count:
            self.simulation.seen["unclean election"] += self.elections.unclean_count
            self.simulation.seen["lost to an unclean election"] += lost
        self.must_be_there(found, -1.0 if lossy_s is None else lossy_s + LEASE_S, report)
        self.must_be_sent_once(found, report)


class CommittedElections:
    """When a partition was last given to somebody who may not have everything.

    Attributes:
        unclean_count: elections so far.
        last_lossy_s: of the last of them in virtual time; None: there was none.
    """

    def __init__(self, topic: str, loop: VirtualLoop) -> None:
        self.unclean_count = 0
        self.last_lossy_s: float | None = None
        self._loop = loop
        self._partition = CommittedPartition(topic, self._ignore, lambda *_: None, keeps_membership=False)

    def take(self, batch: CommittedRecords) -> None:
        self._partition.take(batch)
        count = self._partition.elections[ElectionType.UNCLEAN]
        if count > self.unclean_count:
            self.unclean_count, self.last_lossy_s = count, self._loop.time()

    def _ignore(self, _violation: str) -> None:
        """What is checked of a partition is checked of the other one."""


class RecreatedTopic(OtherTopic):
    """See the module.

    Attributes:
        gone: what was acknowledged before a deletion was asked for.
    """

    name = "recreated"

    def __init__(self, simulation: DataSimulation) -> None:
        super().__init__(simulation)
        self._rng = random.Random(f"recreated in {simulation.seed}")
        self._created_s: dict[UUID, float] = {}
        self.gone: set[bytes] = set()
        simulation.checker.listeners.append(self._take)

    def work(self) -> list[Coroutine[None, None, None]]:
        return [self._produce(), self._recreate()]

    def _take(self, batch: CommittedRecords) -> None:
        for record in batch.records:
            if isinstance(record, TopicRecord) and record.name == self.name:
                self._created_s.setdefault(record.topic_id, self.loop.time())

    async def _recreate(self) -> None:
        """Until everything heals; it always ends with a topic."""
        while not self.simulation.is_healed:
            await asyncio.sleep(self._rng.uniform(0.2, 2.0))
            self.gone.update(sent.value for sent in self.sent if sent.acknowledged_s is not None)
            await delete_topic(self.simulation, self.name)
            self.simulation.seen["topic deleted under load"] += 1
            await self.begin()

    async def check(self, report: Callable[[str], None]) -> None:
        """A deletion of which nobody knew what came of it may have come late: that of the topic created last too.

        Where one replica was in sync when it was created, and its disk is lost, nobody leads it.
        """
        await self.begin()
        await self.cluster.wait_until(self.cluster.is_settled)
        topic = newest_image(self.cluster).topics_by_name[self.name]
        if topic.partitions[0].leader == NO_LEADER and self.simulation.has_lost_disk:
            self.simulation.seen["recreated topic lost with a disk"] += 1
            return
        if topic.partitions[0].leader == NO_LEADER and self._waits_for_its_folder(topic):
            self.simulation.seen["recreated topic waits until a folder is moved"] += 1
            return
        found = dict((await read_all(self.cluster, self.name))[1])
        self.judge(found, self._created_s[topic.topic_id], report)

    def _waits_for_its_folder(self, topic: TopicImage) -> bool:
        """Whether each replica that may lead knew the topic when it was killed, and finds the former one's folder.

        An older copy of the folder would look the same, so it stays until it is moved (docs/RECOVERY.md).
        """
        partition = topic.partitions[0]
        may_lead = partition.isr or partition.elr or partition.last_known_elr or partition.replicas
        return all(map(partial(self._has_a_former_folder, topic), may_lead))

    def _has_a_former_folder(self, topic: TopicImage, node_id: int) -> bool:
        fs = self.cluster.nodes[node_id].fs
        files = [path for path in fs.image() if path.endswith(f"/{self.name}-0/{PARTITION_METADATA_FILE}")]
        found = [read_partition_metadata(fs, path) for path in files]
        return any(each is not None and each.topic_id != topic.topic_id for each in found)

    def judge(self, found: Mapping[int, bytes], created_s: float, report: Callable[[str], None]) -> None:
        """What must be there of what was sent after `created_s`, and must not of what was before."""
        self.must_be_there(found, created_s + LEASE_S, report)
        self.must_be_sent_once(found, report)
        risen = sorted(self.gone & set(found.values()))
        if risen:
            report(f"risen: {risen[0]!r} was acknowledged before {self.name} was deleted, and is in the new one")


class MovedPartition:
    """See the module."""

    def __init__(self, simulation: DataSimulation, topic: str) -> None:
        self._simulation = simulation
        self._topic = topic
        self._rng = random.Random(f"moved in {simulation.seed}")

    async def begin(self) -> None:
        """There is nothing to prepare."""

    def stop(self) -> None:
        """It ends when everything heals."""

    def work(self) -> list[Coroutine[None, None, None]]:
        return [self._move()]

    async def _move(self) -> None:
        simulation, rng = self._simulation, self._rng
        client = simulation.cluster.client("mover")
        while not simulation.is_healed:
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            replicas = tuple(rng.sample(simulation.swarm.brokers, REPLICAS))
            request = AlterPartitionReassignments((Reassignment(self._topic, 0, replicas),))
            node_id = rng.choice(list(simulation.cluster.nodes))
            try:
                await client.ask(node_id, request, timeout_ms=2_000)
            except ReplogError:
                continue
            simulation.events.note("client", f"moves {self._topic} to {replicas}")
            simulation.seen["reassignment"] += 1

    async def check(self, report: Callable[[str], None]) -> None:
        """That it ends is waited for before."""
