"""Deterministic simulation of whole metadata clusters: nodes as shipped, on a simulated disk, network and clock.

One seed is one run.  It draws the cluster (one, three or five controllers, up to two brokers, roles apart or together),
how small segments and snapshots are, and which faults there are at all: power cuts and kills between any two steps, of one node or all, or in the middle of writing, pauses,
one-way cuts, stragglers, lost calls, broken streams, clock jumps of 100 s, stalled clocks, slow threads, orderly restarts.
Clients create topics, change their settings and delete them meanwhile, an operator takes votes away and gives them back.  Then everything heals, and within a bound there
must be one leader, every broker unfenced, new requests answered, and what `metadata_cluster_checks` says must hold.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.metadata_cluster_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.metadata_cluster_simulation --seed 4711 --log
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from replog.controller.messages import CreateTopics, DeleteTopics, NewTopic
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_network import NetworkConditions
from replog.testing.virtual_loop import SimulationError, VirtualLoop
from tests.sim.metadata_cluster_checks import Checker, Outcome, TopicHistory, Violation
from tests.sim.metadata_cluster_clients import TopicClient, VoterOperator, outcome_of

FAULTS_S = 6.0
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


@dataclass(frozen=True, slots=True)
class Swarm:
    """The cluster of a run, which faults it has at all, and how often; several are exactly zero in most runs."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    delay_max_ms: float
    straggler: float
    unary_loss: float
    stream_break: float
    slow_thread: float
    crash: float
    power_cut: float
    cut_in_write: float
    mains: float
    stop: float
    pause: float
    cut: float
    wall_jump: float
    stall: float
    client_pause_s: float
    snapshot_bytes: int
    segment_bytes: int
    changes_voters: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Swarm:
        controllers = rng.choice(((1,), (1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3, 6, 7)))
        return cls(
            controllers=controllers,
            brokers=rng.choice(((), (4,), (4, 5), controllers, (controllers[-1], 4))),
            delay_max_ms=rng.choice((1.0, 3.0, 20.0)),
            straggler=rng.choice((0.0, 0.01, 0.05)),
            unary_loss=rng.choice((0.0, 0.0, 0.05)),
            stream_break=rng.choice((0.0, 0.0, 0.003, 0.02)),
            slow_thread=rng.choice((0.0, 0.0, 0.05, 0.2)),
            crash=rng.choice((0.0, 0.2, 0.6)),
            power_cut=rng.choice((0.0, 0.5, 1.0)),
            cut_in_write=rng.choice((0.0, 0.0, 0.2, 0.5)),
            mains=rng.choice((0.0, 0.0, 0.1)),
            stop=rng.choice((0.0, 0.0, 0.1)),
            pause=rng.choice((0.0, 0.0, 0.2)),
            cut=rng.choice((0.0, 0.3, 0.6)),
            wall_jump=rng.choice((0.0, 0.0, 0.2)),
            stall=rng.choice((0.0, 0.0, 0.1)),
            client_pause_s=rng.choice((0.02, 0.1, 0.3)),
            snapshot_bytes=rng.choice((150, 1_000, 1_000_000)),
            segment_bytes=rng.choice((16_000, 48_000, 1_000_000)),
            changes_voters=len(controllers) > 1 and rng.random() < 0.4,
        )

    def conditions(self) -> NetworkConditions:
        return NetworkConditions(
            delay_max_ms=self.delay_max_ms,
            straggler=self.straggler,
            unary_loss=self.unary_loss,
            stream_break=self.stream_break,
        )


