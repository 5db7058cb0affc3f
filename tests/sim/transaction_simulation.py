"""Deterministic simulation of transactions: whole brokers, `__transaction_state` replicated, our clients, every fault.

Three to five brokers with three replicas of everything, in racks of their own.  Producers with transactional ids write values to
partitions of several topics, and abort some; chains make values from the records of another topic, with the offsets of their group
in the transaction.  They are killed, paused, too slow for the time-out, give up in the middle, and get successors while they go on.
Some prepare their transactions, and decide about them later.  Some write to a topic, too, that is deleted and created again.
Readers of committed records read from leaders and from followers.  `transaction.version` is 0, 1 or 2, or rises meanwhile.
Coordinators, leaders, links, disks and clocks fail as in `group_simulation`.  What must hold stands at the top of
`transaction_checks`.

Repeat or extend a campaign (from the root of the repository), see `campaign`::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.transaction_simulation --seeds 1000
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.transaction_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from msgspec.structs import force_setattr

from replog.broker.coordinator.internal_topic import InternalTopic
from replog.broker.coordinator.shards import Shards
from replog.broker.replicas.replica import Replica
from replog.client import Producer
from replog.client.producer.transactions import TransactionBook
from replog.client.types import TopicPartition
from replog.controller.requests import FeatureUpdate, UpdateFeatures
from replog.coordinator.offsets.requests import NO_TOPIC_ID, CommittedOffset, FetchOffsets, TopicToFetch
from replog.errors import ReplogError
from replog.log.append_group import AppendInfo
from replog.log.leader_append import LeaderAppender
from replog.log.segments.index_cache import INDEX_CACHE
from replog.metadata.features import TRANSACTION_VERSION, TRANSACTION_VERSION_BUMPS
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.testing.history import AnomaliesFoundError
from replog_chaos.transaction_history import TransactionHistory
from tests.sim.administrator import RETRY_S
from tests.sim.campaign import main
from tests.sim.cluster_swarm import FAULTS_S, Swarm
from tests.sim.data_topics import REPLICAS, create_topic, delete_topic, newest_image
from tests.sim.fault_schedule import CLIENTS, Fault, FaultDrawer, FaultKind
from tests.sim.group_simulation import (
    ASK_MS,
    GROUP_SETTINGS,
    OFFSETS_PARTITIONS,
    ONE_SHARED_DISK_EACH,
    GroupClusterChecker,
    Place,
    with_small_segments,
)
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.metadata_cluster_simulation import CALM_S, Simulation
from tests.sim.transaction_checks import Producer as Incarnation
from tests.sim.transaction_checks import TransactionChecks
from tests.sim.transaction_clients import (
    CONNECT_MS,
    GROUP,
    CommittedReader,
    Life,
    TransactionalChain,
    TransactionalWriter,
)

INPUTS = "inputs"
OUTPUTS = {"debits": 2, "credits": 1}
"""The topics that transactions write to, and how many partitions each has."""

PASSING = "passing"
"""The topic that is deleted; what becomes of its records is nothing to the rest of their transactions."""

STATE_PARTITIONS = 2
LOOK_S = 0.05
INPUT_INTERVAL_S = 0.15
QUIET_WITHIN_S = 60.0
ENDS_WITHIN_S = 5.0
"""How long beyond its time-out a transaction may be open without faults: a pass comes, its markers are written."""

ABORT_INTERVAL_MS = 300

TRANSACTION_SETTINGS = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ABORT_INTERVAL_MS,
    "replica.selector": "rack-aware",
}


@dataclass(frozen=True, slots=True)
class TransactionShape:
    """What the transactions of one run are like.

    Attributes:
        writers: transactional ids that write.
        chains: those that read and write.
        versions: `transaction.version` in the beginning, and what it rises to.
        timeout_ms: how long a transaction may be open.
        delivery_timeout_ms: of the producers.
        client_fault: how likely one of `client_faults` befalls a client every second or so.
        aborts: how likely a transaction is aborted that could be committed.
        cancels: how likely the caller gives it up soon after its beginning.
        dwells: how likely it takes its time behind each record.
        elects: how often leaders are moved by an election.
        abandons: one of the writers dies when the faults end, and nobody succeeds it.
        prepares: how likely a transaction is prepared, and decided about later.
        deletes: a topic that some of them write to, too, is deleted and created again all the time.
    """

    writers: int
    chains: int
    versions: tuple[int, ...]
    timeout_ms: int
    delivery_timeout_ms: int
    client_fault: float
    client_faults: tuple[str, ...]
    aborts: float
    cancels: float
    dwells: float
    elects: float
    abandons: bool
    prepares: float
    deletes: bool

    @classmethod
    def draw(cls, rng: random.Random) -> TransactionShape:
        return cls(
            writers=rng.choice((2, 3, 4)),
            chains=rng.choice((0, 1, 2)),
            versions=rng.choice(((2,), (2,), (2,), (0,), (1,), (0, 2), (1, 2))),
            timeout_ms=rng.choice((1_000, 4_000)),
            delivery_timeout_ms=rng.choice((1_500, 20_000)),
            client_fault=rng.choice((0.0, 0.3, 0.7)),
            client_faults=rng.choice((("kill",), ("successor",), ("kill", "successor", "pause"))),
            aborts=rng.choice((0.0, 0.2)),
            cancels=rng.choice((0.0, 0.0, 0.1)),
            dwells=rng.choice((0.0, 0.1, 0.3)),
            elects=rng.choice((0.0, 0.3)),
            abandons=rng.random() < 0.3,
            prepares=rng.choice((0.0, 0.0, 0.3)),
            deletes=rng.random() < 0.3,
        )


class TransactionSimulation(Simulation):
    """One run.

    Attributes:
        shape: what its transactions are like.
        transactions: what must hold of them.
        history: what clients did and saw.
        partitions: that transactions write to.
        inputs_topic: whose records chains pass on.
        passing_topic: that is deleted and created again, where the shape says so.
        life_of: whose book is whose.
    """

    settings: Mapping[str, object] = {**Simulation.settings, **GROUP_SETTINGS, **TRANSACTION_SETTINGS}
    fixed: Mapping[str, Any] = {}
    shaped: Mapping[str, Any] = {}
    small = {"log_segment_bytes": 4_096}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.transaction_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        swarm = replace(swarm or self.draw_swarm(random.Random(seed)), **ONE_SHARED_DISK_EACH)
        self.shape = replace(TransactionShape.draw(random.Random(f"transactions of {seed}")), **self.shaped)
        swarm = replace(swarm, **{"elect": self.shape.elects, "faults_s": FAULTS_S, **self.fixed})
        self.settings = {**self.settings, "flush.policy": swarm.flush_policy, "min.insync.replicas": swarm.min_isr}
        super().__init__(seed, swarm)
        for node_id, node in self.cluster.nodes.items():
            force_setattr(node.config, "broker_rack", self.rack_of(node_id))
        topics = {OFFSETS_TOPIC: OFFSETS_PARTITIONS, TRANSACTIONS_TOPIC: STATE_PARTITIONS, **OUTPUTS}
        self.performer.administrator = Place(self, topics)
        self._clients = []
        self.transactions = TransactionChecks(self.checker.report, self.loop.time, self.events)
        self.history = TransactionHistory()
        self.partitions = [TopicPartition(topic, number) for topic, count in OUTPUTS.items() for number in range(count)]
        self.inputs_topic = INPUTS
        self.passing_topic = PASSING
        self.life_of: dict[TransactionBook, Life] = {}
        self._topics = (*OUTPUTS, INPUTS)
        self._has_inputs = not self.shape.chains
        self._is_stopping = False

    def draw_swarm(self, rng: random.Random) -> Swarm:
        return Swarm.draw_with_data(rng)

    def draw_schedule(self, drawer: FaultDrawer) -> tuple[Fault, ...]:
        """Who is cut off is one of the clients that there are."""
        rng = random.Random(f"clients that are cut off of {self.seed}")
        hosts = [f"{name}-{number}" for name in self._ids() for number in (0, 1)]
        names = {CLIENTS[0]: hosts, CLIENTS[1]: ["reader"]}
        return tuple(
            replace(fault, detail=rng.choice(names[fault.detail])) if fault.kind is FaultKind.CLIENT_CUT else fault
            for fault in drawer.draw(frail=self.swarm.frail)
        )

    def make_checker(self) -> GroupClusterChecker:
        return GroupClusterChecker(self.events)

    def rack_of(self, node_id: int) -> str:
        """Each node is in a rack of its own."""
        return f"rack-{node_id}"

    def _ids(self) -> list[str]:
        return [
            *(f"writer{number}" for number in range(self.shape.writers)),
            *(f"chain{number}" for number in range(self.shape.chains)),
        ]

    def _abandoned(self) -> str:
        """The transactional id that nobody succeeds; clocks that jump would let its last transaction be open for longer."""
        return "writer0" if self.shape.abandons and not self.swarm.wall_jump else ""

    def _open_s(self) -> float:
        """How long a transaction may be open once there are no faults: its time-out counts from when a clock may have been ahead."""
        jumped_ms = sum(abs(fault.amount) for fault in self.schedule or () if fault.kind is FaultKind.WALL_JUMP)
        return (self.shape.timeout_ms + jumped_ms) / 1000 + ENDS_WITHIN_S

    # ---- the run ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            for owner, name, substitute in self._watches():
                stack.enter_context(mock.patch.object(owner, name, substitute))
            try:
                super().run()
            finally:  # as in `data_cluster_simulation`
                INDEX_CACHE._copies.clear()
                INDEX_CACHE._maps.clear()

    def _watches(self) -> list[tuple[Any, str, Any]]:
        """Substitutes that tell the checks what happens; otherwise nothing is different."""
        committed, begun, stage, take_over = (
            Shards.committed,
            Shards.begun,
            LeaderAppender._stage,
            TransactionBook.take_over,
        )

        def watched_committed(shards: Shards, replica: Replica) -> None:
            self._look_at_coordinator(replica)
            committed(shards, replica)

        def watched_begun(shards: Shards, replica: Replica) -> None:
            self._look_at_coordinator(replica)
            begun(shards, replica)

        def watched_stage(
            appender: LeaderAppender, group: Any, number: int, batch: Any, header: Any, leader_epoch: int, now_ms: int
        ) -> AppendInfo:
            info = stage(appender, group, number, batch, header, leader_epoch, now_ms)
            if not info.duplicate:
                topic, _, partition_id = appender._state.topic_partition.rpartition("-")
                self.transactions.appended((topic, int(partition_id)), info, leader_epoch, header)
            return info

        def watched_take_over(book: TransactionBook, identity: Any, version: int) -> None:
            take_over(book, identity, version)
            told = Incarnation(identity.producer_id, identity.producer_epoch)
            self.transactions.taken_over(book.name, told, self.life_of[book].name)

        return [
            (InternalTopic, "_wanted", with_small_segments),
            (Shards, "committed", watched_committed),
            (Shards, "begun", watched_begun),
            (LeaderAppender, "_stage", watched_stage),
            (TransactionBook, "take_over", watched_take_over),
        ]

    def _look_at_coordinator(self, replica: Replica) -> None:
        if replica.topic == TRANSACTIONS_TOPIC:
            self.transactions.decided(replica)

    async def _run(self) -> None:
        for node_id in self.cluster.nodes:
            self.cluster.start(node_id)
        await self._settle()
        await self._set_version(self.shape.versions[0])
        for topic, count in {**OUTPUTS, INPUTS: 2}.items():
            await create_topic(self, topic, {"flush.policy": self.swarm.flush_policy}, count)
        await self._settle()
        clients = [
            TransactionalChain(self, name)
            if name.startswith("chain")
            else TransactionalWriter(self, name, is_abandoned=name == self._abandoned())
            for name in self._ids()
        ]
        followed = random.Random(f"readers of {self.seed}").choice(self.cluster.brokers)
        readers = [CommittedReader(self, None), CommittedReader(self, followed)]
        lives = [asyncio.create_task(client.live()) for client in clients]
        others = (self._look(), self._produce(), self._raise_version(), self._delete())
        work = [asyncio.create_task(each) for each in others]
        reading = [asyncio.create_task(reader.run()) for reader in readers]
        await self._suffer()
        await self._watch(CALM_S)
        await self._settle()
        await self._ended(lives)
        await self._until(self._is_quiet, self._open_s())
        self._is_stopping = True
        for reader in readers:
            reader.is_stopping = True
        await self._ended([*work, *reading])
        await self._check_end()

    async def _ended(self, tasks: list[asyncio.Task[None]]) -> None:
        """Waits for tasks.  Raises: Violation: one does not end, or has failed."""
        waiting = asyncio.gather(*tasks)
        try:
            async with asyncio.timeout(2 * QUIET_WITHIN_S):
                await waiting
        except TimeoutError:
            raise Violation(
                f"X6 somebody does not end: {[task.get_name() for task in tasks if not task.done()]}"
            ) from None
        self.checker.check()

    async def _until(self, what_lacks: Callable[[], Awaitable[str]], within_s: float) -> None:
        """Waits until nothing lacks.  Raises: Violation: something does, still."""
        until_s = self.loop.time() + within_s
        while lacks := await what_lacks():
            if self.loop.time() > until_s:
                raise Violation(f"X6 after {within_s:g} s {lacks}")
            await self._watch(0.2)

    async def _look(self) -> None:
        while not self._is_stopping:
            self.transactions.look(self.cluster.running, self._topics)
            await asyncio.sleep(LOOK_S)

    async def _is_quiet(self) -> str:
        places = self.transactions.open_places(self.cluster.running, (*self._topics, OFFSETS_TOPIC))
        return f"transactions are open: {', '.join(places[:5])}" if places else ""

    async def _is_in_sync(self) -> str:
        topics = newest_image(self.cluster).topics_by_name
        for name in self._topics:
            for number, partition in topics[name].partitions.items():
                if len(partition.isr) < REPLICAS:
                    return f"the ISR of {name}-{number} is {partition.isr}"
        return self.transactions.compare(self.cluster.running, self._topics)

    # ---- what else goes on -----------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        """Fills the inputs, without transactions."""
        if not self.shape.chains:
            return
        transport = self.cluster.transport("producer")
        async with Producer(
            self.cluster.bootstrap_servers, transport=transport, connect_timeout_ms=CONNECT_MS
        ) as producer:
            number = 0
            while not self.is_healed:
                with contextlib.suppress(ReplogError):
                    await (await producer.send(INPUTS, b"%d" % number, partition=number % 2))
                number += 1
                await asyncio.sleep(INPUT_INTERVAL_S)
        self._has_inputs = True

    async def _delete(self) -> None:
        """Creates and deletes a topic; it ends deleted, and nothing may keep a transaction open for it."""
        rng = random.Random(f"deletions of {self.seed}")
        while self.shape.deletes and not self.is_healed:
            await create_topic(self, PASSING, {"flush.policy": self.swarm.flush_policy})
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            await delete_topic(self, PASSING)
            self.seen["topic deleted under transactions"] += 1
            await asyncio.sleep(rng.choice((0.0, 0.5)))

    async def _raise_version(self) -> None:
        if len(self.shape.versions) > 1:
            await asyncio.sleep(random.Random(f"upgrade of {self.seed}").uniform(0, self.swarm.faults_s))
            await self._set_version(self.shape.versions[1])
            self.seen["transaction.version raised"] += 1

    async def _set_version(self, level: int) -> None:
        client, rng = self.cluster.client("admin"), random.Random(f"version {level} of {self.seed}")
        request = UpdateFeatures((FeatureUpdate(TRANSACTION_VERSION, level, allow_downgrade=True),))
        while self._version() != level:
            with contextlib.suppress(ReplogError):
                await client.ask(rng.choice(list(self.cluster.nodes)), request, timeout_ms=ASK_MS)
            await asyncio.sleep(RETRY_S)
        self.events.note("client", f"transaction.version is {level}")

    def _version(self) -> int:
        if not self.cluster.running:
            return TRANSACTION_VERSION_BUMPS
        return newest_image(self.cluster).features.get(TRANSACTION_VERSION, 0)

    # ---- the end ---------------------------------------------------------------------------------------------------------

    async def inputs_left(self) -> str:
        """What the group has not committed of what is there; empty: it has everything."""
        if not self._has_inputs:
            return "the inputs are not complete"
        partitions = await self._committed_offsets()
        left = {
            number: (end, partitions.get(number))
            for number, end in self._ends(INPUTS).items()
            if number not in partitions or partitions[number].is_unstable or max(partitions[number].offset, 0) < end
        }
        return f"inputs (end, committed): {left}" if left else ""

    def _ends(self, topic: str) -> dict[int, int]:
        """Up to where the partitions of a topic are known to be committed."""
        ends: dict[int, int] = {}
        for node in self.cluster.running:
            for replica in node.parts.replicas.stepper.replicas.values():
                if replica.topic == topic:
                    number = replica.partition_id
                    ends[number] = max(replica.high_watermark, ends.get(number, 0))
        return ends

    async def _committed_offsets(self) -> dict[int, CommittedOffset]:
        """What the group has committed, by partition; empty where nobody says so."""
        asked = FetchOffsets(GROUP, (TopicToFetch(INPUTS, NO_TOPIC_ID, (0, 1)),), wants_stable=True)
        for node in self.cluster.running:
            with contextlib.suppress(ReplogError, TimeoutError):
                async with asyncio.timeout(ASK_MS / 1000):
                    told = await node.parts.requests.coordinators.submit(GROUP, asked, ASK_MS)
                return {each.partition: each for each in told.topics[0].partitions}
        return {}

    async def _check_end(self) -> None:
        await self._until(self._is_in_sync, QUIET_WITHIN_S)
        self.transactions.look(self.cluster.running, self._topics)
        self.transactions.check_ends()
        ends = {
            TopicPartition(topic, number): end for topic in self._topics for number, end in self._ends(topic).items()
        }
        found = await self._read_all(None, ends)
        for node_id in self.cluster.brokers:
            of_replica = await self._read_all(node_id, ends)
            for partition, records in of_replica.items():
                if records != found[partition]:
                    self.checker.report(f"X7 from the rack of node {node_id} another {partition} is read")
        for partition, records in found.items():
            self.history.final_read(partition, records)
        if self.shape.chains:
            for number, told in (await self._committed_offsets()).items():
                self.history.final_offset(TopicPartition(INPUTS, number), max(told.offset, 0))
        self.checker.check()
        self.seen["records of coordinators"] += self.transactions.records
        try:
            self.history.check_or_raise()
        except AnomaliesFoundError as error:
            raise Violation(f"X8 {error}") from error

    async def _read_all(
        self, node_id: int | None, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        try:
            async with asyncio.timeout(QUIET_WITHIN_S):
                return await CommittedReader(self, node_id).read_all(ends)
        except TimeoutError:
            raise Violation(f"X6 the rack of node {node_id} does not serve all records") from None


if __name__ == "__main__":
    sys.exit(main(TransactionSimulation))
