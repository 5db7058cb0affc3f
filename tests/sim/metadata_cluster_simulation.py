"""Deterministic simulation of whole metadata clusters: nodes as shipped, on a simulated disk, network and clock.

One seed is one run.  It draws the cluster (one, three or five controllers, up to two brokers, roles apart or together),
how small segments and snapshots are, and which faults there are at all (`fault_schedule` says when which happens): power cuts and
kills between any two steps, of one node or all, or in the middle of writing, pauses, one-way cuts, stragglers, lost calls,
broken streams, clock jumps of 100 s, stalled clocks, slow threads, orderly restarts.  Clients create topics, change their
settings and delete them meanwhile, an operator takes votes away and gives them back.  Then everything heals, and within a bound
there must be one leader, every broker unfenced, new requests answered, and what `metadata_cluster_checks` says must hold.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.metadata_cluster_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.metadata_cluster_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from replog.controller.requests import CreateTopics, DeleteTopics, NewTopic
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.virtual_loop import SimulationError, VirtualLoop
from tests.sim.campaign import main
from tests.sim.cluster_swarm import Swarm
from tests.sim.event_log import EventLog
from tests.sim.fault_performer import FaultPerformer
from tests.sim.fault_schedule import Fault, FaultDrawer
from tests.sim.metadata_cluster_checks import Checker, Outcome, TopicHistory, Violation
from tests.sim.metadata_cluster_clients import TopicClient, VoterOperator, outcome_of

CALM_S = 1.5
HEALED_WITHIN_S = 30.0
CLIENTS = 2
STEPS_MAX = 2_000_000

SETTINGS = {
    "controller.quorum.election.timeout.ms": 150,
    "controller.quorum.fetch.timeout.ms": 600,
    "controller.quorum.request.timeout.ms": 600,
    "controller.quorum.election.backoff.max.ms": 150,
    "broker.heartbeat.interval.ms": 150,
    "broker.session.timeout.ms": 900,
    "log.dir.reserve.bytes": 0,
}


class Simulation:
    """One run.

    Args:
        seed: decides everything that is not given.
        swarm: what the run is like.

    Attributes:
        schedule: the faults; None: drawn when the run begins.
        seen: how often what happened.
        events: told what happens.
        trace: equal for equal runs.
    """

    settings: Mapping[str, object] = SETTINGS
    small: ClassVar[Mapping[str, int]] = {}
    command: ClassVar[str] = "tests.sim.metadata_cluster_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.swarm = swarm or self.draw_swarm(random.Random(seed))
        self.schedule: tuple[Fault, ...] | None = None
        self.loop = VirtualLoop(random.Random(self.rng.getrandbits(64)), steps_max=STEPS_MAX)
        self.events = EventLog(self.loop)
        self.checker = self.make_checker()
        self.loop.thread_delay_s = self._thread_delay_s
        self.cluster = SimulatedCluster(
            self.loop,
            random.Random(self.rng.getrandbits(64)),
            controllers=self.swarm.controllers,
            brokers=self.swarm.brokers,
            settings=self.settings,
            small={
                "metadata_log_segment_bytes": self.swarm.segment_bytes,
                "metadata_log_max_record_bytes_between_snapshots": self.swarm.snapshot_bytes,
                "metadata_max_retention_bytes": 0,
                **self.small,
            },
            observer=self.checker,
            conditions=self.swarm.conditions(),
        )
        self.seen: Counter[str] = self.checker.seen
        self.performer = FaultPerformer(self.cluster, self.seen, self.events, self.may_lose_disk)
        self.checker.troubled = self.performer.troubled
        self._is_healed = False
        self._clients: list[TopicClient | VoterOperator] = [
            TopicClient(number, self.cluster, self.checker, self.rng, self.swarm.client_pause_s)
            for number in range(CLIENTS)
        ]
        self._operator = VoterOperator(self.cluster, self.checker, self.rng)
        if self.swarm.changes_voters:
            self._clients.append(self._operator)
        self._thread_rng = random.Random(self.rng.getrandbits(64))

    def draw_swarm(self, rng: random.Random) -> Swarm:
        return Swarm.draw(rng)

    def draw_schedule(self, drawer: FaultDrawer) -> tuple[Fault, ...]:
        return drawer.draw()

    def planned(self) -> tuple[Fault, ...]:
        """The faults of this run; drawn for themselves, so that nothing else is drawn otherwise without one of them."""
        if self.schedule is not None:
            return self.schedule
        return self.draw_schedule(FaultDrawer(random.Random(f"faults of {self.seed}"), self.swarm))

    def discard(self) -> None:
        """It is not run: only what it would be made of was of interest."""
        self.loop.close()

    def make_checker(self) -> Checker:
        return Checker(self.events)

    def may_lose_disk(self, _node_id: int) -> bool:
        """Whether a broker's disk may be wiped now."""
        return False

    @property
    def trace(self) -> int:
        return self.loop.trace

    def run(self) -> None:
        """Safety under faults, then liveness after healing.

        Raises:
            Violation: with the seed and the command that repeats it.
        """
        self.schedule = self.planned()
        try:
            self.loop.run(self._run())
            self.checker.check_unheard(self.loop.problems)
        except (Violation, SimulationError) as error:
            raise Violation(
                f"{error} [seed {self.seed}, {self.swarm}; repeat with python -m {self.command} --seed {self.seed}"
                " --log]"
            ) from error

    async def _run(self) -> None:
        for node_id in self.cluster.nodes:
            self.cluster.start(node_id)
        clients = [asyncio.create_task(client.run(self._is_over)) for client in self._clients]
        await self._suffer()
        await self._watch(CALM_S)  # sessions that were as good as lost expire
        await self._settle()
        await self._finish(clients)
        self.checker.check_images(self.cluster.running)

    async def _suffer(self) -> None:
        """All faults, then none."""
        faults = asyncio.create_task(self.performer.perform(self.schedule or ()))
        await self._watch(self.swarm.faults_s)
        self._is_healed = True
        await faults
        await self.performer.heal()

    @property
    def is_healed(self) -> bool:
        """No fault happens any more."""
        return self._is_healed

    def _is_over(self) -> bool:
        return self._is_healed

    async def _watch(self, duration_s: float) -> None:
        until = self.loop.time() + duration_s
        while self.loop.time() < until:
            await asyncio.sleep(0.05)
            self.checker.check()

    def _thread_delay_s(self) -> float:
        """How long a thread, and so the disk, takes; on some disks much longer now and then."""
        is_slow = not self._is_healed and self._thread_rng.random() < self.swarm.slow_thread
        return self._thread_rng.uniform(0.05, 0.5) if is_slow else self._thread_rng.uniform(0.00005, 0.001)

    # ---- after the faults --------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        until = self.loop.time() + HEALED_WITHIN_S
        # a failed disk ends a process, or takes a replica from it, only when that notices
        while (self._is_healed and self.performer.start_all("restart to heal")) or not self.cluster.is_settled():
            if self.loop.time() > until:
                raise Violation(f"stuck: not settled after {HEALED_WITHIN_S:g} s: {self._states()}")
            await self._watch(0.1)

    async def _finish(self, clients: list[asyncio.Task[None]]) -> None:
        """Every request that is open is answered, and a new one succeeds."""
        _, pending = await asyncio.wait(clients, timeout=HEALED_WITHIN_S)
        if pending:
            raise Violation("stuck: a request was never answered")
        for client in clients:
            client.result()
        client = self.cluster.client("client-last")
        for node_id in self.cluster.nodes:
            topic = TopicHistory(f"last-{node_id}")
            self.checker.topics.append(topic)
            request = CreateTopics((NewTopic(topic.name, 1, 1),)) if self.swarm.brokers else DeleteTopics((topic.name,))
            outcome = await outcome_of(client, node_id, request)
            if self.swarm.brokers and outcome is not Outcome.DONE:
                raise Violation(f"stuck: node {node_id} was asked after healing: {outcome}")
            topic.changed("present" if self.swarm.brokers else "absent", outcome)
        if self.swarm.changes_voters:
            await self._operator.restore(self.loop.time() + HEALED_WITHIN_S)
        await self._settle()

    def _states(self) -> str:
        return "; ".join(
            f"{node.config.node_id}: {node.quorum_status}, image at {node.image.end_offset}"
            for node in self.cluster.running
        )


if __name__ == "__main__":
    sys.exit(main(Simulation))