class Simulation:
    """One run.

    Attributes:
        seen: how often what happened.
        trace: equal for equal runs.
    """

    settings: ClassVar[Mapping[str, object]] = SETTINGS
    small: ClassVar[Mapping[str, int]] = {}
    command: ClassVar[str] = "tests.sim.metadata_cluster_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.swarm = swarm or Swarm.draw(self.rng)
        self.checker = self.make_checker()
        self.loop = VirtualLoop(random.Random(self.rng.getrandbits(64)), steps_max=STEPS_MAX)
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
        self._is_healed = False
        self._clients: list[TopicClient | VoterOperator] = [
            TopicClient(number, self.cluster, self.checker, self.rng, self.swarm.client_pause_s)
            for number in range(CLIENTS)
        ]
        self._operator = VoterOperator(self.cluster, self.checker, self.rng)
        if self.swarm.changes_voters:
            self._clients.append(self._operator)
        self._thread_rng = random.Random(self.rng.getrandbits(64))

    def make_checker(self) -> Checker:
        return Checker()

    @property
    def trace(self) -> int:
        return self.loop.trace

    def run(self) -> None:
        """Safety under faults, then liveness after healing.

        Raises:
            Violation: with the seed and the command that repeats it.
        """
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
        faults = asyncio.create_task(self._faults())
        await self._watch(FAULTS_S)
        self._is_healed = True
        await faults  # a node may just be stopping
        self._heal()
        await self._watch(CALM_S)  # sessions that were as good as lost expire
        await self._settle()
        await self._finish(clients)
        self.checker.check_images(self.cluster.running)

    def _is_over(self) -> bool:
        return self._is_healed

    async def _watch(self, duration_s: float) -> None:
        until = self.loop.time() + duration_s
        while self.loop.time() < until:
            await asyncio.sleep(0.05)
            self.checker.check()

    # ---- faults ------------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    async def _faults(self) -> None:
        """One after the other until everything heals."""
        while not self._is_healed:
            await asyncio.sleep(self.rng.uniform(0.02, 0.5))
            if self._is_healed:
                return
            await self._fault(self.rng.choice(list(self.cluster.nodes)))

    async def _fault(self, node_id: int) -> None:
        swarm, rng, node = self.swarm, self.rng, self.cluster.nodes[node_id]
        if not node.is_running:
            self._start(node_id, "restart")
        elif self.chance(swarm.crash):
            is_cut = self.chance(swarm.power_cut)
            self.seen["power cut" if is_cut else "kill"] += 1
            node.crash(power_cut=is_cut)
        elif self.chance(swarm.cut_in_write):
            self.seen["power cut in a write"] += 1
            node.fs.faults.cut_power_after(rng.randrange(12))
        elif self.chance(swarm.mains):
            self.seen["power cut of everything"] += 1
            for other in self.cluster.nodes.values():
                other.crash()
        elif self.chance(swarm.pause) and node.process is not None and not node.process.is_paused:
            self.seen["pause"] += 1
            self.cluster.pause(node_id)
            self.loop.call_later(rng.uniform(0.05, 2.0), node.process.resume)
        elif self.chance(swarm.stop) and node.node is not None and node.process is not None:
            node.process.resume()
            self.seen["orderly stop"] += 1
            await self.cluster.stop(node_id)
        self._bend(node_id)

    def _bend(self, node_id: int) -> None:
        """What does not end a process: links and clocks."""
        swarm, rng = self.swarm, self.rng
        if self.chance(swarm.cut):
            kind = rng.randrange(3)
            self.seen["cut"] += 1
            self.cluster.isolate(node_id, incoming=kind != 1, outgoing=kind != 2)
        elif self.chance(0.4):
            self.cluster.mend_all()
        if self.chance(swarm.wall_jump):
            self.seen["wall clock jump"] += 1
            self.cluster.nodes[node_id].clock.jump_wall(rng.choice((-100_000, 100_000)))
        if self.chance(swarm.stall):
            self.seen["clock stall"] += 1
            self.cluster.nodes[node_id].clock.stall(rng.randrange(50, 1_500))

    def _start(self, node_id: int, name: str) -> None:
        self.seen[name] += 1
        self.cluster.start(node_id)

    def _thread_delay_s(self) -> float:
        """How long a thread, and so the disk, takes; on some disks much longer now and then."""
        is_slow = not self._is_healed and self._thread_rng.random() < self.swarm.slow_thread
        return self._thread_rng.uniform(0.05, 0.5) if is_slow else self._thread_rng.uniform(0.00005, 0.001)

    # ---- after the faults --------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        cluster = self.cluster
        cluster.mend_all()
        cluster.network.conditions = NetworkConditions()
        for node_id, node in cluster.nodes.items():
            cluster.resume(node_id)
            node.fs.faults.clear()
            if not node.is_running:
                self._start(node_id, "restart to heal")

    async def _settle(self) -> None:
        until = self.loop.time() + HEALED_WITHIN_S
        while not self.cluster.is_settled():
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


def run_seeds(seeds: Iterable[int], make: Callable[[int], Simulation] = Simulation) -> Counter[str]:
    """Runs many seeds; returns how often what was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = make(seed)
        simulation.run()
        seen.update(simulation.seen)
        seen["steps"] += simulation.loop.steps
        seen["virtual seconds"] += int(simulation.loop.time())
        del simulation
        gc.collect()
    return seen


def main(make: Callable[[int], Simulation] = Simulation) -> int:
    """The command line of a campaign."""
    parser = argparse.ArgumentParser(
        description=sys.modules[make.__module__].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    options = parser.parse_args()
    level = logging.INFO if options.log else logging.CRITICAL + 1
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)-7s %(name)s: %(message)s")
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else (options.seed,)
    started = time.monotonic()
    seen = run_seeds(seeds, make)
    for name, count in sorted(seen.items()):
        print(f"{count:9d}  {name}")
    print(f"{len(seeds)} seeds without a violation in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
